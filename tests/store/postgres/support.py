"""Two sides of a race, moved step by step.

A `Paused` store does its verbs inside a transaction that stays open until `finish()`: the moment between the work of a
function and its COMMIT, stretched. What the other side does meanwhile is started with `begin()`; `is_blocked()` says
that it waits for a lock.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import psycopg

from holdfast.model.commit import Commit, Expect, Held
from holdfast.model.operations import Move, Operation, WriteStep
from holdfast.model.step import Step, StepState
from holdfast.model.task import NewTask
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim, Claimed, NewWorker
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.connections import Connection, Row, fetch_on

T = TypeVar("T")
LONG_ENOUGH = 0.15
"""Seconds after which something that has not happened is taken to be blocked."""


class Paused(PostgresStore):
    """A store all of whose verbs happen in one transaction that is still open."""

    connection: Connection

    async def _fetch(self, query: str, *values: object, repeatable: bool = True) -> list[Row]:  # noqa: ARG002
        return await fetch_on(self.connection, self._queries[query], values)

    async def finish(self) -> None:
        """Let go: COMMIT."""
        await self.connection.commit()


@asynccontextmanager
async def paused(url: str) -> AsyncIterator[Paused]:
    async with Paused(url) as store:
        store.connection = await store._open_connections().connect()
        await store.connection.set_autocommit(False)
        try:
            yield store
        finally:
            await store.connection.close()


def begin(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    return asyncio.create_task(work)


async def is_blocked(task: "asyncio.Task[Any]") -> bool:
    done, _ = await asyncio.wait({task}, timeout=LONG_ENOUGH)
    return not done


async def wait_for_waiters(url: str, count: int) -> None:
    """Return when so many sessions wait for a lock, by what the server itself says: however busy the machine is."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    for _ in range(3000):
        if execute(url, waiting) == [(count,)]:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{count} sessions were to wait for a lock within a minute")


async def claimed(store: PostgresStore, *task_ids: str, worker_id: str = "worker", lease: float = 60) -> list[Claimed]:
    """Submit these tasks and let a fresh worker claim them all; in the order of their ids."""
    await store.submit([NewTask(id=task_id, name="job", queue=worker_id) for task_id in task_ids])
    await store.register(NewWorker(id=worker_id, lease=lease))
    got = await store.claim(Claim(worker_id=worker_id, number=1, limit=100, queues=(worker_id,), names=("job",)))
    return sorted(got, key=lambda one: one.task.id)


def step(key: str = "step", position: int = 1) -> WriteStep:
    return WriteStep(Step(key=key, kind="step", position=position, state=StepState.COMPLETED))


def held(claim: Claimed, sequence: int, *operations: Operation) -> Commit:
    assert claim.task.owner is not None
    return Commit(
        task_id=claim.task.id,
        guard=Held(claim.task.owner, claim.fence, sequence),
        operations=operations,
        actor=claim.task.owner,
    )


def outside(task_id: str, *operations: Operation) -> Commit:
    return Commit(task_id=task_id, guard=Expect(), operations=operations, actor="person")


def move(to: TaskState, **options: Any) -> Move:  # noqa: ANN401 - the fields of a Move
    return Move(to=to, **{"reason": "the test says so"} | options)


COMPLETE = move(TaskState.COMPLETED)


def execute(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements as the owner; return the rows of the last one."""
    with psycopg.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def break_rule(url: str, function: str, old: str, new: str = "") -> None:
    """Take a rule out of a function of the schema, to see that the test would notice."""
    [(definition,)] = execute(
        url,
        f"SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE p.pronamespace = 'holdfast'::regnamespace "
        f"AND p.proname = '{function}'",
    )
    assert old in definition, definition
    execute(url, definition.replace(old, new))
