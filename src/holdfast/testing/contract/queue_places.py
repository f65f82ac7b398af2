"""Places: no more tasks of a queue are at work than it allows, over all workers together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.commit import Refusal
from holdfast.model.errors import InvalidValue, NoPlace
from holdfast.model.operations import Release, RequestCancel, Rest, UntilTime, WriteStep
from holdfast.model.queue_settings import KEEP, QueueSettings
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    COMPLETE,
    LEASE,
    NAME,
    Attempt,
    claim,
    claimed_ids,
    enter,
    move,
    new_task,
    row,
    running_task,
    step,
    stored,
    submit_one,
)
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.contract.hints import hints_of
from holdfast.testing.snapshot import all_tasks

QUEUE = "default"

Leave = Callable[[Attempt], Awaitable[object]]


async def working(store: StateStore, queue: str = QUEUE) -> int:
    """Return how many tasks of a queue count as being at work. The count must be the truth."""
    [settings] = [found for found in await store.queue_settings() if found.name == queue]
    tasks = [task for task in await all_tasks(store) if task.queue == queue]
    assert settings.working == sum(task.owner is not None and not task.resting for task in tasks)
    return settings.working


async def _all_at_work(store: StateStore, count: int, *, concurrency: int | None = None) -> list[Attempt]:
    """Let one worker have as many tasks of the queue as may be at work; one more is ready."""
    await store.set_queue(QUEUE, concurrency=concurrency or count)
    await store.submit([new_task(f"task {number}") for number in range(count)])
    await enter(store, "holder", lease=100 * LEASE)
    attempts = [Attempt(store, claimed) for claimed in await claim(store, "holder")]
    assert len(attempts) == count
    await submit_one(store, "next")
    await enter(store, lease=100 * LEASE)
    return attempts


class PlacesContract(ContractBase):
    """set_queue(concurrency=), and what it means for claims and for tasks that rest."""

    async def test_a_limit_is_kept_changed_and_taken_away(self, store: StateStore) -> None:
        """Other settings stay; the same again changes nothing; None removes the limit, and the count with it."""
        await store.submit([new_task("a"), new_task("b"), new_task("c")])
        await enter(store)
        assert await claimed_ids(store, limit=2) == ["a", "b"]
        limited = QueueSettings(name=QUEUE, pending=1, concurrency=3, working=2)
        assert await store.set_queue(QUEUE, concurrency=3) == limited
        assert await store.set_queue(QUEUE, concurrency=3) == limited
        assert await store.set_queue(QUEUE, concurrency=KEEP) == limited
        both = QueueSettings(name=QUEUE, max_pending=9, pending=1, concurrency=2, working=2)
        assert await store.set_queue(QUEUE, max_pending=9, concurrency=2) == both
        assert await store.queue_settings() == [both]
        unlimited = QueueSettings(name=QUEUE, max_pending=9, pending=1)
        assert await store.set_queue(QUEUE, concurrency=None) == unlimited
        assert await claimed_ids(store, number=2) == ["c"]
        assert (await store.set_queue(QUEUE, concurrency=1)).working == 3

    async def test_a_claim_takes_no_more_than_there_are_places(self, store: StateStore) -> None:
        """Of one queue, of several, and of some beside queues without a limit; by rank, and over several names."""
        await store.set_queue("a", concurrency=2)
        await store.set_queue("b", concurrency=1)
        tasks = [
            new_task(f"{queue}{n}", queue=queue, name=NAME if n % 2 else "other") for n in range(4) for queue in "abc"
        ]
        for task in tasks:
            await store.submit([task])
        await enter(store)
        every: dict[str, Any] = {"queues": tuple("abc"), "names": (NAME, "other")}
        assert await claimed_ids(store, number=1, limit=4, **every) == ["a0", "a1", "b0", "c0"]
        assert (await working(store, "a"), await working(store, "b")) == (2, 1)
        assert await claimed_ids(store, number=2, queues=("a",), names=(NAME, "other")) == []
        assert await claimed_ids(store, number=3, **every) == ["c1", "c2", "c3"]
        assert await claimed_ids(store, number=4, **every) == []
        again = await claim(store, number=1, limit=4, **every)
        assert [claimed.task.id for claimed in again] == ["a0", "a1", "b0", "c0"]
        assert (await working(store, "a"), await working(store, "b")) == (2, 1)

    async def test_a_full_queue_holds_nothing_else_up(self, store: StateStore) -> None:
        """Older tasks that may not begin do not stand before the younger ones of other queues."""
        await store.set_queue("a", concurrency=1)
        await store.submit([new_task(f"a{n}", queue="a") for n in range(20)])
        await store.submit([new_task(f"b{n}", queue="b") for n in range(5)])
        await enter(store)
        assert await claimed_ids(store, limit=4, queues=("a", "b")) == ["a0", "b0", "b1", "b2"]
        assert await claimed_ids(store, number=2, limit=4, queues=("a", "b")) == ["b3", "b4"]

    async def test_whatever_leaves_makes_a_place(self, store: StateStore, clock: ManualClock) -> None:
        """An end, a wait, a retry, a review that is released, a rest, a hand-back and a death; and a hint follows."""
        later = clock.now() + timedelta(days=1)
        waiting = move(TaskState.WAITING, waits=(UntilTime(key="t", at=later),))
        ways: dict[str, Leave] = {
            "completed": lambda attempt: attempt.apply(COMPLETE),
            "completed after a step": lambda attempt: attempt.apply(WriteStep(step()), COMPLETE),
            "failed": lambda attempt: attempt.apply(move(TaskState.FAILED, error={"type": "E", "message": ""})),
            "cancelled": lambda attempt: attempt.apply(RequestCancel(reason="no"), move(TaskState.CANCELLED)),
            "waits": lambda attempt: attempt.apply(waiting),
            "retried": lambda attempt: attempt.apply(move(TaskState.PENDING, available_at=later)),
            "released": lambda attempt: attempt.apply(move(TaskState.REVIEW), Release()),
            "rests": lambda attempt: attempt.apply(Rest(resting=True)),
            "handed back": lambda attempt: store.retire(attempt.worker_id),
        }
        await enter(store)
        for number, (name, leave) in enumerate(ways.items(), start=1):
            with row(name):
                await store.set_queue(name, concurrency=1)
                attempt = await running_task(store, name, f"holder {number}", queue=name)
                await submit_one(store, f"next to {name}", queue=name)
                assert await claimed_ids(store, number=number, queues=(name,)) == []
                assert await working(store, name) == 1
                await hints_of(store, leave(attempt), f"queue:{name}")
                assert await working(store, name) == 0
                assert len(await claimed_ids(store, number=number, limit=1, queues=(name,))) == 1
                assert await working(store, name) == 1

    async def test_a_death_makes_a_place(self, store: StateStore, clock: ManualClock) -> None:
        """Once the sweep has taken the tasks back."""
        attempts = await _all_at_work(store, 2)
        await attempts[0].apply(Rest(resting=True))
        assert await working(store) == 1
        clock.advance(50 * LEASE)
        await store.heartbeat("worker")
        clock.advance(51 * LEASE)
        assert sorted((await store.sweep()).recovered) == ["task 0", "task 1"]
        assert await working(store) == 0
        assert len(await claimed_ids(store)) == 2

    async def test_a_task_leased_by_its_id_needs_a_place(self, store: StateStore) -> None:
        """Without one the caller gets a Conflict that says what to do. Who holds the task already gets it."""
        [attempt] = await _all_at_work(store, 1)
        with pytest.raises(NoPlace, match=r"queue 'default' allows 1 of its tasks.* concurrency=") as refused:
            await store.acquire("next", "worker")
        assert (refused.value.task_id, refused.value.queue, refused.value.limit) == ("next", QUEUE, 1)
        assert (await stored(store, "next")).fence == 0
        assert (await store.acquire(attempt.task.id, "holder")).task.owner == "holder"
        await attempt.apply(COMPLETE)
        assert (await store.acquire("next", "worker")).task.owner == "worker"
        assert await working(store) == 1

    async def test_a_task_that_rested_works_again_only_with_a_place(self, store: StateStore) -> None:
        """Otherwise the whole Commit is refused, with no other of the batch; the next one has the same number."""
        first, second = await _all_at_work(store, 2)
        await first.apply(Rest(resting=True))
        assert await claimed_ids(store) == ["next"]
        refused, applied = await store.commit(
            [first.commit(WriteStep(step("a")), Rest(resting=False)), second.commit(WriteStep(step("b")))]
        )
        assert (refused.refusal, applied.applied) == (Refusal.NO_PLACE, True)
        error = refused.error()
        assert isinstance(error, NoPlace)
        assert (error.task_id, error.queue, error.limit) == (first.task.id, QUEUE, 2)
        assert (await stored(store, first.task.id)).resting
        assert await store.steps(first.task.id) == []
        first.sequence -= 1
        assert await working(store) == 2
        ended, again = await store.commit([second.commit(COMPLETE), first.commit(Rest(resting=False))])
        assert (ended.applied, again.applied) == (True, True)
        assert await working(store) == 2
        await first.apply(Rest(resting=False))  # it does not rest: nothing is needed
        await first.apply(Rest(resting=True), Rest(resting=False))
        assert await working(store) == 2
        await first.apply(COMPLETE)
        assert await working(store) == 1

    async def test_a_lower_limit_stops_nothing(self, store: StateStore) -> None:
        """What is at work goes on; the next one begins when fewer are at work than allowed."""
        attempts = await _all_at_work(store, 3)
        assert (await store.set_queue(QUEUE, concurrency=1)).working == 3
        for number, attempt in enumerate(attempts, start=1):
            assert await claimed_ids(store, number=number) == []
            await attempt.apply(WriteStep(step()))
            await attempt.apply(COMPLETE)
        assert await claimed_ids(store, number=4) == ["next"]
        assert await working(store) == 1

    async def test_a_higher_limit_is_hinted(self, store: StateStore) -> None:
        """So that idle workers look at once."""
        await _all_at_work(store, 1)
        await hints_of(store, store.set_queue(QUEUE, concurrency=2), f"queue:{QUEUE}")
        assert await claimed_ids(store) == ["next"]

    async def test_no_suspect_of_a_full_queue_is_announced(self, store: StateStore, clock: ManualClock) -> None:
        """A worker that made room for it would wait for nothing."""
        await submit_one(store, "suspect")
        for number in range(2):
            await enter(store, f"dies {number}")
            assert await claimed_ids(store, f"dies {number}") == ["suspect"]
            clock.advance(LEASE)
            await store.sweep()
        await enter(store, lease=100 * LEASE)
        alone = Claim(worker_id="worker", number=1, limit=1, names=(NAME,), alone=True)
        assert await store.has_suspect(alone)
        await store.set_queue(QUEUE, concurrency=1)
        await submit_one(store, "other")
        assert await claimed_ids(store, number=1) == ["other"]
        assert not await store.has_suspect(alone)
        assert await claimed_ids(store, number=2, alone=True) == []

    async def test_limits_without_a_meaning_are_refused(self, store: StateStore) -> None:
        """At the door, and nothing changes. A queue of which nothing may begin is paused instead."""
        for name, limit in ((QUEUE, 0), (QUEUE, -1), (QUEUE, True), (QUEUE, "many"), ("", 1), (QUEUE, 1.5)):
            with row(name, limit), pytest.raises(InvalidValue):
                await store.set_queue(name, concurrency=limit)  # type: ignore[arg-type]
        assert await store.queue_settings() == []

    async def test_of_64_workers_one_gets_the_place(self, store: StateStore) -> None:
        """Again and again, whatever ends beside them; and each count is the truth."""
        await store.set_queue(QUEUE, concurrency=1)
        await store.submit([new_task(f"task {number:02}") for number in range(6)])
        workers = [await enter(store, f"worker {number:02}") for number in range(64)]
        numbers = dict.fromkeys(workers, 0)

        async def try_to_claim(worker_id: str) -> list[Attempt]:
            numbers[worker_id] += 1
            return [Attempt(store, one) for one in await claim(store, worker_id, numbers[worker_id])]

        holding = [one for some in await asyncio.gather(*map(try_to_claim, workers)) for one in some]
        for _ in range(5):
            [attempt] = holding
            assert await working(store) == 1
            claiming = asyncio.gather(*map(try_to_claim, workers))
            await attempt.apply(COMPLETE)
            claims = await claiming
            holding = [one for some in claims for one in some] or [
                one for some in await asyncio.gather(*map(try_to_claim, workers)) for one in some
            ]
        [attempt] = holding
        await attempt.apply(COMPLETE)
        assert await working(store) == 0
        assert {task.state for task in await all_tasks(store)} == {TaskState.COMPLETED}

    async def test_settings_change_while_tasks_are_claimed(self, store: StateStore) -> None:
        """The limit comes, changes and goes beside claims, ends and rests; in the end each slot was counted once."""
        workers = [await enter(store, f"worker {number}") for number in range(8)]
        await store.submit([new_task(f"task {number:03}") for number in range(120)])

        async def work(worker_id: str) -> None:
            for number in range(1, 6):
                for claimed in await claim(store, worker_id, number, limit=3):
                    attempt = Attempt(store, claimed)
                    if number % 2:
                        await attempt.apply(Rest(resting=True))
                    if number % 4:
                        await attempt.send(COMPLETE)

        async def change() -> None:
            for limit in (None, 30, 5, None, 3, 100):
                await store.set_queue(QUEUE, concurrency=limit)
                await asyncio.sleep(0)

        await asyncio.gather(change(), *map(work, workers))
        await store.set_queue(QUEUE, concurrency=200)
        assert await working(store) > 0
        for worker_id in workers:
            await store.retire(worker_id)
        assert await working(store) == 0

    async def test_no_race_for_places_of_several_queues(self, store: StateStore) -> None:
        """Claims that want several queues in different orders, beside tasks leased by their ids and tasks that rest."""
        queues = ("a", "b", "c")
        for queue in queues:
            await store.set_queue(queue, concurrency=4)
            await store.submit([new_task(f"{queue}{number:02}", queue=queue) for number in range(60)])
        workers = [await enter(store, f"worker {number}") for number in range(12)]

        async def work(worker_id: str, number: int) -> None:
            asked = queues if number % 2 else queues[::-1]
            attempts = [Attempt(store, one) for one in await claim(store, worker_id, limit=3, queues=asked)]
            for attempt in attempts:
                await attempt.apply(Rest(resting=True))
            lease = partial(store.acquire, f"{queues[number % 3]}{59 - number:02}", worker_id)
            answers = await asyncio.gather(
                *(attempt.send(Rest(resting=False)) for attempt in attempts), lease(), return_exceptions=True
            )
            assert all(not isinstance(answer, BaseException) or isinstance(answer, NoPlace) for answer in answers)

        await asyncio.gather(*(work(worker_id, number) for number, worker_id in enumerate(workers)))
        assert all([await working(store, queue) <= 4 for queue in queues])
