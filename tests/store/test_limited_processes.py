"""Sixty claimers in several processes on one SQLite file: never more at work than a limit allows, no task forgotten."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

from holdfast import NewTask, TaskState, open_store
from holdfast.model.flow_limit import Limit
from holdfast.store.sqlite.connection import connect
from tests.store import limited_process
from tests.store.limit_counters import check_counters

PROCESSES, TASKS = 4, 400
LONGEST = 300
"""Seconds until they are taken to hang."""


async def test_a_limit_holds_over_all_processes(tmp_path: Path) -> None:
    url, folder = f"sqlite:///{tmp_path}/agents.db", tmp_path / "at work"
    folder.mkdir()
    async with open_store(url) as store:
        await store.set_limit(Limit(name=limited_process.KEY, concurrency=limited_process.PLACES))
        await store.set_limit(Limit(name="tenant", concurrency=3, each=True))
        limits = [(limited_process.KEY, f"tenant:{n % 3}") if n % 2 else (limited_process.KEY,) for n in range(TASKS)]
        await store.submit(
            [NewTask(id=f"t{n}", name=limited_process.NAME, limits=keys) for n, keys in enumerate(limits)]
        )
        assert await asyncio.to_thread(let_loose, url, folder) == [0] * PROCESSES
        assert await store.count() == {TaskState.COMPLETED: TASKS}
        assert {(use.taken, use.waiting) for use in await store.limit_uses()} == {(0, 0)}
        assert max(task.fence for task in (await store.find(limit=TASKS)).items) > 1
    with closing(connect(str(tmp_path / "agents.db"), durable=True)) as connection:
        check_counters(connection)


def let_loose(url: str, folder: Path) -> list[int]:
    """Have all of them begin at the same time; return their exit codes."""
    with ExitStack() as running:
        crowd = [
            running.enter_context(
                subprocess.Popen(
                    [sys.executable, limited_process.__file__, url, str(seed), folder],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for seed in range(PROCESSES)
        ]
        for process in crowd:
            running.callback(process.kill)
        for process in crowd:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in crowd:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return [process.wait(LONGEST) for process in crowd]
