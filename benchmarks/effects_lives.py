"""Lives: worker processes that print where they are, and are killed or frozen at a moment of our choice."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, TextIO

import psutil

from benchmarks.peers.errand import Errands
from benchmarks.processes import ROOT, SubjectFailed

SILENCE = 60.0
"""Seconds without output after which a worker counts as stuck. A take-over takes some seconds at most."""


class Stuck(Exception):
    """A worker printed nothing for too long."""


class Line(NamedTuple):
    """A line that a worker printed; `benchmarks.peers.errand` lists them."""

    what: str
    about: str
    """The order, or the call that a doubt is about."""
    rest: str = ""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """An engine, and its mode of work."""

    label: str
    python: str | Path
    module: str
    mode: str = ""


class Life:
    """One worker process, within ``with``: afterwards it has ended in any case."""

    def __init__(self, contender: Contender, database: Path, errands: Errands, log: Path) -> None:
        """Start it; its standard error goes to the log."""
        self.said: list[Line] = []
        self._log = log
        self._words: queue.SimpleQueue[str] = queue.SimpleQueue()
        with log.open("a", encoding="utf-8") as words:
            self._process = subprocess.Popen(  # noqa: S603 - our own programs
                [contender.python, "-m", contender.module, database, json.dumps(asdict(errands))],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=words,
                text=True,
            )
        assert self._process.stdout is not None  # noqa: S101 - a pipe
        self._listener = threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True)
        self._listener.start()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it, unless it has ended."""
        self.kill()

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def lines(self) -> Iterator[Line]:
        """Yield the lines it prints until its process has ended; Stuck if it falls silent."""
        while words := self._next():
            yield self._note(words)

    def wait_for(self, *said: str) -> None:
        """Return when it has printed this line."""
        if not any(line == said for line in self.lines()):
            raise SubjectFailed(f"{self._process.args!r} did not print {said}:\n{self._complaints()}")

    def hear(self) -> list[Line]:
        """Return everything it has printed so far."""
        while not self._words.empty() and (words := self._next()):
            self._note(words)
        return self.said

    def finish(self) -> None:
        """Wait until it has done its work."""
        for _ in self.lines():
            pass
        if self._process.wait() != 0:
            raise SubjectFailed(f"{self._process.args!r} ended with {self._process.returncode}:\n{self._complaints()}")

    def kill(self) -> float:
        """Send SIGKILL, read the rest of its output, and return when it was killed."""
        at = time.time()
        self._process.kill()
        self._process.wait()
        self._listener.join()
        self.hear()
        return at

    def freeze(self) -> float:
        """Stop it, unless it has ended, and return when it was certainly stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        process = psutil.Process(self.pid)
        while process.status() not in {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE}:
            time.sleep(0.001)
        return time.time()

    def thaw(self) -> float:
        """Let it continue, and return when that was."""
        at = time.time()
        os.kill(self.pid, signal.SIGCONT)
        return at

    def _listen(self, said: TextIO) -> None:
        with said:
            for words in said:
                self._words.put(words.strip())
        self._words.put("")

    def _next(self) -> str:
        """Return the next line; after its end, always an empty one."""
        try:
            words = self._words.get(timeout=SILENCE)
        except queue.Empty:
            raise Stuck(f"nothing for {SILENCE:g} s, after {self.said[-1:]}") from None
        if not words:
            self._words.put("")
        return words

    def _complaints(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-2000:]

    def _note(self, words: str) -> Line:
        line = Line(*words.split(maxsplit=2))
        self.said.append(line)
        return line
