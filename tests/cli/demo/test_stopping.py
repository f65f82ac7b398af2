"""Whatever ends the demo, its workers and its temporary folder go first."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from holdfast.cli.demo.ledger import read
from tests.cli.demo.support import COMMAND, PATIENCE, environment


@contextmanager
def running(folder: Path) -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process]]]:
    """Start a demo, and go on when its first worker has done something."""
    with subprocess.Popen(
        [*COMMAND, "--pace", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment(folder),
    ) as process:
        workers: list[psutil.Process] = []
        try:
            give_up = time.monotonic() + PATIENCE
            while not any(read(file).entries for file in folder.rglob("ledger.txt")):
                assert process.poll() is None
                assert time.monotonic() < give_up
                time.sleep(0.05)
            workers = psutil.Process(process.pid).children(recursive=True)
            assert [worker.cmdline()[3] for worker in workers] == ["worker"]
            yield process, workers
        finally:
            process.kill()
            for worker in filter(psutil.Process.is_running, workers):
                worker.kill()


def check_nothing_is_left(folder: Path, workers: list[psutil.Process]) -> None:
    assert not any(worker.is_running() for worker in workers)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), pytest.param(signal.SIGHUP, 129, marks=pytest.mark.full)],
)
def test_a_signal_in_the_middle(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with running(tmp_path) as (process, workers):
        process.send_signal(number)
        said, complained = process.communicate(timeout=PATIENCE)
        assert (process.returncode, complained) == (code, "")
        assert "completed" not in said
        check_nothing_is_left(tmp_path, workers)


def test_a_worker_that_dies_before_its_time(tmp_path: Path) -> None:
    with running(tmp_path) as (process, workers):
        os.kill(workers[0].pid, signal.SIGKILL)
        _, complained = process.communicate(timeout=PATIENCE)
        assert process.returncode == 1
        assert complained.startswith("holdfast: worker-1 of the demo ended with exit code -9")
        assert complained.count("\n") == 1
        check_nothing_is_left(tmp_path, workers)
