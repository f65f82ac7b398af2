"""/healthz and /readyz: what they say about a store that is away, busy, or of another version."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import psycopg
import pytest

from holdfast import Holdfast
from holdfast.model.errors import StoreDamaged, StoreUnavailable
from holdfast.model.task import Task
from holdfast.service.service import Service
from holdfast.web import health
from holdfast.web.health import FRESH, Readiness
from tests.postgres_server import PostgresServer

NOT_OURS = "the schema of the store is not the one this version of Holdfast speaks"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is well may take longer than a probe would wait, where many tests share the machine."""
    monkeypatch.setattr(health, "PATIENCE", 60.0)


class Clock:
    """Moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_a_store_that_answers_is_ready(tmp_path: Path) -> None:
    for url in (f"sqlite:///{tmp_path}/hold.db", f"json:///{tmp_path}/folder"):
        async with Holdfast(url) as hold:
            assert await Readiness(Service(hold)).trouble() is None


async def test_a_newer_schema_beneath_an_open_file_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "hold.db"
    async with Holdfast(f"sqlite:///{file}") as hold:
        clock = Clock()
        readiness = Readiness(Service(hold), clock=clock)
        assert await readiness.trouble() is None
        connection = apsw.Connection(str(file))
        connection.execute("INSERT INTO migrations (version, name, checksum) VALUES (9999, 'later', 'x')")
        connection.close()
        clock.now += FRESH
        assert await readiness.trouble() == NOT_OURS


async def test_a_newer_schema_of_a_database_is_noticed(postgres18: PostgresServer) -> None:
    url = postgres18.create_database()
    async with Holdfast(url) as hold:
        clock = Clock()
        readiness = Readiness(Service(hold), clock=clock)
        assert await readiness.trouble() is None
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await connection.execute("INSERT INTO holdfast.migrations VALUES (9999, 'later', 'x', now())")
        clock.now += FRESH
        assert await readiness.trouble() == NOT_OURS


async def test_a_store_in_a_schema_of_its_own_is_ready(postgres18: PostgresServer) -> None:
    async with Holdfast(postgres18.create_database(), schema="agents") as hold:
        assert await Readiness(Service(hold)).trouble() is None


async def test_a_file_that_is_gone_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "hold.db"
    async with Holdfast(f"sqlite:///{file}") as hold:
        file.rename(tmp_path / "elsewhere.db")
        assert await Readiness(Service(hold)).trouble() == "the store cannot be used"
        assert not file.exists()


async def test_trouble_is_logged_once_and_so_is_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with Holdfast("memory://") as hold:
        away, damaged = StoreUnavailable("database agents on db.internal is away"), StoreDamaged("page 7 of agents.db")
        errors = iter([away, away, damaged, None, None])

        async def get(task_id: str) -> Task | None:
            del task_id
            if (error := next(errors)) is not None:
                raise error
            return None

        monkeypatch.setattr(hold.store, "get", get)
        clock = Clock()
        readiness = Readiness(Service(hold), clock=clock)
        said = []
        for _ in range(5):
            said.append(await readiness.trouble())
            clock.now += FRESH
    assert said == ["the store does not answer"] * 2 + ["the store cannot be used", None, None]
    assert [record.getMessage() for record in caplog.records if record.name == health.__name__] == [
        "not ready: database agents on db.internal is away",
        "not ready: page 7 of agents.db",
        "the store is ready again",
    ]


async def test_a_store_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Holdfast("memory://") as hold:

        async def get(task_id: str) -> Task | None:
            del task_id
            await asyncio.Event().wait()
            return None

        monkeypatch.setattr(hold.store, "get", get)
        monkeypatch.setattr(health, "PATIENCE", 0.01)
        async with asyncio.timeout(60):
            assert await Readiness(Service(hold)).trouble() == "the store does not answer"


async def test_however_many_ask_the_store_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Holdfast("memory://") as hold:
        asked = 0

        async def get(task_id: str) -> Task | None:
            nonlocal asked
            del task_id
            asked += 1
            await asyncio.sleep(0)
            return None

        monkeypatch.setattr(hold.store, "get", get)
        clock = Clock()
        readiness = Readiness(Service(hold), clock=clock)
        await asyncio.gather(*(readiness.trouble() for _ in range(20)))
        clock.now += FRESH * 0.9
        await readiness.trouble()
        assert asked == 1
        clock.now += FRESH * 0.2
        await readiness.trouble()
        assert asked == 2
