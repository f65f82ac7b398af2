"""A user's own table, without any key: whatever is done twice is there twice."""

from __future__ import annotations

from typing import Any, TypeVar

from holdfast import StateStore, Transaction
from holdfast.model.commit import Commit, Held, Verdict
from holdfast.model.operations import Operation, WriteStep
from holdfast.model.step import Step, StepState
from holdfast.model.task import NewTask
from holdfast.model.worker import Claim, Claimed, NewWorker
from holdfast.store.transaction import StoreTransaction

T = TypeVar("T")
LONG = 60.0
"""Seconds: a timeout that no test comes near."""

A_WHILE = 3.0
"""Seconds: a timeout that a test waits for, and a busy machine still does everything that comes before it in."""


class Bookings:
    """The table of a test, in the words of its database."""

    def __init__(self, url: str) -> None:
        self.is_postgres = url.startswith("postgres")
        value = "%s" if self.is_postgres else "?"
        self.insert = f"INSERT INTO bookings (seat) VALUES ({value})"
        self.insert_returning = f"{self.insert} RETURNING seat"

    async def create(self, store: StateStore) -> None:
        await ask(store, "CREATE TABLE bookings (seat TEXT)")

    async def book(self, tx: StoreTransaction | Transaction, seat: str) -> str:
        rows = await tx.execute(self.insert_returning, seat)
        assert rows == [(seat,)]
        return seat


async def ask(store: StateStore, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401
    """Run one statement in a transaction of its own."""

    async def work(tx: StoreTransaction) -> tuple[list[tuple[Any, ...]], None]:
        return await tx.execute(sql, *parameters), None

    rows, verdict = await store.transact(work, timeout=LONG)
    assert verdict is None
    return rows


async def seats(store: StateStore) -> list[str]:
    """What was booked, sorted."""
    return [seat for (seat,) in await ask(store, "SELECT seat FROM bookings ORDER BY seat")]


async def claim(store: StateStore, task_id: str = "a", *, worker_id: str = "worker", lease: float = 60) -> Claimed:
    """Submit a task and have a fresh worker claim it."""
    await store.submit([NewTask(id=task_id, name="job", queue=task_id)])
    await store.register(NewWorker(id=worker_id, lease=lease))
    [claimed] = await store.claim(Claim(worker_id=worker_id, number=1, limit=1, queues=(task_id,), names=("job",)))
    return claimed


def step(key: str = "step") -> WriteStep:
    return WriteStep(Step(key=key, kind="transaction", position=1, state=StepState.COMPLETED, output=b"1"))


def commit(claimed: Claimed, sequence: int, *operations: Operation) -> Commit:
    assert claimed.task.owner is not None
    return Commit(
        task_id=claimed.task.id,
        guard=Held(claimed.task.owner, claimed.fence, sequence),
        operations=operations or (step(),),
        actor=claimed.task.owner,
    )


async def book_with(store: StateStore, bookings: Bookings, seat: str, carried: Commit) -> tuple[str, Verdict]:
    """Book a seat together with a Commit."""

    async def work(tx: StoreTransaction) -> tuple[str, Commit]:
        return await bookings.book(tx, seat), carried

    value, verdict = await store.transact(work, timeout=LONG)
    assert verdict is not None
    return value, verdict


async def keys_of(store: StateStore, task_id: str = "a") -> list[str]:
    """The steps that are journaled."""
    return [one.key for one in await store.steps(task_id)]
