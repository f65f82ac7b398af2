"""Eight processes on one store: every task is claimed once per fence, completed once, and no zombie writes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast import NewTask, TaskState, open_store
from tests.everyday import FULL
from tests.postgres_server import PostgresServer
from tests.store import claiming_process

PROCESSES = 8
TASKS = 10_000 if FULL else 4_000
LONGEST = 300
"""Seconds until the processes are taken to hang."""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/agents.db"
    server: PostgresServer = request.getfixturevalue("postgres18")
    return server.create_store()


async def test_many_workers_some_of_them_dying(url: str, tmp_path: Path) -> None:
    async with open_store(url) as store:
        for start in range(0, TASKS, 2000):
            await store.submit([NewTask(id=f"t{n}", name=claiming_process.NAME) for n in range(start, start + 2000)])
        logs = [tmp_path / f"{seed}.log" for seed in range(PROCESSES)]
        codes = await asyncio.to_thread(let_loose, url, logs)
        assert codes == [0] * PROCESSES

        lines = [line.split() for log in logs for line in log.read_text().splitlines()]
        claims = Counter((line[1], line[2]) for line in lines if line[0] == "claimed")
        completions = Counter(line[1] for line in lines if line[0] == "completed")
        assert set(claims.values()) == {1}
        assert len({task for task, _ in claims}) == TASKS
        assert completions == {f"t{n}": 1 for n in range(TASKS)}

        # The faults really fired: workers slept through their lease, and were refused when they came back.
        assert any(line[0] == "slept" for line in lines)
        refused = [(line[1], line[2]) for line in lines if line[0] == "refused"]
        assert refused
        for task_id, fence in refused:
            task = await store.get(task_id)
            assert task is not None
            assert int(fence) < task.fence
        assert await store.count() == {TaskState.COMPLETED: TASKS}
        assert sum(log.read_text().count("claimed") > 0 for log in logs) > 1


def let_loose(url: str, logs: Sequence[Path]) -> list[int]:
    """Have all of them begin at the same time; return their exit codes."""
    with ExitStack() as running:
        processes = [
            running.enter_context(
                subprocess.Popen(
                    [sys.executable, claiming_process.__file__, url, str(seed), log],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for seed, log in enumerate(logs)
        ]
        for process in processes:
            running.callback(process.kill)
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return [process.wait(LONGEST) for process in processes]
