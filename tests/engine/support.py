"""What the engine's tests share: waiting without sleeping long, time by hand, a store that is watched, a crash."""

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from holdfast import Handle, Holdfast, ManualClock, Step, TaskState, Worker
from holdfast.model.commit import Commit, Verdict
from holdfast.store.base import StateStore

R = TypeVar("R")

PATIENCE = 60.0
"""Seconds before a condition that does not come true fails its test."""


async def settle(turns: int = 100) -> None:
    """Let everything that can go on without time do so."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def until(condition: Callable[[], Any], *, patience: float = PATIENCE) -> None:
    """Return when the condition (a function, or an async one) is true."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + patience
    while True:
        answer = condition()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return
        if loop.time() > give_up_at:
            raise AssertionError(f"not true after {patience:g} s: {inspect.getsource(condition).strip()}")
        await asyncio.sleep(0.001)


async def reaches(handle: Handle[Any], *states: TaskState) -> None:
    """Return when the task is in one of these states."""

    async def is_there() -> bool:
        return (await handle.task()).state in states

    await until(is_there)


async def passes(hold: Holdfast, handle: Handle[Any], state: TaskState, *, times: int) -> None:
    """Return when the task has come into this state so often; however shortly it stayed, its history knows."""

    async def came() -> bool:
        return await count_moves(hold, handle, state) >= times

    await until(came)


async def ended(handle: Handle[R]) -> R:
    """Return the result of a task that is about to end; in real time, whatever the clock says."""
    async with asyncio.timeout(PATIENCE):
        return await handle.result()


async def pass_time(clock: ManualClock, seconds: float, *, by: float = 0.5) -> None:
    """Let time pass in small pieces, so that everything on the way happens when it should."""
    left = seconds
    await settle()
    while left > 1e-9:
        clock.advance(min(by, left))
        left -= by
        await settle()


async def steps_of(hold: Holdfast, handle: Handle[Any]) -> dict[str, Step]:
    """Return the journal of a task by key; of equal keys, that of the latest round."""
    return {step.key: step for step in await hold.store.steps(handle.id)}


async def moves_of(hold: Holdfast, handle: Handle[Any]) -> list[tuple[str | None, str]]:
    """Return the states a task went through."""
    return [(move.from_state, move.to_state) for move in await hold.store.history(handle.id)]


async def count_moves(hold: Holdfast, handle: Handle[Any], to: TaskState) -> int:
    return sum(move.to_state is to for move in await hold.store.history(handle.id))


async def vanish(worker: Worker) -> str:
    """End a worker as a crash would: it sends nothing to the store, which learns of it when the lease runs out."""
    host, work = worker._host, worker._work
    worker._work = None
    worker._services.on_due.discard(worker._due)
    host.abandon("the test killed its worker")
    going = [*host._beating, *([] if work is None else [work])]
    for one in going:
        one.cancel()
    await asyncio.gather(*going, return_exceptions=True)
    return host.lease.worker_id


async def crash(hold: Holdfast, worker: Worker) -> None:
    """End a worker as a crash would, and let its tasks go back to the queue at once, without counting a death."""
    await hold.store.retire(await vanish(worker))


@asynccontextmanager
async def crashing_worker(hold: Holdfast, **options: Any) -> AsyncIterator[Worker]:  # noqa: ANN401
    """A worker that crashes at the end of the block."""
    worker = await hold.worker(**options).__aenter__()
    try:
        yield worker
    finally:
        await crash(hold, worker)


class Watched:
    """Counts the verbs a store is asked, and puts itself between the engine and ``commit``."""

    def __init__(self, store: StateStore) -> None:
        self.calls: Counter[str] = Counter()
        self.batches: list[list[Commit]] = []
        self.before_commit: Callable[[Sequence[Commit]], Awaitable[None]] | None = None
        self.after_commit: Callable[[Sequence[Commit], list[Verdict]], Awaitable[None]] | None = None
        for verb in _VERBS:
            setattr(store, verb, self._counted(verb, getattr(store, verb)))
        self._commit = store.commit
        store.commit = self._watched_commit  # type: ignore[method-assign]

    def _counted(self, verb: str, ask: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def counted(*args: object, **named: object) -> object:
            self.calls[verb] += 1
            return await ask(*args, **named)

        return counted

    async def _watched_commit(self, commits: Sequence[Commit]) -> list[Verdict]:
        self.batches.append(list(commits))
        if self.before_commit is not None:
            await self.before_commit(commits)
        verdicts = await self._commit(commits)
        if self.after_commit is not None:
            await self.after_commit(commits, verdicts)
        return verdicts

    @property
    def sizes(self) -> list[int]:
        return [len(batch) for batch in self.batches]


_VERBS = ("submit", "claim", "acquire", "load", "commit", "get", "events", "position", "steps", "heartbeat", "sweep")
