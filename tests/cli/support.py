"""The command in real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.forked import run_holdfast

FOLDER = Path(__file__).parent
APPLICATION = "application:hold"

PATIENCE = 60.0
"""Seconds: for machines busy with other tests."""


def holdfast(*arguments: str, url: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command where the application is."""
    return run_holdfast(*arguments, folder=FOLDER, environment=environment(url), timeout=PATIENCE)


class WorkerProcess:
    """A ``holdfast worker`` that has introduced itself."""

    def __init__(self, process: subprocess.Popen[str], words: Path) -> None:
        self.process = process
        self._words = words

    @property
    def said(self) -> str:
        return self._words.read_text(encoding="utf-8")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def leave(self) -> int:
        return self.process.wait(PATIENCE)


@contextmanager
def worker(folder: Path, url: str, *options: str) -> Iterator[WorkerProcess]:
    """Start a worker of the application; it is gone after the block."""
    words = folder / f"worker-{time.monotonic_ns()}.txt"
    command = [sys.executable, "-m", "holdfast", "worker", APPLICATION, *options]
    with (
        words.open("w", encoding="utf-8") as file,
        subprocess.Popen(command, stderr=file, text=True, cwd=FOLDER, env=environment(url)) as process,
    ):
        started = WorkerProcess(process, words)
        try:
            until(lambda: "works on" in started.said, process)
            yield started
        finally:
            process.kill()


def until(happened: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait for something a process does."""
    give_up = time.monotonic() + PATIENCE
    while not happened():
        assert process.poll() is None, "the process ended"
        assert time.monotonic() < give_up
        time.sleep(0.02)


def environment(url: str | None) -> dict[str, str]:
    """Return the environment of the command, without that of the person who runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return kept | ({"HOLDFAST_DATABASE_URL": url} if url else {})
