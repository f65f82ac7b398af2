"""Workers that die while a saga is being undone: every undo is made, in order, under one id."""

# ruff: noqa: ARG001 - a function takes what it is given, whether it needs it or not

import pytest

from holdfast import (
    Absent,
    Compensation,
    Context,
    EffectState,
    Happened,
    Holdfast,
    Retry,
    TaskCancelled,
    TaskFailed,
    TaskState,
)
from holdfast.engine.steps.call import effect_id
from holdfast.testing import Sandbox, crash_everywhere, sandbox
from tests.engine.effects.compensation.support import AT_ONCE, ONE_TRY, Agency, Booking, doubts_of, states_of, undos_of
from tests.engine.support import reaches, steps_of


async def test_a_saga_survives_a_crash_at_every_commit(agency: Agency) -> None:
    hold = Holdfast("memory://")

    async def was_reserved(effect_id: str, what: str) -> Happened | Absent:
        found = agency.reserved.get(effect_id)
        return Absent() if found is None else Happened(found)

    @hold.task(retry=Retry(max_attempts=2, initial=0.0))
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        await ctx.step(
            *("hotel", agency.reserve, "hotel"),
            effect="once",
            reconcile=was_reserved,
            settle=1,
            compensate=agency.release,
        )
        await ctx.step("car", agency.reserve, "car", compensate=agency.release)
        raise ValueError("no money left")

    async def scenario(box: Sandbox) -> tuple[list[str], str, str, int]:
        agency.clear()
        handle = await hold.submit(travel)
        with pytest.raises(TaskFailed, match="no money left"):
            await handle.result(timeout=5000)
        assert len(agency.reserved) == 3, "something was reserved under two ids"
        assert len(agency.released) == 3, "something was released under two ids"
        states = {state.value for state in (await states_of(hold, handle)).values()}
        undone = [step.key for step in await hold.store.steps(handle.id) if step.undone_at is not None]
        return agency.book, ",".join(states), (await hold.store.history(handle.id))[-1].reason, len(undone)

    survived = await crash_everywhere(hold, scenario)
    assert survived.result == (
        ["+flight", "+hotel", "+car", "-car", "-hotel", "-flight"],
        "compensated",
        "attempt 2 of 2 failed: ValueError: no money left (3 steps undone)",
        3,
    )
    assert survived.crashes >= 20


async def test_a_saga_with_once_compensations_survives_a_crash_at_every_commit(agency: Agency) -> None:
    """A crash may leave an undo in doubt; its tool tells."""
    hold = Holdfast("memory://")

    async def was_released(effect_id: str, booking: Booking, what: str) -> Happened | Absent:
        return Happened() if effect_id in agency.released else Absent()

    @hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        undo = Compensation(agency.release, effect="once", reconcile=was_released, settle=1)
        for what in ("flight", "hotel"):
            await ctx.step(what, agency.reserve, what, compensate=undo)
        await ctx.wait_event("never")

    async def scenario(box: Sandbox) -> tuple[list[str], set[str]]:
        agency.clear()
        handle = await hold.submit(travel)
        await reaches(handle, TaskState.WAITING)
        await handle.cancel("ill")
        with pytest.raises(TaskCancelled, match="ill"):
            await handle.result(timeout=5000)
        assert agency.tries == {"flight": 1, "hotel": 1}, "an undo was made twice"
        return agency.book, {state.value for state in (await states_of(hold, handle)).values()}

    survived = await crash_everywhere(hold, scenario)
    assert survived.result == (["+flight", "+hotel", "-hotel", "-flight"], {"compensated"})
    assert survived.crashes >= 20


async def test_a_failing_undo_survives_a_crash_at_every_commit(agency: Agency) -> None:
    """Also between the last try of an undo and the question to a person, and between their answer and its end."""
    hold = Holdfast("memory://")

    @hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        await ctx.step("hotel", agency.reserve, "hotel", compensate=agency.release_at_once)
        raise ValueError("no money left")

    async def scenario(box: Sandbox) -> tuple[list[str], dict[str, EffectState], int]:
        agency.clear()
        agency.broken = {"hotel"}
        handle = await hold.submit(travel)
        [doubt] = await doubts_of(hold, handle, "hotel")
        await box.idle()
        assert agency.tries["hotel"] >= 3
        agency.broken = set()
        await hold.resolve(doubt, "compensate", by="anna")
        with pytest.raises(TaskFailed, match="no money left"):
            await handle.result(timeout=5000)
        assert len(agency.released) == 2
        questions = await hold.store.approvals(task_id=handle.id)
        return sorted(agency.book), await states_of(hold, handle), len(questions)

    survived = await crash_everywhere(hold, scenario)
    assert survived.result == (
        ["+flight", "+hotel", "-flight", "-hotel"],
        {"flight": EffectState.COMPENSATED, "hotel": EffectState.COMPENSATED},
        1,
    )
    assert survived.crashes >= 20


async def test_a_persons_word_is_good_for_one_more_undo_whatever_crashes(agency: Agency) -> None:
    """The undo is doubtful each time. It is not repeated blindly, not even after an earlier decision."""
    hold = Holdfast("memory://")
    refunds = 0

    async def refund(booking: Booking, what: str) -> None:
        nonlocal refunds
        refunds += 1
        raise TimeoutError("no answer")

    @hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        undo = Compensation(refund, effect="once", settle=1)
        await ctx.step("flight", agency.reserve, "flight", compensate=undo)
        raise ValueError("no money left")

    async def scenario(box: Sandbox) -> EffectState:
        nonlocal refunds
        refunds = 0
        handle = await hold.submit(travel)
        said = 0
        for decision in ("compensate", "undone"):
            [doubt] = await doubts_of(hold, handle, "flight")
            await box.idle()
            assert refunds <= said + 1, "made once more than was asked for"
            said += decision == "compensate"
            await hold.resolve(doubt, decision, by="anna")
            await box.idle()
        with pytest.raises(TaskFailed, match="no money left"):
            await handle.result(timeout=5000)
        assert refunds <= 2
        return (await states_of(hold, handle))["flight"]

    survived = await crash_everywhere(hold, scenario)
    assert survived.result is EffectState.COMPENSATED
    assert survived.crashes >= 20


@pytest.mark.parametrize("when", ["before_effect", "after_effect", "after_commit"])
async def test_an_undo_survives_two_dead_workers(agency: Agency, when: str) -> None:
    hold = Holdfast("memory://")

    @hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        for what in ("flight", "hotel", "car"):
            await ctx.step(what, agency.reserve, what, compensate=agency.release)
        raise ValueError("no money left")

    async with sandbox(hold) as box:
        with box.frozen():
            handle = await hold.submit(travel)
            undo = f"holdfast:undo:{effect_id(handle.id, 1, 'hotel')}"
            box.crash(undo, when=when, times=1 if when == "after_commit" else 2)  # type: ignore[arg-type]
        with pytest.raises(TaskFailed, match="no money left"):
            await handle.result(timeout=5000)
        trace = await box.trace(handle)
        assert trace.deaths == (1 if when == "after_commit" else 2)
        undos = {key: count for key, count in trace.runs.items() if key.startswith("holdfast:undo")}
    assert agency.book == ["+flight", "+hotel", "+car", "-car", "-hotel", "-flight"]
    assert sorted(undos.values()) == {"after_effect": [1, 1, 3]}.get(when, [1, 1, 1])
    assert len(agency.released) == 3


async def test_a_task_is_not_poison_because_its_undo_killed_a_worker(agency: Agency) -> None:
    """Two deaths make it a suspect, which runs alone; it still gets to its end."""
    hold = Holdfast("memory://")

    @hold.task(retry=AT_ONCE)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        raise ValueError("no money left")

    async with sandbox(hold) as box:
        handle = await hold.submit(travel)
        box.crash(f"holdfast:undo:{effect_id(handle.id, 1, 'flight')}", when="before_effect", times=2)
        with pytest.raises(TaskFailed, match="no money left"):
            await handle.result(timeout=5000)
        assert (await handle.task()).deaths == 2
    assert agency.book == ["+flight", "-flight"]


async def test_the_journal_of_an_undo_is_not_replayed_as_the_tasks(agency: Agency) -> None:
    """The code of a resumed task meets none of the lines that the undo has written."""
    hold = Holdfast("memory://")

    @hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> str:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        if ctx.attempt == 1:
            raise ValueError("no money left")
        await ctx.step("hotel", agency.reserve, "hotel", compensate=agency.release)
        return "there"

    async with sandbox(hold) as box:
        handle = await hold.submit(travel)
        with pytest.raises(TaskFailed):
            await handle.result(timeout=60)
        assert len(await undos_of(hold, handle)) == 1
        box.crash("hotel", when="after_commit")
        await hold.resume(handle)
        assert await handle.result(timeout=5000) == "there"
        steps = await steps_of(hold, handle)
        own = [step.position for key, step in steps.items() if not key.startswith("holdfast:")]
        assert len({step.position for step in steps.values()}) == len(steps)
        assert own == sorted(own)
    assert agency.book == ["+flight", "-flight", "+flight", "+hotel"]
