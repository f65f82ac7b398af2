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
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from unittest import mock

import psutil

from holdfast import Holdfast, StateStore, TaskDefinition
from holdfast.agent.openai_model import OpenAIModel
from holdfast.engine.steps import suspension
from holdfast.engine.worker import host, worker
from tests.forkserver import CONTEXT, preload
from tests.proof.agent.watching import Trail, WatchedModel, watch_commits
from tests.proof.effects.trap import hold_until, kill_soon
from tests.proof.engine.conditions import PATIENCE, eventually
from tests.proof.engine.doom import die
from tests.proof.engine.nursery import impatient
from tests.proof.engine.test_frozen_worker import may_write

LEASE = 2.0
"""Seconds, of a worker that is killed or frozen: short, because the worker that takes over waits for its end."""

LONG_LEASE = 30.0
"""Seconds, of a worker that lives: it does not lose its task because the machine stands still for a moment."""

LONGEST = 240
"""Seconds after which a life that should be over shows where it hangs, and ends."""

LOOK_EVERY = 0.2

_CLIENT = ["openai.resources.chat.completions", "httpx2", "httpcore2", "truststore", "anyio._backends._asyncio"]
_LIVES = [__name__, "tests.proof.agent.casts", "tests.proof.effects.life"]
# pytest itself as well: a child may import what its parent's main module is.
preload(*_LIVES, "holdfast.store.sqlite", "holdfast.store.postgres", *_CLIENT, "pytest")


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What a life is to do."""

    url: str
    log: Path
    cast: Callable[[Holdfast, Stage], TaskDefinition[..., str]]
    """Registers the agents, and returns the one whose task it is."""
    text: str
    """What that is asked. Each task has a queue of its own, and so its own workers."""
    trap: str | None = None
    """The place at which it is killed."""
    gate: Path | None = None
    """It is not killed there, but held until this file exists."""
    enough: Path | None = None
    """It works until this file exists, and not only until its task is done."""

    @property
    def lease(self) -> float:
        """Short for one that will not live long."""
        return LONG_LEASE if self.trap is None else LEASE


@dataclass(frozen=True)
class Stage:
    """Where agents perform."""

    trail: Trail

    queue: str
    """The one that is worked on."""

    def model(self, base_url: str, *, of: str = "", idle_timeout: float = 60.0) -> WatchedModel:
        """Return a model at this endpoint; ``of`` names whose it is, where there are several."""
        return WatchedModel(OpenAIModel("small", base_url=base_url, idle_timeout=idle_timeout), self.trail, of)


class Missed(AssertionError):
    """A worker passed its trap: it lost its lease because the machine stood still, and went another way."""


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

    @property
    def places(self) -> list[str]:
        """The places it came to, in order."""
        return [line.partition(" at: ")[2] for line in self.said(" at: ")]

    @property
    def lost_its_lease(self) -> bool:
        """Whether it was silent for too long, by no fault of ours: the machine stood still."""
        return bool(self.said("was silent for longer than its lease"))

    async def until_it_says(self, words: str) -> None:
        """Wait for a line of its log; fail at once if the process ends, with what it said."""

        def lives_and_said() -> bool:
            assert self._process.exitcode is None, f"it ended before it said {words!r}\n{self.log}"
            return bool(self.said(words))

        await eventually(f"it says {words!r}", lives_and_said)

    async def end(self) -> int:
        """Wait until it is over; return its exit code."""
        await eventually(f"the end of {self.orders}", lambda: self._process.exitcode is not None, within=2 * LONGEST)
        assert self._process.exitcode is not None
        return self._process.exitcode

    async def meet_its_trap(self) -> None:
        """See that it is killed, and where it was to be. Raises Missed if it got there too late to count."""
        place = self.orders.trap
        if await self.end() != -signal.SIGKILL and self.lost_its_lease:
            raise Missed(f"not killed {place}\n{self.log}")
        assert await self.end() == -signal.SIGKILL, f"not killed {place}\n{self.log}"
        assert place in self.places, f"killed, but not {place}\n{self.log}"
        # Amid a Commit it is not known how far it gets; anywhere else it gets no further.
        assert self.places[-1] == place or (place or "").startswith("amid "), f"killed later than {place}\n{self.log}"

    async def finish(self) -> None:
        """See that it ends well."""
        assert await self.end() == 0, self.log

    async def leave(self) -> None:
        """Ask it to stop, and see that it ends well."""
        assert self.orders.enough is not None
        self.orders.enough.touch()
        await self.finish()

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
    asyncio.run(_work(orders, _trail(orders)))


def _trail(orders: Orders) -> Trail:
    if orders.gate is not None:
        return Trail(orders.trap, hold_until(orders.gate))
    is_amid_commit = orders.trap is not None and orders.trap.startswith("amid ") and "answer" not in orders.trap
    return Trail(orders.trap, kill_soon(random.Random(orders.text)) if is_amid_commit else die)


async def _work(orders: Orders, trail: Trail) -> None:
    hold = Holdfast(orders.url)
    agent = orders.cast(hold, Stage(trail, orders.text))
    with _prepared(trail):
        async with hold:
            handle = await hold.submit(agent, orders.text, queue=orders.text, key=orders.text)
            async with hold.worker(queues=orders.text, lease=orders.lease, label=orders.log.stem):
                if orders.enough is not None:
                    await eventually("it is enough", orders.enough.exists, within=LONGEST)
                else:
                    await handle.result()


@contextlib.contextmanager
def _prepared(trail: Trail) -> Iterator[None]:
    """Have whatever is opened in this block pass the trap, look around often, and go the same way every time."""

    def prepare(store: StateStore) -> None:
        watch_commits(store, trail)

    with (
        impatient(prepare),
        mock.patch.object(host, "NOTE_STEPS_AFTER", LONGEST),  # a slow machine must not write more than a fast one
        mock.patch.object(suspension, "HOLD_SLOT", LONGEST),
        mock.patch.object(suspension, "LOOK_EVERY", LOOK_EVERY),
        mock.patch.object(worker, "LOOK_EVERY", LOOK_EVERY),
    ):
        yield
