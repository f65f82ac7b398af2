"""Behind a pooler in transaction mode that keeps no prepared statements: by default, and where it is misjudged."""

import asyncio
import logging
from collections.abc import Iterator
from urllib.parse import quote

import psycopg
import pytest

from holdfast.cli.store_session import opened
from holdfast.engine.api.holdfast import Holdfast
from holdfast.model.errors import InvalidURL
from holdfast.model.task import NewTask
from holdfast.redaction import without_password
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.connections import Connections, fetch_on
from holdfast.store.transaction import StoreTransaction
from holdfast.store.url import split_options
from tests.conftest import PgBouncerFactory
from tests.pgbouncer import PgBouncer
from tests.postgres_server import PostgresServer
from tests.store.postgres.support import execute

PREPARED = "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE '_pg3_%'"
NAME = "SELECT current_setting('application_name')"


@pytest.fixture(scope="module")
def pooler(postgres18: PostgresServer, pgbouncer: PgBouncerFactory) -> PgBouncer:
    return pgbouncer(postgres18, pool_size=2)


@pytest.fixture
def url(postgres18: PostgresServer) -> Iterator[str]:
    url = postgres18.create_database()
    yield url
    postgres18.drop_database(url)


async def use(*stores: PostgresStore) -> None:
    """Have all of them send different statements at the same time, each of them many times."""

    async def submit(store: PostgresStore, label: str) -> None:
        for number in range(30):
            await store.submit([NewTask(name="job", key=f"{label}-{number}")])

    async def emit(store: PostgresStore) -> None:
        for number in range(30):
            await store.emit("news", number)  # without a key: sent twice, it would be there twice

    async def read(store: PostgresStore) -> None:
        for _ in range(15):
            for ask in (store.summary, store.count, store.workers, store.queues):
                await ask()

    await asyncio.gather(
        *(submit(store, f"{place}{again}") for place, store in enumerate(stores) for again in "ab"),
        *(emit(store) for store in stores),
        *(read(store) for store in stores),
    )


def stored(url: str) -> tuple[int, int]:
    [found] = execute(url, "SELECT (SELECT count(*) FROM holdfast.tasks), (SELECT count(*) FROM holdfast.events)")
    return found


@pytest.mark.parametrize("prepare", [None, True])
async def test_statements_are_not_prepared_behind_a_pooler(
    url: str, pooler: PgBouncer, prepare: bool | None, caplog: pytest.LogCaptureFixture
) -> None:
    """By default the pooler is noticed. Where the user misjudged it, the first lost statement is sent again without."""
    pooled = pooler.pooled(url)
    with caplog.at_level(logging.WARNING):
        async with PostgresStore(pooled, prepare=prepare) as one, PostgresStore(pooled, prepare=prepare) as two:
            await use(one, two)
    assert stored(url) == (120, 60)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) in ({0} if prepare is None else {1, 2}), said  # once for a store
    assert all("does not keep prepared statements" in message for message in said)
    if prepare is None:
        with psycopg.connect(pooled, autocommit=True, prepare_threshold=None) as beside:
            assert beside.execute(PREPARED).fetchone() == (0,)


async def test_statements_are_prepared_where_the_server_itself_answers(url: str) -> None:
    async with PostgresStore(url) as store:
        await store.summary()
        [(count,)] = await store._backend.open_connections().fetch(PREPARED)
        assert count > 0


async def test_no_two_connections_give_a_statement_the_same_name(url: str) -> None:
    """Behind a pooler, the name of one client's statement would run another client's, with the wrong values."""
    names = set()
    for _ in range(2):
        connections = Connections(url, size=1, prepare=True, retry_for=0)
        [(name,)] = await connections.fetch("SELECT name FROM pg_prepared_statements LIMIT 1")
        names.add(name)
        await connections.close()
    assert len(names) == 2


async def test_a_statement_whose_result_a_migration_changed_is_prepared_again(url: str) -> None:
    connections = Connections(url, size=1, prepare=True, retry_for=0)
    execute(url, "CREATE TABLE changing (a integer)", "INSERT INTO changing VALUES (1)")
    assert await connections.fetch("SELECT * FROM changing") == [(1,)]
    execute(url, "ALTER TABLE changing ADD COLUMN b integer DEFAULT 2")
    assert await connections.fetch("SELECT * FROM changing", repeatable=False) == [(1, 2)]
    await connections.close()


async def test_commands_work_behind_it(url: str, pooler: PgBouncer) -> None:
    pooled = pooler.pooled(url)
    async with Holdfast(pooled):
        pass
    async with opened(f"{pooled}&prepare=true&listen_url={quote(url, safe='')}") as service:
        assert (await service.workers()).members == []


async def test_what_the_server_shows_of_our_connections(
    url: str, pooler: PgBouncer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def names(store: PostgresStore) -> list[str]:
        async def look(tx: StoreTransaction) -> tuple[str, None]:
            [(name,)] = await tx.execute(NAME)
            return name, None

        [(working,)] = await store._backend.open_connections().fetch(NAME)
        name, _ = await store.transact(look, timeout=60)
        async with await store._backend.connect_listener() as listener:
            [(listening,)] = await fetch_on(listener, NAME)
        return [working, name, listening]

    for where in (url, pooler.pooled(url)):
        async with PostgresStore(where) as store:
            assert await names(store) == ["holdfast", "holdfast (transactions)", "holdfast (listen)"]
        async with opened(where) as service:
            assert isinstance(service._hold.store, PostgresStore)
            assert (await names(service._hold.store))[0] == "holdfast command"
    async with PostgresStore(f"{pooler.pooled(url)}&application_name=mine") as store:
        assert await names(store) == ["mine"] * 3
    monkeypatch.setenv("PGAPPNAME", "theirs")
    async with PostgresStore(url) as store:
        assert await names(store) == ["theirs"] * 3


def test_options_in_the_url() -> None:
    plain = "postgresql://ann:secret@one:5432,two/agents"
    listen = "postgresql://ann:hidden@db/agents?sslmode=require"
    assert split_options(plain)[0] == plain
    for query, left, prepare, listen_url in (
        ("?prepare=false", "", False, None),
        ("?prepare=ON&sslmode=require", "?sslmode=require", True, None),
        ("?options=-c%20a%3Db&prepare=auto", "?options=-c%20a%3Db", None, None),
        (f"?a=1&listen_url={quote(listen, safe='')}&b=2", "?a=1&b=2", None, listen),
    ):
        address, written = split_options(plain + query)
        assert (address, written.prepare, written.listen_url) == (plain + left, prepare, listen_url)
        assert "secret" not in without_password(plain + query)
        assert "hidden" not in without_password(plain + query)
    for wrong in ("?prepare=perhaps", "?prepare=", "?listen_url=db.internal"):
        with pytest.raises(InvalidURL, match=r"prepare|listen_url"):
            PostgresStore(plain + wrong)
    # What the code says goes before what the URL says.
    assert PostgresStore(f"{plain}?prepare=true", prepare=False)._backend._prepare is False
