"""The demo's ledger: one line for everything a worker process did, in a plain file that no store knows of."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class What(StrEnum):
    """What happened to a step."""

    BEGAN = "began"
    DID = "did"
    PASSED = "passed"
    """The task's code has its result, from doing it or from the journal."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: which process did what."""

    pid: int
    what: What
    step: str


@dataclass(frozen=True, slots=True)
class Ledger:
    """What was in the file when it was read."""

    entries: tuple[Entry, ...] = ()

    def pids(self, what: What, step: str) -> list[int]:
        """Return the processes of which this is true, in order."""
        return [entry.pid for entry in self.entries if entry.what is what and entry.step == step]

    def replayed(self, step: str) -> list[int]:
        """Return the processes that got the step's result without doing it."""
        did = self.pids(What.DID, step)
        return [pid for pid in self.pids(What.PASSED, step) if pid not in did]


def note(file: Path, what: What, step: str) -> None:
    """Add a line. Appending is atomic, so two processes may do it."""
    with file.open("a", encoding="utf-8") as lines:
        lines.write(f"{os.getpid()} {what} {step}\n")


def read(file: Path) -> Ledger:
    """Read what is there; nothing as long as there is no file."""
    if not file.exists():
        return Ledger()
    lines = file.read_text(encoding="utf-8").splitlines()
    return Ledger(tuple(Entry(int(pid), What(what), step) for pid, what, step in map(str.split, lines)))
