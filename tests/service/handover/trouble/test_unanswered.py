"""A question without an answer in time: the task can be claimed again, and the claimer learns why."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest

from holdfast import Holdfast, ManualClock, TaskState
from holdfast.engine.outside import questions
from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.codec import decode
from tests.service.handover.support import Outside, outside_steps, task_of


@pytest.fixture(autouse=True)
def a_minute(monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> None:
    """Give people a minute to answer. Agents outside cannot ask for that today; a store may hold such questions."""
    monkeypatch.setattr(questions, "Approval", partial(Approval, expires_at=clock.now() + timedelta(seconds=60)))


async def test_it_comes_back_without_an_answer(hold: Holdfast, ada: Outside, clock: ManualClock) -> None:
    task = await ada.offer()
    await ada.holding((await ada.take()).lease).ask("Which disk?")
    clock.advance(59)
    assert await ada.ask() is None
    assert (await task_of(hold, task.id)).state is TaskState.WAITING
    clock.advance(2)
    taken = await ada.take()
    [answer] = taken.answers
    assert (answer.question, answer.state, answer.answer, answer.by) == (
        "Which disk?",
        ApprovalState.EXPIRED,
        None,
        None,
    )
    assert taken.state is not None
    assert (taken.state.open_questions, taken.state.known_facts) == ((), ())
    [line] = (await outside_steps(hold, task.id)).values()
    assert decode(line.output or b"") == {"state": "expired", "answer": None, "by": None}
    [*_, patch] = await hold.state_history(task.id)
    assert patch.author == "engine"  # there was no answer


async def test_it_is_notified_until_the_next_question(hold: Holdfast, ada: Outside, clock: ManualClock) -> None:
    task = await ada.offer()
    await ada.holding((await ada.take()).lease).ask("Which disk?")
    clock.advance(61)
    await ada.holding((await ada.take()).lease).release("unknown")
    taken = await ada.take(task.id)
    assert [answer.state for answer in taken.answers] == [ApprovalState.EXPIRED]
    assert len(await hold.state_history(task.id)) == 3  # offered, asked, closed: once
