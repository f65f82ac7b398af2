"""A limit of a queue that is set beside submissions and claims: from then on it holds, and the count is right."""

from __future__ import annotations

import asyncio
import random

from holdfast import NewTask, QueueFull, TaskState
from holdfast.model.queries import TaskFilter
from holdfast.model.worker import Claim, NewWorker
from holdfast.store.base import StateStore
from holdfast.store.url import make_store

TRIES, SUBMITTERS, EACH, LIMIT = 64, 4, 3, 5


async def submit_some(store: StateStore, queue: str) -> int:
    """Submit one after the other; return how many were taken."""
    taken = 0
    for _ in range(EACH):
        try:
            await store.submit([NewTask(name="job", queue=queue)])
        except QueueFull:
            continue
        taken += 1
    return taken


async def set_after(store: StateStore, queue: str, turns: int, most: int) -> int:
    """Set the limit a little later; return how many are pending then."""
    for _ in range(turns):
        await asyncio.sleep(0)
    return (await store.set_queue(queue, max_pending=most)).pending


async def test_a_limit_holds_from_when_it_is_set(database_url: str) -> None:
    """A first limit and a later one: tasks that were taken before count, and of the others as many as fit are taken."""
    dice = random.Random(1)
    async with make_store(database_url) as submitting, make_store(database_url) as setting:
        await submitting.register(NewWorker(id="w", lease=600))
        for number in range(TRIES):
            queue = f"queue {number}"
            if number % 2:
                await setting.set_queue(queue, max_pending=1000)
            *taken, then, claimed = await asyncio.gather(
                *(submit_some(submitting, queue) for _ in range(SUBMITTERS)),
                set_after(setting, queue, dice.randrange(30), LIMIT),
                submitting.claim(Claim(worker_id="w", number=number + 1, limit=1, queues=(queue,), names=("job",))),
            )
            assert isinstance(then, int)
            assert isinstance(claimed, list)
            left = sum(map(int, taken)) - len(claimed)  # type: ignore[arg-type]
            assert min(LIMIT, left) <= left <= max(then, LIMIT) + len(claimed), number
            [settings] = [one for one in await setting.queue_settings() if one.name == queue]
            pending = await setting.find(TaskFilter(queue=queue, states=frozenset({TaskState.PENDING})), limit=100)
            assert settings.pending == len(pending.items) == left
            if left >= LIMIT:
                assert await submit_some(submitting, queue) == 0
