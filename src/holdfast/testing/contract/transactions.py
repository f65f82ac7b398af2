"""Submissions within a transaction: there with everything else that it writes, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.commit import Commit, Refusal, Verdict
from holdfast.model.errors import Conflict, InvalidValue, QueueFull
from holdfast.model.operations import WriteStep
from holdfast.model.task import IfExists, NewTask, Submitted
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore
from holdfast.store.transaction import StoreTransaction
from holdfast.testing.contract._support import (
    CANCEL,
    Attempt,
    apply_outside,
    claim,
    claimed_ids,
    enter,
    new_task,
    row,
    running_task,
    step,
    stored,
    submit_one,
)
from holdfast.testing.contract.base import ContractBase

T = TypeVar("T")
TIMEOUT = 60.0
QUEUE = "default"


async def transact(
    store: StateStore, work: Callable[[StoreTransaction], Awaitable[T]], commit: Commit | None = None
) -> tuple[T, Verdict | None]:
    """Do this in a transaction."""

    async def working(tx: StoreTransaction) -> tuple[T, Commit | None]:
        return await work(tx), commit

    return await store.transact(working, timeout=TIMEOUT)


async def submit_within(store: StateStore, *tasks: NewTask) -> list[Submitted]:
    """Submit these in one transaction, one after the other."""

    async def work(tx: StoreTransaction) -> list[Submitted]:
        return [answer for task in tasks for answer in await tx.submit([task])]

    answers, _ = await transact(store, work)
    return answers


async def has_none(store: StateStore) -> bool:
    """Say whether this store has no transactions; then it has to refuse them."""
    if not store.capabilities.transactions:
        with pytest.raises(InvalidValue, match="no transaction"):
            await submit_within(store, new_task())
    return not store.capabilities.transactions


class Stop(Exception):
    """Ends a transaction, which is rolled back."""


class TransactionContract(ContractBase):
    """StoreTransaction.submit."""

    async def test_a_submission_in_a_transaction_stores_what_submit_stores(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """Whatever the options: tasks that were submitted in both ways differ in their ids only."""
        if await has_none(store):
            return
        later, deadline = clock.now() + timedelta(seconds=50), clock.now() + timedelta(seconds=99)
        kinds: Sequence[dict[str, object]] = (
            {},
            {"user_input": {"a": ["\0", "\U0001f600", 1.5]}, "agent_id": "writer", "priority": -3, "queue": "slow"},
            {"key": "k", "labels": {"tenant": "acme"}, "available_at": later, "deadline": deadline},
            {"budget": {"tokens": 5}, "schedule": "nightly", "actor": "person"},
            {"key": "debounced", "available_at": later, "debounce_max": timedelta(seconds=70)},
            {"state": TaskState.COMPLETED, "result": 7},
        )
        for number, options in enumerate(kinds):
            with row(*options):
                plain = new_task(f"plain {number}", **options)
                key = {} if plain.key is None else {"key": f"{plain.key} again"}
                await store.submit([plain])
                await submit_within(store, new_task(f"within {number}", **(options | key)))
                one, other = [await stored(store, f"{way} {number}") for way in ("plain", "within")]
                assert replace(other, id=one.id, key=one.key) == one
                accounts = [await store.accounts(task.id) for task in (one, other)]
                assert [(meter.meter, meter.limit) for meter in accounts[0]] == [
                    (meter.meter, meter.limit) for meter in accounts[1]
                ]
                histories = [await store.history(task.id) for task in (one, other)]
                assert [replace(move, task_id=one.id) for move in histories[1]] == histories[0]

    async def test_a_submission_is_claimed_after_the_commit_and_not_before(self, store: StateStore) -> None:
        """A claim that is made meanwhile waits for the end, or finds nothing."""
        if await has_none(store):
            return
        await enter(store)
        claims: list[asyncio.Task[list[str]]] = []

        async def work(tx: StoreTransaction) -> None:
            [answer] = await tx.submit([new_task()])
            assert answer == Submitted(task_id="task", created=True)
            claims.append(asyncio.create_task(claimed_ids(store, number=1, queues=(QUEUE,))))
            await asyncio.wait(claims, timeout=0.1)
            assert not claims[0].done() or claims[0].result() == []

        await transact(store, work)
        assert await claims[0] + await claimed_ids(store, number=2, queues=(QUEUE,)) == ["task"]

    async def test_a_transaction_that_fails_leaves_no_task(self, store: StateStore) -> None:
        """Whether it raises, is cancelled, or its Commit is refused; a claim that was made meanwhile finds nothing."""
        if await has_none(store):
            return
        zombie = await running_task(store, "held", "dead worker", queue="held")
        await store.retire("dead worker")
        await enter(store)
        assert await claimed_ids(store, queues=("held",)) == ["held"]
        claims: list[asyncio.Task[list[str]]] = []
        inside = asyncio.Event()

        async def fail(tx: StoreTransaction) -> None:
            await tx.submit([new_task()])
            claims.append(asyncio.create_task(claimed_ids(store, number=2, queues=(QUEUE,))))
            await asyncio.wait(claims, timeout=0.1)
            raise Stop

        async def wait(tx: StoreTransaction) -> None:
            await tx.submit([new_task()])
            inside.set()
            await asyncio.Event().wait()

        async def submit(tx: StoreTransaction) -> None:
            await tx.submit([new_task()])

        with pytest.raises(Stop):
            await transact(store, fail)
        assert await claims[0] == []
        cancelled = asyncio.create_task(transact(store, wait))
        await inside.wait()
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        _, verdict = await transact(store, submit, zombie.commit(WriteStep(step())))
        assert verdict is not None
        assert verdict.refusal is Refusal.SUPERSEDED
        assert {task.id for task in (await store.find()).items} == {"held"}
        assert await store.steps("held") == []

    async def test_a_submission_is_part_of_the_commit_of_a_worker(self, store: StateStore) -> None:
        """Line and task are there together; and the number is used up, so that it happens once."""
        if await has_none(store):
            return
        attempt: Attempt = await running_task(store, "held")

        async def submit(tx: StoreTransaction) -> list[Submitted]:
            return await tx.submit([new_task("one"), new_task("two", key="k")])

        commit = attempt.commit(WriteStep(step("line")))
        answers, verdict = await transact(store, submit, commit)
        assert ([answer.created for answer in answers], verdict is not None and verdict.applied) == ([True, True], True)
        assert [line.key for line in await store.steps("held")] == ["line"]
        _, again = await transact(store, submit, commit)
        assert again is not None
        assert again.refusal is Refusal.OUT_OF_ORDER
        assert {task.id for task in (await store.find()).items} == {"held", "one", "two"}

    async def test_submissions_of_one_transaction_meet_each_other(self, store: StateStore) -> None:
        """By id and by key, as those of one call do; a conflict is an answer, and spoils nothing."""
        if await has_none(store):
            return
        await submit_one(store, "stored", key="old", user_input=1)
        answers = await submit_within(
            store,
            new_task("first", key="k", user_input=1),
            new_task("second", key="k", user_input=1),
            new_task("third", key="k", user_input=2),
            new_task("first", key="k", user_input=1),
            new_task("fourth", key="old", user_input=2),
            new_task("fifth", key="old", user_input=1),
        )
        assert answers == [
            Submitted(task_id="first", created=True),
            Submitted(task_id="first", created=False),
            Submitted(task_id="first", created=False, conflict=True),
            Submitted(task_id="first", created=False),
            Submitted(task_id="stored", created=False, conflict=True),
            Submitted(task_id="stored", created=False),
        ]
        assert {task.id for task in (await store.find()).items} == {"stored", "first"}

    async def test_a_replacement_is_rolled_back_too(self, store: StateStore, clock: ManualClock) -> None:
        """What was replaced or put off stands as before; and committed, it is as after submit."""
        if await has_none(store):
            return
        await submit_one(store, "waiting", key="k", user_input=1, labels={"tenant": "acme"})
        before = await stored(store, "waiting")
        clock.advance(5)
        replacing = new_task("new", key="k", user_input=2, if_exists=IfExists.REPLACE)

        async def fail(tx: StoreTransaction) -> None:
            [answer] = await tx.submit([replacing])
            assert answer == Submitted(task_id="waiting", created=False)
            raise Stop

        with pytest.raises(Stop):
            await transact(store, fail)
        assert await stored(store, "waiting") == before
        await submit_within(store, replacing)
        assert (await stored(store, "waiting")).user_input == 2

    async def test_a_full_queue_leaves_the_transaction_usable(self, store: StateStore) -> None:
        """Work that catches the refusal goes on, and commits the rest; otherwise nothing is stored."""
        if await has_none(store):
            return
        await store.set_queue(QUEUE, max_pending=2)

        async def fill(tx: StoreTransaction) -> None:
            await tx.submit([new_task("a")])
            with pytest.raises(QueueFull, match="'default' is full: 2"):
                await tx.submit([new_task("b"), new_task("c")])
            await tx.submit([new_task("elsewhere", queue="other")])
            await tx.submit([new_task("d")])

        async def overfill(tx: StoreTransaction) -> None:
            await tx.submit([new_task("another", queue="other")])
            await tx.submit([new_task("b")])

        await transact(store, fill)
        with pytest.raises(QueueFull):
            await transact(store, overfill)
        assert {task.id for task in (await store.find()).items} == {"a", "elsewhere", "d"}
        [settings] = [one for one in await store.queue_settings() if one.name == QUEUE]
        assert settings.pending == 2
        await apply_outside(store, "a", CANCEL)
        assert await submit_within(store, new_task("b")) == [Submitted(task_id="b", created=True)]

    async def test_other_refusals_leave_it_usable_too(self, store: StateStore) -> None:
        """A replacement into another queue, and what is refused at the door."""
        if await has_none(store):
            return
        await submit_one(store, "waiting", key="k")
        refused = (
            (Conflict, [new_task("new", key="k", queue="other", if_exists=IfExists.REPLACE)]),
            (InvalidValue, [new_task("bad", user_input=float("inf"))]),
        )

        async def work(tx: StoreTransaction) -> None:
            for kind, tasks in refused:
                with row(kind.__name__), pytest.raises(kind):
                    await tx.submit([new_task("beside"), *tasks])
            assert await tx.submit([]) == []
            await tx.submit([new_task("good")])

        await transact(store, work)
        assert {task.id for task in (await store.find()).items} == {"waiting", "good"}

    async def test_nothing_is_submitted_after_a_statement_that_failed(self, store: StateStore) -> None:
        """The transaction is spoilt, in every database."""
        if await has_none(store):
            return

        async def work(tx: StoreTransaction) -> None:
            with pytest.raises(Exception, match="no_such_table"):
                await tx.execute("SELECT * FROM no_such_table")
            with pytest.raises(InvalidValue, match="a submission was not run"):
                await tx.submit([new_task()])

        with pytest.raises(InvalidValue, match="nothing was written"):
            await transact(store, work)
        assert await store.get("task") is None

    async def test_hints_of_a_submission_come_with_the_commit(self, store: StateStore) -> None:
        """None comes for what was rolled back."""
        if await has_none(store):
            return

        async def fail(tx: StoreTransaction) -> None:
            await tx.submit([new_task("undone", queue="undone")])
            raise Stop

        async with store.listen() as listener:
            await listener.wait(0.1)
            with pytest.raises(Stop):
                await transact(store, fail)
            await submit_within(store, new_task(queue="done"))
            heard: set[str] = set()
            async with asyncio.timeout(TIMEOUT):
                while not heard >= {"queue:done", "task:task"}:
                    heard |= await listener.wait()
        assert not heard & {"queue:undone", "task:undone"}

    async def test_an_open_transaction_does_not_hide_other_tasks(self, store: StateStore) -> None:
        """What was stored before is claimed as ever, by a worker that need not wait for long."""
        if await has_none(store):
            return
        await enter(store)
        await submit_one(store, "before")
        await submit_within(store, new_task("within"))
        assert [one.task.id for one in await claim(store, queues=(QUEUE,))] == ["before", "within"]
