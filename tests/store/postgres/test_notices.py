"""Hints between processes, and behind a pooler."""

import asyncio

import pytest

from holdfast.model.task import NewTask
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim, NewWorker
from holdfast.store.base import ANYTHING, Listener
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.notices import LONGEST_PAYLOAD, _payload
from tests.conftest import PgBouncerFactory
from tests.postgres_server import PostgresServer
from tests.store.postgres.support import COMPLETE, PATIENCE, claimed, execute, held, step


async def heard(listener: Listener, topic: str) -> bool:
    """Listen until the topic comes."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if topic in await listener.wait(PATIENCE):
                return True


async def test_another_process_hears_what_became_claimable(url: str, store: PostgresStore) -> None:
    async with PostgresStore(url) as other, other.listen() as listener:
        await heard(listener, ANYTHING)  # the connection was made
        await store.submit([NewTask(name="job", id="a", queue="mail")])
        assert await heard(listener, "queue:mail")


async def test_our_own_hints_do_not_come_twice(store: PostgresStore) -> None:
    async with store.listen() as listener:
        await heard(listener, ANYTHING)  # the connection was made
        await store.emit("news", 1)
        assert await listener.wait(PATIENCE) == {"channel:news"}
        assert await listener.wait(0.2) == frozenset()


async def test_a_listener_that_lost_its_connection_has_to_look(url: str, store: PostgresStore) -> None:
    """What was hinted at while it was away is not known."""
    async with PostgresStore(url) as other, other.listen() as listener:
        await heard(listener, ANYTHING)
        execute(url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
        assert await heard(listener, ANYTHING)
        await store.emit("news", 1)
        assert await heard(listener, "channel:news")


def test_too_many_topics_are_anything() -> None:
    few, many = {"task:1", "task:2"}, {f"task:{n:036}" for n in range(1000)}
    assert "task:1" in _payload("me", few)
    assert ANYTHING in _payload("me", many)
    assert len(_payload("me", many)) < LONGEST_PAYLOAD


@pytest.mark.parametrize("pool_size", [1, 4])
async def test_behind_a_pooler_in_transaction_mode(
    server: PostgresServer, url: str, pgbouncer: PgBouncerFactory, pool_size: int
) -> None:
    """Nothing but LISTEN needs a session of its own, and that has a URL of its own."""
    pooled = pgbouncer(server, pool_size=pool_size).pooled(url)
    async with (
        PostgresStore(pooled, prepare=False, listen_url=url) as one,
        PostgresStore(pooled, prepare=False, listen_url=url) as two,
        two.listen() as listener,
    ):
        await heard(listener, ANYTHING)  # its connection was made
        claims = await claimed(one, "a", "b")
        assert await heard(listener, "task:a")
        await asyncio.gather(*(one.commit([held(claim, 1, step())]) for claim in claims))
        verdicts = await two.commit([held(claim, 2, step("last"), COMPLETE) for claim in claims])
        assert [verdict.state for verdict in verdicts] == [TaskState.COMPLETED] * 2
        assert len((await two.load("a")).steps) == 2
        await one.register(NewWorker(id="w"))
        assert await one.claim(Claim(worker_id="w", number=1, limit=1, names=("job",))) == []
        await two.sweep()
