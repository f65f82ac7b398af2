"""Lost connections, lost answers, values the database refuses, servers that are not there."""

import asyncio
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from holdfast.model.commit import Refusal
from holdfast.model.errors import InvalidURL, InvalidValue, StoreClosed, StoreUnavailable
from holdfast.model.operations import ApplyPatch, Settle
from holdfast.model.task import NewTask
from holdfast.store.postgres import PostgresStore
from tests.postgres_server import PostgresServer
from tests.store.postgres.support import COMPLETE, PATIENCE, begin, claimed, execute, held, is_blocked, paused, step

# Each passes the door; together they are more than the database can count.
POISON = (Settle(account="a", step_key="s", amounts={"tokens": 2**53 - 1}),) * 1100
"""Applied twice, it is more than the column can hold."""


def kill_others(url: str) -> None:
    execute(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )


async def test_a_commit_whose_connection_is_killed_is_sent_again(url: str, store: PostgresStore) -> None:
    """Killed while it waits for a lock: not applied then, applied once in the end."""
    one, two = await claimed(store, "a", "b")
    async with paused(url) as holder:
        await holder.commit([held(one, 1, step("first"))])
        waiting = begin(store.commit([held(one, 2, step("second")), held(two, 1, step())]))
        assert await is_blocked(url, waiting)
        execute(url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        await holder.finish()
    assert [verdict.applied for verdict in await waiting] == [True, True]
    assert {one.key for one in await store.steps("a")} == {"first", "second"}


async def test_an_answer_that_is_lost_is_asked_for_again(store: PostgresStore) -> None:
    """The first send was applied and its answer lost: the second gets that answer, and nothing is applied twice."""
    patched, stepped, completed = await claimed(store, "a", "b", "c")
    connections = store._backend.open_connections()
    fetch = connections._fetch_once
    lost = 0

    async def lose_the_first_answer(query, values):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202
        nonlocal lost
        answer = await fetch(query, values)
        if not lost:
            lost += 1
            raise psycopg.OperationalError("the connection is lost")
        return answer

    connections._fetch_once = lose_the_first_answer  # type: ignore[method-assign]
    [verdict] = await store.commit([held(patched, 1, ApplyPatch(body=b"{}", author="test"), step())])
    assert (lost, verdict.applied, verdict.duplicate, verdict.version) == (1, True, True, 1)

    lost = 0
    verdicts = await store.commit([held(stepped, 1, step()), held(completed, 1, COMPLETE)])
    assert [(lost, verdict.applied, verdict.duplicate, verdict.sequence) for verdict in verdicts] == [
        (1, True, True, 1)
    ] * 2
    assert [move.to_state for move in await store.history("c")] == ["pending", "running", "completed"]

    lost = 0
    [submitted] = await store.submit([NewTask(id="d", name="job", key="k")])
    assert (lost, submitted.task_id, submitted.conflict) == (1, "d", False)

    lost = 0
    with pytest.raises(StoreUnavailable):  # without a key it is unknown whether it is there
        await store.emit("news", 1)
    lost = 0
    assert (await store.emit("news", 2, key="k")).number == 2


async def test_idle_connections_that_died_are_replaced(url: str, store: PostgresStore) -> None:
    await asyncio.gather(*(store.now() for _ in range(4)))
    kill_others(url)
    await asyncio.gather(*(store.now() for _ in range(8)))


@pytest.mark.parametrize("position", [0, 1, 4])
async def test_a_poisoned_commit_is_refused_alone(store: PostgresStore, position: int) -> None:
    """The database refuses one of five: four are applied, one is answered."""
    claims = await claimed(store, *"abcde")
    commits = [held(claim, 1, step()) for claim in claims]
    commits[position] = held(claims[position], 1, step(), *POISON)
    verdicts = await store.commit(commits)
    expected: list[Refusal | None] = [None] * 5
    expected[position] = Refusal.CONFLICT
    assert [verdict.refusal for verdict in verdicts] == expected
    assert "out of range" in verdicts[position].detail
    for number, claim in enumerate(claims):
        assert bool(await store.steps(claim.task.id)) == (number != position)
    assert await store.accounts("a") == []


async def test_a_lone_poisoned_commit_is_refused_too(store: PostgresStore) -> None:
    [claim] = await claimed(store, "a")
    [verdict] = await store.commit([held(claim, 1, *POISON)])
    assert verdict.refusal is Refusal.CONFLICT
    assert "out of range" in verdict.detail


async def test_no_server(tmp_path: Path) -> None:
    url = f"postgresql://someone:hush-hush@/nowhere?host={tmp_path}"
    with pytest.raises(StoreUnavailable, match="nowhere") as caught:
        await PostgresStore(url).open()
    assert "hush-hush" not in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_wrong_password(postgres15: PostgresServer) -> None:
    url = postgres15.url().replace(postgres15.password or "", "hush-hush")
    with pytest.raises(StoreUnavailable, match="password") as caught:
        await PostgresStore(url).open()
    assert "hush-hush" not in str(caught.value)


def test_settings_that_make_no_sense() -> None:
    with pytest.raises(InvalidURL):
        PostgresStore("postgresql://[half/open")
    with pytest.raises(InvalidValue, match="schema"):
        PostgresStore("postgresql://host/db", schema='x"; DROP')
    with pytest.raises(InvalidValue, match="pool_size"):
        PostgresStore("postgresql://host/db", pool_size=0)


async def test_a_server_that_stays_away_is_given_up(postgres16: PostgresServer) -> None:
    url = postgres16.create_database()
    async with PostgresStore(url, retry_for=0.3) as store:
        await store.submit([NewTask(name="job")])
        postgres16.stop()
        try:
            with pytest.raises(StoreUnavailable):
                await store.now()
        finally:
            postgres16.start()
        async with asyncio.timeout(PATIENCE):
            while True:  # each time it is given up again, should the first connection take so long
                with suppress(StoreUnavailable):
                    await store.now()
                    break


async def test_a_cancelled_verb_leaves_no_lock_behind(url: str, store: PostgresStore) -> None:
    one, two = await claimed(store, "a", "b")
    async with paused(url) as holder:
        await holder.commit([held(one, 1, step())])
        stuck = begin(store.commit([held(one, 2, step()), held(two, 1, step())]))
        assert await is_blocked(url, stuck)
        stuck.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stuck
        await holder.finish()
    [verdict] = await asyncio.wait_for(store.commit([held(two, 1, step())]), PATIENCE)
    assert verdict.applied


async def test_closed_is_closed(store: PostgresStore) -> None:
    await store.close()
    await store.close()
    with pytest.raises(StoreClosed):
        await store.now()
