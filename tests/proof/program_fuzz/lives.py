"""Lives of workers in this process: each has its own application, its own line to the store, and one fault to come.

A life that dies does nothing more and sends nothing more, as after SIGKILL: see ``holdfast.testing.killable``. A frozen
one is cut off from the store until it thaws, and does not know it.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import pytest

from holdfast import Holdfast, ReadOnlyStore, StateStore, StoreClosed, StoreReplaced, StoreUnavailable
from holdfast.store.flow_verbs import FlowVerbs
from holdfast.store.keep_verbs import KeepVerbs
from holdfast.store.read_verbs import ReadVerbs
from holdfast.store.work_verbs import WorkVerbs
from holdfast.testing.killable import KillableCommitter, KillableWorker, Stage
from holdfast.testing.skipping_clock import SkippingClock
from tests.proof.program_fuzz.grammar import Case, Fault
from tests.proof.program_fuzz.interpreter import Interpreter
from tests.proof.program_fuzz.records import Records

LEASE = 60.0
GATED = frozenset(
    [
        "commit",
        "claim",
        "heartbeat",
        "sweep",
        "load",
        "acquire",
        "owned",
        "get",
        "events",
        "position",
        "steps",
        "submit",
        "transact",
        "effects",
        "approvals",
        "add_evidence",
        "find",
        "limits",
        "take_permits",
        "return_permits",
    ]
)
WRITES = frozenset(
    {"commit", "claim", "heartbeat", "sweep", "acquire", "transact", "add_evidence", "take_permits", "return_permits"}
)
VERBS = frozenset(
    name for group in (WorkVerbs, FlowVerbs, ReadVerbs, KeepVerbs) for name in vars(group) if name[0] != "_"
)
REFUSED = 5
"""Writes that are refused one after the other: while the store can only be read, as in a fail-over of PostgreSQL, and
while its disk is full."""
UNANSWERED = 15
"""Calls that fail one after the other, reads as well, while the database is away."""
LOSABLE = frozenset(
    {
        "commit",
        "claim",
        "heartbeat",
        "sweep",
        "load",
        "acquire",
        "owned",
        "get",
        "events",
        "position",
        "take_permits",
        "return_permits",
    }
)


class Traffic:
    """Counts what is under way: calls of the store, or blocking functions in their threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.under_way = 0
        self.total = 0

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, *_: object) -> None:
        self.end()

    def begin(self) -> None:
        with self._lock:
            self.under_way += 1
            self.total += 1

    def end(self) -> None:
        with self._lock:
            self.under_way -= 1

    @contextmanager
    def aside(self) -> Iterator[None]:
        """For code that is counted and only waits: time may pass."""
        self.end()
        try:
            yield
        finally:
            self.begin()


class Line:
    """A life's own line to the store that all lives share."""

    def __init__(
        self,
        store: StateStore,
        traffic: Traffic,
        dice: random.Random,
        lost: float,
        *,
        read_only: int = 0,
        full: int = 0,
        away: int = 0,
    ) -> None:
        self._store = store
        self._traffic = traffic
        self._dice = dice
        self._lost = lost
        self._read_only = range(read_only, read_only + REFUSED) if read_only else range(0)
        self._full = range(full, full + REFUSED) if full else range(0)
        self._away = range(away, away + UNANSWERED) if away else range(0)
        self._calls = 0
        self._writes = 0
        self.open = asyncio.Event()
        self.open.set()
        self.cut = False
        self.replaced = False
        """Another store stands at the path."""
        self.before: Callable[[str, Any], None] = lambda *_: None
        self.after: Callable[[str], None] = lambda *_: None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has
        found = getattr(self._store, name)
        is_gated = name in GATED or (self.replaced and (name in VERBS or inspect.iscoroutinefunction(found)))
        return self._gated(name, found) if is_gated else found

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The kind of the store behind it, so that ``hold.store`` accepts it."""
        return type(self._store)

    def check_place(self) -> None:
        if self.replaced:
            raise StoreReplaced("another store stands at the path")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    def _gated(self, verb: str, ask: Callable[..., Any]) -> Callable[..., Any]:
        async def gated(*args: Any, **options: Any) -> Any:  # noqa: ANN401
            self.before(verb, args)
            await self._pass_gate()
            self.check_place()
            self._calls += 1
            if self._calls in self._away:
                raise StoreUnavailable("the database is away for a while")
            self._refuse(verb)
            fate = self._dice.random() if verb in LOSABLE else 1.0
            if fate < self._lost / 2:
                raise StoreUnavailable("the question was lost")
            with self._traffic:
                answer = await ask(*args, **options)
            self.after(verb)
            await self._pass_gate()
            if fate < self._lost:
                raise StoreUnavailable("the answer was lost")
            return answer

        return gated

    def _refuse(self, verb: str) -> None:
        if verb not in WRITES:
            return
        self._writes += 1
        if self._writes in self._read_only:
            raise ReadOnlyStore("there is no primary for a while")
        if self._writes in self._full:
            raise StoreUnavailable("the disk is full for a while")

    async def _pass_gate(self) -> None:
        await self.open.wait()
        if self.cut:
            raise StoreClosed("this life is over")


class Life:
    """One worker, from its start to its end, whatever that is."""

    def __init__(
        self,
        case: Case,
        records: Records,
        line: Line,
        threads: Traffic,
        fault: Fault | None,
        *,
        version: int,
        clock: SkippingClock,
        replaced: int = 0,
    ) -> None:
        """``replaced`` is the Commit with which it finds another store at the path."""
        self.fault = fault
        self.line = line
        self.hold = Holdfast("memory://", clock=clock)
        self.interpreter = Interpreter(
            case, records, self.hold, version=version, on_act=self._acts, aside=threads.aside
        )
        self.frozen = False
        self.is_to_stop = False
        self.commits = 0
        self._acts_left = fault.act if fault is not None else 0
        self._clock = clock
        self._replaced = replaced
        self._threads = threads
        self._stage = Stage()
        self.worker: KillableWorker
        line.before, line.after = self._before, self._after

    @property
    def is_dead(self) -> bool:
        return self.worker.is_dead

    @property
    def is_over(self) -> bool:
        return self.is_dead or self.is_to_stop or self.gave_up

    @property
    def gave_up(self) -> bool:
        """Whether its worker stopped by itself: it has to, once its store was replaced."""
        return self.line.replaced and (self.worker._work is None or self.worker._work.done())

    @property
    def worker_id(self) -> str:
        return self.worker._host.lease.worker_id

    async def begin(self) -> None:
        await self.hold.__aenter__()
        services = self.hold.services
        services.committer = KillableCommitter(services.store, self._stage)
        services.is_gone = lambda worker_id, _: worker_id in DEAD
        services.threads.run = self._counted(services.threads.run)  # type: ignore[method-assign]
        self.worker = KillableWorker(
            self._stage, services, lease=LEASE, label="life", queues=None, concurrency=20, grace=0.0
        )
        # In a task of its own: should the worker stop by itself, it cancels what it was entered in.
        await asyncio.create_task(self.worker.__aenter__())

    def die(self) -> None:
        DEAD.add(self.worker_id)
        self.worker.kill()
        self.line.cut = True
        self.line.open.set()

    def freeze(self) -> None:
        self.frozen = True
        self.line.open.clear()

    def thaw(self) -> None:
        self.frozen = False
        self.line.open.set()

    async def end(self) -> None:
        self.thaw()
        if self.gave_up and not self.is_dead:
            with pytest.raises(StoreReplaced):
                await self.worker.join()
        await self.worker.stop(grace=0.0)
        self.line.cut = True
        await self.hold.__aexit__(None, None, None)

    # Where faults strike

    def _before(self, verb: str, _: Any) -> None:  # noqa: ANN401
        if verb != "commit" or self.line.cut:
            return
        self.commits += 1
        self.line.replaced |= self.commits == self._replaced
        fault = self.fault
        if fault is None or fault.commit != self.commits:
            return
        match fault.kind:
            case "die before":
                self.die()
            case "freeze":
                self.freeze()
            case "hand back":
                self.is_to_stop = True
            case "jump":
                self._clock.jump_wall(fault.seconds)

    def _after(self, verb: str) -> None:
        fault = self.fault
        if verb == "commit" and fault is not None and fault.commit == self.commits and fault.kind == "die after":
            self.die()

    async def _acts(self, _: str) -> None:
        """A step passes here before it does something, and after it."""
        if self.is_dead:
            await asyncio.Event().wait()
        if self._acts_left:
            self._acts_left -= 1
            if not self._acts_left:
                self.die()
                await asyncio.Event().wait()  # until it is cancelled: a dead worker returns nothing

    def _counted(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Time stands still while a blocking step runs: a reconcile must not find "absent" before it could act."""

        async def counted(function: Callable[..., Any], *args: object, late: Any = None) -> Any:  # noqa: ANN401
            self._threads.begin()

            def work() -> Any:  # noqa: ANN401
                try:
                    return function(*args)
                finally:
                    self._threads.end()

            return await run(work, late=late)

        return counted


DEAD: set[str] = set()
"""The incarnations that died, in all cases of this process."""
