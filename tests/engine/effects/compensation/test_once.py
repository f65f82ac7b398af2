"""Compensations that must not be made twice either: they go by the same rules as a once step."""

# ruff: noqa: ARG001 - a function takes what it is given, whether it needs it or not

import asyncio
import threading
from collections.abc import Callable

import pytest

from holdfast import (
    Absent,
    Compensation,
    Context,
    EffectState,
    Handle,
    Happened,
    Holdfast,
    NotHappened,
    Retry,
    TaskFailed,
    TaskState,
    Unknown,
)
from holdfast.model.operations import WriteEffect
from holdfast.testing import Sandbox
from tests.engine.effects.compensation.support import ONE_TRY, Agency, Booking, doubts_of, states_of
from tests.engine.support import Watched, crash, ended, reaches, until

Outcome = Happened | Absent | Unknown


class Refunds:
    """Gives money back. The first call gets no answer; ``outcome`` is what the tool then says about it."""

    def __init__(self, outcome: Outcome | None) -> None:
        self.outcome = outcome
        self.called: list[str] = []
        self.asked: list[tuple[object, ...]] = []

    async def refund(self, booking: Booking, what: str, effect_id: str) -> None:
        assert booking.what == what
        self.called.append(effect_id)
        if len(self.called) == 1:
            raise TimeoutError("no answer")

    async def was_refunded(self, effect_id: str, booking: Booking, what: str) -> Outcome:
        self.asked.append((effect_id, booking, what))
        assert self.outcome is not None
        return self.outcome

    def compensation(self) -> Compensation:
        reconcile = None if self.outcome is None else self.was_refunded
        return Compensation(self.refund, effect="once", reconcile=reconcile, settle=0.01, retry=Retry(initial=0.0))


async def journey(hold: Holdfast, agency: Agency, refunds: Refunds) -> Handle[None]:
    """Submit a journey that fails, and whose second step is undone by ``refunds``."""

    @hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        await ctx.step("hotel", agency.reserve, "hotel", effect="once", compensate=refunds.compensation())
        raise ValueError("no money left")

    return await hold.submit(travel)


async def failed_as_before(handle: Handle[None]) -> None:
    with pytest.raises(TaskFailed, match="no money left"):
        await ended(handle)


async def test_an_undo_that_happened_is_not_made_again(hold: Holdfast, agency: Agency) -> None:
    """It got no answer; the tool says that the money was given back."""
    refunds = Refunds(Happened())
    handle = await journey(hold, agency, refunds)
    async with hold.worker():
        await failed_as_before(handle)
    assert len(refunds.called) == 1
    [(effect_id, booking, what)] = refunds.asked
    assert (effect_id, booking, what) == (refunds.called[0], Booking("hotel", 2), "hotel")
    assert effect_id not in agency.reserved
    assert agency.book == ["+flight", "+hotel", "-flight"]
    assert set((await states_of(hold, handle)).values()) == {EffectState.COMPENSATED}
    assert await hold.doubts() == []


async def test_an_undo_that_did_not_happen_is_made_again_under_the_same_id(hold: Holdfast, agency: Agency) -> None:
    refunds = Refunds(Absent())
    handle = await journey(hold, agency, refunds)
    async with hold.worker():
        await failed_as_before(handle)
    assert refunds.called == [refunds.called[0]] * 2
    assert len(refunds.asked) == 1
    assert set((await states_of(hold, handle)).values()) == {EffectState.COMPENSATED}


@pytest.mark.parametrize("decision", ["undone", "compensate", "abandon"])
async def test_an_unknown_undo_is_for_a_person(hold: Holdfast, agency: Agency, decision: str) -> None:
    """And only they may have it made once more. The other steps do not wait for them."""
    refunds = Refunds(Unknown("the bank is closed") if decision == "undone" else None)
    handle = await journey(hold, agency, refunds)
    async with hold.worker():
        [doubt] = await doubts_of(hold, handle, "hotel")
        await reaches(handle, TaskState.WAITING)
        assert len(refunds.called) == 1
        assert agency.book == ["+flight", "+hotel", "-flight"]
        await hold.resolve(doubt, decision, by="anna")
        await failed_as_before(handle)
    assert refunds.called == [refunds.called[0]] * (2 if decision == "compensate" else 1)
    expected = EffectState.ABANDONED if decision == "abandon" else EffectState.COMPENSATED
    assert await states_of(hold, handle) == {"flight": EffectState.COMPENSATED, "hotel": expected}
    assert await hold.doubts() == []  # neither about the step nor about its undo


async def test_an_undo_is_armed_before_it_is_made(watch: Callable[[], list[Watched]], agency: Agency) -> None:
    watches = watch()
    armed: list[str] = []

    async def refund(booking: Booking, what: str, effect_id: str) -> None:
        operations = [op for batch in watches[-1].batches for commit in batch for op in commit.operations]
        effects = [op.effect for op in operations if isinstance(op, WriteEffect) and op.effect.effect_id == effect_id]
        armed.extend(effect.state.value for effect in effects)

    async with Holdfast("memory://") as hold:

        @hold.task(retry=ONE_TRY)
        async def travel(ctx: Context) -> None:
            await ctx.step("hotel", agency.reserve, "hotel", compensate=Compensation(refund, effect="once"))
            raise ValueError("no money left")

        handle = await hold.submit(travel)
        async with hold.worker():
            await failed_as_before(handle)
    assert armed == ["armed"]


async def test_a_worker_that_dies_in_the_middle_of_an_undo_leaves_it_in_doubt(hold: Holdfast, agency: Agency) -> None:
    began = asyncio.Event()
    called: list[str] = []
    asked: list[str] = []

    async def refund(booking: Booking, what: str, effect_id: str) -> None:
        called.append(effect_id)
        began.set()
        await asyncio.sleep(60)

    async def was_refunded(effect_id: str, booking: Booking, what: str) -> Happened:
        asked.append(effect_id)
        return Happened()

    @hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        undo = Compensation(refund, effect="once", reconcile=was_refunded, timeout=1.0, settle=0)
        await ctx.step("hotel", agency.reserve, "hotel", compensate=undo)
        raise ValueError("no money left")

    handle = await hold.submit(travel)
    worker = await hold.worker().__aenter__()
    await until(began.is_set)
    await crash(hold, worker)
    async with hold.worker():
        await failed_as_before(handle)
    assert len(called) == 1
    assert asked == called
    assert set((await states_of(hold, handle)).values()) == {EffectState.COMPENSATED}


async def test_a_proof_that_nothing_happened_is_an_ordinary_failure_of_an_undo(box: Sandbox, agency: Agency) -> None:
    called: list[str] = []

    class Closed(Exception):
        pass

    async def refund(booking: Booking, what: str, effect_id: str) -> None:
        called.append(effect_id)
        if len(called) == 1:
            raise NotHappened("not yet")
        if len(called) == 2:
            raise Closed

    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        undo = Compensation(refund, effect="once", absent_on=(Closed,))
        await ctx.step("hotel", agency.reserve, "hotel", compensate=undo)
        raise ValueError("no money left")

    handle = await box.hold.submit(travel)
    await failed_as_before(handle)
    assert called == [called[0]] * 3


async def test_an_undo_that_blocks_and_hangs_is_not_taken_for_absent(box: Sandbox, agency: Agency) -> None:
    """Its thread cannot be stopped: as long as it may go on, the tool's "absent" proves nothing."""
    go = threading.Event()
    called: list[str] = []

    def refund(booking: Booking, what: str) -> None:
        called.append(what)
        go.wait(60)

    async def was_refunded(effect_id: str, booking: Booking, what: str) -> Absent:
        return Absent()

    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        undo = Compensation(refund, effect="once", reconcile=was_refunded, timeout=5, settle=1)
        await ctx.step("hotel", agency.reserve, "hotel", compensate=undo)
        raise ValueError("no money left")

    handle = await box.hold.submit(travel)
    try:
        [doubt] = await doubts_of(box.hold, handle, "hotel")
        assert called == ["hotel"]
    finally:
        go.set()
    await box.hold.resolve(doubt, "undone", by="anna")
    await failed_as_before(handle)
    assert called == ["hotel"]
