"""Workers that are killed while they fire: every tick has its task, and none has two."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from holdfast import Holdfast
from holdfast.model.schedule import tick_of
from tests.engine.support import until
from tests.proof.engine import ticking_process
from tests.proof.engine.processes import WorkerProcess, workers

LATER = 3
"""Ticks that a worker which lives has to fire behind the others."""


async def test_killed_workers_lose_no_tick_and_double_none(url: str, tmp_path: Path) -> None:
    """With each kill, another process finds the tick as it was, or gone on."""
    hold, program = Holdfast(url), ticking_process.__name__
    ticking_process.define(hold)
    async with hold:
        await hold.schedule("beat", "beat", every=1, overlap="all", catch_up="all")
        for dies in ("before", "after", "before"):
            with workers(url, tmp_path, f"dies {dies}", program=program, dies=dies) as [doomed]:

                def is_dead(doomed: WorkerProcess = doomed) -> bool:
                    return not doomed.is_alive

                await until(is_dead)
        before = len(await ticks(hold))
        assert before >= 1, "the one that died afterwards had submitted it"

        async def went_on() -> bool:
            return len(await ticks(hold)) >= before + LATER

        with workers(url, tmp_path, "lives", program=program):
            await until(went_on)
        found = await ticks(hold)
    assert found == [found[0] + timedelta(seconds=n) for n in range(len(found))]


async def ticks(hold: Holdfast) -> list[datetime]:
    """Return the tick of every task, in order."""
    tasks = (await hold.store.find(limit=1000)).items
    found = [tick_of(task.schedule, task.key) for task in tasks]
    return sorted(tick for tick in found if tick is not None)
