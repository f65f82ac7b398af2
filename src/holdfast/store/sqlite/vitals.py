"""How a store in SQLite is doing: its size, its settings, and whether it is damaged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import apsw

from holdfast.model.queries import Vitals
from holdfast.store.sqlite.transaction import QUERIES

_SYNCHRONOUS: Final = ("off", "normal", "full", "extra")
"""By the number under which SQLite knows them."""


def look(connection: apsw.Connection, backend: str, *, file: Path | None, thorough: bool) -> Vitals:
    """Look at the tables and, where they are kept in one, at the file."""
    problems: list[str] = []
    rows: dict[str, int] = {}
    try:
        if thorough:
            found = [str(text) for (text,) in connection.execute(QUERIES["quick_check"])]
            problems += [text for text in found if text != "ok"]
        rows = dict(connection.execute(QUERIES["count_rows"]))
    except apsw.CorruptError as error:  # what is asked here is whether it is
        problems.append(str(error))
    return Vitals(
        backend=backend,
        version=apsw.sqlite_lib_version(),
        schema=connection.execute(QUERIES["schema_version"]).get,
        bytes=0 if file is None else _size(file) + _size(_wal(file)),
        rows=rows,
        exact_rows=True,
        settings={} if file is None else _settings(connection, file),
        problems=tuple(problems),
    )


def _settings(connection: apsw.Connection, file: Path) -> Mapping[str, str]:
    return {
        "journal_mode": str(connection.pragma("journal_mode")),
        "synchronous": _SYNCHRONOUS[connection.pragma("synchronous")],
        "wal_bytes": str(_size(_wal(file))),
    }


def _wal(file: Path) -> Path:
    file = file.resolve()
    return file.with_name(f"{file.name}-wal")


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # gone, or in a folder that may not be looked at any more
        return 0
