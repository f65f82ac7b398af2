"""A ``once`` step: what must never blindly be done again."""

import asyncio

from holdfast import Absent, Context, Happened
from tests.engine.support import ended, until
from tests.semantics.scene import AT_ONCE, Calls, Part, Scene


def pay(calls: Calls, *, repeat: bool = False) -> Part:
    """A payment that succeeds."""
    return lambda ctx: ctx.step("pay", calls.do, "pay", effect="once", repeat=repeat)


def doubtful(calls: Calls, known: list[str] | None = None) -> Part:
    """A payment whose answer is lost; with ``known``, a reconcile that finds it there."""

    async def lose(effect_id: str) -> str:
        calls.append(effect_id)
        if known is not None:
            known.append(effect_id)
        raise ConnectionResetError("the answer got lost")

    async def look(effect_id: str) -> Happened | Absent:
        assert known is not None
        return Happened("found") if effect_id in known else Absent()

    return lambda ctx: ctx.step("pay", lose, effect="once", settle=1, reconcile=None if known is None else look)


async def automatic_retry(scene: Scene) -> None:
    calls = Calls()
    run = await scene.by_automatic_retry(pay(calls))
    assert (calls, run.result) == (["pay"], "pay, call 1")


async def automatic_retry_of_a_proven_failure(scene: Scene) -> None:
    ids: list[str] = []

    async def refused(effect_id: str) -> str:
        ids.append(effect_id)
        if len(ids) == 1:
            raise ConnectionRefusedError("not listening")
        return "paid"

    handle = await scene.begun(lambda ctx: ctx.step("pay", refused, effect="once"), retry=AT_ONCE)
    assert await ended(handle) == "paid"
    first, second = ids
    assert first == second


async def automatic_retry_of_a_doubt(scene: Scene) -> None:
    calls = Calls()
    handle = await scene.begun(doubtful(calls, known=[]), retry=AT_ONCE)
    assert await ended(handle) == "found"
    assert len(calls) == 1


async def resume(scene: Scene) -> None:
    calls = Calls()
    run = await scene.by_resume(pay(calls))
    assert (calls, run.result) == (["pay"], "pay, call 1")


async def retry(scene: Scene) -> None:
    calls = Calls()
    run = await scene.by_retry(pay(calls))
    assert (calls, run.result) == (["pay"], "pay, call 1")


async def retry_with_repeat(scene: Scene) -> None:
    calls = Calls()
    run = await scene.by_retry(pay(calls, repeat=True))
    assert (calls, run.result) == (["pay", "pay"], "pay, call 2")


async def new_round(scene: Scene) -> None:
    calls = Calls()
    run = await scene.by_new_round(pay(calls))
    assert (calls, run.result) == (["pay"], "pay, call 1")


async def fork(scene: Scene) -> None:
    calls = Calls()
    run = await scene.by_fork(pay(calls))
    assert (calls, run.result) == (["pay"], "pay, call 1")


async def fork_of_a_doubt(scene: Scene) -> None:
    calls = Calls()
    origin = await scene.begun(doubtful(calls))
    await until(lambda: scene.hold.doubts(origin))
    fork = await scene.hold.fork(origin)
    await until(lambda: scene.hold.doubts(fork))
    first, second = calls
    assert first != second, "an effect id of the fork's own"


def hanging(calls: Calls) -> Part:
    """A payment that never answers."""

    async def hang() -> None:
        calls.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            calls.append("stopped")

    return lambda ctx: ctx.step("pay", hang, effect="once", timeout=7200, settle=1)


async def cancel(scene: Scene) -> None:
    calls = Calls()
    handle = await scene.by_cancel(hanging(calls), when=lambda: calls)
    [doubt] = await scene.hold.doubts(handle)
    await scene.hold.resolve(doubt, "happened", by="anna")
    assert calls == ["begun", "stopped"], "it is not made again"


async def deadline(scene: Scene) -> None:
    calls = Calls()
    handle = await scene.by_deadline(hanging(calls))
    [doubt] = await scene.hold.doubts(handle)
    await scene.hold.resolve(doubt, "happened", by="anna")
    assert calls == ["begun", "stopped"], "it is not made again"


async def _decidable(scene: Scene) -> bool:
    return any(doubt.decisions for doubt in await scene.hold.doubts())


async def suspension(scene: Scene) -> None:
    calls = Calls()
    run = await scene.by_suspension(pay(calls))
    assert (calls, run.result) == (["pay"], "pay, call 1")


async def suspension_of_a_doubt(scene: Scene) -> None:
    calls = Calls()
    handle = await scene.begun(doubtful(calls))
    await scene.waits(handle)
    await until(lambda: _decidable(scene))
    [doubt] = await scene.hold.doubts(handle)
    await scene.hold.resolve(doubt, "happened", result="seen", by="anna")
    assert await ended(handle) == "seen"
    assert len(calls) == 1


async def take_over(scene: Scene) -> None:
    calls, known = Calls(), list[str]()

    async def pay(effect_id: str) -> str:
        calls.append(effect_id)
        known.append(effect_id)
        return "paid"

    async def look(effect_id: str) -> Happened | Absent:
        return Happened("found") if effect_id in known else Absent()

    scene.box.crash("pay", when="after_effect")
    handle = await scene.begun(lambda ctx: ctx.step("pay", pay, effect="once", timeout=30, settle=1, reconcile=look))
    assert await ended(handle) == "found"
    assert len(calls) == 1


async def take_over_of_what_is_recorded(scene: Scene) -> None:
    calls = Calls()
    run = await scene.by_take_over(pay(calls))
    assert (calls, run.result) == (["pay"], "pay, call 1")


async def take_over_of_what_did_not_happen(scene: Scene) -> None:
    calls = Calls()

    async def part(ctx: Context) -> str:
        return await ctx.step(
            "pay", calls.do, "pay", effect="once", timeout=30, settle=1, reconcile=lambda *_: Absent()
        )

    scene.box.crash("pay", when="before_effect")
    assert await ended(await scene.begun(part)) == "pay, call 1"


async def deploy(scene: Scene) -> None:
    calls = Calls()

    def other(what: str) -> str:
        return calls.do(what)

    run = await scene.by_deploy(pay(calls), lambda ctx: ctx.step("pay", other, "pay", effect="once"))
    assert (calls, run.result) == (["pay"], "pay, call 1")


async def deploy_with_other_arguments(scene: Scene) -> None:
    calls = Calls()
    broken = [True]
    amount = ["pay 1"]

    @scene.hold.task(retry=AT_ONCE)
    async def job(ctx: Context) -> str:
        receipt = await ctx.step("pay", calls.do, amount[0], effect="once")
        if broken:
            raise PermissionError
        return receipt

    handle = await scene.hold.submit(job)
    await scene.failure(handle)
    broken.clear()
    amount[0] = "pay 2"
    await scene.hold.resume(handle)
    assert "JournalMismatch" in await scene.failure(handle)
    assert calls == ["pay 1"]


async def prune(scene: Scene) -> None:
    await scene.by_prune(pay(Calls()))
    assert await scene.hold.store.effects() == []


async def prune_of_a_doubt(scene: Scene) -> None:
    """A doubt outlives the task's end: it is listed until a person has resolved it."""
    calls = Calls()
    handle = await scene.by_cancel(hanging(calls), when=lambda: calls)
    assert len(await scene.hold.doubts()) == 1
    await scene.prune()
    [doubt] = await scene.hold.doubts()
    await scene.hold.resolve(doubt, "happened", by="anna")
    await scene.prune()
    assert await scene.hold.store.get(handle.id) is None
