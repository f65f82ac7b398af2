"""Ctrl-C in the main thread: the script leaves at once, and the task is handed back for another worker."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast import Holdfast, TaskState

SCRIPT = Path(__file__).parent / "interrupted.py"


@contextmanager
def started(url: str, where: str) -> Iterator[subprocess.Popen[str]]:
    """Run the script until it has begun; it is gone after the block."""
    with subprocess.Popen(
        [sys.executable, "-W", "default", str(SCRIPT), url, where],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("where", ["result", "events", "run", "join", "worker"])
def test_an_interrupt_leaves_cleanly(where: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/hold.db"
    with started(url, where) as process:
        process.send_signal(signal.SIGINT)
        printed, complaints = process.communicate(timeout=60)
    assert (printed, complaints) == ("interrupted\nthreads []\n", "")
    with Holdfast(url).sync as h:
        summary = h.summary()
        assert summary.tasks[TaskState.PENDING] == 1
        [task] = h.wait(h._hold.store.find()).items
        history = h.wait(h._hold.store.history(task.id))
    assert history[-1].reason == "handed back"


def test_a_signal_handler_may_drain_the_worker(tmp_path: Path) -> None:
    with started(f"sqlite:///{tmp_path}/hold.db", "join") as process:
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=60) == ("left\nthreads []\n", "")
