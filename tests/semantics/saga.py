"""A saga: a step with ``compensate=``."""

from holdfast import Context, TaskState
from tests.engine.support import ended, until
from tests.semantics.scene import AT_ONCE, HOUR, Calls, Part, Scene


def trip(log: Calls, *, failures: int = 0) -> Part:
    """Two bookings that can be undone, and a payment that fails so often."""

    async def book(what: str, effect_id: str) -> str:
        log.append(f"+{what}")
        ids.append(effect_id)
        return what

    def release(_: str, what: str) -> None:
        log.append(f"-{what}")

    def pay() -> None:
        log.append("pay")
        if log.count("pay") <= failures:
            raise RuntimeError("card declined")

    async def part(ctx: Context) -> int:
        await ctx.step("flight", book, "flight", compensate=release)
        await ctx.step("hotel", book, "hotel", effect="once", compensate=release)
        await ctx.step("pay", pay)
        return len(set(ids))

    ids: list[str] = []
    return part


DONE, UNDONE = ["+flight", "+hotel", "pay"], ["+flight", "+hotel", "pay", "-hotel", "-flight"]


async def automatic_retry(scene: Scene) -> None:
    log = Calls()
    await ended(await scene.begun(trip(log, failures=1), retry=AT_ONCE))
    assert log == [*DONE, "pay"], "nothing is undone while there is an attempt left"


async def resume(scene: Scene) -> None:
    log = Calls()
    handle = await scene.begun(trip(log, failures=1))
    assert "card declined" in await scene.failure(handle)
    assert log == UNDONE
    await scene.hold.resume(handle)
    assert await ended(handle) == 4, "effect ids of their own"
    assert log == [*UNDONE, *DONE]


async def retry(scene: Scene) -> None:
    log = Calls()
    handle = await scene.begun(trip(log, failures=1))
    await scene.failure(handle)
    await scene.hold.retry(handle)
    assert await ended(handle) == 4, "effect ids of their own"
    assert log == [*UNDONE, *DONE]


async def new_round(scene: Scene) -> None:
    log = Calls()
    await scene.by_new_round(trip(log))
    assert log == [*DONE, "+flight", "pay"], "nothing is undone; the once step replays"


async def new_round_and_no_more(scene: Scene) -> None:
    """The last rejection undoes the steps of every round. What replayed stands where the last round came by it."""
    log = Calls()

    @scene.hold.task(retry=AT_ONCE)
    async def job(ctx: Context) -> int:
        return int(await trip(log)(ctx))

    @job.verify
    async def never(ctx: Context, _: int) -> bool:
        return ctx is None

    assert "Rejected" in await scene.failure(await scene.hold.submit(job))
    assert log == [*DONE, "+flight", "pay", "-hotel", "-flight", "-flight"]


async def fork(scene: Scene) -> None:
    """A fork undoes only what it did itself."""
    log = Calls()
    origin = await scene.begun(trip(log))
    await ended(origin)
    fork = await scene.hold.fork(origin, at="flight")
    await ended(fork)
    assert log == [*DONE, "+hotel", "pay"]


async def fork_of_what_was_undone(scene: Scene) -> None:
    log = Calls()
    origin = await scene.begun(trip(log, failures=1))
    await scene.failure(origin)
    assert await ended(await scene.hold.fork(origin)) == 4
    assert log == [*UNDONE, *DONE]


def waiting(log: Calls) -> Part:
    """Two bookings, then a long wait."""

    async def part(ctx: Context) -> None:
        await trip(log)(ctx)
        await ctx.wait_event("never")

    return part


async def cancel(scene: Scene) -> None:
    log = Calls()
    handle = await scene.begun(waiting(log))
    await scene.waits(handle)
    await scene.hold.cancel(handle)
    await scene.is_cancelled(handle)
    assert log == UNDONE


async def deadline(scene: Scene) -> None:
    log = Calls()
    await scene.by_deadline(waiting(log))
    assert log == UNDONE


async def suspension(scene: Scene) -> None:
    """The way to undo a step is found by a replay, also after a long wait."""
    log = Calls()

    async def part(ctx: Context) -> None:
        await trip(log)(ctx)
        await ctx.sleep(HOUR)
        raise RuntimeError("too late")

    handle = await scene.begun(part)
    assert "too late" in await scene.failure(handle)
    assert TaskState.WAITING in (await scene.box.trace(handle)).states
    assert log == UNDONE


async def take_over(scene: Scene) -> None:
    """An undo that was under way is done again; one that is recorded is not."""
    log, left = Calls(), [1]

    def book(what: str) -> str:
        log.append(f"+{what}")
        return what

    def release(_: str, what: str) -> None:
        log.append(f"-{what}")
        if what == "flight" and left and left.pop():
            scene.box.crash_now()

    async def part(ctx: Context) -> None:
        await ctx.step("flight", book, "flight", compensate=release)
        await ctx.step("hotel", book, "hotel", compensate=release)
        raise RuntimeError("card declined")

    assert "card declined" in await scene.failure(await scene.begun(part))
    assert log == ["+flight", "+hotel", "-hotel", "-flight", "-flight"]


async def deploy(scene: Scene) -> None:
    """Code that no longer reaches a step cannot say how to undo it: a person is asked."""
    log = Calls()
    code = [waiting(log)]

    async def part(ctx: Context) -> None:
        await code[0](ctx)

    handle = await scene.begun(part)
    await scene.waits(handle)
    code[0] = lambda ctx: ctx.wait_event("never")
    await scene.hold.cancel(handle)

    async def are_asked() -> bool:
        return len(await scene.hold.doubts(handle)) == 2

    await until(are_asked)
    for doubt in await scene.hold.doubts(handle):
        await scene.hold.resolve(doubt, "undone", by="anna")
    await scene.is_cancelled(handle)
    assert log == DONE


async def prune(scene: Scene) -> None:
    """A task that waits for a person to decide about an undo is open, and stays."""
    log = Calls()

    def release(_: str) -> None:
        raise ConnectionError("hotel does not answer")

    async def part(ctx: Context) -> None:
        await ctx.step("hotel", log.do, "+hotel", compensate=lambda result, _: release(result))
        raise RuntimeError("card declined")

    handle = await scene.begun(part)
    await until(lambda: scene.hold.doubts(handle))
    await scene.prune()
    await until(lambda: scene.hold.doubts(handle))
    [doubt] = await scene.hold.doubts(handle)
    await scene.hold.resolve(doubt, "undone", by="anna")
    assert "card declined" in await scene.failure(handle)
    await scene.prune()
    assert await scene.hold.store.get(handle.id) is None
