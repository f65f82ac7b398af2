"""Submissions that replace, beside claims and prunes: the order of their locks, and what each sees that had to wait.

The order is: the advisory lock of the key, the row of the task that has it, the row of the key (decision 0031), the row
of the queue. Where a test shows another order, a gate stops a function between two of its locks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from holdfast import NewTask, TaskState
from holdfast.model.queries import TaskFilter
from holdfast.model.task import IfExists, Submitted
from holdfast.model.worker import Claim, NewWorker
from holdfast.store.postgres import PostgresStore
from tests.store.postgres.support import begin, break_rule, is_blocked, paused, wait_for_waiters

CLAIM = Claim(worker_id="w", number=1, limit=1, names=("job",))
FIRST = NewTask(id="first", name="job", key="k", user_input=1)
REPLACING = NewTask(id="second", name="job", key="k", user_input=2, if_exists=IfExists.REPLACE)
DEBOUNCED = NewTask(id="second", name="job", key="k", user_input=2, debounce_max=timedelta(hours=1))
EITHER = pytest.mark.parametrize("new", [REPLACING, DEBOUNCED], ids=["replace", "debounce"])

GATE = 4711
LOCKS_HOLDER = "WHERE t.id = answer.task_id FOR NO KEY UPDATE;"


@contextmanager
def gate(url: str, function: str, place: str) -> Iterator[psycopg.Connection[Any]]:
    """Have this function wait right behind this place, until the connection that is yielded ends its transaction."""
    break_rule(url, function, place, f"{place} PERFORM pg_advisory_xact_lock_shared({GATE});")
    with psycopg.connect(url) as closed:
        closed.execute("SELECT pg_advisory_xact_lock(%s)", (GATE,))
        yield closed


async def of_job(store: PostgresStore) -> dict[str, tuple[str | None, Any]]:
    """Return key and input of each task."""
    return {task.id: (task.key, task.user_input) for task in (await store.find(TaskFilter(name="job"))).items}


@EITHER
async def test_a_claim_passes_by_what_is_just_replaced(url: str, store: PostgresStore, new: NewTask) -> None:
    """It waits for nothing, and takes the new input afterwards."""
    await store.submit([FIRST])
    await store.register(NewWorker(id="w"))
    async with paused(url) as submitting:
        assert await submitting.submit([new]) == [Submitted(task_id="first", created=False)]
        assert await store.claim(CLAIM) == []
        await submitting.finish()
    [claimed] = await store.claim(replace(CLAIM, number=2))
    assert (claimed.task.id, claimed.task.user_input) == ("first", 2)


@EITHER
@pytest.mark.parametrize("broken", [False, True])
async def test_what_a_claim_has_taken_is_not_replaced(
    url: str, store: PostgresStore, new: NewTask, *, broken: bool
) -> None:
    """The lock on the row of the task decides: behind it, the submission sees the claim."""
    if broken:
        break_rule(url, "submit_replacing", LOCKS_HOLDER, "WHERE t.id = answer.task_id;")
    await store.submit([FIRST])
    await store.register(NewWorker(id="w"))
    async with paused(url) as claiming:
        [claimed] = await claiming.claim(CLAIM)
        assert claimed.task.user_input == 1
        submitting = begin(store.submit([replace(new, available_at=datetime.now(UTC) + timedelta(hours=1))]))
        assert await is_blocked(url, submitting)
        await claiming.finish()
    [answer] = await submitting
    if broken:
        assert await of_job(store) == {"first": ("k", 2)}  # the input has changed under the worker
    elif new is DEBOUNCED:
        assert answer == Submitted(task_id="second", created=True)
        assert await of_job(store) == {"first": (None, 1), "second": ("k", 2)}
    else:
        assert answer == Submitted(task_id="first", created=False, conflict=True)
        assert await of_job(store) == {"first": ("k", 1)}


@EITHER
@pytest.mark.parametrize("broken", [False, True])
async def test_what_a_prune_takes_is_not_replaced(
    url: str, store: PostgresStore, new: NewTask, *, broken: bool
) -> None:
    """The submission waits for the prune, finds that the task is gone, and looks again who has the key."""
    if broken:
        break_rule(url, "submit_replacing", "CONTINUE WHEN holder.id IS NULL OR", "CONTINUE WHEN false AND")
    await store.submit([replace(FIRST, state=TaskState.COMPLETED)])
    with gate(url, "prune", "BEGIN\n") as closed:
        pruning = begin(store.prune(timedelta(0)))
        await wait_for_waiters(url, 1)
        submitting = begin(store.submit([new]))
        await wait_for_waiters(url, 2)
        closed.commit()
    assert (await pruning).tasks == 1
    [answer] = await submitting
    assert (answer == Submitted(task_id="second", created=True)) is not broken
    assert await of_job(store) == ({} if broken else {"second": ("k", 2)})


@EITHER
async def test_a_submission_waits_for_a_prune_that_has_deleted_the_key(
    url: str, store: PostgresStore, new: NewTask
) -> None:
    """At the row of the key."""
    await store.submit([replace(FIRST, state=TaskState.COMPLETED)])
    async with paused(url) as pruning:
        assert (await pruning.prune(timedelta(0))).tasks == 1
        submitting = begin(store.submit([new]))
        assert await is_blocked(url, submitting)
        await pruning.finish()
    assert await submitting == [Submitted(task_id="second", created=True)]
    assert await of_job(store) == {"second": ("k", 2)}


async def deadlocks(*both: asyncio.Task[Any]) -> int:
    """Wait for both, and return how many of them the server gave up because they waited for each other."""
    found = await asyncio.gather(*both, return_exceptions=True)
    errors = [error for error in found if isinstance(error, BaseException)]
    assert all(isinstance(error, psycopg.errors.DeadlockDetected) for error in errors), errors
    return len(errors)


@pytest.mark.parametrize("broken", [False, True])
async def test_the_task_is_locked_before_its_key(url: str, store: PostgresStore, *, broken: bool) -> None:
    """As a prune does it; the other way round, both would wait for each other."""
    if broken:
        first_the_key = "PERFORM FROM holdfast.task_keys k WHERE k.name = lone.name AND k.key = lone.key FOR UPDATE; "
        select = "SELECT t.* INTO holder FROM"
        break_rule(url, "submit_replacing", select, first_the_key + select)
    await store.submit([replace(FIRST, state=TaskState.COMPLETED)])
    async with paused(url) as pruner, paused(url) as submitter:
        with gate(url, "prune", "BEGIN\n") as closed:
            pruning = begin(commit_after(pruner, pruner.prune(timedelta(0))))
            await wait_for_waiters(url, 1)  # it has locked the task
            submitting = begin(commit_after(submitter, submitter.submit([DEBOUNCED])))
            await wait_for_waiters(url, 2)
            closed.commit()
        assert await deadlocks(pruning, submitting) == broken


@pytest.mark.parametrize("broken", [False, True])
async def test_the_name_of_the_key_is_locked_before_everything(url: str, store: PostgresStore, *, broken: bool) -> None:
    """A submission of several has locked the queue with its first task, when it comes to the task that has the key."""
    if broken:
        break_rule(url, "submit", "OR (one_by_one AND keys IS NOT NULL)")
    await store.set_queue("default", max_pending=10)
    await store.submit([FIRST])
    await store.register(NewWorker(id="w"))
    [_] = await store.claim(CLAIM)
    async with paused(url) as one, paused(url) as several:
        with gate(url, "submit_replacing", LOCKS_HOLDER) as closed:
            debouncing = begin(commit_after(one, one.submit([DEBOUNCED])))
            await wait_for_waiters(url, 1)  # it has locked the task that has the key
            both = [NewTask(id="third", name="job"), replace(DEBOUNCED, id="fourth", user_input=3)]
            submitting = begin(commit_after(several, several.submit(both)))
            await wait_for_waiters(url, 2)
            closed.commit()
        assert await deadlocks(debouncing, submitting) == broken
    if not broken:
        assert await of_job(store) == {"first": (None, 1), "second": ("k", 3), "third": (None, None)}


@pytest.mark.parametrize("broken", [False, True])
async def test_keys_are_locked_in_one_order(url: str, store: PostgresStore, *, broken: bool) -> None:
    """Whatever the order of the callers is: sorted, before any of the tasks is looked at."""
    if broken:
        break_rule(url, "submit", "PERFORM \"holdfast\".lock_names('key', keys);", "NULL;")
    ours = [FIRST, replace(FIRST, id="other", key="other")]
    await store.submit(ours)
    new = [replace(one, id=f"new {one.id}", user_input=2, if_exists=IfExists.REPLACE) for one in ours]
    theirs = [replace(one, id=f"newer {one.id}", user_input=3) for one in reversed(new)]
    async with paused(url) as one, paused(url) as two:
        with gate(url, "submit_replacing", LOCKS_HOLDER) as closed:
            mine = begin(commit_after(one, one.submit(new)))
            await wait_for_waiters(url, 1)
            other = begin(commit_after(two, two.submit(theirs)))
            await wait_for_waiters(url, 2)
            closed.commit()
        assert await deadlocks(mine, other) == broken
    if not broken:
        assert await of_job(store) == {"first": ("k", 3), "other": ("other", 3)}


async def commit_after(store: Any, verb: Any) -> Any:  # noqa: ANN401 - a Paused store, and any of its verbs
    """Do the verb without ever sending it again, and commit."""
    answer = await verb
    await store.finish()
    return answer
