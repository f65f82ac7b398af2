"""Bringing a SQLite file to the schema this version speaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from holdfast.model.canonical import parse
from holdfast.model.errors import SchemaMismatch
from holdfast.model.words import words_about
from holdfast.store.sqlfiles import Migration
from holdfast.store.sqlite.connection import APPLICATION_ID, MIGRATIONS
from holdfast.store.sqlite.place import begin_epochs

_HISTORY = """
CREATE TABLE IF NOT EXISTS migrations (
    version    INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    checksum   TEXT NOT NULL,
    applied_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
) STRICT
"""


def migrate(connection: apsw.Connection, path: str, steps: Sequence[Migration] = MIGRATIONS) -> None:
    """Apply what is missing, in one transaction; refuse a file that is newer or was edited."""
    if connection.readonly("main"):  # SQLite opens what it may not write all the same, and says so at the first write
        raise apsw.ReadOnlyError("attempt to write a readonly database")
    connection.create_scalar_function("holdfast_words", _words, 3, deterministic=True)
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(_HISTORY)
        applied = dict(connection.execute("SELECT version, checksum FROM migrations"))
        _check_history(path, steps, applied)
        for step in steps:
            if step.version not in applied:
                connection.execute(step.sql)
                connection.execute(
                    "INSERT INTO migrations (version, name, checksum) VALUES (?, ?, ?)",
                    (step.version, step.name, step.checksum),
                )
        if connection.pragma("application_id") != APPLICATION_ID:  # or a file that is up to date would be changed
            connection.pragma("application_id", APPLICATION_ID)
        begin_epochs(connection)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _words(*row: Any) -> str:  # noqa: ANN401 - as apsw calls it
    entity, attribute, value = row
    return " ".join(words_about(entity, attribute, parse(value)))


def _check_history(path: str, steps: Sequence[Migration], applied: dict[int, str]) -> None:
    known = {step.version: step for step in steps}
    newest = max(applied, default=0)
    if newest > max(known):
        raise SchemaMismatch(
            f"{path} has schema {newest}, this version of Holdfast knows up to {max(known)}; upgrade Holdfast"
        )
    for version, checksum in applied.items():
        if known[version].checksum != checksum:
            raise SchemaMismatch(
                f"migration {version} of {path} was applied in another form than this version of Holdfast ships; "
                "use the version that made the file, or restore a backup"
            )
