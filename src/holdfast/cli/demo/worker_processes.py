"""The demo's workers: real ``holdfast worker`` processes. None of them outlives the demo."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast.cli.demo.application import LEDGER, PACE

SIGKILLED = 1 if os.name == "nt" else -9
"""The exit code of a killed process; Windows has no signals, and uses 1."""

_EXIT_TIMEOUT = 20.0


@dataclass(frozen=True, slots=True)
class DemoWorker:
    """A worker process, as the operating system knows it."""

    label: str
    pid: int
    exit_code: int | None
    """None while it lives."""

    @property
    def was_killed(self) -> bool:
        """Whether it was ended by SIGKILL."""
        return self.exit_code == SIGKILLED


class DemoWorkers:
    """Starts workers of one queue; they are always gone after the block."""

    def __init__(self, url: str, folder: Path, *, queue: str, lease: float, pace: float) -> None:
        """``folder`` holds the ledger and the workers' output."""
        self._url, self._folder = url, folder
        self._queue, self._lease, self._pace = queue, lease, pace
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Begin without workers."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill every worker that is left."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._open.close()

    @property
    def ledger(self) -> Path:
        """The file to which the workers' tools add their lines."""
        return self._folder / "ledger.txt"

    @property
    def members(self) -> tuple[DemoWorker, ...]:
        """All workers that were ever started, in order."""
        return tuple(DemoWorker(label, process.pid, process.poll()) for label, process in self._processes.items())

    def start(self) -> str:
        """Start another worker; return its label."""
        label = f"worker-{len(self._processes) + 1}"
        command = [sys.executable, "-m", "holdfast", "worker", "holdfast.cli.demo.application:hold", "--quiet"]
        command += ["--queues", self._queue, "--lease", str(self._lease), "--label", label]
        # The URL may hold a password: it travels in the environment, not where `ps` shows it.
        settings = {"HOLDFAST_DATABASE_URL": self._url, LEDGER: str(self.ledger), PACE: str(self._pace)}
        said = self._open.enter_context(self._said(label).open("wb"))
        self._processes[label] = subprocess.Popen(  # noqa: S603
            command, env=os.environ | settings, stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
        return label

    def kill(self, label: str) -> None:
        """Kill it with SIGKILL: it gets no chance to clean up."""
        self._processes[label].kill()
        self._processes[label].wait()

    def dismiss(self, label: str) -> None:
        """Ask it to stop, and wait for that; a worker that does not is killed at the end of the block."""
        self._processes[label].terminate()
        with suppress(subprocess.TimeoutExpired):
            self._processes[label].wait(_EXIT_TIMEOUT)

    def last_output(self, label: str) -> str:
        """Return its output: empty unless something is wrong."""
        return self._said(label).read_text(encoding="utf-8", errors="replace").strip()

    def _said(self, label: str) -> Path:
        return self._folder / f"{label}.txt"
