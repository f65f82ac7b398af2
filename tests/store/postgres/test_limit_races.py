"""Limits while everything happens at once: never exceeded, nothing forgotten, no deadlock."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from holdfast import NewTask
from holdfast.model.errors import Conflict, NotFound, WorkerDead
from holdfast.model.flow_limit import Limit, PermitRequest, PermitReturn
from holdfast.model.ids import new_id
from holdfast.model.operations import Operation, Release, Rest, UntilTime
from holdfast.model.queries import TaskFilter
from holdfast.model.transitions import OPEN, TaskState
from holdfast.model.worker import Claim, Claimed, NewWorker
from holdfast.store.postgres import PostgresStore
from tests.store.postgres.limit_truth import at_work, wrong_books
from tests.store.postgres.support import (
    COMPLETE,
    PATIENCE,
    begin,
    break_rule,
    execute,
    held,
    is_blocked,
    move,
    outside,
    paused,
    step,
)

NAME = "job"


def claim_of(worker_id: str, number: int = 1, limit: int = 10, *, alone: bool = False) -> Claim:
    return Claim(worker_id=worker_id, number=number, limit=limit, names=(NAME,), alone=alone)


async def limited(store: PostgresStore, *ids: str, limits: Sequence[str] = ("openai",), concurrency: int = 1) -> None:
    """Submit tasks with these limits, which allow so many each; and enter two workers."""
    for name in {key.partition(":")[0] for key in limits}:
        await store.set_limit(Limit(name=name, concurrency=concurrency))
    await store.submit([NewTask(name=NAME, id=task_id, limits=tuple(limits)) for task_id in ids])
    for worker_id in ("w", "v"):
        await store.register(NewWorker(id=worker_id))


def ids(claims: Sequence[Claimed]) -> list[str]:
    return [claimed.task.id for claimed in claims]


def request(name: str, *keys: str, worker_id: str = "w", tokens: int = 0) -> PermitRequest:
    return PermitRequest(id=name, task_id="t", worker_id=worker_id, keys=keys or ("openai",), tokens=tokens, lasts=60)


@pytest.mark.parametrize("broken", [False, True])
async def test_claims_that_meet_at_a_key_take_turns(url: str, store: PostgresStore, *, broken: bool) -> None:
    """The second waits for the first, and reads only then what is left."""
    if broken:
        break_rule(url, "lock_keys", "FOR NO KEY UPDATE")
    await limited(store, "a", "b", concurrency=2)
    await store.sweep()
    await store.set_limit(Limit(name="openai", concurrency=1))
    async with paused(url) as first:
        assert ids(await first.claim(claim_of("w", limit=1))) == ["a"]
        second = begin(store.claim(claim_of("v")))
        assert await is_blocked(url, second)
        await first.finish()
    assert ids(await second) == (["b"] if broken else [])
    assert at_work(url, "openai") == (2 if broken else 1)
    assert wrong_books(url) == {}


@pytest.mark.parametrize("broken", [False, True])
async def test_a_setting_waits_for_a_claim_that_is_under_way(url: str, store: PostgresStore, *, broken: bool) -> None:
    """When it has returned, no claim obeys the old one; and the line is looked at, whatever happened meanwhile."""
    if broken:
        break_rule(url, "set_limit", 'LOCK TABLE "holdfast".limit_keys IN EXCLUSIVE MODE;')
    await limited(store, "a", "b", "c")
    async with paused(url) as claiming:
        assert len(await claiming.claim(claim_of("w"))) == 1
        setting = begin(store.set_limit(Limit(name="openai", concurrency=2)))
        assert await is_blocked(url, setting) is not broken
        await claiming.finish()
    await setting
    # The setting looks only at lines that it sees: without the lock it misses the one that the claim has made.
    assert len(await store.claim(claim_of("v"))) == (0 if broken else 1)
    assert at_work(url, "openai") == (1 if broken else 2)


@pytest.mark.parametrize("broken", [False, True])
async def test_a_claim_that_waits_for_a_setting_obeys_it(url: str, store: PostgresStore, *, broken: bool) -> None:
    """A lower limit, which the tasks that are claimable already do not know."""
    if broken:
        break_rule(url, "set_limit", 'LOCK TABLE "holdfast".limit_keys IN EXCLUSIVE MODE;')
    await limited(store, "a", "b", "c", concurrency=3)
    await store.sweep()
    async with paused(url) as setting:
        await setting.set_limit(Limit(name="openai", concurrency=1))
        claiming = begin(store.claim(claim_of("w")))
        assert await is_blocked(url, claiming) is not broken
        await setting.finish()
    assert len(await claiming) == (3 if broken else 1)


@pytest.mark.parametrize("broken", [False, True])
async def test_a_pause_of_a_limit_waits_for_what_takes_permits(url: str, store: PostgresStore, *, broken: bool) -> None:
    if broken:
        break_rule(url, "pause_limit", 'LOCK TABLE "holdfast".limit_keys IN EXCLUSIVE MODE;')
    await limited(store, "a", "b", concurrency=5)
    async with paused(url) as taking:
        await taking.take_permits([request("p")])
        pausing = begin(store.pause("limit:openai", by="ann"))
        assert await is_blocked(url, pausing) is not broken
        await taking.finish()
    await pausing
    await store.unpause("limit:openai")
    async with paused(url) as pausing_again:
        await pausing_again.pause("limit:openai", by="ann")
        claiming = begin(store.claim(claim_of("w")))
        assert await is_blocked(url, claiming) is not broken
        await pausing_again.finish()
    assert len(await claiming) == (2 if broken else 0)


async def test_an_end_waits_for_no_claim(url: str, store: PostgresStore) -> None:
    """What gives a permit back locks no key; the claim that was under way had not seen it, the next one does."""
    await limited(store, "a", "b", "c", concurrency=2)
    first, second = await store.claim(claim_of("w"))
    async with paused(url) as claiming:
        assert await claiming.claim(claim_of("v")) == []
        await store.take_permits([])
        await claiming.sweep()
        ending = begin(store.commit([held(first, 1, COMPLETE), held(second, 1, move(TaskState.PENDING))]))
        assert not await is_blocked(url, ending)
        await claiming.finish()
    assert ids(await store.claim(claim_of("v", limit=1))) == ["c"]
    assert ids(await store.claim(claim_of("v", 2))) == ["b"]
    assert wrong_books(url) == {}


async def test_what_happens_beside_a_promotion_is_seen_by_the_next(url: str, store: PostgresStore) -> None:
    """A submission and an end that commit while it is under way, and a row that it found locked."""
    await limited(store, "a", "b", concurrency=1)
    [claimed] = await store.claim(claim_of("w"))
    await store.submit([NewTask(name=NAME, id="c", limits=("openai",), priority=5)])
    async with paused(url) as promoting:
        await promoting.sweep()
        await store.commit([held(claimed, 1, COMPLETE)])
        await store.submit([NewTask(name=NAME, id="d", limits=("openai",), priority=9)])
        assert await store.claim(claim_of("v")) == []
        await promoting.finish()
    assert ids(await store.claim(claim_of("v"))) == ["d"]

    await store.set_limit(Limit(name="openai", concurrency=2))
    async with paused(url) as locking:
        await locking.commit([outside("c", move(TaskState.CANCELLED))])
        assert ids(await store.claim(claim_of("w", 2, limit=1))) == ["b"]
    await store.set_limit(Limit(name="openai", concurrency=3))
    assert ids(await store.claim(claim_of("w", 3))) == ["c"]


@pytest.mark.parametrize("broken", [False, True])
async def test_a_claim_forgets_no_line_that_was_noted_beside_it(
    url: str, store: PostgresStore, *, broken: bool
) -> None:
    """It counts what is noted of its key, after the look at the lines: a line is looked at by the next claim."""
    if broken:
        break_rule(url, "charge", "c.change <> 0 AND c.until IS NULL", "true")
        break_rule(url, "charge", 'PERFORM "holdfast".note_those_with_lines(freed);', "NULL;")
    await store.set_limit(Limit(name="tenant", concurrency=2, each=True))
    await store.register(NewWorker(id="w"))
    for number, event in enumerate(("it has come", "another one has ended")):
        key = f"tenant:{number}"
        await store.submit([NewTask(name=NAME, id=f"ended {number}", limits=(key,))])
        [ended] = await store.claim(claim_of("w", 10 * number + 1))
        if event == "it has come":
            await store.commit([held(ended, 1, COMPLETE)])
            await store.sweep()
        await store.submit([NewTask(name=NAME, id=f"{one} {number}", limits=(key,)) for one in ("a", "b")])
        execute(url, f"UPDATE holdfast.tasks SET held = 2 WHERE id = 'b {number}'")
        if event == "another one has ended":
            await store.commit([held(ended, 1, COMPLETE)])
        else:
            execute(url, f"SELECT holdfast.note_key('{key}')")
        after_the_look = f"holdfast.claim('w', {10 * number + 2}, 10, '{{default}}', '{{job}}', false)"
        assert execute(url, f"SELECT id FROM {after_the_look}") == [(f"a {number}",)]
        assert ids(await store.claim(claim_of("w", 10 * number + 3))) == ([] if broken else [f"b {number}"])
    assert wrong_books(url) == {}


@pytest.mark.parametrize("broken", [False, True])
async def test_a_claim_makes_the_row_of_a_key_again_that_a_sweep_deletes(
    url: str, store: PostgresStore, *, broken: bool
) -> None:
    """It was idle when the sweep looked; the claim waits for its row, and finds none."""
    if broken:
        break_rule(url, "lock_keys", "EXIT WHEN NOT EXISTS", "EXIT WHEN true OR NOT EXISTS")
    await store.set_limit(Limit(name="tenant", concurrency=1, each=True))
    await store.register(NewWorker(id="w"))
    execute(url, "SELECT holdfast.make_keys('{tenant:a}')")
    async with paused(url) as sweeping:
        await sweeping.sweep()
        await store.submit([NewTask(name=NAME, id=n, limits=("tenant:a",)) for n in ("1", "2")])
        claiming = begin(store.claim(claim_of("w")))
        assert await is_blocked(url, claiming)
        await sweeping.finish()
    assert ids(await claiming) == ["1"]
    assert bool(wrong_books(url)) is broken


async def test_a_sweep_waits_for_no_key_and_deletes_none_that_is_in_use(url: str, store: PostgresStore) -> None:
    await store.set_limit(Limit(name="tenant", concurrency=1, each=True))
    await store.register(NewWorker(id="w"))
    execute(url, "SELECT holdfast.make_keys('{tenant:a,tenant:b,tenant:c}')")
    async with paused(url) as taking:
        await taking.take_permits([request("p", "tenant:a")])
        await store.submit([NewTask(name=NAME, id="1", limits=("tenant:b",))])
        sweeping = begin(store.sweep())
        assert not await is_blocked(url, sweeping)
        await taking.finish()
    assert execute(url, "SELECT key FROM holdfast.limit_keys ORDER BY key") == [("tenant:a",), ("tenant:b",)]
    assert wrong_books(url) == {}


async def test_a_line_whose_tasks_were_locked_is_looked_at_again(url: str, store: PostgresStore) -> None:
    """Nothing else happens that would note it."""
    await limited(store, "a")
    async with paused(url) as locking:
        await locking.commit([outside("a", move(TaskState.CANCELLED))])
        assert await store.claim(claim_of("w")) == []
    assert ids(await store.claim(claim_of("w"))) == ["a"]


async def test_a_long_line_with_room_for_all_is_let_out_in_portions(url: str, store: PostgresStore) -> None:
    """Claims alone have it looked at again: nothing ends, and nothing comes."""
    await limited(store, *(f"{n:04}" for n in range(1300)), concurrency=10_000)
    for number in range(1, 14):
        got = ids(await store.claim(claim_of("w", number, limit=100)))
        assert got == [f"{n:04}" for n in range((number - 1) * 100, number * 100)]
        [(claimable,)] = execute(url, "SELECT count(*) FROM holdfast.tasks WHERE ready = 1 AND held = 0")
        assert claimable <= 500
    assert wrong_books(url) == {}


async def test_a_claim_is_filled_behind_many_that_find_a_limit_full(url: str, store: PostgresStore) -> None:
    """They were claimable when the limit was lowered. It holds them, and takes what stands behind them."""
    await limited(store, *(f"{n:03}" for n in range(300)), concurrency=300)
    await store.sweep()
    await store.set_limit(Limit(name="openai", concurrency=1))
    await store.submit([NewTask(name=NAME, id=f"free {n}", priority=-1) for n in range(5)])
    assert ids(await store.claim(claim_of("w", limit=6))) == ["000", *(f"free {n}" for n in range(5))]
    assert wrong_books(url) == {}


async def test_of_two_steps_for_one_place_the_second_waits(url: str, store: PostgresStore) -> None:
    await limited(store)
    async with paused(url) as first:
        [answer] = await first.take_permits([request("one")])
        assert answer.granted
        second = begin(store.take_permits([request("two")]))
        assert await is_blocked(url, second)
        await first.finish()
    assert [answer.granted for answer in await second] == [False]
    async with paused(url) as taking:
        await taking.take_permits([request("three")])
        returning = begin(store.return_permits([PermitReturn(id="one")]))
        assert not await is_blocked(url, returning)
        await taking.finish()
    assert [answer.granted for answer in await store.take_permits([request("three"), request("two")])] == [False, True]


async def test_a_permit_counts_from_when_it_was_given(url: str, store: PostgresStore) -> None:
    """Not from before the wait for the key: its worker may begin until its validity is over."""
    limit = await store.set_limit(Limit(name="openai", rate=10, per=timedelta(milliseconds=200)))
    await limited_workers(store)
    async with paused(url) as first:
        await first.take_permits([request("one")])
        second = begin(store.take_permits([request("two")]))
        assert await is_blocked(url, second)
        await asyncio.sleep(0.5)
        let_go_at = await store.now()
        await first.finish()
    await second
    [(until,)] = execute(url, "SELECT until FROM holdfast.permits WHERE id = 'two'")
    assert limit.per is not None
    assert until >= let_go_at + limit.per + limit.validity


async def limited_workers(store: PostgresStore) -> None:
    for worker_id in ("w", "v"):
        await store.register(NewWorker(id=worker_id))


@pytest.mark.parametrize("broken", [False, True])
async def test_batches_that_wake_many_lock_the_keys_in_one_order(
    url: str, store: PostgresStore, *, broken: bool
) -> None:
    """In opposite orders, two of them would wait for each other."""
    if broken:
        break_rule(url, "apply_batch", "cardinality(locks.wakes) > 0", "false")
    for name in ("a", "b"):
        await store.set_limit(Limit(name=name, concurrency=2))
    await store.submit([NewTask(name=NAME, id=f"{n} {key}", limits=(key,)) for n in range(2) for key in "ab"])
    await store.register(NewWorker(id="w"))
    claims = {claimed.task.id: claimed for claimed in await store.claim(claim_of("w"))}
    await store.commit([held(claimed, 1, Rest(resting=True)) for claimed in claims.values()])
    async with paused(url) as first:
        await first.commit([held(claims["0 a"], 2, Rest(resting=False))])
        second = begin(store.commit([held(claims[name], 2, Rest(resting=False)) for name in ("1 b", "1 a")]))
        assert await is_blocked(url, second)
        with psycopg.connect(url) as other:
            is_locked = other.execute(
                "SELECT key FROM holdfast.limit_keys WHERE key = 'b' FOR UPDATE SKIP LOCKED"
            ).fetchall()
        assert is_locked == ([] if broken else [("b",)])
        await first.finish()
    assert all(verdict.applied for verdict in await second)
    assert wrong_books(url) == {}


CLAIMERS, PLACES, ALL = 64, 5, 200


class Workers:
    """Workers that share one store object and one key, and some of which die in the middle of their work."""

    def __init__(self, url: str, store: PostgresStore) -> None:
        self.url, self.store = url, store
        self.done: set[str] = set()
        self.most = 0

    @property
    def is_done(self) -> bool:
        return len(self.done) == ALL

    async def work(self, index: int) -> None:
        dice = random.Random(index)
        life = 0
        while not self.is_done:
            life += 1
            await self._live(f"{index}-{life}", dice)

    async def _live(self, worker_id: str, dice: random.Random) -> None:
        await self.store.register(NewWorker(id=worker_id))
        number = 0
        while not self.is_done:
            number += 1
            try:
                # A task with which two workers have died is for one that claims nothing else.
                claims = await self.store.claim(claim_of(worker_id, number, limit=3, alone=number % 4 == 0))
            except WorkerDead:
                return
            if claims:
                self.most = max(self.most, at_work(self.url, "openai"))
            if claims and not claims[0].alone and dice.random() < 0.1:
                silent = f"UPDATE holdfast.workers SET (lease, expires_at) = (0.001, seen_at) WHERE id = '{worker_id}'"
                execute(self.url, silent)  # the sweep finds it dead
                return
            verdicts = await self.store.commit([held(claimed, 1, COMPLETE) for claimed in claims])
            self.done.update(verdict.task_id for verdict in verdicts if verdict.applied)
            await asyncio.sleep(0.02 * dice.random())

    async def sweep(self) -> None:
        """Sweep, and now and then cut the connection of a claim."""
        dice = random.Random(7)
        claiming = "SELECT pid FROM pg_stat_activity WHERE query LIKE '%.claim(%' AND pid <> pg_backend_pid() LIMIT 1"
        while not self.is_done:
            await self.store.sweep()
            if dice.random() < 0.2:
                execute(self.url, f"SELECT pg_terminate_backend(pid) FROM ({claiming}) AS c")
            await asyncio.sleep(0.05)


async def test_64_claimers_of_one_key_never_exceed_it(url: str, store: PostgresStore) -> None:
    """Workers die in the middle, connections are cut, tasks come back; at the end every task was done."""
    await store.set_limit(Limit(name="openai", concurrency=PLACES))
    await store.submit([NewTask(name=NAME, id=f"{n:03}", limits=("openai",)) for n in range(ALL)])
    async with PostgresStore(url, pool_size=16) as shared, asyncio.timeout(6 * PATIENCE):
        workers = Workers(url, shared)
        await asyncio.gather(*(workers.work(index) for index in range(CLAIMERS)), workers.sweep())
    assert 0 < workers.most <= PLACES
    await store.sweep()
    assert wrong_books(url) == {}
    [use] = await store.limit_uses()
    assert (use.taken, use.waiting) == (0, 0)
    assert execute(url, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == [(0,)]


KEYS = ("fixed", "changing", "tenant:a", "tenant:b", "timed")
SETTINGS = (
    Limit(name="fixed", concurrency=4),
    Limit(name="changing", concurrency=3),
    Limit(name="tenant", concurrency=2, each=True),
    Limit(name="timed", rate=20, per=timedelta(milliseconds=200), tokens=1000),
)
TASKS, ROUNDS = 30, 40
NO_REFUSAL = (Conflict, NotFound)


async def test_everything_at_once(url: str, seeds: Sequence[int]) -> None:
    """Claims, Commits in batches, rests, leases by id, steps, sweeps, settings, pauses: no deadlock, none is stuck."""
    async with PostgresStore(url) as store:
        for limit in SETTINGS:
            await store.set_limit(limit)
        for seed in seeds[:2] if len(seeds) <= 5 else seeds:
            async with asyncio.timeout(6 * PATIENCE):
                await asyncio.gather(*(_work(url, f"{seed}-{n}", seed) for n in range(5)), _meddle(url, seed))
            assert wrong_books(url) == {}
            assert execute(url, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == [(0,)]
        await _finish_everything(url, store)


async def _work(url: str, worker: str, seed: int) -> None:
    """Claim, and commit random things in batches, while steps of this worker take permits."""
    dice = random.Random(f"{seed} {worker}")
    async with PostgresStore(url, pool_size=2) as store:
        await store.register(NewWorker(id=worker, lease=60))
        for number in range(1, ROUNDS + 1):
            claims = await store.claim(claim_of(worker, number, limit=6))
            assert at_work(url, "fixed") <= 4
            calling = begin(_call(store, worker, f"{worker} {number}", random.Random(number)))
            await store.commit([held(claimed, 1, step()) for claimed in claims])
            dice.shuffle(claims)
            verdicts = await store.commit([held(claimed, 2, _what_next(dice)) for claimed in claims])
            still = [one for one, verdict in zip(claims, verdicts, strict=True) if verdict.owner == worker]
            awake = await store.commit([held(claimed, 3, Rest(resting=False)) for claimed in still])
            assert at_work(url, "fixed") <= 4
            await store.commit(
                [held(one, 4 if verdict.applied else 3, COMPLETE) for one, verdict in zip(still, awake, strict=True)]
            )
            with suppress(*NO_REFUSAL):
                leased = await store.acquire(f"task {dice.randrange(TASKS):02}", worker)
                await store.commit([held(leased, leased.task.sequence + 1, Release())])
            if dice.random() < 0.3:
                await store.sweep(dice.choice((1, 10, 100)))
            await calling
            if dice.random() < 0.15:
                await store.retire(worker)
                worker += "+"
                await store.register(NewWorker(id=worker, lease=60))
        await store.retire(worker)


def _what_next(dice: random.Random) -> Operation:
    soon = datetime.now(UTC) + timedelta(seconds=dice.random())
    return dice.choice(
        (
            COMPLETE,
            COMPLETE,
            move(TaskState.PENDING),
            move(TaskState.PENDING, available_at=soon),
            move(TaskState.FAILED),
            move(TaskState.WAITING, waits=(UntilTime(key="t", at=soon),)),
            Rest(resting=True),
            Rest(resting=True),
        )
    )


async def _call(store: PostgresStore, worker: str, name: str, dice: random.Random) -> None:
    """Ask for the permits of some calls at once, some of them twice; give them back, or leave them to the dead."""
    requests = [
        request(f"{name} {n}", *dice.sample(KEYS, dice.randrange(1, 4)), worker_id=worker, tokens=dice.randrange(400))
        for n in range(3)
    ]
    for _ in range(dice.randrange(1, 4)):
        await store.take_permits(dice.sample(requests, dice.randrange(1, 4)))
    if dice.random() < 0.9:
        await store.return_permits([PermitReturn(id=one.id, tokens=dice.choice((None, 7, 900))) for one in requests])


async def _meddle(url: str, seed: int) -> None:
    """What people and providers do meanwhile."""
    dice = random.Random(seed)
    async with PostgresStore(url, pool_size=1) as store:
        for number in range(ROUNDS):
            some = [_task(dice, new_id()) for _ in range(4)]
            await store.submit([*some, _task(dice, f"task {number % TASKS:02}")])
            picked = [f"task {dice.randrange(TASKS):02}" for _ in range(3)]
            await store.commit([outside(picked[0], move(TaskState.CANCELLED))])
            await store.commit([outside(picked[1], move(TaskState.PENDING))])  # of one that had failed
            await store.set_limit(Limit(name="changing", concurrency=dice.choice((1, 2, 3, 50, None))))
            subject = dice.choice(("limit:tenant", "limit:tenant:a", "limit:timed", "queue:default", picked[2]))
            with suppress(*NO_REFUSAL):
                await store.pause(subject, by="ann")
                await asyncio.sleep(0.02 * dice.random())
                await store.unpause(subject)
            await store.close_limit([dice.choice(KEYS)], await store.now() + timedelta(milliseconds=dice.randrange(50)))
            await store.limit_uses()


def _task(dice: random.Random, task_id: str) -> NewTask:
    keys = tuple(dice.sample(KEYS, dice.randrange(4)))
    return NewTask(id=task_id, name=NAME, limits=keys, priority=dice.randrange(3))


async def _finish_everything(url: str, store: PostgresStore) -> None:
    """What is left can all be claimed and completed: no task is forgotten in a line."""
    execute(url, "UPDATE holdfast.permits SET settles_at = now() WHERE settles_at IS NOT NULL")  # of steps that died
    await store.register(NewWorker(id="last", lease=10 * PATIENCE))
    give_up_at = time.monotonic() + PATIENCE
    number = 0
    while await store.count(TaskFilter(states=OPEN)):
        assert time.monotonic() < give_up_at, (
            await store.limit_uses(),
            (await store.find(TaskFilter(states=OPEN))).items,
        )
        number += 1
        claims = await store.claim(claim_of("last", number))
        await store.commit([held(claimed, 1, COMPLETE) for claimed in claims])
        if not claims:
            await store.sweep()
            await asyncio.sleep(0.02)
    await store.sweep(10_000)
    assert wrong_books(url) == {}
    assert {(use.taken, use.waiting) for use in await store.limit_uses()} == {(0, 0)}
