"""The demo's ledger: one line for everything that reached the world outside, in a plain file that no store knows of."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class What(StrEnum):
    """The kind of a line."""

    DID = "did"
    """The world was touched: this is what must not be there twice."""
    ASKED = "asked"
    """A worker looked here to find out whether the world was touched."""


@dataclass(frozen=True, slots=True)
class DemoEntry:
    """One line: which process did what, under which effect id."""

    pid: int
    what: What
    step: str
    effect_id: str


@dataclass(frozen=True, slots=True)
class DemoLedger:
    """What was in the file when it was read."""

    entries: tuple[DemoEntry, ...] = ()

    def pids(self, what: What, step: str, effect_id: str | None = None) -> list[int]:
        """Return the processes that wrote such lines, in order."""
        return [entry.pid for entry in self._about(what, step) if effect_id in {None, entry.effect_id}]

    def effect_ids(self, step: str) -> list[str]:
        """Return the ids under which a step touched the world, each once."""
        return list(dict.fromkeys(entry.effect_id for entry in self._about(What.DID, step)))

    def _about(self, what: What, step: str) -> Iterator[DemoEntry]:
        return (entry for entry in self.entries if entry.what is what and entry.step == step)


def note(file: Path, what: What, step: str, effect_id: str) -> None:
    """Add a line. It is one small write at the end of the file, so several processes may do it."""
    with file.open("ab", buffering=0) as lines:
        lines.write(f"{os.getpid()} {what} {step} {effect_id}\n".encode())


def read(file: Path) -> DemoLedger:
    """Read the ledger; it is empty as long as there is no file."""
    if not file.exists():
        return DemoLedger()
    lines = file.read_text(encoding="utf-8").splitlines()
    split = (line.split() for line in lines)
    return DemoLedger(tuple(DemoEntry(int(pid), What(what), step, effect_id) for pid, what, step, effect_id in split))
