"""A sleep: ``ctx.sleep(duration)``."""

from datetime import timedelta

from holdfast import Context, StepState, TaskState
from tests.engine.support import ended
from tests.semantics.scene import DAY, HOUR, Part, Scene

MINUTE = timedelta(minutes=1)


def hour() -> Part:
    """Sleep for an hour."""
    return lambda ctx: ctx.sleep(HOUR)


async def automatic_retry(scene: Scene) -> None:
    await scene.by_automatic_retry(hour())
    assert HOUR <= scene.box.elapsed < HOUR + MINUTE


async def resume(scene: Scene) -> None:
    await scene.by_resume(hour())
    assert HOUR <= scene.box.elapsed < HOUR + MINUTE


async def retry(scene: Scene) -> None:
    await scene.by_retry(hour())
    assert 2 * HOUR <= scene.box.elapsed < 2 * HOUR + MINUTE


async def new_round(scene: Scene) -> None:
    await scene.by_new_round(hour())
    assert 2 * HOUR <= scene.box.elapsed < 2 * HOUR + MINUTE


async def fork(scene: Scene) -> None:
    await scene.by_fork(hour())
    assert HOUR <= scene.box.elapsed < HOUR + MINUTE


async def fork_of_an_open_sleep(scene: Scene) -> None:
    """A fork that is made in the middle sleeps the whole time."""
    with scene.box.frozen():
        origin = await scene.begun(hour())
        await scene.box.idle()
        await scene.box.advance(HOUR / 2)
        fork = await scene.hold.fork(origin)
    await ended(origin)
    assert scene.box.elapsed < HOUR + MINUTE
    await ended(fork)
    assert 1.5 * HOUR <= scene.box.elapsed < 1.5 * HOUR + MINUTE


async def cancel(scene: Scene) -> None:
    with scene.box.frozen():
        handle = await scene.begun(hour())
        await scene.box.idle()
        assert await scene.hold.cancel(handle) is TaskState.CANCELLED, "at once: no worker is needed"
    assert scene.box.elapsed < MINUTE


async def deadline(scene: Scene) -> None:
    handle = await scene.by_deadline(hour())
    assert await scene.state(handle, "sleep") is StepState.PENDING
    assert scene.box.elapsed < MINUTE, "at the deadline, not at the end of the sleep"


async def suspension(scene: Scene) -> None:
    """More than three seconds are slept off the worker."""

    async def part(ctx: Context) -> None:
        await ctx.sleep(2)
        await ctx.sleep(HOUR)

    handle = await scene.begun(part)
    await ended(handle)
    assert (await scene.box.trace(handle)).states.count(TaskState.WAITING) == 1


async def take_over(scene: Scene) -> None:
    """It goes on counting, and is not begun again."""
    scene.box.crash("sleep", when="after_commit")
    handle = await scene.begun(hour())
    await ended(handle)
    assert HOUR <= scene.box.elapsed < HOUR + MINUTE


async def deploy(scene: Scene) -> None:
    """One that has begun ends when it was meant to; a new length counts for those that begin later."""
    length = [HOUR]
    with scene.box.frozen():
        handle = await scene.begun(lambda ctx: ctx.sleep(length[0]))
        await scene.box.idle()
        length[0] = DAY
    await ended(handle)
    assert HOUR <= scene.box.elapsed < HOUR + MINUTE


async def prune(scene: Scene) -> None:
    """A sleeping task is open, and stays."""
    handle = await scene.begun(lambda ctx: ctx.sleep(30 * DAY), name="open")
    with scene.box.frozen():
        await scene.box.idle()
        await scene.box.advance(5 * DAY)
        await scene.hold.store.prune(DAY)
        assert (await handle.task()).state is TaskState.WAITING
    await scene.by_prune(hour())
