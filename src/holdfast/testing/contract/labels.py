"""Labels: stored with the task, and every listing filters by them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.errors import InvalidValue
from holdfast.model.labels import MAX_LABEL_NAME, MAX_LABELS
from holdfast.model.operations import ReopenChild, SubmitChild
from holdfast.model.queries import TaskFilter
from holdfast.model.task import Task
from holdfast.model.transitions import OPEN, TERMINAL, TaskState
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    CANCEL,
    COMPLETE,
    apply_outside,
    claimed_by,
    enter,
    new_task,
    row,
    running_task,
    stored,
    submit_one,
)
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.snapshot import all_tasks

ACME = {"tenant": "acme"}
EDGES = {"x" * MAX_LABEL_NAME: "y" * 200, "größe": "ja = nein", "a b": "'; --", "A": "1", "a": "2"}

ZOO = [ACME, {"tenant": "globex", "kind": "nightly"}, {**ACME, "kind": "nightly"}, {}, {**ACME, "kind": "rare"}]
FILTERS: list[tuple[TaskFilter, str]] = [
    (TaskFilter(labels=ACME), "ace"),
    (TaskFilter(labels={"tenant": "globex"}), "b"),
    (TaskFilter(labels={"kind": "nightly"}), "bc"),
    (TaskFilter(labels={"kind": "nightly", **ACME}), "c"),
    (TaskFilter(labels={**ACME, "kind": "nightly"}), "c"),
    (TaskFilter(labels={"tenant": "ACME"}), ""),
    (TaskFilter(labels={"Tenant": "acme"}), ""),
    (TaskFilter(labels={"tenant": "acm"}), ""),
    (TaskFilter(labels={"tenant": "nightly"}), ""),
    (TaskFilter(labels={**ACME, "kind": "none"}), ""),
    (TaskFilter(labels={}), "abcde"),
    (TaskFilter(labels=ACME, states=OPEN), "ae"),
    (TaskFilter(labels=ACME, states=TERMINAL), "c"),
    (TaskFilter(labels=ACME, states=frozenset({TaskState.PENDING, TaskState.CANCELLED})), "ace"),
    (TaskFilter(labels=ACME, states=frozenset()), ""),
    (TaskFilter(labels=ACME, queue="other"), "e"),
    (TaskFilter(labels=ACME, name="job", agent_id="default"), "ace"),
    (TaskFilter(labels=ACME, name="nothing"), ""),
    (TaskFilter(labels=ACME, text="job"), "ace"),
    (TaskFilter(labels=ACME, parent_id="b"), "e"),
    (TaskFilter(labels={"kind": "nightly"}, parent_id="b"), ""),
    (TaskFilter(labels=ACME, key="k"), "a"),
    (TaskFilter(labels={"tenant": "globex"}, key="k"), ""),
    (TaskFilter(labels=ACME, owner="stranger"), ""),
    (TaskFilter(labels=ACME, resting=False), "ace"),
    (TaskFilter(labels=ACME, resting=True), ""),
]


async def submit_zoo(store: StateStore, clock: ManualClock) -> None:
    """Submit five tasks a second apart, of which the third has ended."""
    more = {"a": {"key": "k"}, "e": {"queue": "other", "parent_id": "b"}}
    for task_id, labels in zip("abcde", ZOO, strict=True):
        await submit_one(store, task_id, labels=labels, **more.get(task_id, {}))
        clock.advance(1)
    await apply_outside(store, "c", CANCEL)


async def found(store: StateStore, where: TaskFilter, limit: int = 100) -> Sequence[Task]:
    """Return the tasks that fit, oldest first, in pages of this size."""
    tasks: list[Task] = []
    cursor: str | None = None
    while True:
        page = await store.find(where, limit=limit, after=cursor, newest_first=False)
        tasks += page.items
        cursor = page.next
        if cursor is None:
            return tasks


class LabelsContract(ContractBase):
    """Labels of tasks."""

    async def test_labels_are_stored_with_the_task(self, store: StateStore) -> None:
        """However it is submitted: alone, among others, with what few tasks have; and every read shows them."""
        tasks = [
            new_task("alone", labels=EDGES),
            new_task("keyed", labels=EDGES, key="k"),
            new_task("with a budget", labels=EDGES, budget={"tokens": 1}),
            new_task("ended", labels=EDGES, state=TaskState.COMPLETED, result=1),
        ]
        for task in tasks:
            with row(task.id):
                await store.submit([task])
                one, *_ = [await stored(store, task.id), await store.standing(task.id)]
                assert one is not None
                assert one.labels == EDGES
        await store.submit([new_task("many-1", labels=ACME), new_task("many-2"), new_task("many-3", labels=EDGES)])
        labels = {task.id: task.labels for task in await all_tasks(store)}
        assert labels == {task.id: EDGES for task in tasks} | {"many-1": ACME, "many-2": {}, "many-3": EDGES}
        standing = await store.standing("many-1")
        assert standing is not None
        assert standing.labels == ACME
        assert (await store.load("many-1")).task.labels == ACME
        assert (await store.queued(limit=100)).items[0].labels == EDGES
        await enter(store)
        attempt = await store.acquire("many-1", "worker")
        assert attempt.task.labels == ACME

    async def test_a_claim_shows_them(self, store: StateStore) -> None:
        """Without another look."""
        attempt = await running_task(store, labels=EDGES)
        assert attempt.task.labels == EDGES
        child = new_task("child", labels=ACME, queue="children")
        await attempt.apply(SubmitChild(child))
        await enter(store, "another")
        assert (await claimed_by(store, "another", queues=("children",))).task.labels == ACME

    async def test_they_are_not_compared_for_a_key(self, store: StateStore) -> None:
        """They are options. The first ones stay."""
        await submit_one(store, "first", key="k", labels=ACME)
        for labels in ({}, {"tenant": "globex"}):
            [answer] = await store.submit([new_task("second", key="k", labels=labels)])
            assert (answer.task_id, answer.created, answer.conflict) == ("first", False, False)
        assert (await stored(store, "first")).labels == ACME
        assert await found(store, TaskFilter(labels={"tenant": "globex"})) == []

    async def test_filters_by_labels(self, store: StateStore, clock: ManualClock) -> None:
        """Every label that is given must be there, with this very value; they combine with all other filters."""
        await submit_zoo(store, clock)
        for where, expected in FILTERS:
            with row(where):
                for limit in (1, 2, 100):
                    assert [task.id for task in await found(store, where, limit)] == list(expected)
                newest = await store.find(where)
                assert [task.id for task in newest.items] == list(reversed(expected))
                assert sum((await store.count(where)).values()) == len(expected)

    async def test_times_combine_with_labels(self, store: StateStore, clock: ManualClock) -> None:
        """A task at the exact moment does not match."""
        start = clock.now()
        await submit_zoo(store, clock)
        for where, expected in (
            (TaskFilter(labels=ACME, created_after=start), "ce"),
            (TaskFilter(labels=ACME, created_before=start + timedelta(seconds=4)), "ac"),
            (TaskFilter(labels=ACME, created_after=start, created_before=start + timedelta(seconds=4)), "c"),
            (TaskFilter(labels=ACME, ended_before=clock.now() + timedelta(seconds=1)), "c"),
        ):
            with row(where):
                assert [task.id for task in await found(store, where)] == list(expected)
                assert sum((await store.count(where)).values()) == len(expected)

    async def test_a_task_that_begins_again_is_found_among_the_open_ones(self, store: StateStore) -> None:
        """The filter by state follows every end and every new beginning."""
        parent = await running_task(store, "parent")
        await parent.apply(SubmitChild(new_task("child", labels=ACME, queue="children")))
        await enter(store, "another")
        child = await claimed_by(store, "another", queues=("children",))
        await child.apply(COMPLETE)
        assert await found(store, TaskFilter(labels=ACME, states=OPEN)) == []
        revision = (await stored(store, "child")).revision
        await parent.apply(ReopenChild(child_id="child", reason="again", revision=revision))
        assert [task.id for task in await found(store, TaskFilter(labels=ACME, states=OPEN))] == ["child"]

    async def test_pruned_tasks_are_found_no_more(self, store: StateStore, clock: ManualClock) -> None:
        """Nor counted; and their id can be used again without them."""
        await submit_zoo(store, clock)
        clock.advance(10)
        assert (await store.prune(timedelta(seconds=5))).tasks == 1
        assert [task.id for task in await found(store, TaskFilter(labels=ACME))] == ["a", "e"]
        assert await store.count(TaskFilter(labels={"kind": "nightly"})) == {TaskState.PENDING: 1}
        await submit_one(store, "c")
        assert [task.id for task in await found(store, TaskFilter(labels=ACME))] == ["a", "e"]

    async def test_what_cannot_be_a_label_is_refused(self, store: StateStore) -> None:
        """When a task is described, and when one is looked for."""
        for labels, words in (
            ({"": "x"}, "empty"),
            ({"tenant": ""}, "empty"),
            ({"tenant": 5}, "string"),
            ({5: "x"}, "string"),
            ({"a=b": "x"}, "equals sign"),
            ({"x" * (MAX_LABEL_NAME + 1): "x"}, "at most 64"),
            ({"tenant": "x" * 201}, "at most 200"),
            ({"tenant": "a\nb"}, "printed"),
            ({f"l{n}": "x" for n in range(MAX_LABELS + 1)}, "at most 16"),
            ([("tenant", "acme")], "names with values"),
        ):
            with row(labels):
                with pytest.raises(InvalidValue, match=words):
                    new_task(labels=labels)
                with pytest.raises(InvalidValue, match=words):
                    TaskFilter(labels=labels)  # type: ignore[arg-type]
        await submit_one(store, labels={f"l{n}": "x" for n in range(MAX_LABELS)})
