"""What the tests of machines share: a ticket to move about, waiting for it, and workers that die."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from holdfast import Handle, Holdfast, ManualClock, StateStore, TaskState
from holdfast.engine.attempt.outbox import Outbox
from holdfast.engine.attempt.stop_reasons import Unwind
from holdfast.model.commit import Verdict
from holdfast.model.operations import Operation

R = TypeVar("R")

TICKET: dict[str, Any] = {
    "initial": "new",
    "transitions": {"new": ["triaged"], "triaged": ["fixed", "rejected"], "fixed": ["verified", "triaged"]},
    "final": ["verified", "rejected"],
}


async def result_of(hold: Holdfast, handle: Handle[R]) -> R:
    """Work until the task has ended."""
    async with hold.worker(lease=5.0), asyncio.timeout(60):
        return await handle.result()


async def moves_of(handle: Handle[Any]) -> list[tuple[str | None, str]]:
    """Return the moves in its events."""
    return [
        (event.payload["from"], event.payload["to"])
        async for event in handle.events()
        if event.payload["kind"] == "transition"
    ]


async def reaches(handle: Handle[Any], state: TaskState) -> None:
    async with asyncio.timeout(60):
        while (await handle.task()).state is not state:  # noqa: ASYNC110 - another process might be the one to move it
            await asyncio.sleep(0.001)


@asynccontextmanager
async def passing_time(clock: ManualClock, *, step: float = 0.5) -> AsyncIterator[None]:
    """Let the clock run, much faster than a real one."""

    async def run() -> None:
        while True:
            clock.advance(step)
            for _ in range(50):
                await asyncio.sleep(0)

    running = asyncio.create_task(run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])


class Deaths:
    """Lets the worker of a store die at a chosen Commit, before or after it is stored; another incarnation goes on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commits: Counter[StateStore] = Counter()
        """How many there were, of each store."""
        self._planned: dict[StateStore, tuple[int, bool]] = {}
        self._commit = Outbox.commit
        dying = self

        async def commit(outbox: Outbox, *operations: Operation) -> Verdict:
            return await dying.commit(outbox, operations)

        monkeypatch.setattr(Outbox, "commit", commit)

    def plan(self, store: StateStore, *, at: int, stored: bool) -> None:
        """Choose the Commit, from 1 on, at which the worker of this store dies."""
        self._planned[store] = at, stored

    async def commit(self, outbox: Outbox, operations: tuple[Operation, ...]) -> Verdict:
        attempt = outbox._attempt
        store = attempt.services.store
        self.commits[store] += 1
        at, stored = self._planned.get(store, (None, False))
        is_last = self.commits[store] == at
        if not is_last:
            return await self._commit(outbox, *operations)
        if stored:
            await self._commit(outbox, *operations)
        await store.retire(attempt.lease.worker_id)  # first: losing the task cancels the call of a blocking function
        attempt.lose_lease("a test killed its worker")
        raise Unwind
