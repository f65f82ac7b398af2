"""Every caller may submit a task called handover, with anything in it. It is handed out, and stops no agent."""

from __future__ import annotations

import pytest

from holdfast import Holdfast, TaskState
from holdfast.model.task import HANDOVER, JsonValue, NewTask
from tests.service.handover.support import Outside, facts, task_of

WITH_A_GOAL: dict[str, JsonValue] = {
    "a plan that is a number": ["g", {"plan": 5}],
    "a plan that is a text": ["g", {"plan": "look"}],
    "a plan that is an object": ["g", {"plan": {"a": 1}}],
    "a plan that is null": ["g", {"plan": None}],
    "a plan of nothing": ["g", {"plan": []}],
    "a plan with a number in it": ["g", {"plan": ["a", 5]}],
    "a plan with a null in it": ["g", {"plan": [None]}],
    "a plan with a list in it": ["g", {"plan": [["a"]]}],
    "the same step twice": ["g", {"plan": ["a", "a"]}],
    "a step without a word": ["g", {"plan": [""]}],
    "no object behind the goal": ["g", 5],
    "more than two arguments": ["g", {"plan": ["a"]}, "more"],
    "an empty goal": [""],
}
WITHOUT: dict[str, JsonValue] = {
    "a goal that is a number": [5],
    "a goal that is an object": [{"goal": "g"}],
    "no arguments": [],
    "an object": {"goal": "g"},
    "arguments by name": {"args": [], "kwargs": {"goal": "g", "plan": 5}},
    "a text": "g",
    "nothing": None,
}


async def submit(hold: Holdfast, given: JsonValue) -> None:
    """Something odd, in front of what another agent waits for."""
    await hold.store.submit([NewTask(id="odd", name=HANDOVER, user_input=given, priority=10)])
    await hold.store.submit([NewTask(id="good", name=HANDOVER, user_input=["Free the disk"])])


@pytest.mark.parametrize("given", WITH_A_GOAL)
async def test_with_a_goal_it_has_a_state(hold: Holdfast, ada: Outside, given: str) -> None:
    await submit(hold, WITH_A_GOAL[given])
    odd = await ada.take()
    assert odd.task.id == "odd"
    assert odd.state is not None
    assert all(isinstance(step, str) for step in odd.state.plan)
    assert not await ada.step(odd.lease, "look", 1, facts(disk="92%"))
    assert (await ada.holding(odd.lease).finish("done")).task.state is TaskState.COMPLETED
    assert (await ada.take()).task.id == "good"


@pytest.mark.parametrize("given", WITHOUT)
async def test_without_one_it_is_handed_out_all_the_same(hold: Holdfast, ada: Outside, given: str) -> None:
    await submit(hold, WITHOUT[given])
    odd = await ada.take()
    assert (odd.task.id, odd.state) == ("odd", None)
    assert not await ada.step(odd.lease, "look", 1)
    await ada.holding(odd.lease).release("what is this?")
    again = await ada.take("odd")
    assert [note["note"] for note in again.notes] == ["what is this?"]
    assert (await ada.holding(again.lease).give_up("makes no sense")).task.state is TaskState.FAILED
    assert (await ada.take()).task.id == "good"


@pytest.mark.parametrize("given", WITHOUT)
async def test_a_question_about_it_is_answered(hold: Holdfast, ada: Outside, given: str) -> None:
    await submit(hold, WITHOUT[given])
    asked = await ada.holding((await ada.take("odd")).lease).ask("What is to be done?")
    await hold.answer(asked.id, "nothing", by="ann")
    taken = await ada.take("odd")
    assert [(answer.question, answer.answer) for answer in taken.answers] == [("What is to be done?", "nothing")]
    await ada.holding(taken.lease).finish(None)
    assert (await task_of(hold, "odd")).state is TaskState.COMPLETED
