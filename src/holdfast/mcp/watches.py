"""Watching resources: each watcher is notified soon after any process has changed its resource.

Hints from the store say when to look; a slow poll finds changes without a hint. It compares fingerprints, so there is
no notification without a real change.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from holdfast.mcp.access import CallerAccess
from holdfast.mcp.addresses import (
    Address,
    ArtifactAddress,
    CheckpointAddress,
    CurrentAddress,
    FactAddress,
    QueueAddress,
    SchedulesAddress,
    StateAddress,
    StepsAddress,
    TaskAddress,
)
from holdfast.mcp.excerpts import text_of
from holdfast.mcp.resources.content import queue_form, running_tasks, schedules_form
from holdfast.model.canonical import digest
from holdfast.model.errors import HoldfastError, InvalidValue, StoreError
from holdfast.redaction import make_logger
from holdfast.service import forms
from holdfast.service.changes import ANYTHING, Loop

CLEAN_UP_EVERY: Final = 5.0
"""Seconds between two sweeps while there is no watcher."""

LOOK_EVERY: Final = 0.4
"""Seconds between two polls of everything. The promise is a notification within a second, and not every change sends a
hint: a worker that records a step on PostgreSQL sends none."""

NOT_SOONER: Final = 0.05
"""Seconds between two looks where hints come without a pause."""

MOST_WATCHED: Final = 2000
"""Resources one server watches. Tasks cost one small read together, everything else one each."""

_OF_A_TASK: Final = (StateAddress, StepsAddress, CheckpointAddress)
Notify = Callable[[str], Awaitable[None]]
_log = make_logger(__name__)


@dataclass
class Watched:
    """A resource that has watchers."""

    seen: str
    """Its fingerprint when it was last looked at."""
    watching: Counter[tuple[str, Notify]] = field(default_factory=Counter)
    """The URI of each watcher and the function that notifies it, with a count: streams may share one function."""


class Notifier:
    """Notifies one watcher. A slow watcher delays no other one, and gets one notification for many changes."""

    def __init__(self, uri: str, notify: Notify) -> None:
        """Send no notification yet."""
        self._uri, self._notify = uri, notify
        self._going: asyncio.Task[None] | None = None
        self._again = False

    def send(self) -> None:
        """Notify the watcher, now or as soon as it has taken the notification before."""
        if self._going is not None and not self._going.done():
            self._again = True
            return
        self._going = asyncio.create_task(self._send())

    async def _send(self) -> None:
        while True:
            self._again = False
            try:
                await self._notify(self._uri)
            except Exception:  # noqa: BLE001 - the connection is gone, or going
                _log.warning("a watcher of %s cannot be notified of its changes", self._uri, exc_info=True)
            if not self._again:
                return

    def stop(self) -> None:
        """Send no more notifications."""
        if self._going is not None:
            self._going.cancel()


class ResourceWatcher:
    """All watched resources of one server, with their watchers."""

    def __init__(self, access: CallerAccess, *, sweeps: bool) -> None:
        """``sweeps``: whether it also sweeps the store, such as taking a task back from a dead agent."""
        self._access = access
        self._service = access.service
        self._sweeps = sweeps
        self._loop = Loop("holdfast-mcp-watcher", self._run, outage=self._service.outage)
        self._watched: dict[Address, Watched] = {}
        self._changed = asyncio.Event()
        self._notifiers: dict[tuple[str, Notify], Notifier] = {}

    async def watch(self, uri: str, address: Address, notify: Notify) -> None:
        """Notify of every change from now on."""
        if address not in self._watched:
            if len(self._watched) >= MOST_WATCHED:
                raise InvalidValue(f"{MOST_WATCHED} resources are watched already; end some of the subscriptions first")
            seen = await self._fingerprint(address)
            self._watched.setdefault(address, Watched(seen))
        self._watched[address].watching[uri, notify] += 1
        self._changed.set()

    def leave(self, uri: str, address: Address, notify: Notify) -> None:
        """Send no more notifications. Leaving twice is fine."""
        watched = self._watched.get(address)
        if watched is None or (uri, notify) not in watched.watching:
            return
        watched.watching[uri, notify] -= 1
        if not watched.watching[uri, notify]:
            del watched.watching[uri, notify]
            if (notifier := self._notifiers.pop((uri, notify), None)) is not None:
                notifier.stop()
        if not watched.watching:
            del self._watched[address]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch for as long as the block lasts."""
        watching = self._loop.start()
        try:
            yield
        finally:
            watching.cancel()
            for notifier in self._notifiers.values():
                notifier.stop()
            await asyncio.gather(watching, return_exceptions=True)

    async def _run(self) -> None:
        await (self._listen() if self._watched else self._idle())

    async def _idle(self) -> None:
        """Sweep while there is no watcher: leases of agents outside may have no other process that sweeps."""
        self._changed.clear()
        # Not wait_for: up to Python 3.11 it loses a cancel that comes together with what it waits for.
        with suppress(TimeoutError):
            async with asyncio.timeout(CLEAN_UP_EVERY):
                await self._changed.wait()
        await self._clean_up()

    async def _clean_up(self) -> None:
        if self._sweeps:
            await self._service.tidy()

    async def _listen(self) -> None:
        clock = asyncio.get_running_loop().time
        async with self._service.listen() as listener:
            look_at_all = keep_house = clock()
            while self._watched:
                topics = await listener.wait(timeout=max(0.0, look_at_all - clock()))
                is_due = clock() >= look_at_all  # by the clock: on a busy store hints never pause
                if is_due:
                    look_at_all = clock() + LOOK_EVERY
                    if self._sweeps:
                        await self._service.sweep()
                if clock() >= keep_house:
                    keep_house = clock() + CLEAN_UP_EVERY
                    await self._clean_up()
                await self._look([address for address in self._watched if is_due or _may_concern(address, topics)])
                self._loop.worked()
                await asyncio.sleep(NOT_SOONER)

    async def _look(self, addresses: Sequence[Address]) -> None:
        """Find out what has changed: all tasks first, with one query."""
        of_tasks = [address for address in addresses if isinstance(address, _OF_A_TASK)]
        if of_tasks:
            revisions = await self._service.revisions({address.task_id for address in of_tasks})
            for address in of_tasks:
                self._compare(address, _revision(revisions, address))
        for other in addresses:
            if not isinstance(other, _OF_A_TASK):
                self._compare(other, await self._fingerprint(other))

    def _compare(self, address: Address, now: str) -> None:
        watched = self._watched.get(address)
        if watched is None or now == watched.seen:
            return
        watched.seen = now
        for uri, notify in watched.watching:
            notifier = self._notifiers.get((uri, notify))
            if notifier is None:
                notifier = self._notifiers[uri, notify] = Notifier(uri, notify)
            notifier.send()

    async def _fingerprint(self, address: Address) -> str:  # noqa: PLR0911 - one for each kind
        """Return something that changes when the resource does."""
        match address:
            case StateAddress() | StepsAddress() | CheckpointAddress():
                return _revision(await self._service.revisions([address.task_id]), address)
            case QueueAddress():
                try:
                    return _digest(await queue_form(self._access, address))
                except StoreError:
                    raise
                except HoldfastError:
                    return "wrong"  # a cursor that this server did not issue
            case CurrentAddress():
                running = [f"{task.id}/{task.revision}" for task in await running_tasks(self._access)]
                held = [f"{lease.task_id}/{lease.fence}" for lease in await self._service.held_outside()]
                return _digest([running, sorted(held)])
            case SchedulesAddress():
                return _digest(await schedules_form(self._access))
            case ArtifactAddress():
                return "there" if await self._service.has_artifact(address.artifact_id) else "gone"
            case FactAddress(entity):
                facts = await self._service.facts(entity, limit=100)
                return _digest([forms.fact_form(fact) for fact in facts])


def _revision(revisions: Mapping[str, int], address: TaskAddress) -> str:
    return str(revisions.get(address.task_id, "gone"))


def _may_concern(address: Address, topics: frozenset[str]) -> bool:
    if ANYTHING in topics:
        return True
    if isinstance(address, _OF_A_TASK):
        return f"task:{address.task_id}" in topics
    if isinstance(address, QueueAddress | CurrentAddress | SchedulesAddress):
        return any(topic.startswith(("queue:", "task:")) for topic in topics)
    return False


def _digest(value: object) -> str:
    return digest(text_of(value).encode())
