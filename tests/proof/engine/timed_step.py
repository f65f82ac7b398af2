"""A task whose one step has a timeout and, in a process of its own, never ends: ``python -m ... URL FOLDER``."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from holdfast import Context, Holdfast, Retry

TIMEOUT = 600.0
LEASE = 2.0


def define(hold: Holdfast, folder: Path) -> Holdfast:
    """Give a Holdfast the task ``agent``; its step notes the process that calls it."""

    async def call_model() -> str:
        with (folder / "calls").open("a") as calls:
            calls.write(f"{os.getpid()}\n")
        if __name__ == "__main__":
            await asyncio.Event().wait()
        for _ in range(100):
            await asyncio.sleep(0)  # in which an alarm that is due would end it
        return "answer"

    @hold.task(retry=Retry(max_attempts=1))
    async def agent(ctx: Context) -> str:
        return await ctx.step("llm", call_model, timeout=TIMEOUT)

    return hold


async def _work(url: str, folder: Path) -> None:
    async with define(Holdfast(url), folder) as hold, hold.worker(lease=LEASE):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_work(sys.argv[1], Path(sys.argv[2])))
