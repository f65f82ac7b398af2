"""Offering work: what is stored, and that the same key is the same task."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Budget, Holdfast, InvalidValue, ManualClock, NewTask, TaskState
from holdfast.model.errors import KeyConflict
from tests.service.handover.support import Outside, task_of


async def test_an_offer_has_its_goal_and_plan_in_its_state_at_once(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer(
        "Free the disk", plan=["look", "clean"], details={"host": "db1"}, agent_id="ops", queue="disks", priority=7
    )
    assert (task.name, task.agent_id, task.queue, task.priority) == ("handover", "ops", "disks", 7)
    assert task.user_input == ["Free the disk", {"plan": ["look", "clean"], "details": {"host": "db1"}}]
    assert (task.state, task.version) == (TaskState.PENDING, 1)
    state = await hold.state(task.id)
    assert (state.goal, state.plan) == ("Free the disk", ("look", "clean"))
    [patch] = await hold.state_history(task.id)
    assert (patch.author, patch.reason) == ("mcp:ada", "offered")
    assert [move.actor for move in await hold.store.history(task.id)] == ["mcp:ada"]


async def test_an_offer_without_anything_more_is_its_goal(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer("Look")
    assert (task.user_input, task.agent_id, task.queue) == (["Look"], "default", "default")
    assert (await hold.state(task.id)).plan == ()


async def test_what_is_not_a_state_is_not_believed(hold: Holdfast, ada: Outside) -> None:
    """Any caller may submit a task of this name, with anything in it."""
    loose = {"constraints": {}, "budget": {"max_steps": 1}, "goal": "other", "set_flags": ["x"]}
    for number, more in enumerate(({"state": "?"}, {"state": {"no": 1}}, {"state": loose}, {"state": None})):
        await hold.store.submit([NewTask(id=f"t{number}", name="handover", user_input=["Look", more])])
        taken = await ada.take(f"t{number}")
        assert taken.state is not None
        assert (taken.state.goal, taken.state.budget) == ("Look", Budget())
    assert (await hold.state("t2")).risk_flags == ("x",)


@pytest.mark.parametrize("details", [0, False, "", [], {}, {"deep": [1, None]}], ids=repr)
async def test_details_are_kept_whatever_they_are(ada: Outside, details: object) -> None:
    task = await ada.offer("Look", details=details)
    match task.user_input:
        case [_, {"details": kept}]:
            assert kept == details
        case other:
            assert details in ([], {}), other  # says nothing, and may be left out


async def test_the_same_key_with_the_same_goal_is_the_same_task(hold: Holdfast, ada: Outside, bob: Outside) -> None:
    first = await ada.offer("Look", key="k", priority=1)
    await ada.take(first.id)
    again = await bob.offer("Look", key="k", priority=9)
    assert again.id == first.id
    assert (again.state, again.version) == (TaskState.RUNNING, 1)  # nothing was begun twice
    assert len((await hold.store.find()).items) == 1


async def test_many_offers_at_once_under_one_key_are_one_task(hold: Holdfast, ada: Outside) -> None:
    offered = await asyncio.gather(*(ada.offer("Look", key="k", plan=["a"]) for _ in range(8)))
    assert len({task.id for task in offered}) == 1
    assert (await task_of(hold, offered[0].id)).version == 1


@pytest.mark.parametrize("other", [{"goal": "Leave"}, {"plan": ["a"]}, {"details": 1}], ids=repr)
async def test_a_key_is_not_lent_to_other_work(ada: Outside, other: dict[str, Any]) -> None:
    first = await ada.offer("Look", key="k")
    with pytest.raises(KeyConflict, match=first.id):
        await ada.offer(**{"goal": "Look", "key": "k", **other})


@pytest.mark.parametrize("goal", ["", "  \n ", "a\0b", "\ud800"], ids=repr)
async def test_an_unreadable_goal_is_refused(hold: Holdfast, ada: Outside, goal: str) -> None:
    with pytest.raises(InvalidValue, match="goal"):
        await ada.offer(goal)
    assert not (await hold.store.find()).items


async def test_a_queue_that_no_worker_could_name_is_refused(hold: Holdfast, ada: Outside) -> None:
    with pytest.raises(InvalidValue, match="has a comma"):
        await ada.offer(queue="a,b")
    assert not (await hold.store.find()).items


async def test_one_with_a_delay_waits_for_it(ada: Outside, clock: ManualClock) -> None:
    task = await ada.offer(delay=60)
    assert await ada.ask() is None
    clock.advance(61)
    assert (await ada.take()).task.id == task.id


async def test_one_whose_deadline_passes_unclaimed_fails(hold: Holdfast, ada: Outside, clock: ManualClock) -> None:
    task = await ada.offer(deadline=clock.now() + timedelta(seconds=60))
    clock.advance(61)
    assert await ada.ask() is None
    assert (await task_of(hold, task.id)).state is TaskState.FAILED
