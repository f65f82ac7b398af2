"""Waiting and waking: no order of two sides may lose the wake-up, and no two of them wait in a circle."""

import asyncio

import psycopg
import pytest

from holdfast.model.operations import Emit, UntilChildren, UntilEvent
from holdfast.model.task import NewTask
from holdfast.model.transitions import TaskState
from holdfast.store.postgres import PostgresStore
from tests.store.postgres.support import (
    COMPLETE,
    begin,
    break_rule,
    claimed,
    execute,
    held,
    is_blocked,
    move,
    outside,
    paused,
    step,
)

LISTEN = move(TaskState.WAITING, waits=(UntilEvent(key="news", channel="news"),))


async def state_of(store: PostgresStore, task_id: str) -> TaskState:
    task = await store.get(task_id)
    assert task is not None
    return task.state


@pytest.mark.parametrize("broken", [False, True])
async def test_an_event_that_commits_while_a_task_begins_to_wait(
    url: str, store: PostgresStore, *, broken: bool
) -> None:
    """The emitter found no waiter, the waiter finds no event: unless they meet on the channel's row."""
    if broken:
        break_rule(url, "lock_tasks", 'PERFORM "holdfast".lock_channels(emits, listens);', "NULL;")
        execute(url, "INSERT INTO holdfast.channels VALUES ('news', 0)")
    [claim] = await claimed(store, "a")
    async with paused(url) as emitter:
        await emitter.emit("news", 1)
        waiting = begin(store.commit([held(claim, 1, LISTEN)]))
        assert await is_blocked(url, waiting) is not broken
        await emitter.finish()
    await waiting
    assert await state_of(store, "a") is (TaskState.WAITING if broken else TaskState.PENDING)


@pytest.mark.parametrize("broken", [False, True])
async def test_a_task_that_begins_to_wait_while_an_event_commits(
    url: str, store: PostgresStore, *, broken: bool
) -> None:
    """The other order: the waiter was first at the channel, so that the emitter must find it."""
    if broken:
        break_rule(url, "lock_tasks", 'PERFORM "holdfast".lock_channels(emits, listens);', "NULL;")
        execute(url, "INSERT INTO holdfast.channels VALUES ('news', 0)")
    [claim] = await claimed(store, "a")
    async with paused(url) as waiter:
        await waiter.commit([held(claim, 1, LISTEN)])
        emitting = begin(store.emit("news", 1))
        assert await is_blocked(url, emitting) is not broken
        await waiter.finish()
    await emitting
    assert await state_of(store, "a") is (TaskState.WAITING if broken else TaskState.PENDING)


async def test_a_latecomer_that_is_locked_again_makes_the_emitter_start_over(url: str, store: PostgresStore) -> None:
    """Between an emitter's first look and its lock on the channel a task begins to wait, and a transaction locks it.

    Waiting for that lock would be out of order; going on without it would lose the wake-up. The error is one of those
    after which the store sends the emit again.
    """
    [claim] = await claimed(store, "a")
    await store.commit([held(claim, 1, LISTEN)])
    second_look = b"SELECT holdfast.lock_latecomers('{}', '{news}')"
    async with paused(url) as holder, paused(url) as emitter:
        await holder.acquire("a", "worker")
        with pytest.raises(psycopg.errors.SerializationFailure):
            await emitter.connection.execute(second_look)
        await emitter.connection.rollback()
        await holder.finish()
        await emitter.connection.execute(second_look)


async def test_a_commit_on_a_waiting_task_does_not_hide_it_from_an_emitter(url: str, store: PostgresStore) -> None:
    """A lock on a waiting task's row, even for a Commit that is refused, delays the emitter and loses nothing."""
    [claim] = await claimed(store, "a")
    await store.commit([held(claim, 1, LISTEN)])
    async with paused(url) as zombie:
        await zombie.commit([held(claim, 7, step()), held(claim, 8, step())])
        emitting = begin(store.emit("news", 1))
        assert await is_blocked(url, emitting)
        await zombie.finish()
    await emitting
    assert await state_of(store, "a") is TaskState.PENDING


@pytest.mark.parametrize("broken", [False, True])
async def test_a_child_that_ends_while_its_parent_begins_to_wait(
    url: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch, *, broken: bool
) -> None:
    """Both lock the child's row, so that the parent counts it as open or as ended, and never in between."""
    if broken:
        monkeypatch.setattr("holdfast.store.postgres.plan._add_waits", lambda *_: None)
    [parent] = await claimed(store, "parent")
    await store.submit([NewTask(name="job", id="child")])
    wait = move(TaskState.WAITING, waits=(UntilChildren(key="join", children=("child",)),))
    async with paused(url) as child:
        await child.commit([outside("child", move(TaskState.CANCELLED))])
        waiting = begin(store.commit([held(parent, 1, wait)]))
        assert await is_blocked(url, waiting) != broken
        await child.finish()
    await waiting
    # Without the rule the parent counts on a child that has just ended, and sleeps for ever.
    assert await state_of(store, "parent") is (TaskState.WAITING if broken else TaskState.PENDING)


@pytest.mark.parametrize("broken", [False, True])
async def test_a_parent_that_begins_to_wait_while_its_child_ends(
    url: str, store: PostgresStore, *, broken: bool
) -> None:
    """The end waits for the parent's commit, and only then looks for the parents that count on it."""
    if broken:
        break_rule(url, "lock_tasks", "ORDER BY t.id FOR NO KEY UPDATE", "ORDER BY t.id")
    [parent] = await claimed(store, "parent")
    await store.submit([NewTask(name="job", id="child")])
    wait = move(TaskState.WAITING, waits=(UntilChildren(key="join", children=("child",)),))
    async with paused(url) as waiter:
        await waiter.commit([held(parent, 1, wait)])
        ending = begin(store.commit([outside("child", move(TaskState.CANCELLED))]))
        assert await is_blocked(url, ending) != broken
        await waiter.finish()
    await ending
    assert await state_of(store, "parent") is (TaskState.WAITING if broken else TaskState.PENDING)


async def test_the_last_two_children_ending_at_once(url: str, store: PostgresStore) -> None:
    """Neither sees the other's end; the counter does."""
    parent, *children = await claimed(store, "parent", "x", "y")
    wait = move(TaskState.WAITING, waits=(UntilChildren(key="join", children=("x", "y")),))
    await store.commit([held(parent, 1, wait)])
    async with paused(url) as first:
        await first.commit([held(children[0], 1, COMPLETE)])
        second = begin(store.commit([held(children[1], 1, COMPLETE)]))
        assert await is_blocked(url, second)
        await first.finish()
    await second
    assert await state_of(store, "parent") is TaskState.PENDING
    assert [one.to_state for one in await store.history("parent")].count(TaskState.PENDING) == 2


async def test_two_emitters_who_also_listen_to_each_other(url: str, store: PostgresStore) -> None:
    """Emit on one channel, wait on the other, both at once and crosswise, many times over."""

    async def cross(number: int, emits: str, listens: str) -> None:
        worker = f"worker-{emits}-{number}"
        [claim] = await claimed(store, f"{emits}-{number}", worker_id=worker)
        wait = move(TaskState.WAITING, waits=(UntilEvent(key="w", channel=listens),))
        [verdict] = await store.commit([held(claim, 1, Emit(channel=emits, payload=1), wait)])
        assert verdict.applied

    before = deadlocks(url)
    for number in range(15):
        await asyncio.gather(cross(number, f"x{number}", f"y{number}"), cross(number, f"y{number}", f"x{number}"))
        # One was first and waits until the other emitted, which then finds the first one's event.
        assert await state_of(store, f"x{number}-{number}") is TaskState.PENDING
        assert await state_of(store, f"y{number}-{number}") is TaskState.PENDING
    assert deadlocks(url) == before


def deadlocks(url: str) -> int:
    [(found,)] = execute(url, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    return int(found)
