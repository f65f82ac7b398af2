"""Limits as the world outside sees them: five workers that are killed and replaced never do more than they may.

The workers write down in a file when each call and each task begins and ends. What a killed worker had begun ends with
it. Nothing here asks the store what it counted.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast import Handle, Holdfast, TaskState
from tests.engine.support import until
from tests.proof.engine import limited_process
from tests.proof.engine.limited_process import BURST, PER, PLACES, RATE, SLOTS, TENANTS, Notes
from tests.proof.engine.processes import workers

CALLS, SLOT_TASKS, PLACE_TASKS = 120, 60, 60
WORKERS, KILLS = 5, 4

SLOW = 60.0
"""Seconds within which what a killed worker had is free again, on any machine: its lease, its calls, the next look."""


@dataclass
class Outside:
    """What was seen outside."""

    begun: dict[str, list[float]] = field(default_factory=dict)
    changes: dict[str, list[tuple[float, int]]] = field(default_factory=dict)

    @classmethod
    def read(cls, notes: Path, deaths: dict[int, float]) -> Outside:
        """Read the notes. ``deaths`` are the processes that were killed, and when they were over for certain."""
        seen = cls()
        open_ones: dict[tuple[str, int, str], int] = {}
        for line in notes.read_text().splitlines():
            at, pid, what, moment, which = line.split()
            name = (what, int(pid), which)
            if moment == "begin":
                seen.begun.setdefault(what, []).append(float(at))
                seen.changes.setdefault(what, []).append((float(at), 1))
                open_ones[name] = open_ones.get(name, 0) + 1
            else:
                seen.changes[what].append((float(at), -1))
                open_ones[name] -= 1
        for (what, process, _), count in open_ones.items():
            if count:
                seen.changes[what] += [(deaths[process], -1)] * count
        return seen

    def most_at_once(self, what: str) -> int:
        now = most = 0
        for _, change in sorted(self.changes[what]):
            now += change
            most = max(most, now)
        assert now == 0
        return most

    def most_within(self, what: str, seconds: float) -> int:
        times = sorted(self.begun[what])
        return max(_count(times, first, first + seconds) for first in times)


def _count(times: Iterable[float], begin: float, end: float) -> int:
    return sum(begin <= at < end for at in times)


async def test_killed_workers_never_do_more_than_they_may_and_all_is_done(url: str, tmp_path: Path) -> None:
    hold, program = Holdfast(url), limited_process.__name__
    limited_process.define(hold, Notes(tmp_path / "notes"))
    deaths: dict[int, float] = {}
    dice = random.Random(7)
    async with hold:
        await limited_process.set_limits(hold)
        handles: list[Handle[Any]] = await hold.submit_many("call", [()] * CALLS, queue="work")
        handles += await hold.submit_many("slot", [()] * SLOT_TASKS, queue="work")
        for number in range(TENANTS):
            key = f"tenant:{number}"
            handles += await hold.submit_many(
                "place", [(str(number),)] * (PLACE_TASKS // TENANTS), queue="work", limits=[key]
            )
        with ExitStack() as crew:
            alive = crew.enter_context(workers(url, tmp_path, *map(str, range(WORKERS)), program=program))
            began = time.monotonic()
            for number in range(KILLS):

                def enough(least: int = (number + 1) * CALLS // (KILLS + 2)) -> bool:
                    return (tmp_path / "notes").read_text().count(" call begin ") >= least

                await until(enough)
                doomed = alive.pop(dice.randrange(len(alive)))
                doomed.kill()
                deaths[doomed.pid] = time.clock_gettime(time.CLOCK_BOOTTIME)
                alive += crew.enter_context(workers(url, tmp_path, f"new {number}", program=program))

            async def all_done() -> bool:
                return (await hold.store.count()).get(TaskState.COMPLETED) == len(handles)

            await until(all_done, patience=180.0)
            took = time.monotonic() - began
            await asyncio.gather(*(worker.drain() for worker in alive))

        async def nothing_left() -> bool:
            return all(use.taken == use.waiting == 0 for use in await hold.limits())

        async def swept() -> bool:
            await hold.store.sweep()
            return await nothing_left()

        await until(swept)
    seen = Outside.read(tmp_path / "notes", deaths)
    assert 2 <= seen.most_at_once("slot") <= SLOTS
    for number in range(TENANTS):
        assert seen.most_at_once(f"tenant:{number}") <= PLACES
    assert RATE / 2 <= seen.most_within("call", PER.total_seconds()) <= RATE + BURST
    least = CALLS / (RATE + BURST) * PER.total_seconds()
    assert took < 3 * least + KILLS * SLOW, "permits were free, and no worker used them"
    await asyncio.sleep(0)
