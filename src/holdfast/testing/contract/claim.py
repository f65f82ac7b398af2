"""claim: who gets which task, in which order."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.errors import WorkerDead
from holdfast.model.operations import Release, RequireUndo
from holdfast.model.task import AGEING, SCOPED_KEYS
from holdfast.model.transitions import TaskState, Transition
from holdfast.model.worker import Claimed
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    LEASE,
    apply_outside,
    claim,
    claimed_by,
    claimed_ids,
    enter,
    move,
    new_task,
    running_task,
    stored,
    submit_one,
)
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.snapshot import snapshot


class ClaimContract(ContractBase):
    """Claiming tasks."""

    async def test_a_claimed_task_is_running_under_a_new_fence(self, store: StateStore, clock: ManualClock) -> None:
        """The answer is the task after the change, with its payload."""
        before = await submit_one(store, user_input="hello")
        await enter(store)
        clock.advance(1)
        after = replace(
            before,
            state=TaskState.RUNNING,
            owner="worker",
            fence=1,
            revision=2,
            started_at=clock.now(),
            updated_at=clock.now(),
            key_form=SCOPED_KEYS,
        )
        assert await claim(store) == [Claimed(task=after, fresh=True)]
        assert await stored(store) == after
        assert (await store.history("task"))[1:] == [
            Transition(
                task_id="task",
                number=2,
                from_state=TaskState.PENDING,
                to_state=TaskState.RUNNING,
                reason="claimed",
                actor="worker",
                fence=1,
                at=clock.now(),
            )
        ]

    async def test_a_claimed_task_is_not_claimed_again(self, store: StateStore) -> None:
        """Neither by another worker nor by the same one."""
        await running_task(store, queue="default")
        await enter(store, "other")
        assert await claimed_ids(store, "other") == []
        assert await claimed_ids(store, "worker", 2) == []

    async def test_the_older_goes_first(self, store: StateStore, clock: ManualClock) -> None:
        """At equal priority the queue is first in, first out."""
        for task_id in ("c", "a", "b"):
            await submit_one(store, task_id)
            clock.advance(1)
        await enter(store)
        assert await claimed_ids(store) == ["c", "a", "b"]

    async def test_of_the_same_moment_the_lower_id_goes_first(self, store: StateStore) -> None:
        """The order is total, so that all stores agree."""
        for task_id in ("b", "c", "a"):
            await submit_one(store, task_id)
        await enter(store)
        assert await claimed_ids(store) == ["a", "b", "c"]

    async def test_the_higher_priority_goes_first(self, store: StateStore, clock: ManualClock) -> None:
        """Even if it came later."""
        await submit_one(store, "low", priority=-1)
        await submit_one(store, "normal")
        clock.advance(60)
        await submit_one(store, "high", priority=1)
        await enter(store)
        assert await claimed_ids(store) == ["high", "normal", "low"]

    async def test_waiting_long_enough_overtakes_a_higher_priority(self, store: StateStore, clock: ManualClock) -> None:
        """One point of priority is worth one ``AGEING`` of waiting, and no more."""
        await submit_one(store, "old")
        clock.advance(AGEING + timedelta(seconds=1))
        await submit_one(store, "high", priority=1)
        await enter(store)
        assert await claimed_ids(store) == ["old", "high"]

    async def test_a_task_that_returns_keeps_no_old_rank(self, store: StateStore, clock: ManualClock) -> None:
        """A retry queues up from the moment it becomes available."""
        attempt = await running_task(store, "retried", queue="default")
        clock.advance(1)
        await submit_one(store, "newer")
        clock.advance(1)
        await attempt.apply(move(TaskState.PENDING))
        assert await claimed_ids(store, number=2) == ["newer", "retried"]

    async def test_only_the_named_queues(self, store: StateStore) -> None:
        """Several queues are one ranking."""
        for queue in ("one", "two", "three"):
            await submit_one(store, f"in-{queue}", queue=queue)
        await enter(store)
        assert await claimed_ids(store, queues=("two", "three", "empty")) == ["in-three", "in-two"]

    async def test_many_queues_and_names_are_one_ranking(self, store: StateStore, clock: ManualClock) -> None:
        """By priority and age, then by id, for any number of them; a task that may not be claimed blocks no other."""
        await enter(store)
        number = 0
        for shape, (queues, names) in enumerate(((1, 3), (5, 5), (3, 100))):
            end = clock.now() + timedelta(seconds=2)
            wanted: dict[str, Any] = {
                "queues": [f"q{n}-{shape}" for n in range(queues)],
                "names": [f"n{n}" for n in range(names)],
            }
            drawn = random.Random(shape)  # noqa: S311 - no secret
            newer = [
                new_task(f"{shape}-newer-{n}", queue=drawn.choice(wanted["queues"]), name=drawn.choice(wanted["names"]))
                for n in range(4)
            ]
            await store.submit(newer)
            await enter(store, f"newer-{shape}")
            await claimed_ids(store, f"newer-{shape}", **wanted, key_form=SCOPED_KEYS + 1)
            await store.retire(f"newer-{shape}")  # handed back, with keys of a form that only a newer version reads
            order = []
            for _ in range(4):
                some = [
                    new_task(
                        f"{shape}-{drawn.randrange(1 << 30):09}-{n}",
                        queue=drawn.choice([*wanted["queues"], "foreign"]),
                        name=drawn.choice([*wanted["names"], "foreign"]),
                        priority=drawn.choice((0, 0, 0, 1)),
                        deadline=drawn.choice((None, None, end)),
                    )
                    for n in range(20)
                ]
                await store.submit(some)
                order += [
                    (clock.now() - task.priority * AGEING, task.id)
                    for task in some
                    if task.queue != "foreign" and task.name != "foreign" and task.deadline is None
                ]
                clock.advance(1)
            got = []
            for limit in (1, 7, 10, 100):
                number += 1
                got += await claimed_ids(store, number=number, limit=limit, **wanted)
            assert got == [task_id for _, task_id in sorted(order)]

    async def test_only_the_registered_names(self, store: StateStore) -> None:
        """A worker never gets a task without having its code."""
        await submit_one(store, "known")
        await submit_one(store, "unknown", name="other-job")
        await enter(store)
        assert await claimed_ids(store) == ["known"]

    @pytest.mark.parametrize("nothing", [{"names": ()}, {"queues": ()}])
    async def test_no_names_or_queues_claim_nothing(self, store: StateStore, nothing: dict[str, Any]) -> None:
        """Empty means none, not all."""
        await submit_one(store)
        await enter(store)
        assert await claimed_ids(store, **nothing) == []

    async def test_at_most_the_limit(self, store: StateStore) -> None:
        """The rest stays for the next claim."""
        for number in range(5):
            await submit_one(store, f"task-{number}")
        await enter(store)
        assert await claimed_ids(store, limit=2) == ["task-0", "task-1"]
        assert await claimed_ids(store, number=2, limit=10) == ["task-2", "task-3", "task-4"]

    @pytest.mark.parametrize("limit", [0, -1])
    async def test_a_limit_of_nothing_gets_nothing(self, store: StateStore, limit: int) -> None:
        """And its number can still be used."""
        await submit_one(store)
        await enter(store)
        assert await claimed_ids(store, limit=limit) == []
        assert await claimed_ids(store, limit=1) == ["task"]

    async def test_a_repeated_number_returns_what_it_got(self, store: StateStore) -> None:
        """If the answer to a claim was lost, no task is lost, and a repeat takes no more tasks."""
        await submit_one(store, "a")
        await submit_one(store, "b")
        await enter(store)
        first = await claim(store, number=1)
        await submit_one(store, "c")
        before = await snapshot(store)
        again = await claim(store, number=1)
        assert again == [replace(claimed, fresh=False) for claimed in first]
        assert await snapshot(store) == before

    async def test_a_repeated_number_leaves_out_what_is_no_longer_held(self, store: StateStore) -> None:
        """What was finished meanwhile does not come back."""
        attempt = await running_task(store, queue="default")
        await attempt.apply(move(TaskState.COMPLETED))
        assert await claim(store, number=1) == []

    async def test_a_lower_number_is_a_repeat_too(self, store: StateStore) -> None:
        """Late answers are identified by number, not by order."""
        await submit_one(store, "a")
        await enter(store)
        await claim(store, number=1)
        await submit_one(store, "b")
        await claim(store, number=5)
        await submit_one(store, "c")
        assert await claimed_ids(store, number=1) == ["a"]
        assert await claimed_ids(store, number=3) == []
        assert await claimed_ids(store, number=5) == ["b"]
        assert await claimed_ids(store, number=6) == ["c"]

    async def test_a_task_past_its_deadline_is_not_handed_out(self, store: StateStore, clock: ManualClock) -> None:
        """The sweep fails it; no worker begins it."""
        await submit_one(store, "late", deadline=clock.now() + timedelta(seconds=10))
        await submit_one(store, "in-time", deadline=clock.now() + timedelta(seconds=11))
        await enter(store)
        clock.advance(10)
        assert await claimed_ids(store) == ["in-time"]

    async def test_a_task_that_must_undo_is_handed_out_late(self, store: StateStore, clock: ManualClock) -> None:
        """A worker has to compensate its completed steps."""
        await submit_one(store, deadline=clock.now() + timedelta(seconds=10))
        await apply_outside(store, "task", RequireUndo(required=True))
        await enter(store)
        clock.advance(10)
        assert await claimed_ids(store) == ["task"]

    async def test_a_draining_worker_gets_nothing(self, store: StateStore) -> None:
        """Not even an error."""
        await submit_one(store)
        await enter(store)
        await store.drain("worker")
        assert await claim(store) == []

    async def test_a_draining_or_late_worker_may_repeat_a_claim(self, store: StateStore, clock: ManualClock) -> None:
        """It gets no new work, but it can still find out what it holds."""
        attempt = await running_task(store, queue="default")
        await store.drain("worker")
        clock.advance(LEASE)
        assert await claim(store, number=1) == [Claimed(task=attempt.task, fresh=False)]

    async def test_an_unknown_worker_is_refused(self, store: StateStore) -> None:
        """Only registered workers hold leases."""
        with pytest.raises(WorkerDead):
            await claim(store, "stranger")

    async def test_a_dead_worker_is_refused(self, store: StateStore) -> None:
        """Dead is final."""
        await enter(store)
        await store.retire("worker")
        with pytest.raises(WorkerDead):
            await claim(store)

    async def test_a_worker_whose_lease_ran_out_gets_nothing(self, store: StateStore, clock: ManualClock) -> None:
        """Even before a sweep: its new tasks would be taken back at once."""
        await submit_one(store)
        await enter(store)
        clock.advance(LEASE)
        assert await claim(store) == []
        await store.heartbeat("worker")
        assert await claimed_ids(store) == ["task"]

    async def test_fresh_means_nothing_was_ever_written(self, store: StateStore) -> None:
        """A fresh task needs no load; a task that was changed from outside does."""
        await submit_one(store, "touched")
        await apply_outside(store, "touched")
        await submit_one(store, "untouched")
        await enter(store)
        fresh = {claimed.task.id: claimed.fresh for claimed in await claim(store)}
        assert fresh == {"touched": False, "untouched": True}

    async def test_a_task_in_review_is_leased_where_it_is(self, store: StateStore) -> None:
        """The verifier runs under its own lease, without a move."""
        attempt = await running_task(store, queue="default")
        await attempt.apply(move(TaskState.REVIEW, result="done"), Release())
        history = await store.history("task")
        await enter(store, "verifier")
        [claimed] = await claim(store, "verifier")
        assert (claimed.task.state, claimed.task.result, claimed.task.fence) == (TaskState.REVIEW, "done", 2)
        assert await store.history("task") == history

    async def test_a_task_in_review_stays_with_its_worker_unless_released(self, store: StateStore) -> None:
        """The worker that did the work may verify it at once."""
        attempt = await running_task(store, queue="default")
        await attempt.apply(move(TaskState.REVIEW))
        await enter(store, "verifier")
        assert await claim(store, "verifier") == []

    async def test_started_is_when_it_was_first_claimed(self, store: StateStore, clock: ManualClock) -> None:
        """A second attempt does not change it."""
        attempt = await running_task(store, queue="default")
        clock.advance(5)
        await attempt.apply(move(TaskState.PENDING))
        second = await claimed_by(store, "worker", 2)
        assert second.task.started_at == attempt.task.started_at
        assert second.task.fence == attempt.task.fence + 1

    async def test_a_new_fence_restarts_the_count_of_commits(self, store: StateStore) -> None:
        """Sequence numbers belong to a fence."""
        attempt = await running_task(store, queue="default")
        await attempt.apply(move(TaskState.PENDING))
        second = await claimed_by(store, "worker", 2)
        assert second.task.sequence == 0
        assert not second.claimed.fresh
        verdict = await second.apply()
        assert verdict.sequence == 1

    async def test_many_workers_never_share_a_task(self, store: StateStore) -> None:
        """In any race."""
        for number in range(20):
            await submit_one(store, f"task-{number:02}")
        for number in range(5):
            await enter(store, f"worker-{number}")
        answers = await asyncio.gather(*(claimed_ids(store, f"worker-{number}", limit=6) for number in range(5)))
        handed_out = sorted(task_id for ids in answers for task_id in ids)
        assert handed_out == [f"task-{number:02}" for number in range(20)]

    async def test_the_worker_record_counts_its_claims(self, store: StateStore) -> None:
        """Only claims that found something: an idle worker that polls writes nothing."""
        await submit_one(store)
        await enter(store)
        await claim(store, number=4)
        await claim(store, number=5)
        assert [worker.claims for worker in await store.workers()] == [4]
