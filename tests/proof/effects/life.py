"""Lives: worker processes that meet their trap, or work until their task is done.

They are forked by a server process that has imported everything once, and has neither a thread nor a loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from unittest import mock

import psutil

from holdfast import Conflict, Handle, Holdfast, StateStore, StoreUnavailable
from holdfast.engine.steps import suspension
from holdfast.engine.worker import worker
from holdfast.model.doubt import Decision
from holdfast.model.effect import EffectState
from holdfast.testing.ledger import Ledger, Trouble
from tests.forkserver import CONTEXT, preload
from tests.proof.effects.errand import TIMEOUT, define
from tests.proof.effects.roads import Kind, Manner
from tests.proof.effects.trap import Trap, hold_until, kill_soon, watch_commits, watching_checks
from tests.proof.engine.conditions import PATIENCE, eventually
from tests.proof.engine.doom import die
from tests.proof.engine.nursery import impatient
from tests.proof.engine.test_frozen_worker import may_write

LEASE = 1.0
"""Seconds: short, as every test waits for its end. A machine that stands still for longer is not mistaken for a bug."""

LONGEST = 60
"""Seconds after which a life that should be over shows where it hangs, and ends."""

LOOK_EVERY = 0.2

logger = logging.getLogger(__name__)

# pytest itself as well: a child may import what its parent's main module is.
preload(__name__, "holdfast.store.sqlite", "holdfast.store.postgres", "pytest")


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What a life is to do."""

    url: str
    ledger: Ledger
    log: Path
    number: int
    """Of the task. Each task has a queue of its own, and so its own workers."""
    kind: Kind
    manner: Manner = "async"
    trap: str | None = None
    """The place at which it is killed."""
    gate: Path | None = None
    """It is not killed there, but held until this file exists."""
    enough: Path | None = None
    """It works until this file exists, and not only until its task is done."""
    cut: Path | None = None
    """While this file exists, it cannot reach the store."""
    has_person: bool = False
    """A person decides about doubts, and knows what is in the ledger."""
    keeps_slot: bool = True
    """It waits in place for a call to settle, instead of giving its task back meanwhile."""
    timeout: float = TIMEOUT
    lease: float = LEASE
    hesitation: float = 0.0
    trouble: Trouble = field(default_factory=Trouble)

    @property
    def queue(self) -> str:
        return f"errand-{self.number}"


class Life:
    """One process, from here to the end of the block at the latest."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self._process = CONTEXT.Process(target=_live, args=(orders,), daemon=True)
        self._process.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.exitcode is None:
            self._process.kill()  # reaches a frozen one too
        self._process.join()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def log(self) -> str:
        return self.orders.log.read_text() if self.orders.log.exists() else ""

    def said(self, words: str) -> list[str]:
        """The lines of its log that hold these words."""
        return [line for line in self.log.splitlines() if words in line]

    def was_at(self, place: str) -> list[float]:
        """When it came to this place."""
        return [float(line.split()[0]) for line in self.log.splitlines() if line.endswith(f" at: {place}")]

    @property
    def lost_its_lease(self) -> bool:
        """Whether it was silent for too long, by no fault of ours: the machine stood still."""
        return bool(self.said("was silent for longer than its lease"))

    @property
    def starved(self) -> bool:
        """Whether it came to no end because its lease ran out again and again: the machine is slower than the lease."""
        return self.lost_its_lease and bool(self.said("Timeout ("))

    async def until(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait for a condition; fail at once if the process ends, with what it said."""

        def lives_and_holds() -> bool:
            assert self._process.exitcode is None, f"{what}: {self._process.exitcode}\n{self.log}"
            return condition()

        await eventually(what, lives_and_holds)

    async def until_it_says(self, words: str) -> None:
        await self.until(f"it says {words!r}", lambda: bool(self.said(words)))

    async def end(self) -> int:
        """Wait until it is over; return its exit code."""
        await eventually(f"the end of {self.orders}", lambda: self._process.exitcode is not None, within=2 * LONGEST)
        assert self._process.exitcode is not None
        return self._process.exitcode

    async def leave(self) -> None:
        """Ask it to stop, and see that it ends well."""
        assert self.orders.enough is not None
        self.orders.enough.touch()
        assert await self.end() == 0, self.log

    async def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        assert await self.end() == -signal.SIGKILL

    async def freeze(self) -> None:
        """Stop it, and not while it holds SQLite's one write lock: no worker could take anything over then."""
        await eventually("it is frozen between two transactions", self._freeze)

    def _freeze(self) -> bool:
        os.kill(self.pid, signal.SIGSTOP)
        process, give_up_at = psutil.Process(self.pid), time.monotonic() + PATIENCE
        while process.status() != psutil.STATUS_STOPPED:
            assert time.monotonic() < give_up_at
            time.sleep(0.001)
        url = self.orders.url
        if not url.startswith("sqlite") or may_write(Path(url.removeprefix("sqlite:///"))):
            return True
        self.thaw()
        return False

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


# In the process


def _live(orders: Orders) -> None:
    log = os.open(orders.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(log, sys.stderr.fileno())
    logging.basicConfig(level=logging.INFO, format="%(created)f %(levelname)s %(message)s", force=True)
    faulthandler.dump_traceback_later(LONGEST, exit=True)
    asyncio.run(_work(orders, _trap(orders)))


def _trap(orders: Orders) -> Trap:
    if orders.gate is not None:
        return Trap(orders.trap, hold_until(orders.gate))
    is_amid_commit = orders.trap is not None and orders.trap.startswith("amid ") and orders.trap != "amid reconcile"
    return Trap(orders.trap, kill_soon(random.Random(orders.number)) if is_amid_commit else die)


async def _work(orders: Orders, trap: Trap) -> None:
    hold = Holdfast(orders.url)
    errands = define(
        hold,
        orders.ledger,
        trap,
        timeout=orders.timeout,
        hesitation=orders.hesitation,
        trouble=orders.trouble,
    )
    with prepared(trap, orders):
        async with hold:
            handle = await hold.submit(
                errands[orders.kind], orders.number, orders.manner, queue=orders.queue, key=str(orders.number)
            )
            async with hold.worker(queues=orders.queue, lease=orders.lease, label=orders.log.stem):
                if orders.enough is not None:
                    await eventually("it is enough", orders.enough.exists, within=LONGEST)
                else:
                    await until_done(hold, handle, orders)


async def until_done(hold: Holdfast, handle: Handle[int], orders: Orders) -> None:
    going: list[asyncio.Task[Any]] = [asyncio.create_task(handle.result())]
    if orders.has_person:
        going.append(asyncio.create_task(decide_doubts(hold, handle, orders)))
    try:
        done, _ = await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            one.result()
    finally:
        for one in going:
            one.cancel()
        await asyncio.gather(*going, return_exceptions=True)


async def decide_doubts(hold: Holdfast, handle: Handle[int], orders: Orders) -> None:
    """Do a person's work: look into the ledger, and decide what is true."""
    while True:
        for doubt in await hold.doubts(handle):
            if doubt.approval_id is not None and doubt.effect.state is EffectState.NEEDS_HUMAN:
                assert {Decision.HAPPENED, Decision.ABSENT} <= set(doubt.decisions)
                logger.info("asked about %s", doubt.effect.effect_id)
                has_happened = bool(orders.ledger.seen(doubt.effect.effect_id))
                with contextlib.suppress(Conflict):
                    await hold.resolve(
                        doubt,
                        Decision.HAPPENED if has_happened else Decision.ABSENT,
                        result=orders.number if has_happened else None,
                        by="a person",
                    )
        await asyncio.sleep(LOOK_EVERY)


@contextlib.contextmanager
def prepared(trap: Trap, orders: Orders) -> Iterator[None]:
    """Have whatever is opened in this block pass the trap, and look around often."""

    def prepare(store: StateStore) -> None:
        if orders.cut is not None:
            cut_off(store, orders.cut)
        watch_commits(store, trap)

    with (
        impatient(prepare),
        watching_checks(trap),
        mock.patch.object(suspension, "HOLD_SLOT", LONGEST if orders.keeps_slot else 0.05),
        mock.patch.object(suspension, "LOOK_EVERY", LOOK_EVERY),
        mock.patch.object(worker, "LOOK_EVERY", LOOK_EVERY),
    ):
        yield


def cut_off(store: StateStore, cut: Path) -> None:
    """Have a store that is not in use yet be out of reach while a file exists."""

    def unreliable(verb: Callable[..., Any]) -> Callable[..., Any]:
        async def ask(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - whatever the verb takes and answers
            if cut.exists():
                raise StoreUnavailable("the line is cut")
            return await verb(*args, **options)

        return ask

    for name in ("commit", "claim", "heartbeat", "sweep", "load", "register", "get", "add_evidence", "effects", "now"):
        vars(store)[name] = unreliable(getattr(store, name))
