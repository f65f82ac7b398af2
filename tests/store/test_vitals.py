"""How each store without a server says that it is doing; see tests/store/postgres/test_vitals.py for the other."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from holdfast.model.task import NewTask
from holdfast.store.jsonfile import JsonStore
from holdfast.store.memory import MemoryStore
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.connection import MIGRATIONS

SCHEMA = MIGRATIONS[-1].version


@pytest.mark.parametrize(("durable", "synchronous"), [(True, "full"), (False, "normal")])
async def test_sqlite_tells_what_its_durability_rests_on(tmp_path: Path, *, durable: bool, synchronous: str) -> None:
    file, wal = tmp_path / "agents.db", tmp_path / "agents.db-wal"
    async with SqliteStore(file, durable=durable) as store:
        await store.submit([NewTask(name="job")])
        vitals = await store.vitals()
        sizes = file.stat().st_size, wal.stat().st_size
    assert (vitals.backend, vitals.version, vitals.schema) == ("SQLite", apsw.sqlite_lib_version(), SCHEMA)
    assert vitals.settings == {"journal_mode": "wal", "synchronous": synchronous, "wal_bytes": str(sizes[1])}
    assert sizes[1] > 0
    assert vitals.bytes == sum(sizes)
    assert vitals.oldest_snapshot_seconds is None


async def test_a_file_that_was_moved_away_has_no_size(tmp_path: Path) -> None:
    """What is open still answers."""
    async with SqliteStore(tmp_path / "agents.db") as store:
        await store.submit([NewTask(name="job")])
        for file in tmp_path.glob("agents.db*"):
            file.rename(file.with_name(f"moved {file.name}"))
        vitals = await store.vitals()
    assert (vitals.bytes, vitals.rows["tasks"]) == (0, 1)


async def with_damage(file: Path, place: str) -> Path:
    """Make a store, and overwrite the first page of this table or index."""
    async with SqliteStore(file) as store:
        await store.submit([NewTask(name="job") for _ in range(10)])
    connection = apsw.Connection(str(file))
    page = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (place,)).get
    size = connection.pragma("page_size")
    connection.close()
    with file.open("r+b") as opened:
        opened.seek((page - 1) * size)
        opened.write(b"\xff" * size)
    return file


async def test_damage_is_found_by_who_looks_for_it(tmp_path: Path) -> None:
    """In a page that no other question touches."""
    async with SqliteStore(await with_damage(tmp_path / "agents.db", "tasks_timers")) as store:
        assert (await store.vitals()).problems == ()
        vitals = await store.vitals(thorough=True)
    [problem] = vitals.problems
    assert problem
    assert vitals.rows["tasks"] == 10


async def test_a_file_that_cannot_be_counted_is_a_problem_and_no_error(tmp_path: Path) -> None:
    """A question about a store's health needs an answer."""
    async with SqliteStore(await with_damage(tmp_path / "agents.db", "steps")) as store:
        vitals = await store.vitals()
    [problem] = vitals.problems
    assert "malformed" in problem
    assert vitals.rows == {}


async def test_memory_takes_no_room_and_has_nothing_to_set() -> None:
    async with MemoryStore() as store:
        vitals = await store.vitals(thorough=True)
    assert (vitals.backend, vitals.bytes, vitals.schema) == ("memory", 0, SCHEMA)
    assert vitals.settings == {}


async def test_json_is_as_large_as_its_files(tmp_path: Path) -> None:
    async with JsonStore(tmp_path / "store") as store:
        await store.submit([NewTask(name="job", user_input="x" * 5000)])
        vitals = await store.vitals()
        size = sum(file.stat().st_size for file in (tmp_path / "store").rglob("*") if file.is_file())
    assert (vitals.backend, vitals.bytes, vitals.schema) == ("JSON files", size, SCHEMA)
    assert size > 5000
    assert vitals.settings == {}
