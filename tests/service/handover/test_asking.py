"""Questions to people: the task waits without a holder, and the next claim brings the answer, once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import Holdfast, InvalidValue, ManualClock, TaskState
from holdfast.model.approval import ApprovalState
from holdfast.model.errors import LeaseLost
from holdfast.model.patch import StatePatch
from tests.service.handover.support import NOTHING, Outside, living_workers, task_of


async def test_asking_hands_the_task_back_until_the_answer(hold: Holdfast, ada: Outside, bob: Outside) -> None:
    task = await ada.offer()
    lease = (await ada.take()).lease
    asked = await ada.holding(lease).ask("Which disk?")
    assert (asked.question, asked.requested_by, asked.state) == ("Which disk?", "mcp:ada", ApprovalState.OPEN)
    waiting = await task_of(hold, task.id)
    assert (waiting.state, waiting.owner) == (TaskState.WAITING, None)
    assert await living_workers(hold) == 0
    assert (await hold.state(task.id)).open_questions == ("Which disk?",)
    assert await bob.ask() is None
    with pytest.raises(LeaseLost):
        await ada.holding(lease).renew()
    await hold.answer(asked.id, "sdb", by="ann", note="the big one")
    assert (await task_of(hold, task.id)).state is TaskState.PENDING


async def test_the_answer_becomes_a_fact_of_its_author_and_the_question_is_closed(
    hold: Holdfast, ada: Outside, bob: Outside
) -> None:
    task = await ada.offer()
    asked = await ada.holding((await ada.take()).lease).ask("Which disk?")
    await hold.answer(asked.id, {"disk": "sdb"}, by="ann", note="the big one")
    taken = await bob.take()
    [answer] = taken.answers
    assert answer.to_json() == {
        "question": "Which disk?",
        "state": "answered",
        "answer": {"disk": "sdb"},
        "by": "ann",
        "note": "the big one",
    }
    assert taken.state is not None
    assert taken.state == await hold.state(task.id)
    assert taken.state.open_questions == ()
    [fact] = taken.state.known_facts
    assert (fact.key, fact.value, fact.source) == ("Which disk?", {"disk": "sdb"}, "human:ann")


async def test_it_is_noted_once_however_often_the_task_is_claimed(
    hold: Holdfast, ada: Outside, clock: ManualClock
) -> None:
    task = await ada.offer()
    asked = await ada.holding((await ada.take()).lease).ask("Which disk?")
    await hold.answer(asked.id, "sdb", by="ann")
    first = await ada.take()
    versions = [first.task.version]
    await ada.holding(first.lease).release("", NOTHING)
    versions.append((await ada.take()).task.version)
    clock.advance(61)
    again = await ada.take()
    versions.append(again.task.version)
    assert len(set(versions)) == 1
    assert [answer.answer for answer in again.answers] == ["sdb"]
    assert again.state is not None
    assert len(again.state.known_facts) == 1
    assert len(await hold.store.steps(task.id)) == 1


async def test_several_questions_are_answered_in_their_order(hold: Holdfast, ada: Outside, clock: ManualClock) -> None:
    await ada.offer()
    for question, answer in (("first?", 1), ("second?", 2)):
        clock.advance(1)
        asked = await ada.holding((await ada.take()).lease).ask(question)
        clock.advance(1)
        await hold.answer(asked.id, answer, by="ann")
    taken = await ada.take()
    assert [(answer.question, answer.answer) for answer in taken.answers] == [("first?", 1), ("second?", 2)]
    assert taken.state is not None
    assert [fact.key for fact in taken.state.known_facts] == ["first?", "second?"]
    assert taken.state.open_questions == ()


async def test_the_same_question_twice_is_two_questions(hold: Holdfast, ada: Outside) -> None:
    await ada.offer()
    for answer in ("no", "yes"):
        asked = await ada.holding((await ada.take()).lease).ask("Now?")
        await hold.answer(asked.id, answer, by="ann")
    taken = await ada.take()
    assert sorted(str(answer.answer) for answer in taken.answers) == ["no", "yes"]
    assert taken.state is not None
    assert taken.state.open_questions == ()
    assert [fact.value for fact in taken.state.known_facts] == ["no", "yes"]


async def test_a_rejected_question(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer()
    asked = await ada.holding((await ada.take()).lease).ask("Which disk?")
    await hold.reject(asked.id, by="ann", note="find out yourself")
    taken = await ada.take(task.id)
    [answer] = taken.answers
    assert (answer.state, answer.answer, answer.by, answer.note) == (
        ApprovalState.REJECTED,
        None,
        "ann",
        "find out yourself",
    )
    assert taken.state is not None
    assert (taken.state.open_questions, taken.state.known_facts) == ((), ())


async def test_a_question_that_was_closed_by_hand_meanwhile(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer()
    asked = await ada.holding((await ada.take()).lease).ask("Which disk?")
    await hold.patch_state(task.id, StatePatch(resolve_questions=("Which disk?",)), version=2, by="ann")
    await hold.answer(asked.id, "sdb", by="ann")
    taken = await ada.take()
    assert taken.state is not None
    assert taken.state.open_questions == ()
    assert [fact.value for fact in taken.state.known_facts] == ["sdb"]


async def test_the_deadline_of_a_task_holds_while_it_waits_for_an_answer(
    hold: Holdfast, ada: Outside, clock: ManualClock
) -> None:
    task = await ada.offer(deadline=clock.now() + timedelta(seconds=100))
    await ada.holding((await ada.take()).lease).ask("Which disk?")
    clock.advance(101)
    assert await ada.ask() is None
    assert (await task_of(hold, task.id)).state is TaskState.FAILED


async def test_a_task_that_is_cancelled_while_it_waits(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer()
    await ada.holding((await ada.take()).lease).ask("Which disk?")
    assert await hold.cancel(task.id, by="ann") is TaskState.CANCELLED
    assert await ada.ask() is None


@pytest.mark.parametrize("question", ["", "   ", "a\0b", "\ud800"], ids=repr)
async def test_what_cannot_be_asked(hold: Holdfast, ada: Outside, question: str) -> None:
    task = await ada.offer()
    lease = (await ada.take()).lease
    with pytest.raises(InvalidValue):
        await ada.holding(lease).ask(question)
    assert (await task_of(hold, task.id)).state is TaskState.RUNNING
    assert await hold.approvals(task.id) == []
