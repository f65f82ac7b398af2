"""A person decides what is to be taken as true: what follows for the step, the task and the second decider."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import (
    ApprovalState,
    Conflict,
    Context,
    Decision,
    Doubt,
    EffectState,
    Handle,
    Holdfast,
    InvalidValue,
    NotFound,
    Retry,
    StepFailed,
    StepState,
    TaskFailed,
    TaskState,
)
from holdfast.testing import sandbox
from holdfast.testing.snapshot import snapshot
from tests.engine.effects.support import World, effect_of, open_doubt, stands, step_states
from tests.engine.support import ended, reaches, until

S = EffectState


@asynccontextmanager
async def another(hold: Holdfast, url: str) -> AsyncIterator[Holdfast]:
    """Another Holdfast on the same store, without a task or a worker; the same where there can be no other."""
    if url.startswith(("memory:", "json:")):
        yield hold
    else:
        async with Holdfast(url) as other:
            yield other


def lossy(hold: Holdfast, world: World, **options: Any) -> Any:  # noqa: ANN401
    """Define a task whose one call loses its first answer."""

    async def pay(amount: int, effect_id: str) -> str:
        if not world.calls:
            return await world.pay_then_lose_the_answer(amount, effect_id)
        return await world.pay(amount, effect_id)

    @hold.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", pay, 5, effect="once", settle=0, **options)

    return work


async def in_doubt(hold: Holdfast, world: World, **options: Any) -> tuple[Handle[str], Doubt]:  # noqa: ANN401
    """Bring a task to the point at which a person is asked, and leave it there without a worker."""
    handle: Handle[str] = await hold.submit(lossy(hold, world, **options))
    async with hold.worker():
        await open_doubt(hold, handle)
        await reaches(handle, TaskState.WAITING)
    return handle, await open_doubt(hold, handle)


# What each decision means. On every kind of store, by a process that has neither the code nor a worker.


async def test_it_happened(hold: Holdfast, url: str, world: World) -> None:
    handle, doubt = await in_doubt(hold, world)
    async with another(hold, url) as other:
        decided = await other.resolve(doubt.effect.effect_id, "happened", result="paid, says the bank", by="anna")
    assert decided.state is S.DONE
    assert (await handle.task()).state is TaskState.PENDING, "it is woken, and needed no worker for that"
    async with hold.worker():
        assert await ended(handle) == "paid, says the bank"
    assert await step_states(hold, handle) == {"pay": StepState.COMPLETED}
    assert len(world.calls) == 1
    assert await hold.doubts() == []


async def test_it_did_not_happen(hold: Holdfast, url: str, world: World) -> None:
    """It is called again under the same id, whatever its policy says: a person wants it."""
    handle, doubt = await in_doubt(hold, world)
    async with another(hold, url) as other:
        decided = await other.resolve(doubt.effect.effect_id, "absent", by="anna")
    assert decided.state is S.INTENDED
    async with hold.worker():
        assert await ended(handle) == "paid 5"
    assert world.calls == [doubt.effect.effect_id] * 2
    assert (await effect_of(hold, handle)).state is S.DONE


async def test_undo_it(hold: Holdfast, url: str, world: World) -> None:
    """In case it happened: its result is unknown."""
    undone: list[tuple[Any, ...]] = []

    async def give_back(result: str | None, amount: int) -> None:
        undone.append((result, amount))

    handle, doubt = await in_doubt(hold, world, compensate=give_back)
    assert Decision.COMPENSATE in doubt.decisions
    async with another(hold, url) as other:
        decided = await other.resolve(doubt.effect.effect_id, "compensate", by="anna", note="to be safe")
    assert decided.state is S.COMPENSATING
    async with hold.worker():
        with pytest.raises(TaskFailed, match="was undone: compensate, by anna: to be safe") as failed:
            await ended(handle)
    assert failed.value.type_name == "holdfast.EffectGivenUp"
    assert undone == [(None, 5)]
    assert len(world.calls) == 1
    states = {effect.step_key: effect.state for effect in await hold.store.effects(task_id=handle.id)}
    assert states["pay"] is S.COMPENSATED


async def test_leave_it(hold: Holdfast, url: str, world: World) -> None:
    handle, doubt = await in_doubt(hold, world)
    async with another(hold, url) as other:
        decided = await other.resolve(doubt.effect.effect_id, "abandon", by="anna", note="not worth it")
    assert decided.state is S.ABANDONED
    async with hold.worker():
        with pytest.raises(TaskFailed, match="was given up: abandon, by anna: not worth it") as failed:
            await ended(handle)
    assert failed.value.type_name == "holdfast.EffectGivenUp"
    assert await step_states(hold, handle) == {"pay": StepState.FAILED}
    assert len(world.calls) == 1


async def test_the_code_can_go_on_without_what_was_given_up(quick: Holdfast, world: World) -> None:
    @quick.task
    async def work(ctx: Context) -> str:
        try:
            return await ctx.step("pay", world.pay_then_lose_the_answer, 5, effect="once", settle=0)
        except StepFailed as failed:
            return await ctx.step("remind", world.pay, f"a letter, for {failed.type_name}")

    handle = await quick.submit(work)
    async with quick.worker():
        await quick.resolve(await open_doubt(quick, handle), Decision.ABANDON, by="anna")
        assert await ended(handle) == "paid a letter, for holdfast.EffectGivenUp"


@pytest.mark.parametrize("form", ["doubt", "effect", "id"])
async def test_it_is_named_as_a_doubt_an_effect_or_an_id(quick: Holdfast, world: World, form: str) -> None:
    handle, doubt = await in_doubt(quick, world)
    named: Any = {"doubt": doubt, "effect": doubt.effect, "id": doubt.effect.effect_id}[form]
    await quick.resolve(named, Decision.HAPPENED, result="paid", by="anna")
    async with quick.worker():
        assert await ended(handle) == "paid"


async def test_a_new_doubt_after_absent_is_asked_again(quick: Holdfast, world: World) -> None:
    @quick.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay_then_lose_the_answer, 5, effect="once", settle=0)

    handle = await quick.submit(work)
    asked: set[str | None] = set()
    async with quick.worker():
        for number in range(3):
            doubt = await open_doubt(quick, handle)
            asked.add(doubt.approval_id)
            assert doubt.effect.attempt == number + 1
            await quick.resolve(doubt, "absent", by="anna")
            await until(lambda: len(world.calls) > number + 1)  # noqa: B023
        doubt = await open_doubt(quick, handle)
        await quick.resolve(doubt, "happened", result="at last", by="anna")
        assert await ended(handle) == "at last"
    assert len(asked) == 3
    assert len(set(world.calls)) == 1
    assert len(world.calls) == 4


async def test_a_busy_sibling_changes_nothing(quick: Holdfast, world: World) -> None:
    """The task stays on its worker meanwhile; the decision means the same."""
    go_on = asyncio.Event()

    async def busy() -> str:
        await go_on.wait()
        return "done"

    async def pay(amount: int, effect_id: str) -> str:
        if not world.calls:
            return await world.pay_then_lose_the_answer(amount, effect_id)
        return await world.pay(amount, effect_id)

    @quick.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> list[str]:
        return list(
            await asyncio.gather(ctx.step("pay", pay, 5, effect="once", settle=0, timeout=60), ctx.step("busy", busy))
        )

    handle = await quick.submit(work)
    async with quick.worker():
        doubt = await open_doubt(quick, handle)
        assert (await handle.task()).state is TaskState.RUNNING
        await quick.resolve(doubt, "absent", by="anna")
        await until(lambda: len(world.calls) == 2)
        go_on.set()
        assert await ended(handle) == ["paid 5", "done"]


# Results


@dataclass
class Receipt:
    number: int
    at: datetime | None = None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"number": 7}, Receipt(7)),  # as a command line or a web page has it
        ({"number": 7, "at": "2026-01-01T00:00:00+00:00"}, Receipt(7, datetime(2026, 1, 1, tzinfo=UTC))),
        (None, None),
        ("no receipt", "no receipt"),  # it does not fit: then it is what they say
        ({"wrong": 1}, {"wrong": 1}),
    ],
)
async def test_plain_data_becomes_what_the_call_would_have_returned(
    quick: Holdfast,
    given: object,
    expected: object,
) -> None:
    seen: list[object] = []

    async def pay() -> Receipt:
        raise ConnectionResetError

    @quick.task
    async def work(ctx: Context) -> str:
        seen.append(await ctx.step("pay", pay, effect="once", settle=0))
        return "seen"

    handle = await quick.submit(work)
    async with quick.worker():
        await quick.resolve(await open_doubt(quick, handle), "happened", result=given, by="anna")
        assert await ended(handle) == "seen"
    assert seen == [expected]


# Two deciders


@pytest.mark.parametrize("second", list(Decision))
async def test_the_second_gets_an_error(hold: Holdfast, url: str, world: World, second: Decision) -> None:
    _, doubt = await in_doubt(hold, world)
    async with another(hold, url) as other:
        await other.resolve(doubt, "happened", result="paid", by="anna", note="saw it")
        before = await snapshot(hold.store)
        with pytest.raises(Conflict, match=r"not in doubt, or not any more: it is done \(happened, by anna: saw it\)"):
            await hold.resolve(doubt, second, by="bob")
        assert await snapshot(hold.store) == before


LEADS_TO = {Decision.HAPPENED: S.DONE, Decision.ABSENT: S.INTENDED, Decision.ABANDON: S.ABANDONED}
RIVALS = [(first, second) for first in LEADS_TO for second in LEADS_TO]


@pytest.mark.parametrize("has_ended", [False, True], ids=["waiting", "ended"])
async def test_exactly_one_of_two_at_the_same_time_decides(
    hold: Holdfast, url: str, world: World, has_ended: bool
) -> None:
    """Again and again, on every kind of store: while a person is asked, and after the task has ended."""

    @hold.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay_then_lose_the_answer, 5, effect="once", settle=0)

    async with hold.worker():
        handles = [await hold.submit(work) for _ in range(2 * len(RIVALS))]
        for handle in handles:
            await open_doubt(hold, handle)
            await reaches(handle, TaskState.WAITING)
    if has_ended:
        for handle in handles:
            await hold.cancel(handle)
    async with another(hold, url) as other:
        for number, handle in enumerate(handles):
            doubt = await open_doubt(hold, handle)
            decisions = RIVALS[number % len(RIVALS)]
            answers = await asyncio.gather(
                hold.resolve(doubt, decisions[0], by="anna"),
                other.resolve(doubt, decisions[1], by="bob"),
                return_exceptions=True,
            )
            lost = [answer for answer in answers if isinstance(answer, BaseException)]
            assert [type(one) for one in lost] == [Conflict], (decisions, answers)
            effect = await effect_of(hold, handle)
            won, by = (decisions[0], "anna") if isinstance(answers[1], Conflict) else (decisions[1], "bob")
            assert effect.note == f"{won}, by {by}"
            assert effect.state is LEADS_TO[won]


@pytest.mark.parametrize("has_ended", [False, True], ids=["waiting", "ended"])
async def test_a_decision_between_two_looks_is_noticed(quick: Holdfast, world: World, has_ended: bool) -> None:
    """Anna decides just after Bob looked at the effect, and just before he looks at its task."""
    handle, doubt = await in_doubt(quick, world)
    if has_ended:
        await quick.cancel(handle)
    get, fired = quick.store.get, False

    async def decided_meanwhile(task_id: str) -> Any:  # noqa: ANN401
        nonlocal fired
        if not fired:
            fired = True
            await quick.resolve(doubt, "absent", by="anna")
        return await get(task_id)

    quick.store.get = decided_meanwhile  # type: ignore[method-assign]
    with pytest.raises(Conflict):
        await quick.resolve(doubt, "abandon", by="bob")
    assert fired
    effect = await effect_of(quick, handle)
    assert (effect.state, effect.note) == (S.INTENDED, "absent, by anna")


# Mistakes change nothing


@pytest.mark.parametrize(
    ("mistake", "error", "message"),
    [
        ({"decision": "perhaps"}, InvalidValue, "'perhaps' is not a valid decision; choose one of happened, absent"),
        ({"decision": ""}, InvalidValue, "is not a valid decision"),
        ({"decision": "undone"}, Conflict, "cannot be resolved as 'undone'; choose one of happened, absent, abandon"),
        ({"decision": "compensate"}, Conflict, "cannot be resolved as 'compensate'; choose one of"),
        ({"effect": "unknown"}, NotFound, "no effect 'unknown' in this store"),
        ({"by": ""}, InvalidValue, "by"),
        ({"by": None}, InvalidValue, "by"),
        ({"note": 7}, InvalidValue, "note is 7; give a text"),
        ({"result": "paid", "decision": "absent"}, InvalidValue, "a result is only possible with"),
        ({"result": "paid", "decision": "abandon"}, InvalidValue, "a result is only possible with"),
        ({"result": object()}, InvalidValue, "result"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
async def test_a_mistake_is_reported_and_changes_nothing(
    quick: Holdfast, world: World, mistake: dict[str, Any], error: type[Exception], message: str
) -> None:
    handle, doubt = await in_doubt(quick, world)
    before = await snapshot(quick.store)
    asked: dict[str, Any] = {"effect": doubt, "decision": "happened", "by": "anna", "note": None, **mistake}
    with pytest.raises(error, match=message):
        await quick.resolve(
            asked["effect"], asked["decision"], by=asked["by"], note=asked["note"], result=asked.get("result")
        )
    assert await snapshot(quick.store) == before
    await quick.resolve(doubt, "happened", result="paid", by="anna")
    async with quick.worker():
        assert await ended(handle) == "paid"


async def test_what_is_not_a_doubt_cannot_be_decided(quick: Holdfast, world: World) -> None:
    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay, 5, effect="once")

    handle = await quick.submit(work)
    async with quick.worker():
        await ended(handle)
    with pytest.raises(Conflict, match="is not in doubt"):
        await quick.resolve(await effect_of(quick, handle), "abandon", by="anna")
    assert (await effect_of(quick, handle)).state is S.DONE


async def test_what_is_under_way_is_left_alone(app: Holdfast, world: World) -> None:
    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.hang, 5, effect="once", timeout=60, settle=600, reconcile=world.was_paid)

    async with sandbox(app) as box:
        with box.frozen():
            handle = await app.submit(work)
            await box.idle()
            effect = await stands(app, handle, S.ARMED)
            with pytest.raises(
                Conflict, match="the worker that made the call still clears it up by itself until 2026-"
            ):
                await app.resolve(effect, "absent", by="anna")
            assert await effect_of(app, handle) == effect
        assert await handle.result() == "paid 5"


# The record


async def test_who_decided_what_and_why_is_on_record(hold: Holdfast, world: World) -> None:
    """On every kind of store."""
    handle, doubt = await in_doubt(hold, world)
    assert doubt.approval_id is not None
    asked = await hold.store.approval(doubt.approval_id)
    assert asked is not None
    assert (asked.kind, asked.state, asked.step_key, asked.task_id) == ("doubt", ApprovalState.OPEN, "pay", handle.id)
    assert asked.question == doubt.question
    assert "Did step 'pay' of task 'work' happen?" in asked.question
    before = await hold.store.now()
    await hold.resolve(doubt, "happened", result={"receipt": 7}, by="anna", note="saw it on the statement")
    record = await hold.store.approval(doubt.approval_id)
    assert record is not None
    assert record.state is ApprovalState.ANSWERED
    assert (record.decided_by, record.note) == ("anna", "saw it on the statement")
    assert record.answer == {"decision": "happened"}
    assert record.decided_at is not None
    assert before <= record.decided_at <= await hold.store.now()
    effect = await effect_of(hold, handle)
    assert effect.note == "happened, by anna: saw it on the statement"
    [*_, move] = await hold.store.history(handle.id)
    assert (move.to_state, move.actor) == (TaskState.PENDING, "anna")


async def test_the_question_cannot_be_approved(quick: Holdfast, world: World) -> None:
    _, doubt = await in_doubt(quick, world)
    assert doubt.approval_id is not None
    assert await quick.approvals() == []
    advice = rf"use hold.resolve\('{doubt.effect.effect_id}', \.\.\.\)"
    with pytest.raises(InvalidValue, match=advice):
        await quick.approve(doubt.approval_id, by="anna")
    with pytest.raises(InvalidValue, match=advice):
        await quick.reject(doubt.approval_id, by="anna")
    with pytest.raises(InvalidValue, match=advice):
        await quick.answer(doubt.approval_id, "yes", by="anna")
    assert len(await quick.doubts()) == 1


# After the end


@pytest.mark.parametrize(
    ("decision", "state", "result", "calls"),
    [
        ("happened", S.DONE, "paid, says the bank", 1),
        ("absent", S.INTENDED, "paid 5", 2),
        ("abandon", S.ABANDONED, None, 1),
    ],
)
async def test_the_doubt_of_an_ended_task_can_be_decided(
    hold: Holdfast, url: str, world: World, *, decision: str, state: EffectState, result: str | None, calls: int
) -> None:
    """Nothing happens by that; but a caller that resumes the task finds it. On every kind of store."""
    broken = True

    @hold.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        if not broken:
            return await ctx.step("pay", world.pay, 5, effect="once", reconcile=world.was_paid, settle=0)
        paying = asyncio.create_task(ctx.step("pay", world.hang, 5, effect="once", timeout=1, settle=0))
        await until(lambda: world.calls)
        paying.cancel()
        raise ZeroDivisionError

    handle = await hold.submit(work)
    async with hold.worker():
        with pytest.raises(TaskFailed):
            await ended(handle)
        async with another(hold, url) as other:
            given = {"result": result} if decision == "happened" else {}
            decided = await other.resolve(await open_doubt(other, handle), decision, by="anna", **given)
        assert decided.state is state
        assert decided.note == f"{decision}, by anna"
        assert await hold.doubts() == []
        assert (await handle.task()).state is TaskState.FAILED
        broken = False
        await hold.resume(handle)
        if result is None:
            with pytest.raises(TaskFailed, match="was given up"):
                await ended(handle)
        else:
            assert await ended(handle) == result
    assert len(world.calls) == calls
    assert world.asked == []


async def test_only_decisions_without_a_worker_are_possible_after_the_end(quick: Holdfast, world: World) -> None:
    """The code that could undo it is gone with the task."""
    handle, _ = await in_doubt(quick, world)
    await quick.cancel(handle)
    doubt = await open_doubt(quick, handle)
    with pytest.raises(Conflict, match=r"\(cancelled\) cannot be resolved as 'compensate'"):
        await quick.resolve(doubt, "compensate", by="anna")
    assert doubt.decisions == (Decision.HAPPENED, Decision.ABSENT, Decision.ABANDON)
