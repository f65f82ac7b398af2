"""Compensations that fail: they are tried again, then a person is asked; everything else goes on."""

# ruff: noqa: ARG001 - a function takes what it is given, whether it needs it or not

import asyncio
from datetime import timedelta

import pytest

from holdfast import (
    Compensation,
    Conflict,
    Context,
    Decision,
    EffectState,
    Handle,
    Holdfast,
    Retry,
    StepState,
    TaskDefinition,
    TaskFailed,
    TaskState,
)
from holdfast.testing import Sandbox
from tests.engine.effects.compensation.support import ONE_TRY, Agency, Booking, doubts_of, states_of, undos_of
from tests.engine.support import ended, moves_of, reaches, steps_of, until


def journey(hold: Holdfast, agency: Agency, *stations: str) -> TaskDefinition[[], None]:
    """Define a task that reserves these and then fails."""

    @hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        for what in stations:
            await ctx.step(what, agency.reserve, what, compensate=agency.release_at_once)
        raise ValueError("no money left")

    return travel


async def failed_as_before(handle: Handle[None]) -> None:
    """Pass if the task ended with its own failure, and not with that of an undo."""
    with pytest.raises(TaskFailed, match="no money left") as failed:
        await ended(handle)
    assert failed.value.type_name == "ValueError"


async def test_a_compensation_gets_three_tries(box: Sandbox) -> None:
    tried: list[timedelta] = []

    async def release(booking: object) -> None:
        tried.append(box.elapsed)
        if len(tried) < 3:
            raise ConnectionError("no answer")

    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", lambda: "flight", returns=str, compensate=release)
        raise ValueError("no money left")

    handle = await box.hold.submit(travel)
    await failed_as_before(handle)
    assert len(tried) == 3
    assert await box.hold.doubts() == []
    [undo] = await undos_of(box.hold, handle)
    assert (undo.state, undo.attempts) == (StepState.COMPLETED, 3)


async def test_a_compensation_may_have_a_policy_of_its_own(box: Sandbox) -> None:
    tried: list[timedelta] = []

    async def release(booking: object) -> None:
        tried.append(box.elapsed)
        if len(tried) < 5:
            raise ConnectionError("no answer")
        await asyncio.sleep(60)

    patient = Retry(max_attempts=6, initial=600, factor=1, max_delay=600, jitter="none")

    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        undo = Compensation(release, retry=patient, timeout=30)
        await ctx.step("flight", lambda: "flight", returns=str, compensate=undo)
        raise ValueError("no money left")

    handle = await box.hold.submit(travel)
    [doubt] = await doubts_of(box.hold, handle, "flight")
    minutes = [round(when.total_seconds() / 60) for when in tried]
    assert minutes[:5] == [0, 10, 20, 30, 40]
    assert len(tried) == 6
    assert "timeout of 30 s" in doubt.question
    assert ("running", "waiting") in await moves_of(box.hold, handle)  # a long pause holds no worker


async def test_what_cannot_be_undone_becomes_a_question_and_the_rest_is_undone_meanwhile(
    hold: Holdfast, agency: Agency
) -> None:
    travel = journey(hold, agency, "flight", "hotel", "car")
    agency.broken = {"car", "hotel"}
    handle = await hold.submit(travel)
    async with hold.worker():
        hotel, car = await doubts_of(hold, handle, "hotel", "car")
        await reaches(handle, TaskState.WAITING)
        # No decision was made, and the flight is released.
        assert agency.book == ["+flight", "+hotel", "+car", "-flight"]
        assert agency.tries == {"car": 3, "hotel": 3, "flight": 1}
        assert await states_of(hold, handle) == {
            "flight": EffectState.COMPENSATED,
            "hotel": EffectState.NEEDS_HUMAN,
            "car": EffectState.NEEDS_HUMAN,
        }
        task = await handle.task()
        assert (task.owner, task.must_undo) == (None, True)
        undone = {key for key, step in (await steps_of(hold, handle)).items() if step.undone_at is not None}
        assert undone == {"flight"}

        assert car.decisions == (Decision.COMPENSATE, Decision.UNDONE, Decision.ABANDON)
        assert "was not undone" in car.question
        assert "no answer about the car" in car.question
        assert (car.arguments, car.task_name) == (["car"], "travel")

        agency.broken = set()
        await hold.resolve(hotel, "compensate", by="anna")
        await hold.resolve(car, "compensate", by="anna")
        await failed_as_before(handle)
    assert {*agency.book[4:]} == {"-hotel", "-car"}
    assert set((await states_of(hold, handle)).values()) == {EffectState.COMPENSATED}
    assert (await hold.store.history(handle.id))[-1].reason.endswith("(3 steps undone)")
    assert await hold.doubts() == []


async def test_once_more_is_under_the_same_id(hold: Holdfast) -> None:
    ids: list[str] = []

    async def release(booking: object, what: str, effect_id: str) -> None:
        ids.append(effect_id)
        if len(ids) < 5:
            raise ConnectionError("no answer")

    agency = Agency()

    @hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        at_once = Compensation(release, retry=Retry(initial=0.0))
        await ctx.step("flight", agency.reserve, "flight", compensate=at_once)
        raise ValueError("no money left")

    handle = await hold.submit(travel)
    async with hold.worker():
        [doubt] = await doubts_of(hold, handle, "flight")
        assert len(ids) == 3
        await hold.resolve(doubt, "compensate", by="anna")
        await failed_as_before(handle)
    assert len(ids) == 5
    assert len({*ids}) == 1
    assert ids[0] not in agency.reserved


async def test_a_compensation_that_fails_again_is_asked_about_again(box: Sandbox, agency: Agency) -> None:
    travel = journey(box.hold, agency, "flight")
    agency.broken = {"flight"}
    handle = await box.hold.submit(travel)
    seen: list[str | None] = []
    for _ in range(3):
        [doubt] = await doubts_of(box.hold, handle, "flight")
        await box.idle()
        assert doubt.approval_id not in seen
        seen.append(doubt.approval_id)
        await box.hold.resolve(doubt, "compensate", by="anna")
        await box.idle()
    assert agency.tries["flight"] > 6
    [doubt] = await doubts_of(box.hold, handle, "flight")
    await box.hold.resolve(doubt, "abandon", by="anna")
    await failed_as_before(handle)
    assert agency.book == ["+flight"]


async def test_what_a_person_undid_by_hand_counts_as_undone(hold: Holdfast, agency: Agency) -> None:
    travel = journey(hold, agency, "flight")
    agency.broken = {"flight"}
    handle = await hold.submit(travel)
    async with hold.worker():
        [doubt] = await doubts_of(hold, handle, "flight")
        await reaches(handle, TaskState.WAITING)
        resolved = await hold.resolve(doubt, "undone", by="anna", note="by telephone")
        assert (resolved.state, resolved.note) == (EffectState.COMPENSATED, "undone, by anna: by telephone")
        await failed_as_before(handle)
    assert agency.tries["flight"] == 3  # it was not called again
    assert (await steps_of(hold, handle))["flight"].undone_at is not None
    assert (await hold.store.history(handle.id))[-1].reason.endswith("(1 step undone)")


async def test_what_is_given_up_stays_as_it_is(hold: Holdfast, agency: Agency) -> None:
    travel = journey(hold, agency, "flight", "hotel")
    agency.broken = {"hotel"}
    handle = await hold.submit(travel)
    async with hold.worker():
        [doubt] = await doubts_of(hold, handle, "hotel")
        resolved = await hold.resolve(doubt, "abandon", by="anna", note="we keep it")
        assert resolved.state is EffectState.ABANDONED
        await failed_as_before(handle)
    assert agency.book == ["+flight", "+hotel", "-flight"]
    steps = await steps_of(hold, handle)
    assert (steps["hotel"].undone_at, steps["flight"].undone_at is None) == (None, False)
    assert (await hold.store.history(handle.id))[-1].reason.endswith("(1 step undone)")
    assert not (await handle.task()).must_undo


@pytest.mark.parametrize("decision", ["happened", "absent"])
async def test_a_decision_that_does_not_fit_is_refused(box: Sandbox, agency: Agency, decision: str) -> None:
    travel = journey(box.hold, agency, "flight")
    agency.broken = {"flight"}
    handle = await box.hold.submit(travel)
    [doubt] = await doubts_of(box.hold, handle, "flight")
    await box.idle()
    with pytest.raises(Conflict, match="choose one of compensate, undone, abandon"):
        await box.hold.resolve(doubt, decision, by="anna")
    assert (await doubts_of(box.hold, handle, "flight"))[0] == doubt
    await box.hold.resolve(doubt, "undone", by="anna")
    with pytest.raises(Conflict, match="not in doubt"):
        await box.hold.resolve(doubt, "abandon", by="bert")
    await failed_as_before(handle)


@pytest.mark.parametrize("decision", ["compensate", "undone", "abandon"])
async def test_a_decision_while_the_rest_is_still_being_undone_is_heard(
    hold: Holdfast, agency: Agency, decision: str
) -> None:
    """The hotel could not be released. A person decides that while the flight is being released, which takes long."""
    undoing, go = asyncio.Event(), asyncio.Event()

    async def release_slowly(booking: Booking, what: str) -> None:
        undoing.set()
        await go.wait()
        agency.book.append(f"-{what}")

    @hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=release_slowly)
        await ctx.step("hotel", agency.reserve, "hotel", compensate=agency.release_at_once)
        raise ValueError("no money left")

    agency.broken = {"hotel"}
    handle = await hold.submit(travel)
    async with hold.worker():
        await until(undoing.is_set)
        [doubt] = await doubts_of(hold, handle, "hotel")
        agency.broken = set()
        await hold.resolve(doubt, decision, by="anna")
        go.set()
        await failed_as_before(handle)
    assert agency.book == ["+flight", "+hotel", "-flight", *(["-hotel"] if decision == "compensate" else [])]
    assert await hold.doubts() == []


async def test_people_may_decide_in_any_order_and_at_any_pace(box: Sandbox, agency: Agency) -> None:
    travel = journey(box.hold, agency, "flight", "hotel", "car")
    agency.broken = {"flight", "hotel", "car"}
    handle = await box.hold.submit(travel)
    flight, hotel, car = await doubts_of(box.hold, handle, "flight", "hotel", "car")
    await box.idle()
    await box.hold.resolve(hotel, "undone", by="anna")
    await box.advance(timedelta(days=3))
    assert (await handle.task()).state is TaskState.WAITING
    agency.broken = set()
    await box.hold.resolve(flight, "compensate", by="bert")
    await box.advance(timedelta(days=3))
    assert (await handle.task()).state is TaskState.WAITING
    assert agency.book[3:] == ["-flight"]
    await box.hold.resolve(car, "abandon", by="carl")
    await failed_as_before(handle)
    assert await states_of(box.hold, handle) == {
        "flight": EffectState.COMPENSATED,
        "hotel": EffectState.COMPENSATED,
        "car": EffectState.ABANDONED,
    }
    assert (await box.hold.store.history(handle.id))[-1].reason.endswith("(2 steps undone)")


async def test_a_compensation_that_cannot_be_called_is_asked_about_at_once(box: Sandbox, agency: Agency) -> None:
    """It takes other arguments than it gets: no retry would help."""

    def release(what: str) -> None:
        raise AssertionError("called")

    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        await ctx.step("hotel", agency.reserve, "hotel", compensate=Compensation(release, effect="once"))
        raise ValueError("no money left")

    handle = await box.hold.submit(travel)
    [doubt] = await doubts_of(box.hold, handle, "hotel")
    assert "cannot call its function" in doubt.question
    await box.idle()
    assert agency.book == ["+flight", "+hotel", "-flight"]
    await box.hold.resolve(doubt, "compensate", by="anna")  # as they like; it still cannot be called
    await box.idle()
    [doubt] = await doubts_of(box.hold, handle, "hotel")
    await box.hold.resolve(doubt, "undone", by="anna")
    await failed_as_before(handle)


async def test_the_failure_of_an_undo_is_in_the_journal(box: Sandbox, agency: Agency) -> None:
    travel = journey(box.hold, agency, "flight")
    agency.broken = {"flight"}
    handle = await box.hold.submit(travel)
    await doubts_of(box.hold, handle, "flight")
    [undo] = [step for step in await undos_of(box.hold, handle) if not step.key.endswith("decision")]
    assert (undo.kind, undo.state) == ("undo", StepState.FAILED)
    assert b"no answer about the flight" in (undo.error or b"")


async def test_a_task_is_run_by_name_through_its_undo(quick: Holdfast, agency: Agency) -> None:
    """In this process: also where a person has to be waited for."""
    travel = journey(quick, agency, "flight")
    agency.broken = {"flight"}
    handle = await quick.submit(travel)
    running = asyncio.create_task(quick.run(handle))
    [doubt] = await doubts_of(quick, handle, "flight")

    async def rests() -> bool:
        return (await handle.task()).resting

    await until(rests)
    agency.broken = set()
    await quick.resolve(doubt, "compensate", by="anna")
    with pytest.raises(TaskFailed, match="no money left"):
        await running
    assert agency.book == ["+flight", "-flight"]
    states = [to for _, to in await moves_of(quick, handle)]
    assert states == ["pending", "running", "pending", "running", "failed"]
