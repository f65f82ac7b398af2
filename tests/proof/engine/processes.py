"""Real worker processes: started, frozen, killed and, whatever happens to the test, ended by their id."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.forked_program import ForkedProgram
from tests.forkserver import preload
from tests.proof.engine import worker_process
from tests.proof.engine.conditions import PATIENCE, eventually

preload("holdfast.store.sqlite", "holdfast.store.postgres", "tests.proof.engine.evidence")

CLONE = Path(__file__).parents[3]
LEASE = 6.0
"""Short, as a test waits for its end, and yet longer than any pause of a busy machine should be."""


class WorkerProcess:
    """One process of ``worker_process.py``."""

    def __init__(
        self,
        url: str,
        folder: Path,
        label: str,
        *,
        lease: float,
        options: dict[str, object],
        program: str = worker_process.__name__,
    ) -> None:
        self.label = label
        self.log = folder / f"{label}.log"
        self.log.write_text("")
        arguments = (url, str(folder), label, str(lease), json.dumps(options))
        self._process = ForkedProgram(program, *arguments, folder=CLONE, stderr=self.log)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def said(self, words: str) -> list[str]:
        """The lines of its log that hold these words."""
        return [line for line in self.log.read_text().splitlines() if words in line]

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        process = psutil.Process(self.pid)
        give_up_at = time.monotonic() + PATIENCE
        while process.status() != psutil.STATUS_STOPPED:
            assert time.monotonic() < give_up_at
            time.sleep(0.001)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        assert self._process.wait(PATIENCE) == -signal.SIGKILL

    async def drain(self) -> None:
        """Ask it to stop in good order, and see that it does."""
        self._process.terminate()
        assert await asyncio.to_thread(self._process.wait, PATIENCE) == 0, self.log.read_text()

    def end(self) -> None:
        if self.is_alive:
            self._process.kill()  # reaches a frozen one too
        self._process.wait()


async def while_alive(crew: Sequence[WorkerProcess], what: str, condition: Callable[[], bool]) -> None:
    """Wait for a condition; fail at once if one of the workers ended, with what it said."""

    def all_alive_and_holds() -> bool:
        for worker in crew:
            assert worker.is_alive, worker.log.read_text()
        return condition()

    await eventually(what, all_alive_and_holds)


@contextmanager
def workers(
    url: str,
    folder: Path,
    *labels: str,
    lease: float = LEASE,
    program: str = worker_process.__name__,
    **options: object,
) -> Iterator[list[WorkerProcess]]:
    """Start one worker for each label; end those that still live when the block ends.

    ``options`` go to the store. ``program`` is the module that each of them runs.
    """
    started: list[WorkerProcess] = []
    try:
        for label in labels:
            started.append(WorkerProcess(url, folder, label, lease=lease, options=options, program=program))  # noqa: PERF401 - each is ended, whatever comes
        yield started
    finally:
        for worker in started:
            worker.end()
