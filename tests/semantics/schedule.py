"""A schedule, and the tasks that it submits: ``hold.schedule(name, task, every=...)``."""

from datetime import datetime
from typing import Any

from holdfast import Context, Handle, Retry, Schedule, TaskState
from tests.engine.support import ended
from tests.semantics.scene import AT_ONCE, DAY, HOUR, ONE_TRY, SOON, Part, Scene


class Ticks(list[datetime | None]):
    """The ticks for which its code ran, in order."""

    @property
    def hours(self) -> list[int]:
        """The hours of the day; the sandbox begins at midnight or noon."""
        begin = min(tick for tick in self if tick is not None)
        return [-1 if tick is None else round((tick - begin) / HOUR) for tick in self]


async def first(scene: Scene, part: Part, *, retry: Retry = ONE_TRY, verify: Any = None, **options: Any) -> Handle[Any]:  # noqa: ANN401
    """Schedule the part for every hour, and let the first hour pass; return the first task."""

    @scene.hold.task(name="job", retry=retry)
    async def job(ctx: Context) -> Any:  # noqa: ANN401
        return await part(ctx)

    if verify is not None:
        job.verify(verify)
    await scene.hold.schedule("hourly", job, every=HOUR, **options)
    await scene.box.advance(HOUR)
    last = (await _schedule(scene)).last_task_id
    assert last is not None
    return scene.hold.handle(last)


async def _schedule(scene: Scene) -> Schedule:
    [schedule] = await scene.hold.schedules()
    return schedule


async def automatic_retry(scene: Scene) -> None:
    ticks = Ticks()

    async def part(ctx: Context) -> None:
        ticks.append(ctx.tick)
        if ctx.attempt == 1:
            raise RuntimeError("the first attempt fails")

    await ended(await first(scene, part, retry=AT_ONCE))
    assert ticks.hours == [0, 0]


async def resume(scene: Scene) -> None:
    """The schedule went on meanwhile."""
    ticks, broken = Ticks(), [True]

    async def part(ctx: Context) -> None:
        ticks.append(ctx.tick)
        if broken:
            broken.clear()
            raise RuntimeError("no paper")

    handle = await first(scene, part)
    await scene.failure(handle)
    await scene.box.advance(HOUR)
    await scene.hold.resume(handle)
    await ended(handle)
    assert ticks.hours == [0, 1, 0]


async def take_over(scene: Scene) -> None:
    async def part(ctx: Context) -> None:
        await ctx.step("mark", lambda: None)

    scene.box.crash("mark", when="before_effect")
    handle = await first(scene, part)
    await ended(handle)
    assert (await scene.box.trace(handle)).deaths == 1
    assert [task.key for task in (await scene.hold.store.find()).items] == [(await handle.task()).key]


async def suspension(scene: Scene) -> None:
    """An hour and a half: the tick in between is dropped, and the one behind it is not."""
    ticks = Ticks()

    async def part(ctx: Context) -> None:
        ticks.append(ctx.tick)
        await ctx.sleep(1.5 * HOUR)

    handle = await first(scene, part)
    await scene.waits(handle)
    await scene.box.advance(HOUR)
    assert (await _schedule(scene)).skipped_at is not None
    await scene.box.advance(HOUR)
    assert (await handle.task()).state is TaskState.COMPLETED
    assert sorted(set(ticks.hours)) == [0, 2]


async def deploy(scene: Scene) -> None:
    """The next task runs the new code."""
    code: list[str] = ["old"]

    async def part(ctx: Context) -> str:
        del ctx
        return code[0]

    assert await ended(await first(scene, part)) == "old"
    code[0] = "new"
    await scene.box.advance(HOUR)
    last = (await _schedule(scene)).last_task_id
    assert last is not None
    assert await ended(scene.hold.handle(last)) == "new"


async def retry(scene: Scene) -> None:
    ticks = Ticks()

    async def part(ctx: Context) -> None:
        ticks.append(ctx.tick)
        if ctx.task.round == 1:
            raise RuntimeError("no paper")

    handle = await first(scene, part)
    await scene.failure(handle)
    await scene.hold.retry(handle)
    await ended(handle)
    assert ticks.hours == [0, 0]


async def new_round(scene: Scene) -> None:
    ticks = Ticks()

    async def part(ctx: Context) -> None:
        ticks.append(ctx.tick)

    async def second_round(ctx: Context, _: object) -> bool | str:
        return ctx.task.round == 2 or "better"

    await ended(await first(scene, part, retry=AT_ONCE, verify=second_round))
    assert ticks.hours == [0, 0]


async def fork(scene: Scene) -> None:
    ticks = Ticks()

    async def part(ctx: Context) -> None:
        ticks.append(ctx.tick)

    handle = await first(scene, part)
    await ended(handle)
    fork = await scene.hold.fork(handle)
    await ended(fork)
    assert ticks.hours == [0, -1]
    assert (await fork.task()).schedule is None


async def cancel(scene: Scene) -> None:
    handle = await first(scene, lambda ctx: ctx.sleep(DAY))
    await scene.hold.cancel(handle)
    await scene.is_cancelled(handle)
    await scene.box.advance(HOUR)
    assert (await _schedule(scene)).last_task_id != handle.id


async def deadline(scene: Scene) -> None:
    handle = await first(scene, lambda ctx: ctx.sleep(HOUR / 2), deadline=SOON)
    assert "DeadlineExceeded" in await scene.failure(handle)
    await scene.box.advance(HOUR)
    assert (await _schedule(scene)).last_task_id != handle.id


async def prune(scene: Scene) -> None:
    async def part(ctx: Context) -> None:
        del ctx

    handle = await first(scene, part)
    await ended(handle)
    before = await _schedule(scene)
    await scene.prune()
    assert await scene.hold.store.get(handle.id) is None
    after = await _schedule(scene)
    assert (after.name, after.every, after.created_at) == (before.name, before.every, before.created_at)
    assert len(after.next) == len(before.next)
