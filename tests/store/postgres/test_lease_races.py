"""Leases: which workers are dead, which may claim, and what a restart of the database means."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.commit import Refusal
from holdfast.model.errors import WorkerDead
from holdfast.model.task import NewTask
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim, NewWorker
from holdfast.store.postgres import PostgresStore
from tests.postgres_server import PostgresServer, ServerUnavailable, start_postgres
from tests.store.postgres.support import begin, break_rule, claimed, execute, held, is_blocked, paused, step
from tests.stores import POSTGRES_VERSIONS

LEASE = 30.0


@pytest.fixture
def clock() -> ManualClock:
    """The time of the store."""
    return ManualClock()


@pytest.fixture
async def store(url: str, clock: ManualClock) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(url, clock=clock) as store:
        yield store


def claim_of(worker_id: str, number: int = 1, limit: int = 10) -> Claim:
    return Claim(worker_id=worker_id, number=number, limit=limit, names=("job",))


def forget_the_restart(url: str) -> None:
    """Let a sweep act at once, as if the server had been up for longer than any lease."""
    break_rule(url, "declare_dead", "NOT real_time OR", "true OR")


@pytest.mark.parametrize("broken", [False, True])
async def test_a_sweep_leaves_a_worker_alone_while_it_claims(
    url: str, store: PostgresStore, clock: ManualClock, *, broken: bool
) -> None:
    """Its lease runs out between its claim's look and its claim's commit: the sweep must not come in between.

    Otherwise the tasks of that claim belong to a worker that is already dead and was already swept.
    """
    if broken:
        break_rule(url, "living_worker", "FOR NO KEY UPDATE")
        break_rule(url, "claim", 'UPDATE "holdfast".workers w SET claims = number WHERE w.id = worker.id;')
    await store.submit([NewTask(name="job", id="a")])
    await store.register(NewWorker(id="slow", lease=LEASE))
    async with paused(url, clock) as slow:
        assert len(await slow.claim(claim_of("slow"))) == 1
        clock.advance(LEASE)
        await store.sweep()
        await slow.finish()
    [worker] = await store.workers()
    emptied = execute(url, "SELECT emptied FROM holdfast.workers")
    if broken:
        assert (worker.state, emptied) == ("dead", [(True,)])  # no sweep will ever look for its task again
        assert (await store.sweep()).recovered == ()
        return
    assert worker.state == "live"
    assert (await store.sweep()).recovered == ("a",)


@pytest.mark.parametrize("broken", [False, True])
async def test_a_heartbeat_that_came_first_counts(
    url: str, store: PostgresStore, clock: ManualClock, *, broken: bool
) -> None:
    """The sweep looks at the expiry again under the lock."""
    if broken:
        break_rule(url, "declare_dead", "FOR UPDATE SKIP LOCKED")
    await claimed(store, "a", lease=LEASE)
    clock.advance(LEASE)
    async with paused(url, clock) as alive:
        await alive.heartbeat("worker")
        sweeping = begin(store.sweep())
        assert await is_blocked(url, sweeping) is broken
        await alive.finish()
    swept = await sweeping
    assert swept.recovered == (("a",) if broken else ())


async def test_dead_is_final(store: PostgresStore, clock: ManualClock) -> None:
    [claim] = await claimed(store, "a", lease=LEASE)
    clock.advance(LEASE)
    assert (await store.sweep()).recovered == ("a",)
    for verb in (
        store.heartbeat("worker"),
        store.claim(claim_of("worker", 2)),
        store.acquire("a", "worker"),
        store.register(NewWorker(id="worker")),
    ):
        with pytest.raises(WorkerDead):
            await verb
    [verdict] = await store.commit([held(claim, 1, step())])
    assert verdict.refusal is Refusal.SUPERSEDED


async def test_a_claim_sent_twice_at_once_leases_once(url: str, store: PostgresStore, clock: ManualClock) -> None:
    """The first answer is only late, not lost: both sends of the number get the same tasks."""
    await store.submit([NewTask(name="job") for _ in range(10)])
    await store.register(NewWorker(id="w"))
    async with paused(url, clock) as first:
        got = await first.claim(claim_of("w", limit=3))
        again = begin(store.claim(claim_of("w", limit=3)))
        assert await is_blocked(url, again)
        await first.finish()
    assert [one.task.id for one in await again] == [one.task.id for one in got]
    assert len(await store.owned("w")) == 3


async def test_claims_pass_by_what_another_claim_holds(url: str, store: PostgresStore, clock: ManualClock) -> None:
    await store.submit([NewTask(name="job") for _ in range(6)])
    await store.register(NewWorker(id="one"))
    await store.register(NewWorker(id="two"))
    async with paused(url, clock) as first:
        mine = {one.task.id for one in await first.claim(claim_of("one", limit=3))}
        theirs = {one.task.id for one in await store.claim(claim_of("two", limit=6))}
        await first.finish()
    assert len(mine) == len(theirs) == 3
    assert not mine & theirs


async def test_a_sweep_does_not_wait_for_locks(url: str, store: PostgresStore, clock: ManualClock) -> None:
    """What a transaction holds is swept the next time."""
    await store.submit([NewTask(name="job", id=i, deadline=clock.now() + timedelta(seconds=5)) for i in ("a", "b")])
    await store.register(NewWorker(id="w", lease=60))
    clock.advance(10)
    async with paused(url) as holder:
        await holder.connection.execute(b"SELECT FROM holdfast.tasks WHERE id = 'a' FOR UPDATE")
        sweeping = begin(store.sweep())
        assert not await is_blocked(url, sweeping)
        assert (await sweeping).failed == ("b",)
        await holder.finish()
    assert (await store.sweep()).failed == ("a",)


@pytest.fixture(params=POSTGRES_VERSIONS)
def own_server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    try:
        server = start_postgres(request.param)
    except ServerUnavailable as missing:
        pytest.skip(str(missing))
    with server:
        yield server


@pytest.mark.parametrize("broken", [False, True])
async def test_no_worker_is_dead_right_after_a_restart(own_server: PostgresServer, *, broken: bool) -> None:
    """A crash of the server longer than every lease: no worker could renew, and none loses its tasks for that."""
    url = own_server.create_store()
    async with PostgresStore(url) as store:
        [claim] = await claimed(store, "a", lease=600)
        if broken:
            forget_the_restart(url)
            store._backend.open_connections()._last_outage -= (
                601  # nor is this process new, which would forbid it as well
            )
        # As if the server were away for an hour.
        execute(url, "UPDATE holdfast.workers SET expires_at = expires_at - interval '1 hour'")
        own_server.restart("immediate")
        if broken:
            assert (await store.sweep()).recovered == ("a",)
            return
        assert (await store.sweep()).recovered == ()
        await store.heartbeat("worker")
        [verdict] = await store.commit([held(claim, 1, step())])
        assert verdict.applied
        # This time it was silent while the server was there: for longer than a lease, were it a short one.
        execute(url, "UPDATE holdfast.workers SET (lease, expires_at) = (0.001, seen_at)")
        assert (await store.sweep()).recovered == ("a",)
        task = await store.get("a")
        assert task is not None
        assert task.state is TaskState.PENDING
