"""SQLite: each verb of the flow of work takes a few instructions of its machine, however many rows there are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast import ManualClock
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.contract._support import row
from tests.store.plans.calls import NOW, Big
from tests.store.plans.filling import fill_sqlite

MOST_INSTRUCTIONS = 30_000
"""Of one verb: one pass over the rows of the small store would take more."""
MOST_SCANNED = 1_000
"""Steps of a scan from end to end: of lists that come with a question, and of tables that stay small."""


class Counted:
    """What SQLite did for one verb."""

    def __init__(self) -> None:
        self.instructions = self.scanned = 0
        self.statements: list[str] = []

    def note(self, event: dict[str, Any]) -> None:
        status = event["stmt_status"]
        self.instructions += status["SQLITE_STMTSTATUS_VM_STEP"]
        self.scanned += status["SQLITE_STMTSTATUS_FULLSCAN_STEP"]
        self.statements.append(f"{status['SQLITE_STMTSTATUS_VM_STEP']} {event['sql']}")


@contextmanager
def counting(store: SqliteStore) -> Iterator[Counted]:
    counted = Counted()
    backend = store._backend
    assert backend.writer is not None
    assert backend.reader is not None
    assert backend.slow_reader is not None
    readers = [reader.connection for reader in (backend.reader, backend.slow_reader)]
    connections: list[apsw.Connection] = [backend.writer._connection, *readers]
    for connection in connections:
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, counted.note)
    try:
        yield counted
    finally:
        for connection in connections:
            connection.trace_v2(0, None)


@pytest.mark.parametrize("rows", [20_000, pytest.param(1_000_000, marks=pytest.mark.full)])
async def test_no_verb_goes_through_all_rows(rows: int, tmp_path: Path) -> None:
    big, path = Big(rows), f"{tmp_path}/hold.db"
    fill_sqlite(path, big)
    async with SqliteStore(path, clock=ManualClock(NOW)) as store:
        for name, call in big.calls().items():
            with row(name), counting(store) as counted:
                await call(store)
            with row(name, *counted.statements):
                assert 0 < counted.instructions < MOST_INSTRUCTIONS
                assert counted.scanned < MOST_SCANNED
