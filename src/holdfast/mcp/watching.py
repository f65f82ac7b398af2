"""Watching resources: whoever watches one is told soon after any process has changed it.

Hints from the store say when to look; a slow look behind them finds what no hint was sent for. What is looked at is a
fingerprint, so nobody is told of a change that is none.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from holdfast.mcp.addresses import (
    Address,
    ArtifactAddress,
    CheckpointAddress,
    CurrentAddress,
    FactAddress,
    QueueAddress,
    StateAddress,
    StepsAddress,
)
from holdfast.mcp.desk import Desk
from holdfast.mcp.excerpts import text_of
from holdfast.mcp.resources.reading import queue_form, running_tasks
from holdfast.model.canonical import digest
from holdfast.model.errors import HoldfastError, InvalidValue, StoreError
from holdfast.service import forms
from holdfast.store.base import ANYTHING

LOOK_EVERY: Final = 0.4
"""Seconds between two looks at everything. Told within a second is the promise, and not every change sends a hint: a
worker that records a step on PostgreSQL sends none."""

NOT_SOONER: Final = 0.05
"""Seconds between two looks where hints come without a pause."""

MOST_WATCHED: Final = 2000
"""Resources one server watches; each of them costs a small read now and then."""

Tell = Callable[[str], Awaitable[None]]
_log = logging.getLogger(__name__)


class Watcher:
    """Who watches what, for one server."""

    def __init__(self, desk: Desk, *, sweeps: bool) -> None:
        """``sweeps``: whether it also does what time alone made true, such as taking a task from a dead agent."""
        self._desk = desk
        self._store = desk.service.hold.store
        self._sweeps = sweeps
        self._tells: dict[str, Counter[Tell]] = {}
        """Whom to tell of a resource, and how many of theirs watch it."""
        self._addresses: dict[str, Address] = {}
        self._seen: dict[str, str] = {}
        self._has_work = asyncio.Event()

    async def watch(self, uri: str, address: Address, tell: Tell) -> None:
        """Tell of every change from now on."""
        if uri not in self._addresses:
            if len(self._addresses) >= MOST_WATCHED:
                raise InvalidValue(f"{MOST_WATCHED} resources are watched already; end some of the subscriptions first")
            now = await self._fingerprint(address)
            self._addresses.setdefault(uri, address)
            self._seen.setdefault(uri, now)
        self._tells.setdefault(uri, Counter())[tell] += 1
        self._has_work.set()

    def leave(self, uri: str, tell: Tell) -> None:
        """Tell no more. Leaving twice is fine."""
        watching = self._tells.get(uri, Counter())
        watching[tell] -= 1
        if watching[tell] <= 0:
            del watching[tell]
        if not watching:
            for table in (self._tells, self._addresses, self._seen):
                table.pop(uri, None)
        if not self._addresses:
            self._has_work.clear()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch for as long as the block lasts."""
        watching = asyncio.create_task(self._run(), name="holdfast-mcp-watcher")
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._has_work.wait()
            try:
                await self._listen()
            except StoreError as error:
                _log.warning("cannot watch for changes: %s; trying again", error)
                await asyncio.sleep(1.0)

    async def _listen(self) -> None:
        clock = asyncio.get_running_loop().time
        async with self._store.listen() as listener:
            look_at_all = clock()
            while self._has_work.is_set():
                topics = await listener.wait(timeout=max(0.0, look_at_all - clock()))
                is_due = clock() >= look_at_all  # by the clock: on a busy store hints never pause
                if is_due:
                    look_at_all = clock() + LOOK_EVERY
                    if self._sweeps:
                        await self._store.sweep()
                for uri in list(self._addresses):
                    if is_due or _may_concern(self._addresses.get(uri), topics):
                        await self._look(uri)
                await asyncio.sleep(NOT_SOONER)

    async def _look(self, uri: str) -> None:
        address = self._addresses.get(uri)
        if address is None:
            return  # nobody watches it any more
        now = await self._fingerprint(address)
        if now == self._seen.get(uri):
            return
        self._seen[uri] = now
        for tell in list(self._tells.get(uri, ())):
            try:
                await tell(uri)
            except Exception:  # noqa: BLE001 - whatever is wrong with one of them, the others are to be told
                _log.warning("somebody who watches %s cannot be told of its changes", uri, exc_info=True)

    async def _fingerprint(self, address: Address) -> str:
        """Return something that changes when the resource does."""
        match address:
            case StateAddress() | StepsAddress() | CheckpointAddress():
                task = await self._store.get(address.task_id)
                return "gone" if task is None else f"{task.agent_id}/{task.revision}/{task.version}/{task.sequence}"
            case QueueAddress():
                try:
                    return _digest(await queue_form(self._desk, address))
                except StoreError:
                    raise
                except HoldfastError:
                    return "wrong"  # a page nobody issued
            case CurrentAddress():
                return _digest([f"{task.id}/{task.revision}" for task in await running_tasks(self._desk)])
            case ArtifactAddress():
                return "there" if await self._store.artifact(address.artifact_id) is not None else "gone"
            case FactAddress(entity):
                facts = await self._store.recall(entity, live=True, limit=100)
                return _digest([forms.fact_form(fact) for fact in facts])


def _may_concern(address: Address | None, topics: frozenset[str]) -> bool:
    if ANYTHING in topics:
        return True
    match address:
        case StateAddress() | StepsAddress() | CheckpointAddress():
            return f"task:{address.task_id}" in topics
        case QueueAddress() | CurrentAddress():
            return any(topic.startswith(("queue:", "task:")) for topic in topics)
    return False


def _digest(value: object) -> str:
    return digest(text_of(value).encode())
