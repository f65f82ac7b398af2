"""sweep: tasks are taken back from workers that fell silent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.errors import InvalidValue
from holdfast.model.operations import Operation, Rest, ShareWorker
from holdfast.model.task import FLAT_KEYS
from holdfast.model.transitions import TaskState, Transition
from holdfast.model.worker import ALONE_AFTER, POISON_AFTER, QUIET_FOR, Claim, Swept, WorkerState
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    LEASE,
    NAME,
    claim,
    claimed_by,
    claimed_ids,
    enter,
    last_move,
    move,
    outside,
    running_task,
    stored,
    submit_one,
)
from holdfast.testing.contract.base import ContractBase


class SweepOfDeadWorkersContract(ContractBase):
    """Taking tasks back from workers that fell silent."""

    async def test_a_silent_worker_loses_its_task(self, store: StateStore, clock: ManualClock) -> None:
        """The task returns to the queue under a new fence, with the death on its record."""
        attempt = await running_task(store, queue="default")
        clock.advance(LEASE)
        assert await store.sweep() == Swept(recovered=("task",))
        assert await stored(store) == replace(
            attempt.task,
            state=TaskState.PENDING,
            owner=None,
            fence=2,
            revision=3,
            deaths=1,
            available_at=clock.now(),
            updated_at=clock.now(),
        )
        assert await last_move(store) == Transition(
            task_id="task",
            number=3,
            from_state=TaskState.RUNNING,
            to_state=TaskState.PENDING,
            reason="its worker died",
            actor="sweep",
            fence=2,
            at=clock.now(),
        )
        assert [worker.state for worker in await store.workers()] == [WorkerState.DEAD]

    async def test_a_lease_lasts_to_its_last_moment(self, store: StateStore, clock: ManualClock) -> None:
        """Until then the sweep takes nothing back."""
        await running_task(store)
        clock.advance(LEASE - 0.001)
        assert (await store.sweep()).recovered == ()
        clock.advance(0.001)
        assert (await store.sweep()).recovered == ("task",)

    async def test_a_task_in_review_stays_there(self, store: StateStore, clock: ManualClock) -> None:
        """The work is done; only the verifier died."""
        attempt = await running_task(store, queue="default")
        await attempt.apply(move(TaskState.REVIEW, result="done"))
        clock.advance(LEASE)
        assert (await store.sweep()).recovered == ("task",)
        task = await stored(store)
        assert (task.state, task.result, task.deaths, task.owner) == (TaskState.REVIEW, "done", 1, None)
        await enter(store, "next")
        assert await claimed_ids(store, "next") == ["task"]

    async def test_a_verifier_that_keeps_dying_is_poison_too(self, store: StateStore, clock: ManualClock) -> None:
        """After three deaths alone the task fails, in review as in running."""
        attempt = await running_task(store, queue="default")
        await attempt.apply(move(TaskState.REVIEW, result="done"))
        swept = None
        for number in range(ALONE_AFTER + POISON_AFTER):
            clock.advance(LEASE)
            swept = await store.sweep()
            worker = await enter(store, f"verifier {number}")
            alone = number + 1 >= ALONE_AFTER
            assert await claimed_ids(store, worker, alone=alone) == ([] if swept.poisoned else ["task"])
        assert swept is not None
        assert swept.poisoned == ("task",)
        assert (await stored(store)).state is TaskState.FAILED

    async def test_merely_holding_a_task_counts_no_death(self, store: StateStore, clock: ManualClock) -> None:
        """A task that was acquired but not run did not kill the worker."""
        await submit_one(store)
        await enter(store)
        await store.acquire("task", "worker")
        clock.advance(LEASE)
        assert (await store.sweep()).recovered == ("task",)
        task = await stored(store)
        assert (task.state, task.deaths, task.fence) == (TaskState.PENDING, 0, 2)
        await enter(store, "next")
        assert await claimed_ids(store, "next") == ["task"]

    async def test_a_worker_without_tasks_dies_too(self, store: StateStore, clock: ManualClock) -> None:
        """Idle workers have to send heartbeats too."""
        await enter(store)
        clock.advance(LEASE)
        assert await store.sweep() == Swept()
        assert [worker.state for worker in await store.workers()] == [WorkerState.DEAD]

    async def test_many_tasks_are_taken_back_in_batches(self, store: StateStore, clock: ManualClock) -> None:
        """By id; a full batch means that there may be more."""
        for task_id in ("a", "b", "c"):
            await submit_one(store, task_id)
        await enter(store)
        await claim(store)
        clock.advance(LEASE)
        first = await store.sweep(limit=2)
        assert (first.recovered, first.more) == (("a", "b"), True)
        second = await store.sweep(limit=2)
        assert (second.recovered, second.more) == (("c",), False)

    async def test_a_second_death_makes_a_suspect(self, store: StateStore, clock: ManualClock) -> None:
        """Only a worker that runs nothing else gets a suspect, and one at a time."""
        for task_id in ("a", "b"):
            await submit_one(store, task_id)
        await _let_workers_die(store, clock, 2)
        await enter(store, "careful")
        assert await claim(store, "careful", 1) == []
        assert (await store.heartbeat("careful")).suspects
        [claimed] = await claim(store, "careful", 2, alone=True)
        assert (claimed.task.id, claimed.alone, claimed.task.deaths) == ("a", True, 2)

    async def test_a_lone_claim_takes_no_ordinary_task(self, store: StateStore) -> None:
        """It asks for a suspect, and there are none."""
        await submit_one(store)
        await enter(store)
        assert not (await store.heartbeat("worker")).suspects
        assert await claim(store, alone=True) == []

    async def test_a_repeated_lone_claim_is_marked_again(self, store: StateStore, clock: ManualClock) -> None:
        """The worker must know that it may run nothing else."""
        await submit_one(store)
        await _let_workers_die(store, clock, 2)
        await enter(store, "careful")
        [first] = await claim(store, "careful", 1, alone=True)
        [again] = await claim(store, "careful", 1, alone=True)
        assert again == replace(first, fresh=False)
        assert again.alone

    async def test_only_deaths_while_alone_make_poison(self, store: StateStore, clock: ManualClock) -> None:
        """After three of them the task fails, with the reason as its error."""
        await submit_one(store)
        await _let_workers_die(store, clock, 2)
        swept = await _let_workers_die(store, clock, 3, alone=True)
        assert (swept.poisoned, swept.recovered) == (("task",), ())
        task = await stored(store)
        assert (task.state, task.deaths, task.lone_deaths) == (TaskState.FAILED, 5, 3)
        assert task.error == {"type": "Poison", "message": "3 workers died while running only this task"}
        assert task.finished_at == clock.now()
        assert (await last_move(store)).reason == "poison"

    async def test_one_killer_does_not_condemn_its_neighbours(self, store: StateStore, clock: ManualClock) -> None:
        """For any number of common deaths."""
        await submit_one(store, "killer", priority=100)
        await submit_one(store, "neighbour")
        await _let_workers_die(store, clock, 2)
        await _let_workers_die(store, clock, 3, alone=True)
        assert (await stored(store, "killer")).state is TaskState.FAILED
        neighbour = await stored(store, "neighbour")
        assert (neighbour.state, neighbour.deaths, neighbour.lone_deaths) == (TaskState.PENDING, 2, 0)

    async def test_the_death_of_a_task_that_rests_does_not_count(self, store: StateStore, clock: ManualClock) -> None:
        """One crash of a worker with a thousand tasks that wait for people must not make a thousand suspects."""
        attempt = await running_task(store, queue="default")
        await attempt.apply(Rest(resting=True))
        resting = await stored(store)
        assert (resting.resting, resting.state, resting.owner) == (True, TaskState.RUNNING, "worker")
        await _stay_alive(store, clock, "worker")
        clock.advance(LEASE)
        assert (await store.sweep()).recovered == ("task",)
        task = await stored(store)
        assert (task.state, task.deaths, task.resting, task.owner) == (TaskState.PENDING, 0, False, None)
        assert (await last_move(store)).reason == "its worker died"

    async def test_a_death_soon_after_a_task_began_to_rest_counts(self, store: StateStore, clock: ManualClock) -> None:
        """What its code does beside its wait may have killed the worker."""
        attempt = await running_task(store, queue="default")
        await attempt.apply(Rest(resting=True))
        clock.advance(LEASE)
        assert (await store.sweep()).recovered == ("task",)
        assert (await stored(store)).deaths == 1

    async def test_a_rest_ends(self, store: StateStore, clock: ManualClock) -> None:
        """By a Commit of its worker, and with the lease: under the next lease a death counts again."""
        attempt = await running_task(store, queue="default")
        await attempt.apply(Rest(resting=True))
        await attempt.apply(Rest(resting=False))
        assert not (await stored(store)).resting
        await attempt.apply(Rest(resting=True))
        await attempt.apply(move(TaskState.PENDING))
        assert not (await stored(store)).resting
        again = await enter(store, "again")
        assert await claimed_ids(store, again) == ["task"]
        await _stay_alive(store, clock, again)
        clock.advance(LEASE)
        assert (await store.sweep()).recovered == ("task",)
        task = await stored(store)
        assert (task.deaths, task.resting) == (1, False)

    async def test_a_suspect_that_rests_or_shares_its_worker_is_not_poisoned(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """Other tasks may have caused the death of its worker."""
        await submit_one(store)
        await _let_workers_die(store, clock, 2)
        await _let_workers_die(store, clock, 2, alone=True)
        cases: list[tuple[Operation | None, int, int]] = [
            (Rest(resting=True), 4, 2),
            (ShareWorker(), 5, 2),
            (None, 6, 3),
        ]
        for operation, deaths, lone_deaths in cases:
            worker = await enter(store, f"worker {deaths}")
            suspect = await claimed_by(store, worker, 1, alone=True)
            if operation is not None:
                await suspect.apply(operation)
            await _stay_alive(store, clock, worker)
            clock.advance(LEASE)
            swept = await store.sweep()
            assert (swept.poisoned if operation is None else swept.recovered) == ("task",)
            task = await stored(store)
            assert (task.deaths, task.lone_deaths) == (deaths, lone_deaths)

    async def test_an_acquitted_task_is_no_longer_a_suspect(self, store: StateStore, clock: ManualClock) -> None:
        """It did not cause its earlier deaths."""
        await submit_one(store)
        await _let_workers_die(store, clock, 2)
        suspect = await claimed_by(store, await enter(store, "careful"), 1, alone=True)
        await suspect.apply(ShareWorker(acquitted=True))
        await suspect.apply(move(TaskState.PENDING))
        assert (await stored(store)).deaths == 0
        assert await claimed_ids(store, await enter(store, "any")) == ["task"]

    async def test_only_its_worker_records_that_a_task_rests(self, store: StateStore) -> None:
        """No other caller can know."""
        await submit_one(store)
        for operation in (Rest(resting=True), ShareWorker()):
            with pytest.raises(InvalidValue, match="only the worker that holds a task"):
                await store.commit([outside("task", operation)])

    async def test_whose_suspect_it_is(self, store: StateStore, clock: ManualClock) -> None:
        """Only a worker that could claim it makes room for it."""
        await submit_one(store)
        await _let_workers_die(store, clock, 2)
        asked = Claim(worker_id="w", number=1, limit=1, queues=("default", "other"), names=(NAME, "other"))
        assert await store.has_suspect(asked)
        others: list[dict[str, Any]] = [{"queues": ("other",)}, {"names": ("other",)}, {"names": ()}]
        for other in (*others, {"key_form": FLAT_KEYS}):
            assert not await store.has_suspect(replace(asked, **other)), other

    async def test_a_new_round_forgets_the_deaths(self, store: StateStore, clock: ManualClock) -> None:
        """A person checked the task and wants another try."""
        await submit_one(store)
        await _let_workers_die(store, clock, 2)
        await enter(store, "careful")
        suspect = await claimed_by(store, "careful", 1, alone=True)
        await suspect.apply(move(TaskState.PENDING, new_round=True))
        task = await stored(store)
        assert (task.deaths, task.lone_deaths, task.round) == (0, 0, 2)
        assert await claimed_ids(store, "careful", 2) == ["task"]


async def _stay_alive(store: StateStore, clock: ManualClock, worker_id: str) -> None:
    """Let a worker send heartbeats until a resting task's death no longer counts."""
    for _ in range(int(QUIET_FOR / LEASE * 2) + 1):
        clock.advance(LEASE / 2)
        await store.heartbeat(worker_id)


async def _let_workers_die(store: StateStore, clock: ManualClock, times: int, *, alone: bool = False) -> Swept:
    """Let new workers, one after the other, claim the tasks and fall silent; return the last sweep."""
    swept = Swept()
    for number in range(times):
        doomed = await enter(store, f"doomed {number} {'alone' if alone else 'in company'}")
        claimed = await claim(store, doomed, alone=alone)
        assert claimed
        clock.advance(LEASE)
        swept = await store.sweep()
    return swept
