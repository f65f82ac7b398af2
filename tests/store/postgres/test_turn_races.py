"""Turns beside submissions, claims and changed settings under way: each waits for what it has to know, and no more."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from holdfast import NewTask
from holdfast.model.operations import RequestCancel
from holdfast.model.queries import TaskFilter
from holdfast.model.transitions import OPEN, TaskState
from holdfast.model.worker import Claim, NewWorker
from holdfast.store.postgres import PostgresStore
from tests.store.postgres.support import COMPLETE, begin, break_rule, execute, held, is_blocked, move, outside, paused

QUEUES = ("one", "two")


def of_tenant(tenant: str, *task_ids: str, queue: str = "one") -> list[NewTask]:
    return [NewTask(name="job", id=task_id, queue=queue, labels={"tenant": tenant}) for task_id in task_ids]


def next_claim(number: int, worker_id: str = "w", *, limit: int = 1) -> Claim:
    return Claim(worker_id=worker_id, number=number, limit=limit, queues=QUEUES, names=("job",))


@pytest.mark.parametrize("broken", [False, True])
async def test_an_open_transaction_that_submits_delays_only_its_own_task(
    url: str, store: PostgresStore, *, broken: bool
) -> None:
    """Other tasks of its tenant and of others are submitted, get turns and are claimed meanwhile."""
    if broken:
        break_rule(url, "enter_queue", " AND q.max_pending IS NOT NULL")
    await store.set_queue("one", fair_by="tenant", concurrency=5)
    await store.register(NewWorker(id="w"))
    await store.submit(of_tenant("a", "a1", "a2"))
    async with paused(url) as submitting:
        await submitting.submit(of_tenant("a", "a0"))
        beside = begin(store.submit([*of_tenant("a", "a3"), *of_tenant("b", "b1")]))
        assert await is_blocked(url, beside) is broken
        if not broken:
            assert [claimed.task.id for claimed in await store.claim(next_claim(1, limit=3))] == ["a1", "b1", "a2"]
        await submitting.finish()
    await beside
    if not broken:
        assert [claimed.task.id for claimed in await store.claim(next_claim(2, limit=3))] == ["a3", "a0"]
        [settings] = await store.queue_settings()
        assert (settings.pending, settings.working) == (0, 5)


@pytest.mark.parametrize("broken", [False, True])
async def test_tasks_on_their_way_get_turns_when_their_queue_becomes_fair(
    url: str, store: PostgresStore, *, broken: bool
) -> None:
    """The change waits for their transaction; otherwise they would stand by their rank among turns."""
    if broken:
        break_rule(url, "set_turns", 'PERFORM "holdfast".stop_writing_tasks();')
    await store.set_queue("one", max_pending=100)
    await store.register(NewWorker(id="w"))
    await store.submit(of_tenant("b", "b1", "b2", "b3"))
    async with paused(url) as submitting:
        await submitting.submit(of_tenant("a", "a1"))
        setting = begin(store.set_queue("one", fair_by="tenant"))
        assert await is_blocked(url, setting) is not broken
        await submitting.finish()
    await setting
    await store.sweep()
    turns = execute(url, "SELECT id FROM holdfast.tasks WHERE lane IS NULL")
    assert turns == ([("a1",)] if broken else [])


async def test_a_claim_under_way_is_waited_for(url: str, store: PostgresStore) -> None:
    """One that has looked which queues are fair: none claims by turns what has none."""
    await store.set_queue("one", fair_by="tenant")
    await store.register(NewWorker(id="w"))
    await store.submit([*of_tenant("b", "b1", "b2"), *of_tenant("a", "a1")])
    await store.sweep()
    async with paused(url) as claiming:
        await claiming.claim(next_claim(1))
        setting = begin(store.set_queue("one", fair_by=None))
        assert await is_blocked(url, setting)
        await claiming.finish()
    await setting
    assert len(await store.claim(next_claim(2, limit=5))) == 2


async def test_claims_of_a_fair_queue_do_not_wait_for_each_other(url: str, store: PostgresStore) -> None:
    """They take other tasks, and each notes the turn that it has reached."""
    await store.set_queue("one", fair_by="tenant")
    await store.submit([*of_tenant("a", "a1", "a2", "a3"), *of_tenant("b", "b1")])
    for worker_id in ("w", "v"):
        await store.register(NewWorker(id=worker_id))
    await store.sweep()
    async with paused(url) as claiming:
        first = await claiming.claim(next_claim(1))
        other = begin(store.claim(next_claim(1, "v", limit=2)))
        assert not await is_blocked(url, other)
        await claiming.finish()
    assert [one.task.id for one in [*first, *await other]] == ["a1", "b1", "a2"]
    await store.submit(of_tenant("c", "c1"))
    await store.claim(next_claim(2))
    assert execute(url, "SELECT turn FROM holdfast.fair_queues") == [(1,)]


async def test_no_tenant_waits_for_more_than_one_task_of_each(store: PostgresStore) -> None:
    """One tenant submits by many connections while tasks are claimed one by one, and others come with a first task."""
    await store.set_queue("one", fair_by="tenant")
    await store.register(NewWorker(id="w", lease=600))
    order = list[str]()
    arrived: dict[str, int] = {}
    was_claimed = asyncio.Condition()
    is_over = asyncio.Event()

    async def flood(number: int) -> None:
        for batch in count():
            if is_over.is_set():
                return
            await store.submit(of_tenant("big", *(f"z{number}-{batch:04}-{n}" for n in range(20))))

    async def arrive() -> None:
        for number in range(15):
            await store.submit(of_tenant(f"new {number}", f"new {number:02}"))
            arrived[f"new {number:02}"] = len(order)  # a claim that is under way may not have seen it
            async with was_claimed:
                await was_claimed.wait_for(lambda: f"new {number:02}" in order)  # noqa: B023 - waited for here
        is_over.set()

    async def take() -> None:
        for number in count(1):
            if is_over.is_set():
                return
            claims = await store.claim(next_claim(number))
            async with was_claimed:
                order.extend(claim.task.id for claim in claims)
                was_claimed.notify_all()

    await asyncio.wait_for(asyncio.gather(*map(flood, range(6)), arrive(), take()), 120)
    before = {task_id: order[begin:].index(task_id) for task_id, begin in arrived.items()}
    assert max(before.values()) <= 2, before  # the claim that was under way, and one task of the big tenant


async def _work(store: PostgresStore, worker_id: str) -> None:
    """End some of what is claimed, in both orders of queues, give some back, and keep some."""
    for number in range(1, 20):
        queues = QUEUES[:: 1 if number % 2 else -1]
        asked = Claim(worker_id=worker_id, number=number, limit=4, queues=queues, names=("job",))
        claims = await store.claim(asked)
        await store.commit([held(claim, 1, COMPLETE) for claim in claims[:2]])
        await store.commit([held(claim, 1, move(TaskState.PENDING)) for claim in claims[2:3]])


async def test_nothing_waits_for_itself(store: PostgresStore) -> None:
    """Claims in both orders of queues, submissions, ends, cancels, sweeps, and settings that come and go."""
    for queue in QUEUES:
        await store.set_queue(queue, fair_by="tenant")
    workers = [f"worker {number}" for number in range(6)]
    for worker_id in workers:
        await store.register(NewWorker(id=worker_id, lease=600))

    async def submit(number: int) -> None:
        for batch in range(8):
            for queue in QUEUES[:: 1 if number % 2 else -1]:
                ids = [f"{queue}-{number}-{batch}-{n}" for n in range(5)]
                await store.submit(of_tenant(f"tenant {batch % 3}", *ids, queue=queue))
                await store.commit([outside(ids[0], RequestCancel(reason="no"), move(TaskState.CANCELLED))])

    async def change() -> None:
        for label in (None, "tenant", "other", None, "tenant"):
            await store.set_queue("one", fair_by=label)
            await store.set_queue("two", concurrency=50 if label else None)
            await store.sweep()

    await asyncio.gather(*map(submit, range(4)), *(_work(store, worker_id) for worker_id in workers), change())
    await store.register(NewWorker(id="last", lease=600))
    await store.set_queue("two", concurrency=None)
    for number in count(1):
        claims = await store.claim(next_claim(number, "last", limit=100))
        if not claims:
            break
        await store.commit([held(claim, 1, COMPLETE) for claim in claims])
    page = await store.find(TaskFilter(states=OPEN), limit=1000)
    assert all(task.owner is not None for task in page.items)  # what the workers hold
    assert page.next is None
