"""A Commit whose answer was lost is sent again by the store. It is done once, and the caller gets the true outcome."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from holdfast import Holdfast, TaskState
from holdfast.engine.outside import LeaseToken, add_artifact, patch_state
from holdfast.engine.outside.shared_state import append
from holdfast.model.approval import ApprovalState
from holdfast.model.codec import decode
from holdfast.model.errors import StateConflict
from tests.service.handover.support import VERBS, Outside, facts, living_workers, task_of
from tests.service.handover.trouble.lossy import Losing, losing

Verb = Callable[[Outside, LeaseToken], Awaitable[object]]


async def keep_a_file(ada: Outside, lease: LeaseToken) -> object:
    return await add_artifact(
        ada.hold, lease.task_id, b"log", name="a.log", media_type=None, summary="a log", by=ada.actor, lease=lease
    )


async def keep_a_file_without_a_lease(ada: Outside, lease: LeaseToken) -> object:
    return await add_artifact(
        ada.hold, lease.task_id, b"log", name="a.log", media_type=None, summary="a log", by=ada.actor, lease=None
    )


def held(name: str) -> Verb:
    return lambda ada, lease: VERBS[name](ada.holding(lease))


EVERY: dict[str, Verb] = {
    **{name: held(name) for name in VERBS if name not in {"renew", "change"}},
    "append under the lease": lambda ada, lease: append(
        ada.hold, lease.task_id, facts(disk="92%"), by=ada.actor, lease=lease
    ),
    "append": lambda ada, lease: append(ada.hold, lease.task_id, facts(disk="92%"), by=ada.actor, lease=None),
    "add_artifact under the lease": keep_a_file,
    "add_artifact": keep_a_file_without_a_lease,
}
"""Everything an agent outside can write, except what the tests below look at more closely."""


@pytest.fixture
def fault(hold: Holdfast, monkeypatch: pytest.MonkeyPatch) -> Losing:
    return losing(hold, monkeypatch)


async def outline(hold: Holdfast, task_id: str) -> object:
    """All a call may have left, without what differs between two tasks."""
    task, state = await task_of(hold, task_id), await hold.state(task_id)
    approvals = await hold.store.approvals(task_id=task_id, states=frozenset(ApprovalState), limit=100)
    return (
        (task.state, task.result, task.owner is None),
        [(step.kind, step.state, step.output and decode(step.output)) for step in await hold.store.steps(task_id)],
        [(move.to_state, move.reason, move.actor) for move in await hold.store.history(task_id)],
        [(fact.key, fact.value, fact.source) for fact in state.known_facts],
        (state.open_questions, [one.artifact_id for one in state.artifacts]),
        [(one.name, one.summary) for one in await hold.store.artifact_links(task_id)],
        [event.payload for event in await hold.store.events(f"task:{task_id}")],
        [(one.question, one.state, one.requested_by) for one in approvals],
    )


@pytest.mark.parametrize("verb", EVERY)
async def test_it_is_done_as_if_no_answer_had_been_lost(hold: Holdfast, ada: Outside, fault: Losing, verb: str) -> None:
    untroubled, troubled = await ada.offer("same"), await ada.offer("same")
    await EVERY[verb](ada, (await ada.take(untroubled.id)).lease)
    left = await living_workers(hold)
    lease = (await ada.take(troubled.id)).lease
    fault.next()
    await EVERY[verb](ada, lease)
    assert fault.lost == 1
    assert await outline(hold, troubled.id) == await outline(hold, untroubled.id)
    assert await living_workers(hold) == 2 * left


async def test_a_first_step_is_not_a_repetition(ada: Outside, fault: Losing) -> None:
    await ada.offer()
    lease = (await ada.take()).lease
    fault.next()
    assert not await ada.step(lease, "look", 1)
    assert fault.lost == 1
    assert await ada.step(lease, "look", 1)


async def test_who_asked_gets_the_question_that_was_asked(hold: Holdfast, ada: Outside, fault: Losing) -> None:
    task = await ada.offer()
    lease = (await ada.take()).lease
    fault.next()
    asked = await ada.holding(lease).ask("Which disk?")
    assert fault.lost == 1
    assert [one.id for one in await hold.approvals(task.id)] == [asked.id]
    await hold.answer(asked.id, "sdb", by="ann")
    assert [answer.answer for answer in (await ada.take(task.id)).answers] == ["sdb"]


async def test_a_claim_by_id(hold: Holdfast, ada: Outside, fault: Losing) -> None:
    task = await ada.offer()
    fault.next()
    taken = await ada.take(task.id)
    assert fault.lost == 1
    assert taken.task.state is TaskState.RUNNING
    assert [move.to_state for move in await hold.store.history(task.id)] == ["pending", "running"]
    assert (await ada.holding(taken.lease).finish(1)).task.state is TaskState.COMPLETED


async def test_a_claim_that_takes_note_of_an_answer(hold: Holdfast, ada: Outside, fault: Losing) -> None:
    task = await ada.offer()
    asked = await ada.holding((await ada.take()).lease).ask("Which disk?")
    await hold.answer(asked.id, "sdb", by="ann")
    fault.next()
    taken = await ada.take()
    assert fault.lost == 1
    assert taken.state is not None
    assert [fact.value for fact in taken.state.known_facts] == ["sdb"]
    assert len((await hold.state(task.id)).known_facts) == 1


async def test_a_task_that_is_released_to_be_cancelled(hold: Holdfast, ada: Outside, fault: Losing) -> None:
    task = await ada.offer()
    lease = (await ada.take()).lease
    await hold.cancel(task.id, "not wanted", by="ann")
    fault.next()
    standing = await ada.holding(lease).release("bye", facts(cause="logs"))
    assert fault.lost == 1
    assert standing.task.state is TaskState.CANCELLED
    assert [fact.key for fact in (await hold.state(task.id)).known_facts] == ["cause"]
    assert await living_workers(hold) == 0


async def test_a_patch_for_a_version_is_applied_once(hold: Holdfast, ada: Outside, fault: Losing) -> None:
    """Whether it was this call is unknown; but the newer state that comes with the refusal has it."""
    task = await ada.offer()
    fault.next()
    try:
        state = (await patch_state(hold, task.id, facts(disk="92%"), version=1, by=ada.actor, reason="")).state
    except StateConflict as conflict:
        state = conflict.state
    assert fault.lost == 1
    assert [fact.value for fact in state.known_facts] == ["92%"]
    assert (await task_of(hold, task.id)).version == 2
