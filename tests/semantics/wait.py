"""A wait for an event: ``ctx.wait_event("channel")``."""

from datetime import timedelta

from holdfast import Context, DeadlineExceeded, StepState, TaskState
from tests.engine.support import ended
from tests.semantics.scene import AT_ONCE, DAY, HOUR, ONE_TRY, Part, Run, Scene


def heard(channel: str = "paid") -> Part:
    """Wait for the next event."""
    return lambda ctx: ctx.wait_event(channel)


def fed(scene: Scene, *payloads: str) -> Part:
    """Emit events on the first run, then wait for one."""
    left = list(payloads)

    async def part(ctx: Context) -> object:
        while left:
            await scene.hold.emit("paid", left.pop(0))
        return await ctx.wait_event("paid")

    return part


async def automatic_retry(scene: Scene) -> None:
    run = await scene.by_automatic_retry(fed(scene, "first", "second"))
    assert run.result == "first"


async def automatic_retry_of_a_timeout(scene: Scene) -> None:
    """Each attempt has the whole time."""
    handle = await scene.begun(lambda ctx: ctx.wait_event("paid", timeout=HOUR), retry=AT_ONCE)
    assert "DeadlineExceeded" in await scene.failure(handle)
    assert scene.box.elapsed >= 2 * HOUR


async def a_handled_timeout_replays(scene: Scene) -> None:
    async def part(ctx: Context) -> str:
        try:
            await ctx.wait_event("paid", timeout=HOUR)
        except DeadlineExceeded:
            return "too late"
        return "in time"

    run = await scene.by_automatic_retry(part)
    assert run.result == "too late"
    assert scene.box.elapsed < 2 * HOUR


async def resume(scene: Scene) -> None:
    run = await scene.by_resume(fed(scene, "first", "second"))
    assert run.result == "first"


async def retry(scene: Scene) -> None:
    """A new round reads the channel again from where the task's events begin."""
    run = await scene.by_retry(fed(scene, "first", "second"))
    assert run.result == "first"
    assert await _rounds_with_a_wait(scene, run) == [1, 2]


async def new_round(scene: Scene) -> None:
    run = await scene.by_new_round(fed(scene, "first", "second"))
    assert run.result == "first"
    assert await _rounds_with_a_wait(scene, run) == [1, 2]


async def _rounds_with_a_wait(scene: Scene, run: Run) -> list[int]:
    return [step.round for step in await scene.hold.store.steps(run.handle.id) if step.kind == "event"]


async def fork(scene: Scene) -> None:
    run = await scene.by_fork(fed(scene, "first", "second"))
    assert run.result == "first"


async def fork_of_an_open_wait(scene: Scene) -> None:
    """It begins with what comes after the fork was made."""

    async def part(ctx: Context) -> object:
        await ctx.wait_event("paid")
        return await ctx.wait_event("paid")

    origin = await scene.begun(part)
    await scene.waits(origin)
    await scene.hold.emit("paid", 1)
    await scene.waits(origin)
    fork = await scene.hold.fork(origin)
    await scene.waits(fork)
    await scene.hold.emit("paid", 2)
    assert await ended(origin) == 2
    assert await ended(fork) == 2


async def cancel(scene: Scene) -> None:
    handle = await scene.begun(heard())
    await scene.waits(handle)
    assert await scene.hold.cancel(handle) is TaskState.CANCELLED, "at once: no worker is needed"


async def deadline(scene: Scene) -> None:
    handle = await scene.by_deadline(heard())
    assert await scene.state(handle, "event:paid") is StepState.PENDING


async def suspension(scene: Scene) -> None:
    handle = await scene.begun(heard())
    await scene.waits(handle)
    assert (await handle.task()).owner is None, "no worker holds it"
    await scene.hold.emit("paid", "while it was away")
    assert await ended(handle) == "while it was away"


async def take_over(scene: Scene) -> None:
    run = await scene.by_take_over(fed(scene, "first", "second"))
    assert run.result == "first"


async def deploy(scene: Scene) -> None:
    """The name of the channel is the key: another channel is another wait."""
    await_other = heard("refunded")

    async def old(ctx: Context) -> object:
        await scene.hold.emit("paid", 1)
        await scene.hold.emit("refunded", 2)
        return await ctx.wait_event("paid")

    run = await scene.by_deploy(old, await_other)
    assert run.result == 2


async def prune(scene: Scene) -> None:
    """The waiting task stays; events go by their age, read or not."""

    @scene.hold.task(retry=ONE_TRY)
    async def job(ctx: Context) -> object:
        await ctx.sleep(3 * DAY)
        return await ctx.wait_event("paid", timeout=timedelta(hours=1))

    with scene.box.frozen():
        handle = await scene.hold.submit(job)
        await scene.box.idle()
        await scene.hold.emit("paid", 1)
    await scene.prune()
    assert (await handle.task()).state is TaskState.WAITING
    assert "DeadlineExceeded" in await scene.failure(handle)
