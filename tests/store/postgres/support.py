"""Two sides of a race, moved step by step.

A `Paused` store does its verbs inside a transaction that stays open until `finish()`: the moment between the work of a
function and its COMMIT, stretched. What the other side does meanwhile is started with `begin()`; `is_blocked()` says
whether it waits for a lock, as soon as the server knows.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import psycopg

from holdfast.model.clock import Clock
from holdfast.model.commit import Commit, Expect, Held
from holdfast.model.operations import Move, Operation, WriteStep
from holdfast.model.step import Step, StepState
from holdfast.model.task import NewTask
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim, Claimed, NewWorker
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.connections import PostgresConnection, Row, fetch_on

T = TypeVar("T")
PATIENCE = 60.0
"""Seconds before something that does not happen fails its test."""


class Paused(PostgresStore):
    """A store all of whose verbs happen in one transaction that is still open."""

    connection: PostgresConnection

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        super().__init__(url, clock=clock)
        self._backend.fetch = self._fetch  # type: ignore[method-assign]

    async def _fetch(self, query: str, *values: object, repeatable: bool = True) -> list[Row]:  # noqa: ARG002
        return await fetch_on(self.connection, self._backend.queries[query], values)

    async def finish(self) -> None:
        """Let go: COMMIT."""
        await self.connection.commit()


@asynccontextmanager
async def paused(url: str, clock: Clock | None = None) -> AsyncIterator[Paused]:
    async with Paused(url, clock=clock) as store:
        store.connection = await store._backend.open_connections().connect()
        await store.connection.set_autocommit(False)
        try:
            yield store
        finally:
            with suppress(psycopg.OperationalError):  # the test has ended the session
                await store.connection.rollback()  # without it, the server may keep the locks for a moment longer
            await store.connection.close()


def begin(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    return asyncio.create_task(work)


async def is_blocked(url: str, task: "asyncio.Task[Any]") -> bool:
    """Say, once it is known, whether something waits for a lock or has gone through: however busy the machine is."""
    give_up_at = time.monotonic() + PATIENCE
    while time.monotonic() < give_up_at:
        if task.done():
            return False
        if waiters(url):
            return True
        await asyncio.sleep(0.02)
    raise AssertionError(f"it neither waited for a lock nor went through within {PATIENCE:g} s")


async def wait_for_waiters(url: str, count: int) -> None:
    """Return when so many sessions wait for a lock."""
    give_up_at = time.monotonic() + PATIENCE
    while time.monotonic() < give_up_at:
        if waiters(url) == count:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{count} sessions were to wait for a lock within {PATIENCE:g} s")


def waiters(url: str) -> int:
    """Return how many sessions wait for a lock, by what the server itself says."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    [(count,)] = execute(url, waiting)
    return int(count)


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
    """Take a rule out of a function of the schema, to see the test fail."""
    [(definition,)] = execute(
        url,
        f"SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE p.pronamespace = 'holdfast'::regnamespace "
        f"AND p.proname = '{function}'",
    )
    assert old in definition, definition
    execute(url, definition.replace(old, new))
