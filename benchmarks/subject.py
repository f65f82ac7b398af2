"""What is measured, each in a separate process: ``python -m benchmarks.subject NAME URL SIZES``.

SIZES are the arguments of the function of that name, as JSON; what it returns is printed as a list of numbers, in JSON.
The peers' drivers have the same form, so that no side gains from a warm process. `benchmarks.engine` runs both.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import psutil

from holdfast import Context, Handle, Holdfast

Subject = Callable[..., Awaitable[object]]

QUEUE = "bench"


async def increment(number: int) -> int:
    """Do the work of one step: next to nothing."""
    return number + 1


class Rate(NamedTuple):
    """How fast something went."""

    per_second: float
    cpu: float
    """Microseconds of this process for each item: other programs on the machine do not change it."""


class Watch:
    """A stopwatch that starts when it is made."""

    def __init__(self) -> None:
        """Start."""
        self._began, self._cpu = time.perf_counter(), time.process_time()

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return time.perf_counter() - self._began

    def rate(self, items: int) -> Rate:
        """Return the rate of this many items."""
        return Rate(items / self.seconds, (time.process_time() - self._cpu) / items * 1_000_000)


async def sequential_steps(url: str, *, seconds: float) -> Rate:
    """One task, one step after the other, each durable before the next begins; steps per second."""
    hold = Holdfast(url)

    @hold.task
    async def walk(ctx: Context) -> Rate:
        for number in range(20):
            await ctx.step("warm-up", increment, number)
        watch, done = Watch(), 0
        while watch.seconds < seconds:
            done = await ctx.step("increment", increment, done)
        return watch.rate(done)

    async with hold, hold.worker():
        return await (await hold.submit(walk)).result()


async def concurrent_steps(url: str, *, tasks: int, steps: int) -> Rate:
    """Many tasks of some steps each in one worker, from their submission to the last one's end; steps per second."""
    hold = Holdfast(url)
    ended = Countdown(tasks)

    @hold.task
    async def walk(ctx: Context, count: int) -> int:
        done = 0
        for _ in range(count):
            done = await ctx.step("increment", increment, done)
        if count == steps:
            ended.count()
        return done

    async with hold, hold.worker(concurrency=tasks) as worker:
        await (await hold.submit(walk, steps + 1)).result()  # warm
        watch = Watch()
        handles = await hold.submit_many(walk, [(steps,)] * tasks)
        await ended.wait()
        await worker.stop(grace=60)  # the last ends are durable when it returns
        rate = watch.rate(tasks * steps)
        await _check_results(handles, steps)
    return rate


SLOTS = 500
"""Of the worker that drains: tasks that do nothing end so fast that the next claim must be on its way before."""


async def drain(url: str, *, tasks: int) -> Rate:
    """Empty a queue of no-op tasks with one worker; tasks a second, from its start until it has stopped."""
    hold = Holdfast(url)
    ended = Countdown(tasks)

    @hold.task(queue=QUEUE)
    async def noop(ctx: Context, weight: int = 1) -> None:
        del ctx
        ended.count(weight)  # 0 for tasks that only fill the queue

    async with hold:
        handles = await hold.submit_many(noop, [()] * tasks)
        await asyncio.sleep(0.2)  # the effects of submissions, mainly hints, are not part of it
        watch = Watch()
        async with hold.worker(concurrency=SLOTS) as worker:
            await ended.wait()
            await worker.stop(grace=60)
        rate = watch.rate(tasks)
        await _check_results(handles[::100], None)
    return rate


async def submit_single(url: str, *, seconds: float) -> Rate:
    """Submit one task after the other; tasks per second."""
    return await _submit(url, seconds, together=1)


async def submit_concurrent(url: str, *, seconds: float) -> Rate:
    """Submit from 100 coroutines at a time; tasks per second."""
    return await _submit(url, seconds, together=100)


async def submit_bulk(url: str, *, seconds: float) -> Rate:
    """Submit a thousand tasks per call; tasks per second."""
    return await _submit(url, seconds, bulk=1000)


async def _submit(url: str, seconds: float, *, together: int = 0, bulk: int = 0) -> Rate:
    hold = Holdfast(url)

    @hold.task(queue=QUEUE)
    async def noop(ctx: Context, number: int) -> None: ...

    async def some() -> int:
        if bulk:
            return len(await hold.submit_many(noop, [(number,) for number in range(bulk)]))
        if together == 1:
            await hold.submit(noop, 1)
            return 1
        return len(await asyncio.gather(*(hold.submit(noop, number) for number in range(together))))

    async with hold:
        await some()  # warm
        watch, done = Watch(), 0
        while watch.seconds < seconds:
            done += await some()
        return watch.rate(done)


async def latency_worker(url: str, *, samples: int) -> None:
    """Print "ready", then for each task the milliseconds between its submission elsewhere and its start here."""
    hold = Holdfast(url)
    seen = Countdown(samples)

    @hold.task(queue=QUEUE)
    async def noop(ctx: Context, submitted: float) -> None:
        del ctx
        # Since boot, on Linux and macOS: the same count in every process of the machine.
        print((time.monotonic() - submitted) * 1000, flush=True)
        seen.count()

    async with hold, hold.worker():
        print("ready", flush=True)
        await seen.wait()


async def latency_submitter(url: str, *, samples: int) -> None:
    """Submit tasks to an idle queue, at irregular moments."""
    hold = Holdfast(url)
    dice = random.Random(1)
    async with hold:
        for _ in range(samples):
            await asyncio.sleep(dice.uniform(0.03, 0.09))
            await hold.submit("noop", time.monotonic(), queue=QUEUE)


async def memory(url: str, *, tasks: int, settling: float = 3.0) -> tuple[float]:
    """Keep tasks in flight, each inside a step that awaits; KB of this process's memory for each of them.

    ``settling`` is time for work after their start: a step that takes longer than a second is recorded as running.
    """
    hold = Holdfast(url)
    inside, release = Countdown(0), asyncio.Event()

    async def hang() -> None:
        inside.count()
        await release.wait()

    @hold.task(queue=QUEUE)
    async def hanging(ctx: Context) -> None:
        await ctx.step("hang", hang)

    async def size_with(more: int) -> int:
        nonlocal inside
        inside = Countdown(more)
        await hold.submit_many(hanging, [()] * more)
        await inside.wait()
        await asyncio.sleep(settling)
        gc.collect()
        return int(psutil.Process().memory_info().rss)

    first_few = min(100, tasks)
    async with hold, hold.worker(concurrency=first_few + tasks, grace=60):
        # Memory that grows once, with the first tasks, belongs to the process and not to a task.
        base = await size_with(first_few)
        grown = await size_with(tasks)
        release.set()
    return ((grown - base) / tasks / 1024,)


async def _check_results(handles: Sequence[Handle[Any]], expected: object) -> None:
    """Check that what was counted as done is stored as done."""
    for handle in handles:
        result = await handle.result(timeout=1)
        if result != expected:
            raise AssertionError(f"task {handle.id} returned {result!r} instead of {expected!r}")


class Countdown:
    """Waits until something was counted a number of times."""

    def __init__(self, left: int) -> None:
        """Count down from here."""
        self._left = left
        self._over = asyncio.Event()

    def count(self, weight: int = 1) -> None:
        """Count one."""
        self._left -= weight
        if self._left == 0:
            self._over.set()

    async def wait(self) -> None:
        """Return once all were counted."""
        await self._over.wait()


SUBJECTS: dict[str, Subject] = {
    subject.__name__: subject
    for subject in (
        sequential_steps,
        concurrent_steps,
        drain,
        submit_single,
        submit_concurrent,
        submit_bulk,
        latency_worker,
        latency_submitter,
        memory,
    )
}


def main(name: str, url: str, sizes: str) -> None:
    """Run one subject and print what it returns."""
    answer = asyncio.run(_run(SUBJECTS[name](url, **json.loads(sizes))))
    if answer is not None:
        print(json.dumps(answer), flush=True)


async def _run(subject: Awaitable[object]) -> object:
    return await subject


if __name__ == "__main__":
    main(*sys.argv[1:])
