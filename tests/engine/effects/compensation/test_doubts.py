"""Effects with an unknown outcome, in a saga: they are resolved before anything is undone."""

# ruff: noqa: ARG001 - a function takes what it is given, whether it needs it or not

import asyncio
from typing import Any, Self

import pytest

from holdfast import (
    Absent,
    Compensation,
    Conflict,
    Context,
    Decision,
    EffectState,
    Handle,
    Happened,
    Holdfast,
    StepFailed,
    TaskCancelled,
    TaskFailed,
    TaskState,
    Unknown,
)
from holdfast.testing import Sandbox, crash_everywhere
from tests.engine.effects.compensation.support import ONE_TRY, Agency, Booking, doubts_of, effects_of, states_of
from tests.engine.support import crash, ended, reaches, steps_of, until

Outcome = Happened | Absent | Unknown


class Hotel:
    """Its calls hang after it has written down the reservation, or before; later it can be asked."""

    def __init__(self, agency: Agency, outcome: Outcome | None) -> None:
        self.agency = agency
        self.outcome = outcome
        self.began = asyncio.Event()
        self.called: list[str] = []
        self.books: list[list[str]] = []
        """What the agency's book contained at each question."""

    async def reserve(self, what: str, effect_id: str) -> Booking:
        self.called.append(effect_id)
        self.began.set()
        await asyncio.sleep(60)
        raise AssertionError(f"the wait for the {what} is too long")

    async def was_reserved(self, effect_id: str, what: str) -> Outcome:
        assert effect_id == self.called[0]
        self.books.append([*self.agency.book])
        assert self.outcome is not None, what
        return self.outcome


async def journey(hold: Holdfast, agency: Agency, hotel: Hotel, deadline: float | None = None) -> Handle[None]:
    @hold.task(retry=ONE_TRY, deadline=deadline)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        await ctx.step(
            *("hotel", hotel.reserve, "hotel"),
            effect="once",
            timeout=1.0,
            settle=0.01,
            reconcile=None if hotel.outcome is None else hotel.was_reserved,
            compensate=agency.release_at_once,
        )

    return await hold.submit(travel)


class Stopped:
    """A task whose worker dies in the middle of its doubtful call, and that is cancelled then."""

    def __init__(self, hold: Holdfast, agency: Agency, hotel: Hotel) -> None:
        self.hold, self.agency, self.hotel = hold, agency, hotel
        self.handle: Handle[None]
        self._worker: Any = None

    async def __aenter__(self) -> Self:
        self.handle = await journey(self.hold, self.agency, self.hotel)
        worker = await self.hold.worker().__aenter__()
        await until(self.hotel.began.is_set)
        await crash(self.hold, worker)
        await self.handle.cancel("ill")
        self._worker = await self.hold.worker().__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._worker.stop(grace=0.0)

    async def end(self) -> None:
        with pytest.raises(TaskCancelled):
            await ended(self.handle)


async def test_what_happened_is_undone_too(hold: Holdfast, agency: Agency) -> None:
    hotel = Hotel(agency, Happened(Booking("hotel", 7)))
    async with Stopped(hold, agency, hotel) as stopped:
        await stopped.end()
    assert hotel.books == [["+flight"]]  # asked once, before anything was undone
    assert agency.book == ["+flight", "-hotel", "-flight"]
    assert [*agency.released.values()] == [Booking("hotel", 7), Booking("flight", 1)]
    assert len(hotel.called) == 1
    assert set((await states_of(hold, stopped.handle)).values()) == {EffectState.COMPENSATED}


async def test_what_did_not_happen_needs_no_undo(hold: Holdfast, agency: Agency) -> None:
    hotel = Hotel(agency, Absent())
    async with Stopped(hold, agency, hotel) as stopped:
        await stopped.end()
    assert hotel.books == [["+flight"]]
    assert agency.book == ["+flight", "-flight"]
    assert len(hotel.called) == 1  # and is not made any more
    assert (await states_of(hold, stopped.handle))["hotel"] is EffectState.INTENDED


async def test_an_unknown_outcome_is_for_a_person_before_anything_is_undone(hold: Holdfast, agency: Agency) -> None:
    hotel = Hotel(agency, None)
    async with Stopped(hold, agency, hotel) as stopped:
        [doubt] = await doubts_of(hold, stopped.handle, "hotel")
        await reaches(stopped.handle, TaskState.WAITING)
        assert agency.book == ["+flight"]
        assert {*doubt.decisions} == {Decision.HAPPENED, Decision.ABSENT, Decision.COMPENSATE, Decision.ABANDON}
        await hold.resolve(doubt, "happened", result=Booking("hotel", 9), by="anna")
        await stopped.end()
    assert agency.book == ["+flight", "-hotel", "-flight"]
    assert [*agency.released.values()] == [Booking("hotel", 9), Booking("flight", 1)]


@pytest.mark.parametrize("stop", ["cancel", "deadline"])
@pytest.mark.parametrize("outcome", [Happened(Booking("hotel", 7)), Absent(), Unknown("it is closed")], ids=repr)
async def test_a_stop_in_the_middle_of_the_call_has_the_same_result(
    box: Sandbox, agency: Agency, outcome: Outcome, stop: str
) -> None:
    hotel = Hotel(agency, outcome)
    handle = await journey(box.hold, agency, hotel, deadline=0.3 if stop == "deadline" else None)
    if stop == "cancel":
        await until(hotel.began.is_set)
        await handle.cancel("ill")
    if isinstance(outcome, Unknown):
        [doubt] = await doubts_of(box.hold, handle, "hotel")
        await box.idle()
        assert agency.book == ["+flight"]
        await box.hold.resolve(doubt, "compensate", by="anna")
    with pytest.raises(TaskFailed if stop == "deadline" else TaskCancelled):
        await handle.result(timeout=5000)
    assert hotel.books == [["+flight"]]
    assert agency.book == ["+flight", *([] if isinstance(outcome, Absent) else ["-hotel"]), "-flight"]


@pytest.mark.parametrize(
    ("decision", "undone"), [("absent", False), ("abandon", False), ("compensate", True), ("happened", True)]
)
async def test_each_decision_has_its_consequence(box: Sandbox, agency: Agency, decision: str, undone: bool) -> None:
    hold = box.hold
    released: list[Booking | None] = []
    called = asyncio.Event()

    async def reserve(what: str) -> Booking:
        called.set()
        raise TimeoutError("no answer")

    async def fails() -> None:
        await called.wait()
        raise ValueError("no money left")

    async def release(booking: Booking | None, what: str) -> None:
        released.append(booking)

    @hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        await asyncio.gather(
            ctx.step("hotel", reserve, "hotel", effect="once", settle=60, compensate=release),
            ctx.step("fail", fails),
        )

    handle = await hold.submit(travel)
    [doubt] = await doubts_of(hold, handle, "hotel")
    assert agency.book == ["+flight"]
    await hold.resolve(doubt, decision, by="anna")
    with pytest.raises(TaskFailed, match="no money left"):
        await handle.result(timeout=5000)
    assert released == ([None] if undone else [])
    assert agency.book == ["+flight", "-flight"]
    state = (await states_of(hold, handle))["hotel"]
    expected = {"absent": EffectState.INTENDED, "abandon": EffectState.ABANDONED}
    assert state is expected.get(decision, EffectState.COMPENSATED)


async def test_a_doubtful_step_without_a_compensation_is_cleared_up_as_well(box: Sandbox, agency: Agency) -> None:
    """Otherwise "all was undone" could be wrong, while a call may still be on its way."""
    asked: list[list[str]] = []
    called = asyncio.Event()

    async def pay(amount: int) -> None:
        called.set()
        raise TimeoutError("no answer")

    async def fails() -> None:
        await called.wait()
        raise ValueError("no money left")

    async def was_paid(effect_id: str, amount: int) -> Happened:
        asked.append([*agency.book])
        return Happened()

    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        await asyncio.gather(
            ctx.step("pay", pay, 5, effect="once", settle=60, reconcile=was_paid), ctx.step("fail", fails)
        )

    handle = await box.hold.submit(travel)
    with pytest.raises(TaskFailed, match="no money left"):
        await handle.result(timeout=5000)
    assert asked == [["+flight"]]
    assert agency.book == ["+flight", "-flight"]
    assert (await states_of(box.hold, handle))["pay"] is EffectState.DONE


async def test_a_doubtful_call_alone_makes_a_saga(box: Sandbox, agency: Agency) -> None:
    """Nothing else was done. It may have happened, and its step says how to undo it."""
    hotel = Hotel(agency, Happened(Booking("hotel", 7)))

    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        await ctx.step(
            *("hotel", hotel.reserve, "hotel"),
            effect="once",
            reconcile=hotel.was_reserved,
            compensate=agency.release,
        )

    handle = await box.hold.submit(travel)
    await until(hotel.began.is_set)
    await handle.cancel("ill")
    with pytest.raises(TaskCancelled):
        await handle.result(timeout=5000)
    assert agency.book == ["-hotel"]


async def test_a_call_in_doubt_of_a_dead_worker_makes_a_saga_of_the_end(quick: Holdfast, agency: Agency) -> None:
    """No worker holds the task when it is cancelled, or when its deadline passes."""
    hold = quick
    hotel = Hotel(agency, Happened(Booking("hotel", 7)))

    @hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        await ctx.step(
            *("hotel", hotel.reserve, "hotel"),
            effect="once",
            timeout=1.0,
            settle=0.01,
            reconcile=hotel.was_reserved,
            compensate=agency.release,
        )

    handle = await hold.submit(travel)
    worker = await hold.worker().__aenter__()
    await until(hotel.began.is_set)
    await crash(hold, worker)
    await handle.cancel("ill")
    assert not (await handle.task()).state.is_terminal
    async with hold.worker():
        with pytest.raises(TaskCancelled):
            await ended(handle)
    assert agency.book == ["-hotel"]


async def test_a_call_that_is_proven_not_to_have_been_made_is_not_undone(box: Sandbox, agency: Agency) -> None:
    async def reserve(what: str) -> None:
        raise ConnectionRefusedError

    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        await ctx.step("hotel", reserve, "hotel", effect="once", compensate=agency.release)

    handle = await box.hold.submit(travel)
    with pytest.raises(TaskFailed, match="ConnectionRefused"):
        await handle.result(timeout=5000)
    assert agency.book == ["+flight", "-flight"]
    assert (await states_of(box.hold, handle))["hotel"] is EffectState.FAILED


# A person has it undone while the task goes on


class Charge:
    """A call that gets no answer, and what undoes it."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.undone: dict[str, tuple[object, str]] = {}
        self.fails = True

    async def make(self, what: str, effect_id: str) -> str:
        self.made.append(effect_id)
        if self.fails:
            raise TimeoutError("no answer")
        return what

    async def undo(self, result: str | None, what: str, effect_id: str) -> None:
        self.undone[effect_id] = (result, what)


async def test_a_person_has_a_doubtful_step_undone_and_the_task_goes_on(hold: Holdfast) -> None:
    charge = Charge()

    @hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> str:
        try:
            await ctx.step("charge", charge.make, "card", effect="once", settle=0.01, compensate=charge.undo)
        except StepFailed as failed:
            await ctx.step("note", lambda: None)
            return failed.type_name
        return "charged"

    handle = await hold.submit(work)
    async with hold.worker():
        [doubt] = await doubts_of(hold, handle, "charge")
        await hold.resolve(doubt, "compensate", by="anna")
        assert await handle.result(timeout=60) == "holdfast.EffectGivenUp"
    assert len(charge.made) == 1
    assert [*charge.undone.values()] == [(None, "card")]
    assert [*charge.undone] != charge.made
    assert (await states_of(hold, handle))["charge"] is EffectState.COMPENSATED


async def test_what_a_person_has_undone_is_not_done_again_whatever_crashes() -> None:
    hold = Holdfast("memory://")
    charge = Charge()

    @hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> str:
        try:
            await ctx.step("charge", charge.make, "card", effect="once", settle=1, compensate=charge.undo)
        except StepFailed as failed:
            await ctx.sleep(60)
            return failed.type_name
        return "charged"

    async def scenario(box: Sandbox) -> tuple[str, bool, list[tuple[object, str]]]:
        charge.__init__()  # type: ignore[misc]
        handle = await hold.submit(work)
        [doubt] = await doubts_of(hold, handle, "charge")
        await box.idle()
        await hold.resolve(doubt, "compensate", by="anna")
        result = await handle.result(timeout=5000)
        assert len(charge.made) <= 1, "charged again"
        assert len(charge.undone) == 1, "undone under two ids"
        return result, (await steps_of(hold, handle))["charge"].state == "failed", [*charge.undone.values()]

    survived = await crash_everywhere(hold, scenario)
    assert survived.result == ("holdfast.EffectGivenUp", True, [(None, "card")])
    assert survived.crashes >= 16


@pytest.mark.parametrize("revive", ["resume", "retry"])
async def test_what_a_person_has_undone_is_done_again_when_the_task_is_revived(box: Sandbox, revive: str) -> None:
    charge = Charge()

    @box.hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> str:
        return await ctx.step("charge", charge.make, "card", effect="once", settle=1, compensate=charge.undo)

    handle = await box.hold.submit(work)
    [doubt] = await doubts_of(box.hold, handle, "charge")
    await box.hold.resolve(doubt, "compensate", by="anna")
    with pytest.raises(TaskFailed, match="EffectGivenUp"):
        await handle.result(timeout=5000)
    charge.fails = False
    await getattr(box.hold, revive)(handle)
    assert await handle.result(timeout=5000) == "card"
    assert len({*charge.made}) == 2
    assert len(charge.undone) == 1


async def test_a_step_that_a_person_has_undone_and_whose_failure_was_handled_stays_failed(
    box: Sandbox, agency: Agency
) -> None:
    """The code went another way. It does not change its mind when the task is resumed."""
    charge = Charge()

    @box.hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> str:
        try:
            await ctx.step("charge", charge.make, "card", effect="once", settle=1, compensate=charge.undo)
            way = "card"
        except StepFailed:
            await ctx.step("invoice", agency.reserve, "invoice", compensate=agency.release)
            way = "invoice"
        if ctx.attempt == 1:
            raise ValueError("no money left")
        return way

    handle = await box.hold.submit(work)
    [doubt] = await doubts_of(box.hold, handle, "charge")
    await box.hold.resolve(doubt, "compensate", by="anna")
    with pytest.raises(TaskFailed, match="no money left"):
        await handle.result(timeout=5000)
    charge.fails = False
    await box.hold.resume(handle)
    assert await handle.result(timeout=5000) == "invoice"
    assert (len(charge.made), len(charge.undone)) == (1, 1)
    assert agency.book == ["+invoice", "-invoice", "+invoice"]


@pytest.mark.parametrize("decision", ["undone", "compensate"])
async def test_an_undo_that_a_person_wanted_and_that_fails_is_asked_about(box: Sandbox, decision: str) -> None:
    charge = Charge()
    tries = 0

    async def undo(result: str | None, what: str) -> None:
        nonlocal tries
        tries += 1
        if tries <= 3:
            raise ConnectionError("no answer")

    @box.hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> str:
        try:
            return await ctx.step("charge", charge.make, "card", effect="once", settle=1, compensate=undo)
        except StepFailed as failed:
            return failed.type_name

    handle = await box.hold.submit(work)
    [doubt] = await doubts_of(box.hold, handle, "charge")
    await box.hold.resolve(doubt, "compensate", by="anna")

    async def is_asked_about_its_undo() -> bool:
        return any(Decision.UNDONE in doubt.decisions for doubt in await box.hold.doubts(handle))

    await until(is_asked_about_its_undo)
    await box.idle()
    assert ((await handle.task()).state, tries) == (TaskState.WAITING, 3)
    [doubt] = await doubts_of(box.hold, handle, "charge")
    with pytest.raises(Conflict):
        await box.hold.resolve(doubt, "happened", by="anna")
    await box.hold.resolve(doubt, decision, by="anna")
    assert await handle.result(timeout=5000) == "holdfast.EffectGivenUp"
    assert (await effects_of(box.hold, handle))["charge"].state is EffectState.COMPENSATED
    assert tries == (3 if decision == "undone" else 4)
    assert len(charge.made) == 1


async def test_a_step_without_compensation_cannot_be_undone(box: Sandbox) -> None:
    charge = Charge()

    @box.hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> str:
        return await ctx.step("charge", charge.make, "card", effect="once", settle=1)

    handle = await box.hold.submit(work)
    [doubt] = await doubts_of(box.hold, handle, "charge")
    assert Decision.COMPENSATE not in doubt.decisions
    with pytest.raises(Conflict, match="choose one of happened, absent, abandon"):
        await box.hold.resolve(doubt, "compensate", by="anna")


async def test_an_undo_that_a_person_wanted_may_itself_be_made_once(box: Sandbox) -> None:
    charge = Charge()
    undone: list[str] = []

    async def undo(result: str | None, what: str, effect_id: str) -> None:
        undone.append(effect_id)
        raise TimeoutError("no answer")

    async def was_undone(effect_id: str, result: str | None, what: str) -> Happened:
        return Happened()

    @box.hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> str:
        compensation = Compensation(undo, effect="once", reconcile=was_undone, settle=1)
        try:
            return await ctx.step("charge", charge.make, "card", effect="once", settle=1, compensate=compensation)
        except StepFailed as failed:
            return failed.type_name

    handle = await box.hold.submit(work)
    [doubt] = await doubts_of(box.hold, handle, "charge")
    await box.hold.resolve(doubt, "compensate", by="anna")
    assert await handle.result(timeout=5000) == "holdfast.EffectGivenUp"
    assert len(undone) == 1
