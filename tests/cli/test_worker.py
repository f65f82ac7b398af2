"""``holdfast worker``, stopped in every way there is."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from holdfast import Holdfast, Task, TaskState
from tests.cli.support import APPLICATION, FOLDER, PATIENCE, environment, holdfast, until, worker
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot send SIGTERM")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/hold.db"


async def submit(url: str, task: str, *args: object) -> str:
    async with Holdfast(url) as hold:
        return (await hold.submit(task, *args, queue="default")).id


async def stored(url: str, task_id: str) -> Task:
    async with Holdfast(url) as hold:
        return await hold.handle(task_id).task()


def test_it_says_once_what_it_works_on_and_then_what_happens(tmp_path: Path, url: str) -> None:
    with worker(tmp_path, url, "--queues", "a,b", "--queues", "default", "--label", "vulcan") as process:
        answer = holdfast("submit", APPLICATION, "greet", "--args", '["you"]', "--wait", url=url)
        assert (answer.returncode, answer.stdout) == (0, '"hello you"\n')
        until(lambda: "running -> completed" in process.said, process.process)  # the log may come after the result
        process.signal(signal.SIGTERM)
        assert process.leave() == 0
    first, *_, last = process.said.splitlines()
    assert first == (
        f"holdfast: worker 'vulcan' (pid {process.process.pid}) works on {url}; "
        "queues: a, b, default; tasks: double, fail, gated, greet, hang, hang_in_executor, nap"
    )
    assert "INFO task greet" in process.said
    assert "running -> completed" in process.said
    assert last == "holdfast: SIGTERM: stopping"


def test_sigterm_stops_it_also_when_its_output_is_not_read(url: str) -> None:
    command = [sys.executable, "-m", "holdfast", "worker", APPLICATION]
    with subprocess.Popen(command, stderr=subprocess.PIPE, cwd=FOLDER, env=environment(url)) as process:
        try:
            assert process.stderr is not None
            assert b"works on" in process.stderr.readline()
            process.stderr.close()
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 0


async def test_sigterm_lets_a_step_finish_within_the_grace(tmp_path: Path, url: str) -> None:
    marker, gate = tmp_path / "began", tmp_path / "gate"
    task_id = await submit(url, "gated", str(marker), str(gate))
    with worker(tmp_path, url, "--grace", "600") as process:
        until(marker.exists, process.process)
        process.signal(signal.SIGTERM)
        until(lambda: "stopping" in process.said, process.process)
        gate.touch()
        assert process.leave() == 0
    assert "1 running task may take 600 s" in process.said
    task = await stored(url, task_id)
    assert (task.state, task.result) == (TaskState.COMPLETED, "through")


async def test_sigterm_hands_back_what_takes_longer_than_the_grace(tmp_path: Path, url: str) -> None:
    marker = tmp_path / "began"
    task_id = await submit(url, "nap", str(marker), 600)
    with worker(tmp_path, url, "--grace", "0.2") as process:
        until(marker.exists, process.process)
        process.signal(signal.SIGTERM)
        assert process.leave() == 0
    task = await stored(url, task_id)
    assert (task.state, task.attempts, task.deaths, task.owner) == (TaskState.PENDING, 0, 0, None)

    with worker(tmp_path, url) as process:
        async with Holdfast(url) as hold:
            assert await hold.handle(task_id).result(timeout=60) == "slept"


@pytest.mark.parametrize(
    ("task", "signals", "code"),
    [
        ("hang", (signal.SIGTERM, signal.SIGINT), 130),
        # The end of a process waits for threads of the event loop's own executor, unless the command prevents that.
        ("hang_in_executor", (signal.SIGINT, signal.SIGTERM), 143),
    ],
)
async def test_a_second_signal_forces_even_while_a_thread_hangs(
    tmp_path: Path, url: str, task: str, signals: tuple[int, int], code: int
) -> None:
    marker = tmp_path / "began"
    task_id = await submit(url, task, str(marker))
    with worker(tmp_path, url, "--grace", "600") as process:  # far longer than this test waits for it to leave
        until(marker.exists, process.process)
        process.signal(signals[0])
        until(lambda: "stopping" in process.said, process.process)
        process.signal(signals[1])
        assert process.leave() == code
    left = await stored(url, task_id)
    assert (left.state, left.attempts, left.deaths, left.owner) == (TaskState.PENDING, 0, 0, None)


async def test_the_url_can_be_another_than_the_application_names(tmp_path: Path, url: str) -> None:
    task_id = await submit(url, "greet", "you")
    with worker(tmp_path, f"sqlite:///{tmp_path}/other.db", "--database-url", url) as process:
        assert f"works on {url};" in process.said
        until(lambda: f"{task_id}: running -> completed" in process.said, process.process)


async def test_a_worker_that_cannot_go_on_leaves_with_a_failure(tmp_path: Path, postgres18: PostgresServer) -> None:
    """Its tables are gone, so that waiting does not help. It must not look as if it worked."""
    database = postgres18.create_store()
    with worker(tmp_path, database, "--lease", "60") as process:
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as admin:
            await admin.execute("ALTER SCHEMA holdfast RENAME TO elsewhere")
            assert await asyncio.to_thread(process.process.wait, PATIENCE) == 1
    assert "has stopped and claims no more tasks" in process.said
    assert process.said.splitlines()[-1].startswith("holdfast: the schema in database")
