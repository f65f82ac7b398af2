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
"""How a process ends that was killed; Windows has no signals, and calls it exit code 1."""

_TO_LEAVE = 20.0


@dataclass(frozen=True, slots=True)
class DemoWorker:
    """A worker process, as the operating system knows it."""

    label: str
    pid: int
    exit_code: int | None
    """None while it lives."""

    @property
    def was_killed(self) -> bool:
        """Whether it was ended by SIGKILL, in the middle of whatever it did."""
        return self.exit_code == SIGKILLED


class DemoWorkers:
    """Starts workers of one queue; whatever happens, they are gone after the block."""

    def __init__(self, url: str, folder: Path, *, queue: str, lease: float, pace: float) -> None:
        """``folder`` takes the ledger, and what the workers say."""
        self._url, self._folder = url, folder
        self._queue, self._lease, self._pace = queue, lease, pace
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Begin without anybody."""
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
        """The file in which the workers' tools leave their lines."""
        return self._folder / "ledger.txt"

    @property
    def members(self) -> tuple[DemoWorker, ...]:
        """Everybody who was ever started, in order."""
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
        """End it the hard way: it gets no chance to do or say anything."""
        self._processes[label].kill()
        self._processes[label].wait()

    def dismiss(self, label: str) -> None:
        """Ask it to leave, and wait until it has; one that does not is killed with the end of the block."""
        self._processes[label].terminate()
        with suppress(subprocess.TimeoutExpired):
            self._processes[label].wait(_TO_LEAVE)

    def last_words(self, label: str) -> str:
        """Return what it has said on stderr: nothing, unless something is wrong."""
        return self._said(label).read_text(encoding="utf-8", errors="replace").strip()

    def _said(self, label: str) -> Path:
        return self._folder / f"{label}.txt"
