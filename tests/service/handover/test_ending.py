"""How a task leaves its agent: finished, given up, handed back, cancelled, or too late."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import DeadlineExceeded, Handle, Holdfast, InvalidValue, ManualClock, TaskState
from holdfast.engine.attempt.journal import RESUMED
from holdfast.model.errors import CodecError, LeaseLost
from holdfast.model.task import NewTask
from tests.service.handover.support import NOTHING, VERBS, Outside, facts, living_workers, task_of


async def reasons(hold: Holdfast, task_id: str) -> list[tuple[str, str | None, str]]:
    return [(move.to_state, move.reason, move.actor) for move in await hold.store.history(task_id)]


async def test_finishing(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer()
    standing = await ada.holding((await ada.take()).lease).finish({"freed": "20 GB"})
    assert (standing.task.state, standing.task.result) == (TaskState.COMPLETED, {"freed": "20 GB"})
    assert standing.task.owner is None
    assert await hold.handle(task.id).result() == {"freed": "20 GB"}
    assert (await reasons(hold, task.id))[-1] == ("completed", "work done, by mcp:ada", "mcp:ada")
    assert await living_workers(hold) == 0


async def test_a_result_that_is_not_json_ends_nothing(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer()
    lease = (await ada.take()).lease
    with pytest.raises(CodecError):
        await ada.holding(lease).finish(object())
    assert (await task_of(hold, task.id)).owner == lease.worker_id


async def test_giving_up(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer()
    standing = await ada.holding((await ada.take()).lease).give_up("there is no disk")
    assert standing.task.state is TaskState.FAILED
    assert standing.task.error is not None
    assert standing.task.error["message"] == "there is no disk"
    assert (await reasons(hold, task.id))[-1] == ("failed", "mcp:ada gave up: there is no disk", "mcp:ada")


@pytest.mark.parametrize("why", ["", "  "])
async def test_giving_up_without_a_word(hold: Holdfast, ada: Outside, why: str) -> None:
    task = await ada.offer()
    lease = (await ada.take()).lease
    with pytest.raises(InvalidValue, match="say why"):
        await ada.holding(lease).give_up(why)
    assert (await task_of(hold, task.id)).state is TaskState.RUNNING


async def test_handing_back(hold: Holdfast, ada: Outside, bob: Outside) -> None:
    task = await ada.offer(priority=3)
    standing = await ada.holding((await ada.take()).lease).release("mind the logs", facts(largest="/var/log"))
    assert (standing.task.state, standing.task.owner) == (TaskState.PENDING, None)
    assert (await reasons(hold, task.id))[-1] == ("pending", "handed back by mcp:ada: mind the logs", "mcp:ada")
    taken = await bob.take()  # at once
    assert taken.task.id == task.id
    assert taken.state is not None
    assert [fact.value for fact in taken.state.known_facts] == ["/var/log"]


async def test_handing_back_is_not_a_death(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer()
    for _ in range(8):
        await ada.holding((await ada.take()).lease).release("", NOTHING)
    left = await task_of(hold, task.id)
    assert (left.state, left.deaths) == (TaskState.PENDING, 0)


async def test_a_note_that_cannot_be_stored_hands_nothing_back(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer()
    lease = (await ada.take()).lease
    with pytest.raises(InvalidValue, match="note"):
        await ada.holding(lease).release("a\0b", NOTHING)
    assert (await task_of(hold, task.id)).state is TaskState.RUNNING


async def test_a_long_note_is_cut_and_not_refused(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer()
    await ada.holding((await ada.take()).lease).release("x" * 2000, NOTHING)
    assert (await reasons(hold, task.id))[-1][1] == f"handed back by mcp:ada: {'x' * 2000}"[:500]


async def test_the_holder_learns_of_a_cancel_and_releases_the_task(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer()
    lease = (await ada.take()).lease
    assert await hold.cancel(task.id, "not wanted", by="ann") is TaskState.RUNNING
    assert (await ada.holding(lease).report("here", None)).task.cancel_requested == "not wanted"
    standing = await ada.holding(lease).release("found something", facts(cause="logs"))
    assert standing.task.state is TaskState.CANCELLED
    assert [fact.key for fact in (await hold.state(task.id)).known_facts] == ["cause"]
    assert await living_workers(hold) == 0


async def test_its_children_are_cancelled_with_it(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer()
    lease = (await ada.take()).lease
    await hold.store.submit([NewTask(id="child", name="handover", user_input=["x"], parent_id=task.id)])
    await hold.cancel(task.id, by="ann")
    await ada.holding(lease).release("", NOTHING)
    assert (await task_of(hold, "child")).state is TaskState.CANCELLED


async def test_who_finishes_what_was_to_be_cancelled_has_finished_it(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer()
    lease = (await ada.take()).lease
    await hold.cancel(task.id, by="ann")
    assert (await ada.holding(lease).finish(1)).task.state is TaskState.COMPLETED


async def test_a_cancel_whose_holder_died(hold: Holdfast, ada: Outside, clock: ManualClock) -> None:
    task = await ada.offer()
    lease = (await ada.take()).lease
    await hold.cancel(task.id, "not wanted", by="ann")
    clock.advance(61)
    assert await ada.ask() is None
    assert (await task_of(hold, task.id)).state is TaskState.CANCELLED
    with pytest.raises(LeaseLost):
        await ada.holding(lease).finish(1)


@pytest.mark.parametrize("verb", VERBS)
async def test_a_deadline_that_passes_while_the_task_is_held_ends_it(
    hold: Holdfast, ada: Outside, clock: ManualClock, verb: str
) -> None:
    task = await ada.offer(deadline=clock.now() + timedelta(seconds=100))
    lease = (await ada.take()).lease
    clock.advance(50)
    await ada.holding(lease).renew()
    clock.advance(51)
    with pytest.raises(DeadlineExceeded, match="has passed; it has failed, stop working on it"):
        await VERBS[verb](ada.holding(lease))
    late = await task_of(hold, task.id)
    assert (late.state, late.owner, late.result) == (TaskState.FAILED, None, None)
    assert (await reasons(hold, task.id))[-1][:2] == ("failed", "deadline passed")
    assert await hold.store.steps(task.id) == []
    with pytest.raises(LeaseLost):
        await ada.holding(lease).renew()


async def test_a_deadline_that_passes_after_its_holder_died(hold: Holdfast, ada: Outside, clock: ManualClock) -> None:
    task = await ada.offer(deadline=clock.now() + timedelta(seconds=100))
    await ada.take()
    clock.advance(101)
    assert await ada.ask() is None
    assert (await task_of(hold, task.id)).state is TaskState.FAILED


async def test_what_was_given_up_can_be_retried_and_resumed(hold: Holdfast, ada: Outside, bob: Outside) -> None:
    task = await ada.offer(plan=["look"])
    lease = (await ada.take()).lease
    await ada.step(lease, "look", 1)
    await ada.holding(lease).give_up("tired")
    await hold.resume(task.id, by="ann")
    lease = (await bob.take()).lease
    assert await bob.step(lease, "look", 1)  # the same round: what is recorded is done
    await bob.holding(lease).give_up("tired too")
    await hold.retry(task.id, by="ann", feedback="look again")
    taken = await bob.take()
    assert taken.task.feedback == "look again"
    assert not await bob.step(taken.lease, "look", 2)  # a new round: steps are done again
    await bob.holding(taken.lease).finish("done")
    outputs = [(step.key, step.round) for step in await hold.store.steps(task.id) if step.kind != RESUMED]
    assert outputs == [("outside:look", 1), ("outside:look", 2)]


async def test_a_fork_is_a_handover_of_its_own(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer(plan=["look", "clean"])
    lease = (await ada.take()).lease
    await ada.step(lease, "look", 1, facts(disk="92%"))
    await ada.holding(lease).finish("done")
    fork: Handle[Any] = await hold.fork(task.id, by="ann")
    taken = await ada.take(fork.id)
    assert taken.task.id != task.id
    assert taken.state is not None
    assert (taken.state.goal, taken.state.plan) == ("Free the disk", ("look", "clean"))
    assert await ada.step(taken.lease, "look", 1)  # its past is the other's
    await ada.holding(taken.lease).finish("done again")
    assert (await task_of(hold, task.id)).result == "done"
