"""Rejected work goes into another round: what people changed, what the task planned and what was done once stay."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import Conflict, Handle, Holdfast, InvalidValue, Retry, StatePatch, TaskFailed, tool
from holdfast.agent.model import Request
from holdfast.agent.scripted import Answer, ScriptedCall, call
from holdfast.engine.manage.message import inbox
from holdfast.model.agent_state import Constraints, HumanInTheLoop
from holdfast.model.risk import RiskLevel
from holdfast.model.task import JsonValue
from tests.agent.support import PATIENCE, asked, finished, heard, register, tool_results
from tests.engine.support import until

ONE_TRY = Retry(max_attempts=1)
CAREFUL = Constraints(human_in_the_loop=HumanInTheLoop(required_for_risk_levels=(RiskLevel.EXTERNAL_ACTION,)))


async def tighten(hold: Holdfast, handle: Handle[Any]) -> None:
    """Ask to be asked before anything is done to the world."""
    version = (await handle.task()).version
    await hold.patch_state(handle, StatePatch(constraints=CAREFUL), version=version, by="ann")


# Going on from another task


async def test_a_new_round_keeps_the_constraints_and_the_plan_of_the_task(hold: Holdfast) -> None:
    acted: list[int] = []
    task: list[Handle[str]] = []

    @tool
    async def act() -> str:
        """Act."""
        acted.append(1)
        return "acted"

    async def think(request: Request) -> Answer:
        match request.turn:
            case 2:
                return call("update_plan", plan=["new 1", "new 2"], current_step="new 2", completed=["new 1"])
            case 3:
                await tighten(hold, task[0])
                return "bad"
            case 4:
                return call("act")
            case _:
                return "good"

    first, _ = register(hold, [call("update_plan", plan=["old 1", "old 2"], current_step="old 1"), "first"], name="one")
    second, _ = register(
        hold,
        think,
        name="two",
        tools=[act],
        verify=lambda _ctx, result: result == "good" or "mend it",
        retry=Retry(max_attempts=3),
    )
    before = await finished(hold, first)
    task.append(await hold.submit(second, "go on", after=before))
    async with hold.worker():
        question = await asked(hold, task[0])
        assert acted == []
        await hold.approve(question.id, by="ann")
        assert await task[0].result(timeout=PATIENCE) == "good"
    state = await hold.state(task[0])
    assert state.constraints == CAREFUL
    assert (state.plan, state.current_step, state.completed_steps) == (("new 1", "new 2"), "new 2", ("new 1",))
    assert acted == [1]


async def test_the_task_before_may_be_pruned_between_two_rounds(hold: Holdfast) -> None:
    first, _ = register(hold, ["first"], name="one")
    second, model = register(hold, ["bad", "bad", "good"], name="two", verify="human", retry=Retry(max_attempts=3))
    before = await finished(hold, first, "begin")
    task = await hold.submit(second, "go on", after=before)
    async with hold.worker():
        question = await asked(hold, task)
        await hold.store.prune(timedelta(0))
        assert await hold.store.get(before.id) is None
        await hold.reject(question.id, by="ann", note="mend it")
        question = await asked(hold, task)
        await hold.approve(question.id, by="ann")
        assert await task.result(timeout=PATIENCE) == "good"
    assert heard(model)[:2] == ["begin", "go on"]
    assert "mend it" in heard(model)[2]


async def test_constraints_tightened_while_the_model_thinks_hold_for_what_it_answers(hold: Holdfast) -> None:
    acted: list[str] = []
    task: list[Handle[str]] = []

    @tool
    async def once() -> str:
        """Act."""
        acted.append("once")
        return "acted"

    @tool(effect="idempotent")
    async def idempotent() -> str:
        """Act."""
        acted.append("idempotent")
        return "acted"

    async def think(_request: Request) -> list[ScriptedCall]:
        await tighten(hold, task[0])
        return [call("once"), call("idempotent")]

    agent, model = register(hold, [think, "done"], tools=[once, idempotent])
    task.append(await hold.submit(agent, "go"))
    async with hold.worker():

        async def both_are_asked() -> bool:
            return len(await hold.approvals(task[0])) == 2

        await until(both_are_asked, patience=PATIENCE)
        assert acted == []
        for question in await hold.approvals(task[0]):
            await hold.reject(question.id, by="ann", note="not now")
        await task[0].result(timeout=PATIENCE)
    assert acted == []
    assert all("not now" in said for said in tool_results(model))


# Once


async def test_of_two_equal_calls_in_the_third_round_only_the_second_is_made(hold: Holdfast) -> None:
    paid: list[int] = []

    @tool
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid, number {len(paid)}"

    once = call("pay", amount=1)
    agent, model = register(
        hold,
        [once, "bad", once, "bad", [once, once], "good"],
        tools=[pay],
        verify=lambda _ctx, result: result == "good" or "again",
        retry=Retry(max_attempts=5),
    )
    await finished(hold, agent)
    assert paid == [1, 1]
    assert tool_results(model)[-2:] == ["paid, number 1", "paid, number 2"]


# What is said


async def test_a_message_with_resume_is_refused_unless_the_task_has_failed(hold: Holdfast) -> None:
    agent, model = register(hold, [ValueError("boom"), "done"], model_retry=ONE_TRY, retry=ONE_TRY)
    task = await hold.submit(agent, "go")
    async with hold.worker():
        with pytest.raises(TaskFailed):
            await task.result(timeout=PATIENCE)
    await hold.resume(task, message="try port 8080")
    with pytest.raises(Conflict, match=r"hold\.send"):
        await hold.resume(task, message="and hurry")
    await hold.resume(task)  # without one there is nothing to lose
    async with hold.worker():
        await task.result(timeout=PATIENCE)
    with pytest.raises(Conflict, match="not failed"):
        await hold.resume(task, message="thanks")
    assert heard(model) == ["go", "try port 8080"]


async def test_messages_of_an_earlier_round_are_heard_after_a_retry(hold: Holdfast) -> None:
    def think(_request: Request) -> str | BaseException:
        return ValueError("boom") if len(model.requests) == 1 else "done"

    agent, model = register(hold, think, model_retry=ONE_TRY, retry=ONE_TRY)
    task = await hold.submit(agent, "go")
    await hold.send(task, "use port 8080")
    async with hold.worker():
        with pytest.raises(TaskFailed):
            await task.result(timeout=PATIENCE)
        await hold.retry(task)
        await task.result(timeout=PATIENCE)
    assert heard(model) == ["go", "use port 8080"]


async def test_a_message_cannot_be_forged(hold: Holdfast) -> None:
    agent, model = register(hold, [call("ask_question", question="which?"), "done"])

    task = await hold.submit(agent, "go")
    async with hold.worker():
        question = await asked(hold, task)
        with pytest.raises(InvalidValue, match=r"hold\.send"):
            await hold.emit(inbox(task.id), {"text": "forged"})
        await hold.answer(question.id, "this", by="ann")
        await task.result(timeout=PATIENCE)
    assert heard(model) == ["go"]


@pytest.mark.parametrize("payload", [{"hello": 1}, {"text": 7}, "garbage", None])
async def test_what_is_not_a_message_is_passed_over(hold: Holdfast, payload: JsonValue) -> None:
    agent, model = register(hold, [call("ask_question", question="which?"), "done"])
    task = await hold.submit(agent, "go")
    async with hold.worker():
        question = await asked(hold, task)
        await hold.store.emit(inbox(task.id), payload)
        await hold.send(task, "a real one")
        await hold.answer(question.id, "this", by="ann")
        assert await task.result(timeout=PATIENCE) == "done"
    assert heard(model) == ["go", "a real one"]
