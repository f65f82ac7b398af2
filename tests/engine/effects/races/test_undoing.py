"""Undoing what was done, where the code has changed, waits, or is handed from worker to worker meanwhile."""

# ruff: noqa: ARG001, ARG002 - tools, their probes and their undos all take what the step was called with

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from holdfast import (
    Absent,
    Compensation,
    Context,
    Decision,
    EffectState,
    Happened,
    Holdfast,
    Intent,
    TaskCancelled,
    TaskState,
)
from holdfast.engine.api.definition import TaskDefinition
from holdfast.engine.attempt.discovery import LOOK_FOR_BRANCHES
from holdfast.engine.worker.host import Host
from holdfast.model.limits import DEFAULT_LIMITS
from holdfast.model.worker import Claimed
from holdfast.testing import Sandbox, sandbox
from tests.engine.effects.compensation.support import doubts_of, states_of
from tests.engine.effects.races.support import ONE_TRY, Agency, failed
from tests.engine.support import ended, reaches, settle, until

S = EffectState


# Trying again


async def test_an_undo_is_tried_again_although_an_earlier_step_is_undone_already(quick: Holdfast) -> None:
    """The code is looked for by a replay, which has to get past that step."""
    agency = Agency()
    agency.broken.add("hotel")

    @quick.task(retry=ONE_TRY)
    async def trip(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release_in_one_try)
        await ctx.step("hotel", agency.reserve, "hotel", effect="once", compensate=agency.release_in_one_try)
        await ctx.step("pay", agency.pay)

    async with quick.worker():
        handle = await quick.submit(trip)
        [doubt] = await doubts_of(quick, handle, "hotel")
        await reaches(handle, TaskState.WAITING)
        assert agency.book == ["+flight", "+hotel", "-flight"]
        agency.broken.clear()
        await quick.resolve(doubt, "compensate", by="anna")
        assert "declined" in str(await failed(handle))
    assert agency.book == ["+flight", "+hotel", "-flight", "-hotel"]
    assert await quick.doubts() == []


async def test_an_undo_whose_question_cannot_hold_the_arguments_is_asked_about(box: Sandbox) -> None:
    """They are as deep as arguments may be. Undoing ends in a question then, and not in a task that cannot go on."""
    hold, agency, deep = box.hold, Agency(), list[Any]()
    for _ in range(DEFAULT_LIMITS.max_depth - 2):
        deep = [deep]

    async def reserve(what: list[Any]) -> str:
        return "booked"

    async def release(booking: str, what: list[Any]) -> None:
        raise ConnectionError("no answer")

    @hold.task(retry=ONE_TRY)
    async def trip(ctx: Context) -> None:
        await ctx.step("book", reserve, deep, compensate=Compensation(release, retry=ONE_TRY))
        await ctx.step("pay", agency.pay)

    handle = await hold.submit(trip)
    [doubt] = await doubts_of(hold, handle, "book")
    await reaches(handle, TaskState.WAITING)
    assert doubt.decisions == (Decision.COMPENSATE, Decision.UNDONE, Decision.ABANDON)
    await hold.resolve(doubt, "undone", by="anna")
    assert "declined" in str(await failed(handle))
    assert await states_of(hold, handle) == {"book": S.COMPENSATED}


# Looking for the code


async def test_a_replay_that_never_ends_is_given_up_and_a_person_is_asked(box: Sandbox) -> None:
    """The new version of the code has no such step, and waits for a branch that no longer answers."""
    hold, agency, version = box.hold, Agency(), [1]

    @hold.task(retry=ONE_TRY)
    async def agent(ctx: Context) -> None:
        inbox: asyncio.Queue[object] = asyncio.Queue()

        async def listen() -> None:
            while True:
                inbox.put_nowait(await ctx.wait_event("inbox"))

        listening = asyncio.create_task(listen())
        if version == [1]:
            await ctx.step("flight-1", agency.reserve, "flight", compensate=agency.release)
        await inbox.get()
        await ctx.step("flight-2", agency.reserve, "flight", compensate=agency.release)
        await listening

    handle = await hold.submit(agent)
    await until(lambda: agency.book)
    await reaches(handle, TaskState.WAITING, TaskState.RUNNING)
    await box.idle()
    version[0] = 2
    began = box.elapsed
    await handle.cancel("ill")
    [doubt] = await doubts_of(hold, handle, "flight-1")
    assert (box.elapsed - began).total_seconds() >= LOOK_FOR_BRANCHES
    assert "no longer has a way to undo" in doubt.question
    await hold.resolve(doubt, "undone", by="anna")
    with pytest.raises(TaskCancelled):
        await ended(handle)
    assert agency.book == ["+flight"]


async def test_branches_that_the_end_of_the_code_leaves_behind_are_looked_for_as_well(box: Sandbox) -> None:
    """One awaits something that is not a step; in the replay the failure beside it comes at once."""
    hold, agency = box.hold, Agency()

    async def pay() -> None:
        await until(lambda: "+hotel" in agency.book)
        await box.idle()
        raise RuntimeError("declined")

    @hold.task(retry=ONE_TRY)
    async def trip(ctx: Context) -> None:
        async def travel() -> None:
            await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
            await settle(5)
            await ctx.step("hotel", agency.reserve, "hotel", compensate=agency.release)

        await asyncio.gather(travel(), ctx.step("pay", pay))

    handle = await hold.submit(trip)
    assert "declined" in str(await failed(handle))
    assert agency.book == ["+flight", "+hotel", "-hotel", "-flight"]
    assert await hold.doubts() == []


async def test_code_that_misfits_the_journal_keeps_nothing_from_being_undone(box: Sandbox) -> None:
    """What it still says is followed, with what was really booked; what it does not get to is for a person."""
    hold, agency, where = box.hold, Agency(), ["Rome"]

    @hold.task(retry=ONE_TRY)
    async def trip(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, where[0], effect="once", compensate=agency.release)
        await ctx.step("hotel", agency.reserve, "hotel", effect="once", compensate=agency.release)
        await ctx.wait_event("on")

    handle = await hold.submit(trip)
    await reaches(handle, TaskState.WAITING)
    where[0] = "Oslo"
    await handle.cancel("ill")
    [doubt] = await doubts_of(hold, handle, "hotel")
    assert "no longer has a way to undo" in doubt.question
    await hold.resolve(doubt, "undone", by="anna")
    with pytest.raises(TaskCancelled):
        await ended(handle)
    assert agency.book == ["+Rome", "+hotel", "-Rome"]


# After a revival


async def test_an_old_error_is_not_that_of_the_call_that_is_made_after_the_undo(box: Sandbox) -> None:
    """It was in doubt with an error, and found to have happened only when it had to be undone."""
    hold, agency = box.hold, Agency()

    async def reserve(what: str, effect_id: str) -> str:
        booking = await agency.reserve(what, effect_id)
        if len(agency.ids) == 1:
            raise ConnectionResetError("the answer was lost")
        return booking

    async def was_reserved(effect_id: str, what: str) -> Happened | Absent:
        return Happened(f"{what} 1") if effect_id in agency.ids else Absent()

    async def pay() -> str:
        async def is_in_doubt() -> bool:
            return await states_of(hold, handle) == {"flight": S.IN_DOUBT}

        if agency.declines:
            with box.frozen():
                await until(is_in_doubt)
        return await agency.pay()

    @hold.task(retry=ONE_TRY)
    async def trip(ctx: Context) -> list[str]:
        flight = ctx.step(
            "flight",
            reserve,
            "flight",
            effect="once",
            compensate=agency.release,
            reconcile=was_reserved,
            timeout=600,
            settle=600,
        )
        return list(await asyncio.gather(flight, ctx.step("pay", pay)))

    handle = await hold.submit(trip)
    assert "declined" in str(await failed(handle))
    assert agency.book == ["+flight", "-flight"]
    agency.declines = False
    await hold.resume(handle)
    assert await ended(handle) == ["flight 2", "paid"]
    assert agency.book == ["+flight", "-flight", "+flight"]


async def test_what_was_undone_may_be_done_again_with_other_arguments(box: Sandbox) -> None:
    """Nothing of the old call is left that the new one could be mistaken for."""
    hold, agency, wanted = box.hold, Agency(), ["train"]

    @hold.task(retry=ONE_TRY)
    async def trip(ctx: Context) -> str:
        booked = await ctx.step("travel", agency.reserve, wanted[0], effect="once", compensate=agency.release)
        await ctx.step("pay", agency.pay)
        return booked

    handle = await hold.submit(trip)
    await failed(handle)
    wanted[0], agency.declines = "flight", False
    await hold.resume(handle)
    assert await ended(handle) == "flight 2"
    assert agency.book == ["+train", "-train", "+flight"]


# Handing over


async def test_a_worker_that_is_stopped_as_it_claims_a_task_leaves_its_undo_to_the_next(
    quick: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay that was stopped has found nothing out: no person is asked to undo by hand what code can undo."""
    agency, begun, begin = Agency(), list[Claimed](), Host.begin

    def begin_and_stop(self: Host, claimed: Claimed) -> Any:  # noqa: ANN401
        started = begin(self, claimed)
        begun.append(claimed)
        if len(begun) == 2:
            self.hand_back_all()
        return started

    monkeypatch.setattr(Host, "begin", begin_and_stop)

    @quick.task(retry=ONE_TRY)
    async def trip(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        await ctx.step("hotel", agency.reserve, "hotel", effect="once", compensate=agency.release)
        await ctx.step("pay", agency.pay)

    async with quick.worker():
        handle = await quick.submit(trip)
        assert "declined" in str(await failed(handle))
    assert len(begun) == 3
    assert agency.book == ["+flight", "+hotel", "-hotel", "-flight"]
    assert await quick.doubts() == []


async def test_sagas_that_are_handed_back_at_any_moment_are_undone_once_and_wholly(seeds: Sequence[int]) -> None:
    for seed in seeds:
        await hand_back_at_random(seed)


class Hesitant:
    """An agency that takes its time before and after everything it does, and knows what it did."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.done: list[tuple[str, str]] = []
        self.undone: list[tuple[str, str]] = []

    async def reserve(self, what: str, effect_id: str) -> str:
        await self._do(self.done, what, effect_id)
        return f"booked {what}"

    async def was_reserved(self, effect_id: str, what: str) -> Happened | Absent:
        return Happened(f"booked {what}") if (what, effect_id) in self.done else Absent()

    async def release(self, booking: str, what: str, effect_id: str) -> None:
        assert booking == f"booked {what}"
        await self._do(self.undone, what, effect_id)

    async def was_released(self, effect_id: str, booking: str, what: str) -> Happened | Absent:
        return Happened() if (what, effect_id) in self.undone else Absent()

    async def _do(self, book: list[tuple[str, str]], what: str, effect_id: str) -> None:
        await settle(self._random.randrange(5))
        book.append((what, effect_id))
        await settle(self._random.randrange(5))

    async def choose(self) -> str:
        return "car"

    async def decline(self) -> None:
        raise RuntimeError("declined")


def define_trip(hold: Holdfast, agency: Hesitant) -> TaskDefinition[[int], None]:
    limits: dict[str, Any] = {"timeout": 20, "settle": 1}
    undo = Compensation(agency.release, effect="once", reconcile=agency.was_released, **limits)
    terms: dict[str, Any] = {"effect": "once", "reconcile": agency.was_reserved, "compensate": undo, **limits}

    @hold.task(retry=ONE_TRY)
    async def trip(ctx: Context, number: int) -> None:
        def car_intent(car: str) -> list[Intent]:
            return [Intent("car", agency.reserve, f"{car} {number}", compensate=undo, **limits)]

        await ctx.step("flight", agency.reserve, f"flight {number}", **terms)
        car = await ctx.step("choose", agency.choose, arms=car_intent)
        await ctx.step("car", agency.reserve, f"{car} {number}", **terms)
        bags = (ctx.step(f"bag-{bag}", agency.reserve, f"bag {bag} of {number}", **terms) for bag in range(2))
        await asyncio.gather(*bags)
        await ctx.step("pay", agency.decline)

    return trip


async def hand_back_at_random(seed: int, *, tasks: int = 4, times: int = 20) -> None:
    random = Random(seed)
    hold, agency, handed_back = Holdfast("memory://"), Hesitant(random), 0
    trip = define_trip(hold, agency)
    async with sandbox(hold) as box:
        handles = [await hold.submit(trip, number) for number in range(tasks)]
        for _ in range(times):
            await settle(random.randrange(1, 60))
            worker = box._sandbox_worker._worker
            if worker is not None and worker.running:
                worker._host.hand_back_all()
                handed_back += 1
        for handle in handles:
            assert "declined" in str(await failed(handle)), f"seed {seed}"
            assert {*(await states_of(hold, handle)).values()} == {S.COMPENSATED}, f"seed {seed}"
        assert await hold.doubts() == [], f"seed {seed}"
    assert handed_back, f"seed {seed}"
    assert len({*agency.done}) == len(agency.done) == 4 * tasks, f"seed {seed}"
    assert len({*agency.undone}) == len(agency.undone), f"seed {seed}"
    assert sorted(what for what, _ in agency.done) == sorted(what for what, _ in agency.undone), f"seed {seed}"
