"""Many Commits in one call: as if they came one after the other."""

from __future__ import annotations

import pytest

from holdfast.model.commit import Refusal
from holdfast.model.operations import ApplyPatch, Reserve, WriteStep
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    CANCEL,
    COMPLETE,
    move,
    new_task,
    outside,
    running_task,
    step,
    submit_one,
)
from holdfast.testing.contract.base import ContractBase


class CommitBatchContract(ContractBase):
    """Many Commits in one call: as if they came one after the other."""

    async def test_no_commits_are_fine(self, store: StateStore) -> None:
        """An empty call does nothing."""
        assert await store.commit([]) == []

    async def test_verdicts_come_in_order(self, store: StateStore) -> None:
        """One for each Commit, in any order of their tasks."""
        attempts = [await running_task(store, task_id, f"worker of {task_id}") for task_id in ("c", "a", "b")]
        verdicts = await store.commit([attempt.commit(COMPLETE) for attempt in attempts])
        assert [(verdict.task_id, verdict.applied) for verdict in verdicts] == [("c", True), ("a", True), ("b", True)]

    async def test_a_stale_commit_spoils_no_neighbour(self, store: StateStore) -> None:
        """It is refused alone, in the middle of the batch."""
        first, stale, last = [await running_task(store, name, f"worker of {name}") for name in ("a", "b", "c")]
        await store.retire(stale.worker_id)
        verdicts = await store.commit([attempt.commit(WriteStep(step())) for attempt in (first, stale, last)])
        assert [verdict.refusal for verdict in verdicts] == [None, Refusal.SUPERSEDED, None]
        assert [len(await store.steps(name)) for name in ("a", "b", "c")] == [1, 0, 1]

    async def test_several_commits_of_one_task(self, store: StateStore) -> None:
        """Each sees the task as the one before left it."""
        attempt = await running_task(store)
        verdicts = await store.commit(
            [
                attempt.commit(WriteStep(step("a", 1))),
                attempt.commit(ApplyPatch(body=b"{}", author="a")),
                attempt.commit(WriteStep(step("b", 2)), COMPLETE),
            ]
        )
        assert [(v.sequence, v.revision, v.version, v.state, v.owner) for v in verdicts] == [
            (1, 3, 0, TaskState.RUNNING, "worker"),
            (2, 4, 1, TaskState.RUNNING, "worker"),
            (3, 5, 1, TaskState.COMPLETED, None),
        ]
        assert [found.key for found in await store.steps("task")] == ["a", "b"]

    async def test_after_a_refusal_the_later_ones_are_refused(self, store: StateStore) -> None:
        """Later Commits cannot close a gap in the numbers."""
        attempt = await running_task(store, budget={"tokens": 1})
        verdicts = await store.commit(
            [
                attempt.commit(WriteStep(step("a", 1))),
                attempt.commit(Reserve(account="task", step_key="b", amounts={"tokens": 2})),
                attempt.commit(WriteStep(step("c", 3))),
                attempt.commit(COMPLETE),
            ]
        )
        assert [v.refusal for v in verdicts] == [None, Refusal.BUDGET, Refusal.OUT_OF_ORDER, Refusal.OUT_OF_ORDER]
        assert [found.key for found in await store.steps("task")] == ["a"]

    async def test_the_same_commit_twice_in_one_batch(self, store: StateStore) -> None:
        """The second is a duplicate of the first."""
        attempt = await running_task(store)
        await submit_one(store, "other")
        numbered, requested = attempt.commit(WriteStep(step())), outside("other", CANCEL)
        verdicts = await store.commit([numbered, requested, numbered, requested])
        assert [verdict.duplicate for verdict in verdicts] == [False, False, True, True]
        assert all(verdict.applied for verdict in verdicts)

    async def test_a_resent_batch_goes_on_where_it_was_cut(self, store: StateStore) -> None:
        """What was applied is a duplicate, the rest is applied now."""
        attempt = await running_task(store)
        commits = [attempt.commit(WriteStep(step(f"step-{number}", number))) for number in (1, 2, 3)]
        await store.commit(commits[:2])
        verdicts = await store.commit(commits)
        assert [(v.applied, v.duplicate) for v in verdicts] == [(True, True), (True, True), (True, False)]
        assert len(await store.steps("task")) == 3

    async def test_expectations_are_looked_at_one_after_the_other(self, store: StateStore) -> None:
        """Each Commit sees the state that the one before left."""
        await submit_one(store, "a", state=TaskState.WAITING)
        verdicts = await store.commit(
            [
                outside("a", move(TaskState.PENDING), states=frozenset({TaskState.WAITING})),
                outside("a", CANCEL, states=frozenset({TaskState.WAITING})),
                outside("a", CANCEL, states=frozenset({TaskState.PENDING})),
            ]
        )
        assert [verdict.refusal for verdict in verdicts] == [None, Refusal.CONFLICT, None]

    @pytest.mark.parametrize("size", [1, 2, 17, 200])
    async def test_batches_of_any_size(self, store: StateStore, size: int) -> None:
        """Many tasks, one transaction."""
        ids = [f"task-{number:03}" for number in range(size)]
        await store.submit([new_task(task_id) for task_id in ids])
        verdicts = await store.commit([outside(task_id, WriteStep(step()), CANCEL) for task_id in ids])
        assert [(v.task_id, v.applied, v.revision) for v in verdicts] == [(task_id, True, 2) for task_id in ids]
        assert await store.count() == {TaskState.CANCELLED: size}
