"""Records: what really happened, in a file that outlives the workers, by the intent of the program.

A label says whose intent it is: the task, the place in the program, the turn of the loop. Holdfast's own ids are noted
beside it and never count. A line is one ``write`` to a file opened for appending, so that SIGKILL leaves all of it or
nothing; the machine itself does not crash in these tests, so nothing is flushed to the disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

Line = dict[str, Any]


class Records:
    """One file. Any number of processes and threads write to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._lock = threading.Lock()
        self._read = 0
        self._lines: list[Line] = []
        self._counts: Counter[tuple[str, str]] = Counter()

    def write(self, what: str, label: str, **details: object) -> None:
        """Note one thing, durably as far as processes are concerned."""
        os.write(self._file, json.dumps({"what": what, "label": label, **details}).encode() + b"\n")

    def lines(self) -> list[Line]:
        """Everything so far, in the order in which it happened."""
        with self._lock:
            self._catch_up()
            return self._lines.copy()

    def count(self, what: str, label: str) -> int:
        """How often this was noted, by any process."""
        with self._lock:
            self._catch_up()
            return self._counts[what, label]

    def size(self) -> int:
        """How many lines there are."""
        with self._lock:
            self._catch_up()
            return len(self._lines)

    def close(self) -> None:
        os.close(self._file)

    def _catch_up(self) -> None:
        new = os.pread(self._file, os.fstat(self._file).st_size - self._read, self._read)
        new = new[: new.rfind(b"\n") + 1]
        self._read += len(new)
        for text in new.splitlines():
            line = json.loads(text)
            self._lines.append(line)
            self._counts[line["what"], line["label"]] += 1


def checksum(value: object) -> str:
    """Return a short text that stands for a value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:12]
