"""A copied empty database is what the migrations make."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import apsw

from holdfast.store.sqlite.connection import APPLICATION_ID, connect
from holdfast.store.sqlite.empty import copy_empty
from holdfast.store.sqlite.migration import migrate


def read(make: Callable[[apsw.Connection, str], None]) -> tuple[list[Any], int]:
    """Return what stands in a new database, and its epoch."""
    with closing(connect(":memory:", durable=False)) as connection:
        make(connection, "a store")
        rows = list(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name"))
        rows += connection.execute("SELECT version, name, checksum FROM migrations ORDER BY version")
        for (table,) in list(connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")):
            rows.append((table, connection.execute(f"SELECT count(*) FROM {table}").get))
        assert connection.pragma("application_id") == APPLICATION_ID
        assert connection.pragma("foreign_keys") == 1
        return rows, int(connection.pragma("user_version"))


def test_it_is_the_same_in_an_epoch_of_its_own() -> None:
    migrated, _ = read(migrate)
    first, epoch = read(copy_empty)
    second, another = read(copy_empty)
    assert first == second == migrated
    assert len({0, epoch, another}) == 3
