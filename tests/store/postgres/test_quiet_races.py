"""RequireQuiet against an emitter: one of the two is first, and the other one sees it."""

import asyncio
from typing import Any

import pytest

from holdfast.model.commit import Refusal
from holdfast.model.operations import Emit, RequireQuiet
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
    outside,
    paused,
)

QUIET = RequireQuiet(channel="inbox", after=0)
NEWS = Emit(channel="inbox", payload="news")


async def emit(emitter: PostgresStore, how: str) -> None:
    """Emit on the channel, alone or in the Commit of another task."""
    if how == "emit":
        await emitter.emit("inbox", "news")
    else:
        [verdict] = await emitter.commit([outside("other", NEWS)])
        assert verdict.applied


async def state_of(store: PostgresStore, task_id: str) -> TaskState:
    task = await store.get(task_id)
    assert task is not None
    return task.state


async def meets(url: str, task: "asyncio.Task[Any]", *, lock: bool) -> None:
    """Return once a task waits for a lock; where there is none, once it has gone through."""
    assert await is_blocked(url, task) is lock


class Overlooked:
    """No operation: where the plan asks for this one, it finds nothing to lock."""


def open_channel(url: str) -> None:
    execute(url, "INSERT INTO holdfast.channels VALUES ('inbox', 0)")


def break_lock(url: str) -> None:
    break_rule(url, "lock_tasks", 'PERFORM "holdfast".lock_channels(emits, listens);', "NULL;")


@pytest.mark.parametrize("how", ["emit", "commit"])
@pytest.mark.parametrize("channel", ["new", "known", "known and not locked"])
async def test_an_event_that_is_being_committed_refuses_the_end(
    url: str, store: PostgresStore, how: str, channel: str
) -> None:
    """It has its number already: the task waits for it, and reads it in a later statement than the lock."""
    broken = channel == "known and not locked"
    if channel != "new":
        open_channel(url)
    if broken:
        break_lock(url)
    claim, _ = await claimed(store, "a", "other")
    async with paused(url) as emitter:
        await emit(emitter, how)
        ending = begin(store.commit([held(claim, 1, QUIET, COMPLETE)]))
        await meets(url, ending, lock=not broken)
        await emitter.finish()
    [verdict] = await ending
    assert verdict.refusal is (None if broken else Refusal.CONFLICT)
    assert await state_of(store, "a") is (TaskState.COMPLETED if broken else TaskState.RUNNING)
    if not broken:
        assert "'inbox' is at event 1, and was read up to 0" in verdict.detail


@pytest.mark.parametrize("how", ["emit", "commit"])
@pytest.mark.parametrize("channel", ["new", "known", "known and not locked"])
async def test_an_event_comes_after_an_end_that_is_being_committed(
    url: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch, how: str, channel: str
) -> None:
    """The other order: no event gets a number until the end is visible."""
    broken = channel == "known and not locked"
    if channel != "new":
        open_channel(url)
    if broken:
        monkeypatch.setattr("holdfast.store.postgres.plan.RequireQuiet", Overlooked)
    claim, _ = await claimed(store, "a", "other")
    async with paused(url) as ender:
        [verdict] = await ender.commit([held(claim, 1, QUIET, COMPLETE)])
        assert verdict.applied
        emitting = begin(emit(store, how))
        await meets(url, emitting, lock=not broken)
        await ender.finish()
    await emitting
    assert [event.number for event in await store.events("inbox")] == [1]
    assert await state_of(store, "a") is TaskState.COMPLETED


async def test_an_event_that_is_rolled_back_was_not_there(url: str, store: PostgresStore) -> None:
    """A task that waited for its emitter continues, on a channel that is still new."""
    [claim] = await claimed(store, "a")
    async with paused(url) as emitter:
        await emitter.emit("inbox", "news")
        ending = begin(store.commit([held(claim, 1, QUIET, COMPLETE)]))
        assert await is_blocked(url, ending)
        await emitter.connection.rollback()
    [verdict] = await ending
    assert verdict.applied
    assert await store.position("inbox") == 0


async def test_two_who_require_quiet_do_not_wait_for_each_other(url: str, store: PostgresStore) -> None:
    """They only look: the lock is a shared one."""
    open_channel(url)
    first, second = await claimed(store, "a", "b")
    async with paused(url) as one:
        for who, claim in ((one, first), (store, second)):
            [verdict] = await who.commit([held(claim, 1, QUIET, COMPLETE)])
            assert verdict.applied
        await one.finish()


async def test_two_who_emit_and_require_quiet_crosswise(url: str, store: PostgresStore) -> None:
    """Each emits where the other one requires quiet: one of them is refused, and there is no deadlock."""
    before = deadlocks(url)
    for number in range(15):
        x, y = f"x{number}", f"y{number}"
        claims = await claimed(store, x, y, worker_id=f"worker-{number}")
        verdicts = await asyncio.gather(
            *(
                store.commit([held(claim, 1, RequireQuiet(channel=quiet, after=0), Emit(channel=emits, payload=1))])
                for claim, quiet, emits in zip(claims, (x, y), (y, x), strict=True)
            )
        )
        assert sorted(verdict.applied for [verdict] in verdicts) == [False, True]
    assert deadlocks(url) == before


def deadlocks(url: str) -> int:
    [(found,)] = execute(url, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    return int(found)
