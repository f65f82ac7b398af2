"""Queries: filters, pages, counts."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from holdfast.model.approval import Approval
from holdfast.model.clock import ManualClock
from holdfast.model.effect import Effect, EffectClass, EffectState
from holdfast.model.errors import InvalidValue
from holdfast.model.operations import OpenApproval, WriteEffect
from holdfast.model.queries import Page, Summary, TaskFilter
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    CANCEL,
    apply_outside,
    enter,
    new_task,
    row,
    running_task,
    stored,
    submit_one,
)
from holdfast.testing.contract.base import ContractBase


async def found(store: StateStore, where: TaskFilter | None = None) -> list[str]:
    """Return the ids of the tasks that match, oldest first."""
    page = await store.find(where, newest_first=False)
    assert page.next is None
    return [task.id for task in page.items]


async def submit_varied(store: StateStore, clock: ManualClock) -> None:
    """Submit four tasks that differ in every field of a filter, one second apart."""
    await submit_one(store, "a", name="deploy", agent_id="devops", queue="slow", key="k-1", user_input="Billing")
    clock.advance(1)
    await submit_one(store, "b", name="deploy", agent_id="writer", parent_id="a", user_input={"text": "Straße"})
    clock.advance(1)
    await submit_one(store, "c", name="report", agent_id="devops", parent_id="a", state=TaskState.COMPLETED)
    clock.advance(1)
    await submit_one(store, "d", name="report", agent_id="writer", queue="slow", user_input="100%_sure")


async def _paged(store: StateStore, limit: int, *, newest_first: bool) -> AsyncIterator[str]:
    """Yield the ids of all tasks, page by page."""
    cursor: str | None = None
    while True:
        page = await store.find(limit=limit, after=cursor, newest_first=newest_first)
        assert 0 < len(page.items) <= limit
        for task in page.items:
            yield task.id
        cursor = page.next
        if cursor is None:
            return


FILTERS = [
    (TaskFilter(), "abcd"),
    (TaskFilter(states=frozenset({TaskState.PENDING})), "abd"),
    (TaskFilter(states=frozenset({TaskState.COMPLETED, TaskState.FAILED})), "c"),
    (TaskFilter(states=frozenset()), ""),
    (TaskFilter(queue="slow"), "ad"),
    (TaskFilter(name="report"), "cd"),
    (TaskFilter(agent_id="writer"), "bd"),
    (TaskFilter(parent_id="a"), "bc"),
    (TaskFilter(key="k-1"), "a"),
    (TaskFilter(owner="stranger"), ""),
    (TaskFilter(name="deploy", agent_id="writer"), "b"),
    (TaskFilter(name="deploy", queue="slow", states=frozenset({TaskState.PENDING}), text="bill"), "a"),
    (TaskFilter(name="deploy", queue="elsewhere"), ""),
    (TaskFilter(text="BILLING"), "a"),
    (TaskFilter(text="strasse"), "b"),
    (TaskFilter(text="STRASSE"), "b"),
    (TaskFilter(text="straße"), "b"),
    (TaskFilter(text="devops"), "ac"),
    (TaskFilter(text="K-1"), "a"),
    (TaskFilter(text="eport"), "cd"),
    (TaskFilter(text="%"), "d"),
    (TaskFilter(text="0%_s"), "d"),
    (TaskFilter(text="_"), "d"),
    (TaskFilter(text="\\"), ""),
    (TaskFilter(text="nowhere"), ""),
]
"""Filters on the zoo, and the tasks they find."""


class QueriesContract(ContractBase):
    """find, count, summary."""

    async def test_an_empty_store(self, store: StateStore) -> None:
        """Every query has an empty answer."""
        assert await store.find() == Page(items=(), next=None)
        assert await store.count() == {}
        assert await store.summary() == Summary()
        assert await store.get("missing") is None

    async def test_how_a_task_stands_is_read_without_its_input(self, store: StateStore) -> None:
        """All other fields are there, also for a task that has ended."""
        await submit_one(store, "a", user_input={"large": [1, 2, 3]})
        for operation in (None, CANCEL):
            if operation is not None:
                await apply_outside(store, "a", operation)
            task = await store.get("a")
            assert task is not None
            assert await store.standing("a") == replace(task, user_input=None)
        assert await store.standing("stranger") is None

    async def test_revisions_tell_what_has_changed(self, store: StateStore) -> None:
        """For the given tasks; a task that does not exist is left out."""
        for task_id in ("a", "b", "c"):
            await submit_one(store, task_id)
        assert await store.revisions(["a", "b", "stranger"]) == {"a": 1, "b": 1}
        await apply_outside(store, "b", CANCEL)
        assert await store.revisions(["b", "a", "a"]) == {"a": 1, "b": 2}
        assert await store.revisions([]) == {}

    async def test_tasks_come_whole_and_newest_first(self, store: StateStore, clock: ManualClock) -> None:
        """With their payloads."""
        await submit_varied(store, clock)
        page = await store.find()
        assert page == Page(items=tuple([await stored(store, task_id) for task_id in "dcba"]), next=None)

    async def test_filters(self, store: StateStore, clock: ManualClock) -> None:
        """Every given part must match; text is searched literally, ignoring case."""
        await submit_varied(store, clock)
        for where, expected in FILTERS:
            with row(where):
                assert await found(store, where) == list(expected)
                assert sum((await store.count(where)).values()) == len(expected)

    async def test_the_times_of_a_filter_are_exclusive(self, store: StateStore, clock: ManualClock) -> None:
        """A task at the exact moment does not match."""
        start = clock.now()
        await submit_varied(store, clock)
        assert await found(store, TaskFilter(created_after=start)) == ["b", "c", "d"]
        assert await found(store, TaskFilter(created_before=start + timedelta(seconds=2))) == ["a", "b"]
        between = TaskFilter(created_after=start, created_before=start + timedelta(seconds=3))
        assert await found(store, between) == ["b", "c"]

    async def test_the_filter_by_end(self, store: StateStore, clock: ManualClock) -> None:
        """Tasks that ended before; an open task never matches, at any age."""
        await submit_varied(store, clock)  # c is stored as completed, in second 2
        clock.advance(10)
        end = clock.now()
        await apply_outside(store, "d", CANCEL)
        clock.advance(10)
        await apply_outside(store, "a", CANCEL)
        assert await found(store, TaskFilter(ended_before=end)) == ["c"]
        where = TaskFilter(ended_before=end + timedelta(microseconds=1))
        assert await found(store, where) == ["c", "d"]
        assert await store.count(where) == {TaskState.COMPLETED: 1, TaskState.CANCELLED: 1}
        assert await found(store, TaskFilter(ended_before=clock.now() + timedelta(days=1))) == ["a", "c", "d"]
        cancelled = TaskFilter(
            ended_before=end + timedelta(seconds=1), created_before=end, states=frozenset({TaskState.CANCELLED})
        )
        assert await found(store, cancelled) == ["d"]
        assert await store.count(cancelled) == {TaskState.CANCELLED: 1}
        assert await found(store, TaskFilter(ended_before=end, states=frozenset({TaskState.PENDING}))) == []

    async def test_a_time_without_a_zone_is_refused(self, store: StateStore) -> None:
        """It does not name a definite moment."""
        for what in ("created_after", "created_before", "ended_before"):
            with pytest.raises(InvalidValue, match=what):
                await store.find(TaskFilter(**{what: datetime(2026, 1, 1)}))  # type: ignore[arg-type] # noqa: DTZ001

    async def test_the_filter_by_owner(self, store: StateStore) -> None:
        """The worker that holds it now."""
        await running_task(store, "held", "worker")
        await submit_one(store, "free")
        assert await found(store, TaskFilter(owner="worker")) == ["held"]

    async def test_long_input_is_searched_at_its_beginning(self, store: StateStore) -> None:
        """So that an index of it stays small."""
        await submit_one(store, user_input="needle " + "x" * 1000 + " thread")
        assert await found(store, TaskFilter(text="needle")) == ["task"]
        assert await found(store, TaskFilter(text="thread")) == []

    async def test_pages_cover_everything_once(self, store: StateStore, clock: ManualClock) -> None:
        """Also where many tasks share a moment."""
        expected = [f"task-{number}" for number in range(7)]
        await store.submit([new_task(task_id) for task_id in expected[:4]])
        clock.advance(1)
        await store.submit([new_task(task_id) for task_id in expected[4:]])
        for limit, newest_first in itertools.product((1, 2, 3, 7), (True, False)):
            with row(f"limit {limit}", f"newest first: {newest_first}"):
                seen = [task_id async for task_id in _paged(store, limit, newest_first=newest_first)]
                assert seen == (expected[::-1] if newest_first else expected)

    async def test_the_last_page_has_no_next(self, store: StateStore) -> None:
        """Even if it is full."""
        for task_id in ("a", "b"):
            await submit_one(store, task_id)
        assert (await store.find(limit=2)).next is None
        assert (await store.find(limit=1)).next is not None

    async def test_new_tasks_never_shift_a_page(self, store: StateStore, clock: ManualClock) -> None:
        """The next page begins where the last one ended."""
        for task_id in ("a", "b", "c", "d"):
            await submit_one(store, task_id)
            clock.advance(1)
        first = await store.find(limit=2)
        assert [task.id for task in first.items] == ["d", "c"]
        await submit_one(store, "e")
        second = await store.find(limit=2, after=first.next)
        assert ([task.id for task in second.items], second.next) == (["b", "a"], None)

    async def test_a_cursor_survives_the_task_it_names(self, store: StateStore, clock: ManualClock) -> None:
        """A pruned task still marks its place."""
        for task_id in ("a", "b", "c"):
            await submit_one(store, task_id)
            clock.advance(1)
        first = await store.find(limit=2, newest_first=False)
        await apply_outside(store, "b", CANCEL)
        clock.advance(10)
        assert (await store.prune(timedelta(seconds=5))).tasks == 1
        second = await store.find(limit=2, after=first.next, newest_first=False)
        assert [task.id for task in second.items] == ["c"]

    async def test_pages_of_a_filtered_listing(self, store: StateStore, clock: ManualClock) -> None:
        """The filter applies to every page."""
        await submit_varied(store, clock)
        where = TaskFilter(agent_id="devops")
        first = await store.find(where, limit=1)
        second = await store.find(where, limit=1, after=first.next)
        assert [task.id for page in (first, second) for task in page.items] == ["c", "a"]
        assert second.next is None

    async def test_an_unknown_cursor_is_refused(self, store: StateStore) -> None:
        """Instead of returning a wrong page."""
        await submit_one(store)
        for cursor in ("", "x", "bm90IGpzb24=", "W10=", "WzEsMl0=", "ü", "'; DROP TABLE tasks"):
            with row(cursor), pytest.raises(InvalidValue):
                await store.find(after=cursor)

    @pytest.mark.parametrize("limit", [0, -1])
    async def test_a_page_of_nothing_is_refused(self, store: StateStore, limit: int) -> None:
        """Such a limit is always a mistake."""
        with pytest.raises(InvalidValue):
            await store.find(limit=limit)

    async def test_counts_by_state(self, store: StateStore, clock: ManualClock) -> None:
        """States without tasks are absent."""
        await submit_varied(store, clock)
        assert await store.count() == {TaskState.PENDING: 3, TaskState.COMPLETED: 1}
        assert await store.count(TaskFilter(name="report")) == {TaskState.PENDING: 1, TaskState.COMPLETED: 1}
        assert await store.count(TaskFilter(name="nothing")) == {}

    async def test_the_summary(self, store: StateStore, clock: ManualClock) -> None:
        """Tasks by state, workers that are alive, questions that are open, effects in doubt."""
        await submit_varied(store, clock)
        attempt = await running_task(store)
        for worker_id in ("draining", "retired"):
            await enter(store, worker_id)
        await store.drain("draining")
        await store.retire("retired")
        for effect_id, states in (
            ("doubted", (EffectState.ARMED, EffectState.IN_DOUBT)),
            ("asked", (EffectState.ARMED, EffectState.IN_DOUBT, EffectState.NEEDS_HUMAN)),
            ("clear", (EffectState.ARMED, EffectState.DONE)),
        ):
            for state in states:
                effect = Effect(effect_id=effect_id, step_key="s", effect_class=EffectClass.ONCE, state=state)
                await attempt.apply(WriteEffect(effect))
        await attempt.apply(OpenApproval(Approval(task_id="task", question="?", step_key="s", id="ask")))
        assert await store.summary() == Summary(
            tasks={TaskState.PENDING: 3, TaskState.COMPLETED: 1, TaskState.RUNNING: 1},
            workers=2,
            open_approvals=1,
            doubts=2,
        )
