"""A worker with very many tasks: ``python -m tests.proof.engine.many_tasks_process running|waiting URL COUNT``.

Prints, as JSON, how many were in flight or suspended at once, how long that took, how many bytes of the process's
memory each of them cost, and how many blocks of it Python still holds for each. A few tasks come first: they pay for
what is only paid once, such as imports and caches.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time

import psutil

from holdfast import Context, Holdfast, StateStore, TaskDefinition, TaskState
from tests.proof.engine.conditions import eventually

WARM_UP = 1000
LONGEST = 900.0


class ManyTasks:
    """Tasks that stay where they are until ``go``."""

    def __init__(self, hold: Holdfast) -> None:
        self.inside = 0
        self.go = asyncio.Event()

        @hold.task
        async def stay(ctx: Context) -> int:
            async def wait_inside() -> int:
                self.inside += 1
                await self.go.wait()
                self.inside -= 1
                return 1

            return await ctx.step("stay", wait_inside)

        @hold.task
        async def listen(ctx: Context) -> int:
            await ctx.wait_event("never")
            return 1

        self.stay, self.listen = stay, listen


async def running(hold: Holdfast, count: int) -> dict[str, float]:
    """Have ``count`` tasks inside a step at the same time."""
    many = ManyTasks(hold)
    async with hold, hold.worker(concurrency=count + WARM_UP) as worker:
        await submit(hold, many.stay, WARM_UP)
        await eventually("they are inside their step", lambda: many.inside == WARM_UP, within=LONGEST)
        cost = Cost()
        await submit(hold, many.stay, count)
        await eventually("they are inside their step", lambda: many.inside == WARM_UP + count, within=LONGEST)
        measured = cost.of(worker.running - WARM_UP)
        many.go.set()
        await until_all(hold.store, TaskState.COMPLETED, WARM_UP + count)
    return measured


async def waiting(hold: Holdfast, count: int) -> dict[str, float]:
    """Have ``count`` tasks suspended at the same time."""
    many = ManyTasks(hold)
    async with hold, hold.worker(concurrency=100) as worker:
        await submit(hold, many.listen, WARM_UP)
        await until_all(hold.store, TaskState.WAITING, WARM_UP)
        cost = Cost()
        await submit(hold, many.listen, count)
        await until_all(hold.store, TaskState.WAITING, WARM_UP + count)
        await eventually("the last of them has left its worker", lambda: worker.running == 0, within=LONGEST)
        return cost.of((await hold.store.count())[TaskState.WAITING] - WARM_UP)


class Cost:
    """What happens from now on costs this much."""

    def __init__(self) -> None:
        gc.collect()
        self._bytes, self._blocks = psutil.Process().memory_info().rss, sys.getallocatedblocks()
        self._began = time.monotonic()

    def of(self, count: int) -> dict[str, float]:
        """Share it among so many."""
        seconds = time.monotonic() - self._began
        gc.collect()
        return {
            "at_once": count,
            "seconds": round(seconds, 1),
            "bytes_each": (psutil.Process().memory_info().rss - self._bytes) / count,
            "blocks_each": (sys.getallocatedblocks() - self._blocks) / count,
        }


async def submit(hold: Holdfast, task: TaskDefinition[[], int], count: int) -> None:
    for start in range(0, count, 1000):
        await hold.submit_many(task, [()] * min(1000, count - start))


async def until_all(store: StateStore, state: TaskState, count: int) -> None:
    async def are_there() -> bool:
        return (await store.count()).get(state) == count

    await eventually(f"{count} tasks are {state}", are_there, within=LONGEST, every=0.3)  # counting them is not free


if __name__ == "__main__":
    _, what, url, count = sys.argv
    measured = asyncio.run({"running": running, "waiting": waiting}[what](Holdfast(url), int(count)))
    print(json.dumps(measured))  # noqa: T201
