"""Trials: the same orders for every engine, with its worker killed, or frozen and replaced, around the calls."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.effects_lives import Contender, Life, Line, Stuck
from benchmarks.peers.errand import CALLS, Errands, business_key
from holdfast.testing.ledger import Entry, Ledger

LANDINGS = ("not sent", "in flight", "happened", "answered", "later")
"""The stage of the call when the worker was hit: not sent yet; sent, and not recorded by the ledger; recorded and not
answered; answered, and perhaps not recorded by the engine; or the worker was already at something else."""

MOST_HITS = 2
"""The most hits on one order: engines may set aside an order whose workers keep dying."""

_ORDERS = 3
"""How many orders a worker gets. It is hit long before it has done them."""
_CALLS = 4
"""A worker is hit in one of its first calls, up to this number."""
_LIVES = 5
"""The most workers to start for each one to kill: an engine may give up before it makes a call."""


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A worker was killed, or frozen for a while."""

    order: str
    step: str
    """The call it had begun last when the moment was chosen."""
    pid: int
    at: float
    over: float = math.inf
    """When it continued."""
    said: list[Line]
    """The lines it had printed by then."""

    def landed(self, entries: list[Entry]) -> str:
        """Return which of LANDINGS it was."""
        entered = self.said.index(Line("enter", self.order, self.step))
        match [line.what for line in self.said[entered + 1 :]]:
            case ["answered"]:
                return "answered"
            case [_, *_]:
                return "later"
        call = (business_key(self.order, self.step), self.pid)
        recorded = [entry.at for entry in entries if (entry.effect_id, entry.caller) == call and entry.at < self.over]
        if not recorded:
            return "not sent"
        return "happened" if recorded[0] <= self.at else "in flight"


@dataclass
class Trial:
    """One engine with its own database and ledger, and the results."""

    contender: Contender
    folder: Path
    ledger: Ledger
    dice: random.Random
    tell: Callable[[int], None]
    """Called after each hit, with the number of hits."""
    hits: list[Hit] = field(default_factory=list)
    ends: dict[str, str] = field(default_factory=dict)
    """What the engine reported in the end, by order: "done", or why not."""
    doubts: set[str] = field(default_factory=set)
    """Calls that the engine reported as in doubt."""

    def kill_workers(self, kills: int) -> None:
        """Kill one worker after the other, and let a last one finish."""
        names = map("order-{}".format, itertools.count(1))
        orders: list[str] = []
        for _ in range(_LIVES * kills):
            if len(self.hits) == kills:
                break
            orders += itertools.islice(names, _ORDERS - len(orders))
            with self._life(orders) as life:
                self._kill(life)
            orders = self._left(orders)
        while orders:
            with self._life(orders) as life:
                life.finish()
            orders = self._left(orders)

    def freeze_workers(self, freezes: int) -> None:
        """Freeze a worker in the middle of a call, let another one finish its order, and then let it continue."""
        for number in range(1, freezes + 1):
            order, step = f"order-{number}", self.dice.choice(CALLS)
            with self._life([order]) as frozen:
                frozen.wait_for("enter", order, step)
                time.sleep(self.dice.uniform(0, _call_takes()))
                at = frozen.freeze()
                with self._life([order]) as heir:
                    heir.finish()
                said = list(frozen.hear())
                over = frozen.thaw()
                self._hit(Hit(order=order, step=step, pid=frozen.pid, at=at, over=over, said=said))
                frozen.finish()

    def note(self, said: list[Line]) -> None:
        """Record what the engine reports about orders and calls. An order that is done stays done."""
        for line in said:
            if line.what == "done":
                self.ends[line.about] = "done"
            elif line.what == "failed":
                self.ends.setdefault(line.about, line.rest)
            elif line.what == "doubt":
                self.doubts.add(line.about)

    def _kill(self, life: Life) -> None:
        """Kill it in one of its next calls, or a little later."""
        calls, delay = self.dice.randint(1, _CALLS), self.dice.uniform(0, 1.5 * _call_takes())
        for line in life.lines():
            if line.what == "enter" and line.rest in CALLS and self._times_hit(line.about) < MOST_HITS:
                calls -= 1
                if calls == 0:
                    time.sleep(delay)
                    at = life.kill()
                    self._hit(Hit(order=line.about, step=line.rest, pid=life.pid, at=at, said=life.said))
                    return
        life.finish()

    @contextmanager
    def _life(self, orders: list[str]) -> Iterator[Life]:
        """Run a worker for these orders; record what it reports, and give up an order in which it gets stuck."""
        errands, stuck = Errands(orders=orders, port=self.ledger.port, mode=self.contender.mode), None
        with Life(self.contender, self.folder / "engine.db", errands, self.folder / "workers.log") as life:
            try:
                yield life
            except Stuck as silence:
                stuck = silence
        self.note(life.said)
        if stuck is not None:
            for order in self._left(orders)[:1]:  # none, if all orders are done and only the process did not end
                self.ends[order] = str(stuck)

    def _left(self, orders: list[str]) -> list[str]:
        return [order for order in orders if order not in self.ends]

    def _hit(self, hit: Hit) -> None:
        self.hits.append(hit)
        self.tell(len(self.hits))

    def _times_hit(self, order: str) -> int:
        return sum(hit.order == order for hit in self.hits)


def _call_takes() -> float:
    """Return the seconds from the beginning of a step to its end, without what the engine adds."""
    usual = Errands(orders=[], port=0)
    return (usual.prepare_ms + usual.delay_before_ms + usual.delay_after_ms) / 1000
