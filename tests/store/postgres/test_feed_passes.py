"""The feed of PostgreSQL, whose writers overlap: nothing is skipped, whatever the order in which transactions end."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import defaultdict
from datetime import timedelta

import psycopg
import pytest

from holdfast import CursorLost
from holdfast.model.feed import OLDEST, FeedRetention, read_cursor
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.sql import QUERIES
from holdfast.store.sqlfiles import migrations

APPEND = "SELECT holdfast.append_feed('progress', %s, 1, clock_timestamp(), %s, 'writer')"


def append(connection: psycopg.Connection, task: str, number: int) -> None:
    connection.execute(APPEND, (task, str(number)))


async def read_on(store: PostgresStore, cursor: str, *, limit: int = 100) -> tuple[list[tuple[str, int]], str]:
    """Return what is behind a cursor now, as tasks and numbers, and the cursor behind it."""
    got = []
    while (page := await store.read_feed(cursor, limit=limit)).events:
        got += [(event.task_id or "", event.data["number"]) for event in page.events]
        cursor = page.cursor
    return got, cursor


async def test_an_open_transaction_delays_its_own_events_and_no_others(url: str) -> None:
    async with PostgresStore(url) as store:
        cursor = (await store.read_feed()).cursor
        with psycopg.connect(url) as late, psycopg.connect(url, autocommit=True) as early:
            append(late, "late", 1)
            append(early, "early", 1)
            append(late, "late", 2)
            first, cursor = await read_on(store, cursor)
            assert first == [("early", 1)]
            append(early, "early", 2)
            second, cursor = await read_on(store, cursor)
            assert second == [("early", 2)]
            late.commit()
            append(early, "early", 3)
            third, cursor = await read_on(store, cursor)
        assert third == [("late", 1), ("late", 2), ("early", 3)]
        assert (await read_on(store, (await store.read_feed(OLDEST)).cursor))[0] == first + second + third
        assert await read_on(store, cursor) == ([], cursor)


async def test_a_transaction_of_another_database_delays_nothing(url: str) -> None:
    """It is in every snapshot of the server, and holds back a horizon that is made of the oldest of them."""
    async with PostgresStore(url) as store:
        with psycopg.connect(url, autocommit=True) as early, psycopg.connect(url) as other:
            other.execute("CREATE TABLE public.elsewhere (i int)")  # it has a number from now on
            cursor = (await store.read_feed()).cursor
            append(early, "early", 1)
            assert (await read_on(store, cursor))[0] == [("early", 1)]
            other.rollback()


async def test_what_is_rolled_back_is_never_in_the_feed(url: str) -> None:
    """Neither a transaction, nor what comes behind a savepoint of one."""
    async with PostgresStore(url) as store:
        cursor = (await store.read_feed()).cursor
        with psycopg.connect(url) as writer:
            append(writer, "gone", 1)
            assert await read_on(store, cursor) == ([], cursor)
            writer.rollback()
            append(writer, "half", 1)
            writer.execute("SAVEPOINT s")
            append(writer, "half", 2)
            writer.execute("ROLLBACK TO s")
            append(writer, "half", 3)
            writer.commit()
        assert (await read_on(store, cursor))[0] == [("half", 1), ("half", 3)]


async def test_every_reader_gets_everything_once_and_in_order(url: str, seeds: list[int]) -> None:
    """Writers overlap, commit late and roll back. Readers stop and go on."""
    for seed in seeds:
        async with PostgresStore(url) as store:
            begin = (await store.read_feed()).cursor
        written: dict[str, list[int]] = {}
        done = threading.Event()
        threads = [threading.Thread(target=_write, args=(url, seed, place, written)) for place in range(8)]
        readers = [asyncio.create_task(_read(url, seed, place, begin, done)) for place in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        done.set()
        first, *others = await asyncio.gather(*readers)
        by_task = defaultdict(list)
        for task, number in first:
            by_task[task].append(number)
        assert by_task == written
        assert all(other == first for other in others)
        async with PostgresStore(url) as store:
            assert (await read_on(store, begin))[0] == first


def _write(url: str, seed: int, place: int, written: dict[str, list[int]]) -> None:
    """Append in transactions of random length; note what was committed."""
    chance, task, number = random.Random(f"{seed} {place}"), f"task {seed} {place}", 0
    kept: list[int] = []
    with psycopg.connect(url) as connection:
        for _ in range(60):
            begun = number
            for _ in range(chance.randint(1, 3)):
                number += 1
                append(connection, task, number)
            if chance.random() < 0.2:
                connection.execute("SELECT pg_sleep(%s)", (chance.random() * 0.1,))
            if chance.random() < 0.1:
                connection.rollback()
            else:
                connection.commit()
                kept += range(begun + 1, number + 1)
    written[task] = kept


async def _read(url: str, seed: int, place: int, cursor: str, done: threading.Event) -> list[tuple[str, int]]:
    """Read pages of random size, with a new store now and then, until nothing comes any more."""
    chance = random.Random(f"{seed} reader {place}")
    got: list[tuple[str, int]] = []
    while True:
        async with PostgresStore(url, pool_size=1) as store:
            for _ in range(chance.randint(1, 20)):
                was_done = done.is_set()
                page = await store.read_feed(cursor, limit=chance.randint(1, 50))
                got += [(event.task_id or "", event.data["number"]) for event in page.events]
                cursor = page.cursor
                if was_done and not page.events:
                    return got


async def test_a_server_that_lost_a_pass_says_so(url: str) -> None:
    """As after a fail-over to a standby that was behind: the number is given out again, but not the mark."""
    async with PostgresStore(url) as store:
        with psycopg.connect(url, autocommit=True) as connection:
            append(connection, "task", 1)
            _, cursor = await read_on(store, (await store.read_feed(OLDEST)).cursor)
            append(connection, "task", 2)
            _, newest = await read_on(store, cursor)
            connection.execute(
                "DELETE FROM holdfast.feed_passes WHERE number = (SELECT max(number) FROM holdfast.feed_passes)"
            )
            with pytest.raises(CursorLost, match="server took over"):
                await store.read_feed(newest)
            assert (await read_on(store, cursor))[0] == [("task", 2)]  # which makes a pass of that number
            with pytest.raises(CursorLost, match="server took over"):
                await store.read_feed(newest)


async def test_a_feed_that_was_restored_from_a_dump_starts_again(url: str) -> None:
    """The numbers of transactions say nothing on another server: its own may be below them."""
    async with PostgresStore(url) as store:
        with psycopg.connect(url, autocommit=True) as connection:
            append(connection, "task", 1)
            _, cursor = await read_on(store, (await store.read_feed(OLDEST)).cursor)
            connection.execute("UPDATE holdfast.feed SET xid = '900000000000'")
            connection.execute("UPDATE holdfast.feed_passes SET ended_below = '900000000001' WHERE number > 0")
            now = (await store.read_feed()).cursor
            append(connection, "task", 2)
            assert (await read_on(store, now))[0] == [("task", 2)]
            assert (await read_on(store, (await store.read_feed(OLDEST)).cursor))[0] == [("task", 2)]
            with pytest.raises(CursorLost):
                await store.read_feed(cursor)


async def test_a_reader_beside_retention_misses_nothing_unnoticed(url: str) -> None:
    """It gets everything in order, or an error."""
    async with PostgresStore(url) as store:
        await store.set_feed_retention(FeedRetention(age=timedelta(days=1), rows=20))
        with psycopg.connect(url, autocommit=True) as connection:
            cursor, last, gaps = (await store.read_feed()).cursor, 0, 0
            for number in range(1, 301):
                append(connection, "task", number)
                if number % 7 == 0:
                    connection.execute("UPDATE holdfast.feed_settings SET prunes_at = '-infinity'")
                    connection.execute("SELECT holdfast.prune_feed(1000)")
                if number % (3 if number < 150 else 60) == 0:
                    try:
                        got, cursor = await read_on(store, cursor)
                    except CursorLost:
                        gaps += 1
                        got, cursor = await read_on(store, (await store.read_feed(OLDEST)).cursor)
                        assert got[0][1] > last + 1  # there was something to say
                        last = got[0][1] - 1
                    assert [n for _, n in got] == list(range(last + 1, number + 1))
                    last = number
            assert gaps
            [(kept,)] = connection.execute("SELECT count(*) FROM holdfast.feed").fetchall()
            assert kept <= 20 + 7


def test_every_statement_that_writes_steps_writes_the_feed() -> None:
    """The three of them append to it by themselves, because they are the hot path; so this is looked at."""
    newest: dict[str, str] = dict(QUERIES)
    for migration in migrations("holdfast.store.postgres.migrations"):
        for text in migration.sql.split("FUNCTION {schema}.")[1:]:
            newest[text.partition("(")[0]] = text
    writers = {
        name for name, text in newest.items() if "INTO {schema}.steps" in text or "UPDATE {schema}.steps" in text
    }
    assert writers == {"write_step", "commit_plain", "write_journal", "reopen_child"}
    assert all("INTO {schema}.feed" in newest[name] for name in writers)


async def test_a_page_costs_the_same_however_much_is_kept(url: str) -> None:
    """Counted in pages of the database, for a page within a long pass, and for a look that finds nothing."""
    fill = """INSERT INTO holdfast.feed (at, entries)
        SELECT now(), json_build_array(json_build_array('progress', 't', 1, g::text, 'writer'))
        FROM generate_series(1, 20000) AS g"""
    explain = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM holdfast.read_feed({}, '{}', {}, 100)"

    def pages(connection: psycopg.Connection, cursor: str) -> int:
        place = read_cursor(cursor)
        sql = explain.format(place.number, place.mark, place.row)
        [([answer],)] = connection.execute(sql.encode()).fetchall()
        return int(answer["Plan"]["Shared Hit Blocks"]) + int(answer["Plan"]["Shared Read Blocks"])

    async with PostgresStore(url) as store:
        with psycopg.connect(url, autocommit=True) as connection, psycopg.connect(url) as late:
            connection.execute("SET plan_cache_mode = force_generic_plan")
            append(late, "late", 1)  # open all the time, as in every database that is in use
            begin = (await store.read_feed()).cursor
            for _ in range(3):
                connection.execute(fill)
            middle = (await store.read_feed(begin, limit=10_000)).cursor
            end = (await store.read_feed()).cursor
            assert pages(connection, middle) < 1000
            assert pages(connection, end) < 1000
