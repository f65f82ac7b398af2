"""A worker that kills itself while it fires a tick: right before the store has it, or right after.

Started as ``python -m tests.proof.engine.ticking_process URL FOLDER LABEL LEASE '{"dies": "before"}'``.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence

from holdfast import Context, Holdfast, NewTask, Submitted
from holdfast.model.schedule import StoredSchedule


def define(hold: Holdfast) -> None:
    @hold.task
    async def beat(ctx: Context) -> str:
        return str(ctx.tick)


async def main(url: str, label: str, lease: float, dies: str) -> None:
    hold = Holdfast(url)
    define(hold)
    async with hold:
        put = hold.store.put_schedule

        async def put_and_die(
            schedule: StoredSchedule, *, seen: int, tasks: Sequence[NewTask] = ()
        ) -> list[Submitted] | None:
            if tasks and dies == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            answer = await put(schedule, seen=seen, tasks=tasks)
            if tasks and dies == "after":
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        vars(hold.store)["put_schedule"] = put_and_die
        async with hold.worker(lease=lease, label=label) as worker:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.drain)
            await worker.join()


if __name__ == "__main__":
    _, url, _, label, lease, options = sys.argv
    asyncio.run(main(url, label, float(lease), json.loads(options).get("dies", "")))
