"""A worker of tasks under limits, which writes down outside of the store what it does, and when.

Started as ``python -m tests.proof.engine.limited_process URL FOLDER LABEL LEASE '{}'``.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

from holdfast import Context, Holdfast

TENANTS, PLACES, SLOTS = 3, 2, 3
RATE, BURST, PER = 20, 4, timedelta(seconds=2)
TIMEOUT = 2.0
"""Of a call under a limit: a permit whose worker died is kept for so long, and its time to settle."""

NAP = 0.03


class Notes:
    """A file that all processes append to: begin and end of everything, by the clock that they share."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, what: str, moment: str, which: str) -> None:
        line = f"{time.clock_gettime(time.CLOCK_BOOTTIME):.6f} {os.getpid()} {what} {moment} {which}\n"
        os.write(self._file, line.encode())  # one write: no line is torn


def define(hold: Holdfast, notes: Notes) -> None:
    async def noted(what: str, which: str) -> None:
        notes.write(what, "begin", which)
        await asyncio.sleep(NAP)
        notes.write(what, "end", which)

    @hold.task(queue="work")
    async def call(ctx: Context) -> str:
        await ctx.step("call", noted, "call", ctx.task_id, limits=["api"], timeout=TIMEOUT)
        return "done"

    @hold.task(queue="work")
    async def slot(ctx: Context) -> str:
        await ctx.step("slot", noted, "slot", ctx.task_id, limits=["slots"], timeout=TIMEOUT)
        return "done"

    @hold.task(queue="work")
    async def place(ctx: Context, tenant: str) -> str:
        await ctx.step("place", noted, f"tenant:{tenant}", ctx.task_id)
        return "done"


async def set_limits(hold: Holdfast) -> None:
    await hold.limit("api", rate=RATE, burst=BURST, per=PER)
    await hold.limit("slots", concurrency=SLOTS)
    await hold.limit("tenant", concurrency=PLACES, each=True)


async def main(url: str, folder: str, label: str, lease: float) -> None:
    hold = Holdfast(url)
    define(hold, Notes(Path(folder) / "notes"))
    async with hold:
        await set_limits(hold)
        async with hold.worker(queues="work", lease=lease, label=label, concurrency=8) as worker:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.drain)
            await worker.join()


if __name__ == "__main__":
    _, url, folder, label, lease, _ = sys.argv
    asyncio.run(main(url, folder, label, float(lease)))
