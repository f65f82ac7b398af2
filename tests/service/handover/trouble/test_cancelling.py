"""A cancelled hand-over ends, whatever becomes of the agent that had it: no worker would ever end it."""

from __future__ import annotations

import pytest

from holdfast import Conflict, Holdfast, ManualClock, TaskState
from holdfast.engine.outside.sweep import sweep, tidy
from holdfast.model.errors import LeaseLost
from holdfast.model.task import NewTask
from tests.service.handover.support import Outside, everything, task_of


async def cancelled_in_hands(hold: Holdfast, ada: Outside) -> str:
    """A task that is to be cancelled, in the hands of an agent from which nothing more will come."""
    task = await ada.offer()
    await ada.take(task.id)
    assert await hold.cancel(task.id, "not wanted", by="ann") is TaskState.RUNNING
    return task.id


async def test_a_sweep_after_its_agent_died_ends_it(hold: Holdfast, ada: Outside, clock: ManualClock) -> None:
    task_id = await cancelled_in_hands(hold, ada)
    await sweep(hold.store)
    assert (await task_of(hold, task_id)).state is TaskState.RUNNING  # its agent may still be at it
    clock.advance(61)
    await sweep(hold.store)
    ended = (await hold.store.history(task_id))[-1]
    assert (ended.to_state, ended.reason, ended.actor) == (TaskState.CANCELLED, "not wanted", "sweep")


async def test_its_children_end_with_it(hold: Holdfast, ada: Outside, clock: ManualClock) -> None:
    task_id = await cancelled_in_hands(hold, ada)
    await hold.store.submit([NewTask(id="child", name="handover", user_input=["x"], parent_id=task_id)])
    clock.advance(61)
    await sweep(hold.store)
    assert (await task_of(hold, "child")).state is TaskState.CANCELLED


async def test_one_that_was_taken_back_by_another_sweep(hold: Holdfast, ada: Outside, clock: ManualClock) -> None:
    """Workers on the same store sweep whenever they claim, and they know nothing of such tasks."""
    task_id = await cancelled_in_hands(hold, ada)
    clock.advance(61)
    await hold.store.sweep()
    assert (await task_of(hold, task_id)).state is TaskState.PENDING
    await tidy(hold.store)
    assert (await task_of(hold, task_id)).state is TaskState.CANCELLED


async def test_keeping_house_ends_nothing_else(hold: Holdfast, ada: Outside) -> None:
    waiting, held = await ada.offer("waiting"), await ada.offer("held")
    await hold.store.submit([NewTask(id="ours", name="deploy")])
    await ada.take(held.id)
    before = [await everything(hold, one) for one in (waiting.id, held.id, "ours")]
    await tidy(hold.store)
    assert [await everything(hold, one) for one in (waiting.id, held.id, "ours")] == before


@pytest.mark.parametrize("by_another_process", [False, True])
async def test_a_claim_by_its_id_ends_it(
    hold: Holdfast, ada: Outside, bob: Outside, clock: ManualClock, *, by_another_process: bool
) -> None:
    task_id = await cancelled_in_hands(hold, ada)
    clock.advance(61)
    if by_another_process:
        await hold.store.sweep()
    with pytest.raises(Conflict, match="is cancelled: it has ended"):
        await bob.ask(task_id)
    assert (await task_of(hold, task_id)).state is TaskState.CANCELLED


@pytest.mark.parametrize("by_another_process", [False, True])
async def test_claims_from_its_queue_end_it_and_get_what_else_is_there(
    hold: Holdfast, ada: Outside, bob: Outside, clock: ManualClock, *, by_another_process: bool
) -> None:
    task_id = await cancelled_in_hands(hold, ada)
    behind = await ada.offer("next")
    clock.advance(61)
    if by_another_process:
        await hold.store.sweep()
    assert (await bob.take()).task.id == behind.id
    assert await bob.ask() is None
    assert (await task_of(hold, task_id)).state is TaskState.CANCELLED


async def test_its_agent_stops_asking_and_releases_the_task(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer()
    holding = ada.holding((await ada.take()).lease)
    await hold.cancel(task.id, "not wanted", by="ann")
    before = await everything(hold, task.id)
    with pytest.raises(Conflict, match=r"is to be cancelled \(not wanted\); release it instead"):
        await holding.ask("may I?")
    assert (await everything(hold, task.id), await hold.approvals(task.id)) == (before, [])
    assert (await holding.release("")).task.state is TaskState.CANCELLED
    with pytest.raises(LeaseLost):
        await holding.ask("may I?")


async def test_a_question_is_not_asked_for_ever(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer()
    asked = await ada.holding((await ada.take()).lease).ask("may I?")
    assert await hold.cancel(task.id, "not wanted", by="ann") is TaskState.CANCELLED
    assert await hold.approvals(task.id) == []
    with pytest.raises(Conflict):
        await hold.answer(asked.id, "yes", by="ann")
