"""Leases: one for each worker, renewed by its heartbeat, and final when it ends."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.commit import Refusal
from holdfast.model.errors import Conflict, LeaseHeld, NotFound, WorkerDead
from holdfast.model.operations import Release, RequestCancel, UntilWoken
from holdfast.model.task import SCOPED_KEYS
from holdfast.model.transitions import OPEN, TaskState, Transition
from holdfast.model.worker import Claimed, Heartbeat, Lease, NewWorker, Worker, WorkerState
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    LEASE,
    acquired_by,
    apply_outside,
    claim,
    claimed_ids,
    enter,
    move,
    outside,
    running_task,
    send,
    stored,
    submit_one,
)
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.snapshot import snapshot


class LeaseContract(ContractBase):
    """Workers and what they hold."""

    async def test_a_worker_is_stored_as_it_registered(self, store: StateStore, clock: ManualClock) -> None:
        """Its details are for people, and any JSON."""
        worker = await store.register(
            NewWorker(id="w", label="host one", lease=12.5, details={"pid": 7, "queues": ["a", "b"]})
        )
        assert worker == Worker(
            id="w",
            label="host one",
            lease=12.5,
            state=WorkerState.LIVE,
            claims=0,
            details={"pid": 7, "queues": ["a", "b"]},
            started_at=clock.now(),
            seen_at=clock.now(),
        )
        assert await store.workers() == [worker]

    async def test_registering_again_is_answered_not_renewed(self, store: StateStore, clock: ManualClock) -> None:
        """A registration whose answer was lost can be sent again; only a heartbeat renews."""
        first = await store.register(NewWorker(id="w"))
        clock.advance(LEASE - 1)
        assert await store.register(NewWorker(id="w", label="other")) == first
        clock.advance(1)
        await store.sweep()
        assert [worker.state for worker in await store.workers()] == [WorkerState.DEAD]

    async def test_a_draining_worker_may_register_again(self, store: StateStore) -> None:
        """It is still alive."""
        await enter(store)
        await store.drain("worker")
        again = await store.register(NewWorker(id="worker"))
        assert again.state is WorkerState.DRAINING

    async def test_a_dead_incarnation_never_registers_again(self, store: StateStore) -> None:
        """A process that returns takes a new id."""
        await enter(store)
        await store.retire("worker")
        with pytest.raises(WorkerDead):
            await store.register(NewWorker(id="worker"))

    async def test_workers_are_listed_by_id(self, store: StateStore) -> None:
        """Dead ones included, until they are pruned."""
        for worker_id in ("b", "c", "a"):
            await enter(store, worker_id)
        await store.retire("b")
        states = {worker.id: worker.state for worker in await store.workers()}
        assert list(states.items()) == [("a", WorkerState.LIVE), ("b", WorkerState.DEAD), ("c", WorkerState.LIVE)]

    async def test_a_heartbeat_renews_the_lease_of_all_its_tasks(self, store: StateStore, clock: ManualClock) -> None:
        """One row, for any number of tasks."""
        await running_task(store)
        clock.advance(LEASE - 1)
        assert await store.heartbeat("worker") == Heartbeat(cancel_requested=frozenset())
        assert [worker.seen_at for worker in await store.workers()] == [clock.now()]
        clock.advance(LEASE - 1)
        assert (await store.sweep()).recovered == ()
        clock.advance(1)
        assert (await store.sweep()).recovered == ("task",)

    async def test_a_heartbeat_changes_no_task(self, store: StateStore, clock: ManualClock) -> None:
        """It changes only the worker's own row."""
        attempt = await running_task(store)
        clock.advance(1)
        await store.heartbeat("worker")
        assert await stored(store) == attempt.task

    async def test_a_late_heartbeat_still_renews_before_a_sweep(self, store: StateStore, clock: ManualClock) -> None:
        """Only the sweep declares a worker dead."""
        await running_task(store)
        clock.advance(LEASE * 3)
        await store.heartbeat("worker")
        assert (await store.sweep()).recovered == ()

    async def test_dead_is_final(self, store: StateStore, clock: ManualClock) -> None:
        """A worker that slept through its lease can do nothing any more."""
        attempt = await running_task(store)
        clock.advance(LEASE)
        await store.sweep()
        with pytest.raises(WorkerDead):
            await store.heartbeat("worker")
        with pytest.raises(WorkerDead):
            await store.drain("worker")
        with pytest.raises(WorkerDead):
            await claim(store, number=2)
        with pytest.raises(WorkerDead):
            await store.acquire("task", "worker")
        verdict = await attempt.send()
        assert verdict.refusal is Refusal.SUPERSEDED

    async def test_an_unknown_worker_has_no_heartbeat(self, store: StateStore) -> None:
        """A heartbeat does not register a worker."""
        with pytest.raises(WorkerDead):
            await store.heartbeat("stranger")
        with pytest.raises(WorkerDead):
            await store.drain("stranger")

    async def test_the_heartbeat_tells_which_tasks_are_unwanted(self, store: StateStore) -> None:
        """Only those this worker holds."""
        await running_task(store, "mine")
        await running_task(store, "theirs", "other")
        for task_id in ("mine", "theirs"):
            await apply_outside(store, task_id, RequestCancel(reason="changed my mind"))
        assert (await store.heartbeat("worker")).cancel_requested == frozenset({"mine"})

    async def test_a_draining_worker_keeps_its_tasks(self, store: StateStore, clock: ManualClock) -> None:
        """It finishes its tasks, and must keep sending heartbeats."""
        attempt = await running_task(store)
        await store.drain("worker")
        clock.advance(LEASE - 1)
        await store.heartbeat("worker")
        clock.advance(LEASE - 1)
        await attempt.apply(move(TaskState.COMPLETED))
        assert [worker.state for worker in await store.workers()] == [WorkerState.DRAINING]

    async def test_retiring_hands_tasks_back_under_a_new_fence(self, store: StateStore, clock: ManualClock) -> None:
        """No death is counted: the worker retired normally."""
        attempt = await running_task(store, queue="default")
        clock.advance(2)
        assert await store.retire("worker") == ["task"]
        assert await stored(store) == replace(
            attempt.task,
            state=TaskState.PENDING,
            owner=None,
            fence=2,
            revision=3,
            available_at=clock.now(),
            updated_at=clock.now(),
        )
        assert (await store.history("task"))[-1] == Transition(
            task_id="task",
            number=3,
            from_state=TaskState.RUNNING,
            to_state=TaskState.PENDING,
            reason="handed back",
            actor="worker",
            fence=2,
            at=clock.now(),
        )
        await enter(store, "next")
        assert await claimed_ids(store, "next") == ["task"]

    async def test_what_a_retired_worker_still_sends_is_refused(self, store: StateStore) -> None:
        """Handing back ends the lease, like a death."""
        attempt = await running_task(store)
        await store.retire("worker")
        assert (await attempt.send()).refusal is Refusal.SUPERSEDED

    async def test_retiring_leaves_other_states_as_they_are(self, store: StateStore) -> None:
        """A task in review stays there; so does one that was only acquired."""
        reviewed = await running_task(store, "reviewed", queue="default")
        await reviewed.apply(move(TaskState.REVIEW))
        await submit_one(store, "acquired")
        await store.acquire("acquired", "worker")
        assert await store.retire("worker") == ["acquired", "reviewed"]
        assert (await stored(store, "reviewed")).state is TaskState.REVIEW
        assert (await stored(store, "acquired")).state is TaskState.PENDING
        await enter(store, "next")
        assert sorted(await claimed_ids(store, "next")) == ["acquired", "reviewed"]

    async def test_retiring_a_dead_worker_leaves_its_tasks_to_the_sweep(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """A sweep that has found it dead may not have taken all of its tasks back yet: it counts a death of each."""
        for task_id in ("a", "b"):
            await submit_one(store, task_id)
        await enter(store)
        assert await claimed_ids(store) == ["a", "b"]
        clock.advance(LEASE + 1)
        await store.sweep(limit=1)
        assert len(await store.owned("worker")) == 1
        assert await store.retire("worker") == []
        await store.sweep()
        assert [(await stored(store, task_id)).deaths for task_id in ("a", "b")] == [1, 1]

    async def test_retiring_an_unknown_or_dead_worker_does_nothing(self, store: StateStore) -> None:
        """The answer is empty, and nothing changes."""
        await running_task(store)
        await store.retire("worker")
        before = await snapshot(store)
        assert await store.retire("worker") == []
        assert await store.retire("stranger") == []
        assert await snapshot(store) == before

    async def test_owned_lists_what_a_worker_holds(self, store: StateStore) -> None:
        """By task id, with the number of the claim; 0 if it was acquired."""
        await enter(store)
        await submit_one(store, "b")
        await claim(store, number=3)
        await submit_one(store, "a")
        await store.acquire("a", "worker")
        assert await store.owned("worker") == [
            Lease(task_id="a", owner="worker", fence=1, claim=0),
            Lease(task_id="b", owner="worker", fence=1, claim=3),
        ]
        assert await store.owned("stranger") == []

    @pytest.mark.parametrize("state", sorted(OPEN))
    async def test_a_task_is_acquired_without_being_moved(
        self, store: StateStore, clock: ManualClock, state: TaskState
    ) -> None:
        """In any state that is not final."""
        before = await submit_one(store, state=state)
        await enter(store)
        clock.advance(1)
        now = clock.now()
        after = replace(
            before, owner="worker", fence=1, revision=2, started_at=now, updated_at=now, key_form=SCOPED_KEYS
        )
        assert await store.acquire("task", "worker") == Claimed(task=after, fresh=True)
        assert await stored(store) == after
        assert len(await store.history("task")) == 1

    async def test_an_acquired_task_is_not_claimed(self, store: StateStore) -> None:
        """A task with a lease is never claimed."""
        await submit_one(store)
        await enter(store)
        await store.acquire("task", "worker")
        await enter(store, "other")
        assert await claim(store, "other") == []

    async def test_a_delayed_task_can_be_acquired(self, store: StateStore, clock: ManualClock) -> None:
        """And it is still delayed when it is released."""
        await submit_one(store, available_at=clock.now() + timedelta(hours=1))
        await enter(store)
        attempt = await acquired_by(store, "task", "worker")
        await attempt.apply(Release())
        assert await claim(store) == []

    async def test_acquiring_what_one_holds_is_answered_as_it_stands(self, store: StateStore) -> None:
        """An acquire whose answer was lost can be sent again."""
        attempt = await running_task(store)
        before = await snapshot(store)
        assert await store.acquire("task", "worker") == Claimed(task=attempt.task, fresh=False)
        assert await snapshot(store) == before

    async def test_a_held_task_is_not_acquired_by_another(self, store: StateStore) -> None:
        """The error names the holder."""
        await running_task(store)
        await enter(store, "other")
        with pytest.raises(LeaseHeld) as refused:
            await store.acquire("task", "other")
        assert refused.value.owner == "worker"

    async def test_acquire_refuses_what_cannot_be_leased(self, store: StateStore) -> None:
        """No such task; a task that has ended; a worker that is unknown."""
        await submit_one(store, "ended", state=TaskState.FAILED)
        await enter(store)
        with pytest.raises(NotFound):
            await store.acquire("missing", "worker")
        with pytest.raises(Conflict):
            await store.acquire("ended", "worker")
        with pytest.raises(WorkerDead):
            await store.acquire("missing", "stranger")

    async def test_a_draining_worker_may_acquire(self, store: StateStore) -> None:
        """It names the task itself: this is not new work from the queue."""
        await submit_one(store)
        await enter(store)
        await store.drain("worker")
        assert (await store.acquire("task", "worker")).task.owner == "worker"

    async def test_a_worker_whose_lease_ran_out_acquires_nothing(self, store: StateStore, clock: ManualClock) -> None:
        """Its lease has already expired."""
        await submit_one(store)
        await enter(store)
        clock.advance(LEASE)
        with pytest.raises(WorkerDead):
            await store.acquire("task", "worker")

    async def test_the_lease_of_an_acquired_waiting_task_survives_its_waking(self, store: StateStore) -> None:
        """It is pending then, and claimable only when its holder releases it."""
        attempt = await running_task(store, queue="default")
        await attempt.apply(move(TaskState.WAITING, waits=(UntilWoken(key="w"),)))
        await enter(store, "other")
        held = await acquired_by(store, "task", "other")
        verdict = await send(store, outside("task", move(TaskState.PENDING)))
        assert verdict.refusal is Refusal.LEASED
        await held.apply(move(TaskState.PENDING))
        assert await claimed_ids(store, "worker", 2) == ["task"]

    @pytest.mark.parametrize("jump", [timedelta(hours=1), timedelta(hours=-1)], ids=["forwards", "backwards"])
    async def test_a_jump_of_the_wall_clock_and_the_leases(
        self, store: StateStore, clock: ManualClock, jump: timedelta
    ) -> None:
        """No lease expires if leases are counted on the boot clock; a shared database uses its own wall time."""
        await running_task(store)
        clock.jump_wall(jump)
        expires = jump > timedelta() and not self.leases_on_boot_clock
        assert (await store.sweep()).recovered == (("task",) if expires else ())

    async def test_after_a_jump_back_the_lease_still_runs_out(self, store: StateStore, clock: ManualClock) -> None:
        """At its normal time, if leases are counted on the boot clock."""
        await running_task(store)
        clock.jump_wall(timedelta(hours=-1))
        clock.advance(LEASE)
        assert (await store.sweep()).recovered == (("task",) if self.leases_on_boot_clock else ())
