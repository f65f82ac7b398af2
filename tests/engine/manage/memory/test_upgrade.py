"""Facts that an earlier version stored, and split in another way, are found as new ones are."""

from __future__ import annotations

import json
from itertools import takewhile
from pathlib import Path

import pytest

from holdfast.model.records import MemoryFact
from holdfast.store.base import StateStore
from holdfast.store.jsonfile import JsonStore
from holdfast.store.postgres import PostgresStore
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.connection import MIGRATIONS, connect
from holdfast.store.sqlite.migration import migrate
from tests.postgres_server import PostgresServer
from tests.store.postgres.support import execute

FACT = MemoryFact(id="fact", entity="disk", attribute="note", value="数据库磁盘已满 \U0001f389")


async def is_found(store: StateStore) -> bool:
    return all([[each.id for each in await store.search(text)] == ["fact"] for text in ("磁盘", "\U0001f389", "note")])


async def test_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store:
        await store.remember(FACT)
    file = connect(str(path), durable=True)
    file.execute("UPDATE facts SET words = 'disk note'; DELETE FROM migrations WHERE name = 'memory_words'")
    file.close()
    async with SqliteStore(path) as store:
        assert await is_found(store)


async def test_in_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = tuple(takewhile(lambda step: step.name != "memory_words", MIGRATIONS))
    with monkeypatch.context() as before:
        before.setattr("holdfast.store.jsonfile.store.MIGRATIONS", earlier)
        before.setattr("holdfast.store.jsonfile.store.SCHEMA", earlier[-1].version)
        before.setattr("holdfast.store.jsonfile.store.copy_empty", migrate)  # the copy is of the newest schema
        before.setattr("holdfast.store.jsonfile.store._FEED_INDEX", "")  # there was no feed
        before.setattr("holdfast.store.sqlite.migration.migrate.__defaults__", (earlier,))
        async with JsonStore(tmp_path) as store:
            await store.remember(FACT)
    [document] = (tmp_path / "memory").glob("*.json")
    tables = json.loads(document.read_text())
    tables["facts"][0]["words"] = "disk note"
    document.write_text(json.dumps(tables))
    async with JsonStore(tmp_path) as store:
        assert await is_found(store)


async def test_in_postgresql(postgres18: PostgresServer) -> None:
    url = postgres18.create_database()
    async with PostgresStore(url) as store:
        await store.remember(FACT)
    execute(url, "UPDATE holdfast.facts SET words = array_to_tsvector(ARRAY['disk', 'note'])")
    execute(url, "DELETE FROM holdfast.migrations WHERE name = 'memory_words'")
    async with PostgresStore(url, migrate=True) as store:
        assert await is_found(store)
