"""ctx.transaction and hold.transaction: exactly once, whatever becomes of the worker, the branch or the store."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from holdfast import (
    Context,
    DeadlineExceeded,
    Holdfast,
    HoldfastError,
    InvalidValue,
    ManualClock,
    Retry,
    StepFailed,
    StepState,
    StoreBusy,
    StoreUnavailable,
    SyncContext,
    SyncTransaction,
    TaskCancelled,
    TaskFailed,
    TaskState,
    Transaction,
)
from holdfast.engine.attempt.stop_reasons import Unwind
from holdfast.engine.worker import host
from holdfast.model.commit import Commit, Verdict
from holdfast.store import outage
from holdfast.store.transaction import StoreTransaction, Work
from tests.engine.steps.transaction.support import A_WHILE, LONG, Bookings, seats
from tests.engine.support import crashing_worker, ended, reaches, settle, steps_of, until, vanish

ONE_ATTEMPT = Retry(max_attempts=1)
AT_ONCE = Retry(initial=0.0)


@pytest.fixture
def bookings(url: str) -> Bookings:
    return Bookings(url)


async def work_until_idle(hold: Holdfast, *handles: Any, **options: Any) -> None:  # noqa: ANN401
    async with hold.worker(**options):
        for handle in handles:
            await ended(handle)


# Once


async def test_what_was_done_is_not_done_again(hold: Holdfast, bookings: Bookings) -> None:
    """The worker dies right after the transaction: the next one finds its result, and one row."""
    calls, reached, go_on = 0, asyncio.Event(), asyncio.Event()

    async def book(tx: Transaction, seat: str) -> str:
        nonlocal calls
        calls += 1
        return await bookings.book(tx, seat)

    @hold.task
    async def travel(ctx: Context) -> str:
        seat = await ctx.transaction("book-seat", book, "1A")
        reached.set()
        await go_on.wait()
        return seat

    handle = await hold.submit(travel)
    async with crashing_worker(hold):
        await reached.wait()
    go_on.set()
    await work_until_idle(hold, handle)
    assert (await ended(handle), calls, await seats(hold.store)) == ("1A", 1, ["1A"])
    step = (await steps_of(hold, handle))["book-seat"]
    assert (step.kind, step.state) == ("transaction", StepState.COMPLETED)
    assert step.started_at is not None
    assert step.finished_at is not None
    assert step.started_at <= step.finished_at


async def test_what_was_not_finished_is_done_by_the_next_one(hold: Holdfast, bookings: Bookings) -> None:
    """The worker dies inside of the transaction, after its SQL: nothing of that is there."""
    calls, inside = 0, asyncio.Event()

    async def book(tx: Transaction, seat: str) -> str:
        nonlocal calls
        calls += 1
        await bookings.book(tx, seat)
        if calls == 1:
            inside.set()
            await asyncio.Event().wait()
        return seat

    @hold.task
    async def travel(ctx: Context) -> str:
        return await ctx.transaction("book-seat", book, "1A")

    handle = await hold.submit(travel)
    async with crashing_worker(hold):
        await inside.wait()
    await work_until_idle(hold, handle)
    assert (await ended(handle), calls, await seats(hold.store)) == ("1A", 2, ["1A"])


@dataclass
class Ticket:
    seat: str
    at: datetime


async def test_first_run_and_replay_see_the_same_value(hold: Holdfast) -> None:
    ticket = Ticket("1A", datetime(2030, 1, 1, tzinfo=UTC))
    seen: list[tuple[Ticket, Ticket]] = []
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def typed(tx: Transaction) -> Ticket:
        del tx
        return ticket

    async def untyped(tx: Transaction):  # type: ignore[no-untyped-def] # noqa: ANN202
        del tx
        return ticket

    @hold.task
    async def travel(ctx: Context) -> None:
        seen.append((await ctx.transaction("a", typed), await ctx.transaction("b", untyped, returns=Ticket)))
        reached.set()
        await go_on.wait()

    handle = await hold.submit(travel)
    async with crashing_worker(hold):
        await reached.wait()
    go_on.set()
    await work_until_idle(hold, handle)
    assert seen == [(ticket, ticket)] * 2
    assert all(one is not ticket for pair in seen for one in pair)  # what is seen went through the journal


async def test_a_value_that_cannot_be_stored_undoes_the_sql(hold: Holdfast, bookings: Bookings) -> None:
    async def book(tx: Transaction) -> Any:  # noqa: ANN401
        await bookings.book(tx, "1A")
        return object()

    @hold.task(retry=ONE_ATTEMPT)
    async def travel(ctx: Context) -> None:
        await ctx.transaction("book", book)

    handle = await hold.submit(travel)
    async with hold.worker():
        with pytest.raises(TaskFailed, match="CodecError"):
            await ended(handle)
    assert await seats(hold.store) == []


async def test_names_and_keys_are_those_of_steps(hold: Holdfast, bookings: Bookings) -> None:
    async def nothing() -> None: ...

    @hold.task(retry=ONE_ATTEMPT)
    async def travel(ctx: Context) -> list[str]:
        await ctx.step("other", nothing)
        first = await ctx.transaction("book", bookings.book, "1A")
        second = await ctx.transaction("book", bookings.book, "2B")
        third = await ctx.transaction("book", bookings.book, "3C", key="mine")
        return [first, second, third]

    handle = await hold.submit(travel)
    await work_until_idle(hold, handle)
    assert await ended(handle) == ["1A", "2B", "3C"]
    assert set(await steps_of(hold, handle)) == {"other", "book", "book#2", "mine"}


async def test_a_step_is_not_a_transaction(hold: Holdfast, bookings: Bookings) -> None:
    """Code that was changed while a task was under way gets an error, as for any step."""
    reached, as_step = asyncio.Event(), True

    async def book() -> str:
        return "1A"

    @hold.task(retry=ONE_ATTEMPT)
    async def travel(ctx: Context) -> str:
        if as_step:
            await ctx.step("book", book)
            reached.set()
            await asyncio.Event().wait()
        return await ctx.transaction("book", bookings.book, "1A")

    handle = await hold.submit(travel)
    async with crashing_worker(hold):
        await reached.wait()
    as_step = False
    async with hold.worker():
        with pytest.raises(TaskFailed, match="recorded 'book' as 'step'"):
            await ended(handle)
    assert await seats(hold.store) == []


# Blocking code


async def test_a_blocking_function_gets_a_blocking_transaction(hold: Holdfast, bookings: Bookings) -> None:
    threads: set[int] = set()

    def book(tx: SyncTransaction, seat: str) -> str:
        threads.add(threading.get_ident())
        assert tx.execute(bookings.insert_returning, seat) == [(seat,)]
        return seat

    @hold.task
    async def travel(ctx: Context) -> str:
        return await ctx.transaction("book", book, "1A")

    @hold.task
    def travel_blocking(ctx: SyncContext) -> list[str]:
        return [ctx.transaction("a", book, "2B"), ctx.transaction("b", bookings.book, "3C")]

    handles: list[Any] = [await hold.submit(travel), await hold.submit(travel_blocking)]
    await work_until_idle(hold, *handles)
    assert [await ended(handle) for handle in handles] == ["1A", ["2B", "3C"]]
    assert threading.get_ident() not in threads
    assert await seats(hold.store) == ["1A", "2B", "3C"]


async def test_a_blocking_function_that_is_too_slow_is_abandoned(hold: Holdfast, bookings: Bookings) -> None:
    go_on, said = threading.Event(), []

    def book(tx: SyncTransaction) -> None:
        tx.execute(bookings.insert, "1A")
        go_on.wait(LONG)
        try:
            tx.execute(bookings.insert, "2B")
        except HoldfastError as error:
            said.append(str(error))

    @hold.task(retry=ONE_ATTEMPT)
    async def travel(ctx: Context) -> None:
        await ctx.transaction("book", book, timeout=A_WHILE)

    handle = await hold.submit(travel)
    async with hold.worker():
        with pytest.raises(TaskFailed, match="DeadlineExceeded"):
            await ended(handle)
        go_on.set()
        await until(lambda: said)
    assert "the transaction is over" in said[0]
    assert await seats(hold.store) == []


async def test_a_blocking_statement_that_is_too_slow_is_stopped(hold: Holdfast, bookings: Bookings) -> None:
    slow = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n WHERE i < 0"

    def book(tx: SyncTransaction) -> None:
        tx.execute(bookings.insert, "1A")
        tx.execute(slow)

    async with asyncio.timeout(LONG):
        with pytest.raises(DeadlineExceeded):
            await hold.transaction(book, timeout=0.1)
        assert await seats(hold.store) == []


async def test_a_coroutine_from_a_blocking_function_is_a_mistake(hold: Holdfast, bookings: Bookings) -> None:
    with pytest.raises(InvalidValue, match="pass the async function itself"):
        await hold.transaction(lambda tx: bookings.book(tx, "1A"))
    assert await seats(hold.store) == []


# Failing


async def test_a_failure_is_recorded_and_replays(hold: Holdfast, bookings: Bookings) -> None:
    calls, reached, go_on = 0, asyncio.Event(), asyncio.Event()

    async def book(tx: Transaction, seat: str) -> str:
        nonlocal calls
        calls += 1
        await bookings.book(tx, seat)
        raise LookupError("no such passenger")

    @hold.task
    async def travel(ctx: Context) -> str:
        try:
            return await ctx.transaction("book", book, "1A")
        except StepFailed as error:
            reached.set()
            await go_on.wait()
            return f"{error.type_name}: {error.message}"

    handle = await hold.submit(travel)
    async with crashing_worker(hold):
        await reached.wait()
    go_on.set()
    await work_until_idle(hold, handle)
    assert (await ended(handle), calls) == ("LookupError: no such passenger", 1)
    assert (await steps_of(hold, handle))["book"].state is StepState.FAILED
    assert await seats(hold.store) == []


async def test_the_task_retries_it(hold: Holdfast, bookings: Bookings) -> None:
    calls = 0

    async def book(tx: Transaction, seat: str) -> str:
        nonlocal calls
        calls += 1
        await bookings.book(tx, seat)
        if calls < 3:
            raise ConnectionError("later")
        return seat

    @hold.task(retry=AT_ONCE)
    async def travel(ctx: Context) -> str:
        return await ctx.transaction("book", book, "1A")

    handle = await hold.submit(travel)
    await work_until_idle(hold, handle)
    assert (await ended(handle), calls, await seats(hold.store)) == ("1A", 3, ["1A"])


async def test_sql_that_is_wrong_fails_the_step(hold: Holdfast) -> None:
    async def book(tx: Transaction) -> None:
        await tx.execute("INSERT INTO nowhere VALUES (1)")

    @hold.task(retry=ONE_ATTEMPT)
    async def travel(ctx: Context) -> None:
        await ctx.transaction("book", book)

    handle = await hold.submit(travel)
    async with hold.worker():
        with pytest.raises(TaskFailed, match=r"StoreError.*refused 'INSERT INTO nowhere"):
            await ended(handle)


async def test_a_transaction_that_stays_open_for_too_long(hold: Holdfast, bookings: Bookings) -> None:
    async def book(tx: Transaction) -> None:
        await bookings.book(tx, "1A")
        await asyncio.Event().wait()

    @hold.task(retry=ONE_ATTEMPT)
    async def travel(ctx: Context) -> str:
        try:
            await ctx.transaction("book", book, timeout=0.05)
        except StepFailed as error:
            return error.type_name
        return ""

    handle = await hold.submit(travel)
    await work_until_idle(hold, handle)
    assert await ended(handle) == "holdfast.DeadlineExceeded"
    assert await seats(hold.store) == []


@pytest.mark.parametrize("error", [StoreUnavailable("away"), StoreBusy("locked")])
async def test_a_store_that_does_not_answer_is_asked_again(
    hold: Holdfast, bookings: Bookings, monkeypatch: pytest.MonkeyPatch, error: HoldfastError
) -> None:
    """It means that nothing was written, so the whole function is called again."""
    calls = failures = 0
    transact = hold.store.transact

    async def book(tx: Transaction, seats: list[str]) -> str:
        nonlocal calls
        calls += 1
        return await bookings.book(tx, seats.pop())  # which leaves nothing for the next call, were it the same list

    async def unreliable(work: Work[Any], *, timeout: float) -> Any:  # noqa: ANN401
        nonlocal failures

        async def lost(tx: StoreTransaction) -> Any:  # noqa: ANN401
            nonlocal failures
            await work(tx)
            failures += 1
            raise error

        return await transact(lost if failures < 3 else work, timeout=timeout)

    monkeypatch.setattr(hold.store, "transact", unreliable)
    monkeypatch.setattr(outage, "LONGEST_PAUSE", 0.01)

    @hold.task(retry=ONE_ATTEMPT)
    async def travel(ctx: Context) -> str:
        ctx.now()
        return await ctx.transaction("book", book, ["1A"])

    handle = await hold.submit(travel)
    await work_until_idle(hold, handle)
    assert (failures, calls) == (3, 4)
    monkeypatch.undo()
    assert await seats(hold.store) == ["1A"]
    assert set(await steps_of(hold, handle)) == {"holdfast:now", "book"}  # what rode along was not lost on the way


# Branches


async def test_steps_and_transactions_side_by_side(hold: Holdfast, bookings: Bookings) -> None:
    async def fetch(number: int) -> int:
        await asyncio.sleep(0.001 * (number % 3))
        return number

    @hold.task(retry=ONE_ATTEMPT)
    async def travel(ctx: Context) -> list[Any]:
        calls: list[Any] = []
        for number in range(12):
            calls.append(ctx.step("fetch", fetch, number, key=f"fetch-{number}"))
            calls.append(ctx.transaction("book", bookings.book, f"{number}A", key=f"book-{number}"))
            if number % 4 == 0:
                calls.append(ctx.progress(number, key=str(number)))
        return [one for one in await asyncio.gather(*calls) if one is not None]

    handles = [await hold.submit(travel) for _ in range(3)]
    await work_until_idle(hold, *handles)
    for handle in handles:
        assert await ended(handle) == [one for number in range(12) for one in (number, f"{number}A")]
        steps = await hold.store.steps(handle.id)
        assert sum(step.kind == "transaction" for step in steps) == 12
    assert await seats(hold.store) == sorted(f"{number}A" for number in range(12) for _ in range(3))


async def test_others_wait_while_a_transaction_is_open(hold: Holdfast, bookings: Bookings) -> None:
    inside, go_on, done = asyncio.Event(), asyncio.Event(), []

    async def book(tx: Transaction, seat: str) -> str:
        inside.set()
        await go_on.wait()
        return await bookings.book(tx, seat)

    async def fetch() -> None:
        await inside.wait()

    @hold.task(retry=ONE_ATTEMPT)
    async def travel(ctx: Context) -> None:
        async def branch() -> None:
            await ctx.step("fetch", fetch)
            done.append("fetch")

        async def other() -> None:
            await ctx.transaction("book", book, "1A")
            done.append("book")

        await asyncio.gather(branch(), other())

    handle = await hold.submit(travel)
    async with hold.worker():
        await inside.wait()
        await asyncio.sleep(0.05)
        assert done == []
        go_on.set()
        await ended(handle)
    assert sorted(done) == ["book", "fetch"]


async def test_what_a_cancelled_branch_sent_arrives_before_a_transaction(hold: Holdfast, bookings: Bookings) -> None:
    """Its Commit is still on its way, under a number: the transaction must neither take that number nor come first."""
    held_up, go_on = asyncio.Event(), asyncio.Event()
    commit = hold.store.commit

    async def hold_up(commits: Sequence[Commit]) -> list[Verdict]:
        if not held_up.is_set():
            held_up.set()
            await go_on.wait()
        return await commit(commits)

    async def fetch() -> str:
        return "fetched"

    @hold.task(retry=ONE_ATTEMPT)
    async def travel(ctx: Context) -> str:
        branch = asyncio.ensure_future(ctx.step("slow", fetch))
        await held_up.wait()
        branch.cancel()
        await asyncio.wait([branch])
        asyncio.get_running_loop().call_later(0.05, go_on.set)
        return await ctx.transaction("book", bookings.book, "1A")

    hold.services.committer._send = hold_up
    handle = await hold.submit(travel)
    await work_until_idle(hold, handle)
    assert (await ended(handle), await seats(hold.store)) == ("1A", ["1A"])
    assert set(await steps_of(hold, handle)) == {"slow", "book"}


async def test_a_branch_that_is_cut_off_behind_a_transaction_takes_nothing_along(hold: Holdfast) -> None:
    """What others have buffered is written with the transaction, not with the Commit that waits behind it."""
    times: list[datetime] = []

    @hold.task
    async def trip(ctx: Context) -> str:
        times.append(ctx.now())

        is_alone, is_cut_off = asyncio.Event(), asyncio.Event()

        async def stand_alone(_: Transaction) -> None:
            is_alone.set()
            await is_cut_off.wait()

        async def be_cut_off() -> None:
            await is_alone.wait()
            behind = asyncio.create_task(ctx.progress(1))
            for _ in range(20):
                await asyncio.sleep(0)
            behind.cancel()
            await asyncio.wait([behind])
            is_cut_off.set()

        branches = [ctx.transaction("alone", stand_alone)]
        await asyncio.gather(*branches, *([be_cut_off()] if len(times) == 1 else []))
        await ctx.wait_event("go")
        return "there"

    async with hold.worker():
        handle = await hold.submit(trip)
        await reaches(handle, TaskState.WAITING)
        await hold.emit("go")
        assert await ended(handle) == "there"
    assert len(times) == 2
    assert times[0] == times[1]


async def test_a_branch_that_gives_its_transaction_up(hold: Holdfast, bookings: Bookings) -> None:
    """Cancelled by the task's own code: nothing of it stays, and the task goes on under the right numbers."""
    calls, inside = 0, asyncio.Event()

    async def book(tx: Transaction, seat: str) -> str:
        nonlocal calls
        calls += 1
        await bookings.book(tx, seat)
        inside.set()
        await asyncio.Event().wait()
        return seat

    async def fetch() -> str:
        return "fetched"

    @hold.task(retry=ONE_ATTEMPT)
    async def travel(ctx: Context) -> list[str]:
        ctx.now()
        for name, seat in (("never", "1A"), ("never-either", "2B")):
            inside.clear()
            branch = asyncio.ensure_future(ctx.transaction(name, book, seat))
            await inside.wait()
            branch.cancel()
            await asyncio.wait([branch])
        return [await ctx.transaction("book", bookings.book, "3C"), await ctx.step("fetch", fetch)]

    handle = await hold.submit(travel)
    await work_until_idle(hold, handle)
    assert (await ended(handle), calls) == (["3C", "fetched"], 2)
    assert await seats(hold.store) == ["3C"]
    assert set(await steps_of(hold, handle)) == {"holdfast:now", "book", "fetch"}


async def test_a_branch_that_gives_up_what_was_committed_already(
    hold: Holdfast, bookings: Bookings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelled before it heard the answer: the number is used, and what comes next must not pass for the same."""
    transact, committed = hold.store.transact, asyncio.Event()

    async def keep_the_answer(work: Work[Any], *, timeout: float) -> Any:  # noqa: ANN401
        await transact(work, timeout=timeout)
        committed.set()
        await asyncio.Event().wait()

    async def fetch() -> str:
        return "fetched"

    @hold.task(retry=ONE_ATTEMPT)
    async def travel(ctx: Context) -> str:
        with monkeypatch.context() as patched:
            patched.setattr(hold.store, "transact", keep_the_answer)
            branch = asyncio.ensure_future(ctx.transaction("book", bookings.book, "1A"))
            await committed.wait()
            branch.cancel()
            await asyncio.wait([branch])
        await ctx.step("fetch", fetch)
        return await ctx.transaction("book-more", bookings.book, "2B")

    handle = await hold.submit(travel)
    await work_until_idle(hold, handle)
    assert await ended(handle) == "2B"
    assert await seats(hold.store) == ["1A", "2B"]
    assert set(await steps_of(hold, handle)) == {"book", "fetch", "book-more"}


async def test_numbers_that_went_wrong_are_put_right(hold: Holdfast, bookings: Bookings) -> None:
    calls = 0

    async def book(tx: Transaction, seat: str) -> str:
        nonlocal calls
        calls += 1
        return await bookings.book(tx, seat)

    @hold.task(retry=ONE_ATTEMPT)
    async def travel(ctx: Context) -> str:
        attempt = ctx._attempt
        attempt.outbox._sequence = attempt.outbox._acknowledged = 7
        ctx.now()
        return await ctx.transaction("book", book, "1A")

    handle = await hold.submit(travel)
    await work_until_idle(hold, handle)
    assert (await ended(handle), calls) == ("1A", 2)
    assert await seats(hold.store) == ["1A"]
    assert set(await steps_of(hold, handle)) == {"holdfast:now", "book"}


async def test_what_was_buffered_rides_along(hold: Holdfast, bookings: Bookings) -> None:
    times: list[datetime] = []
    reached, go_on = asyncio.Event(), asyncio.Event()

    @hold.task
    async def travel(ctx: Context) -> None:
        times.append(ctx.now())
        await ctx.transaction("book", bookings.book, "1A")
        reached.set()
        await go_on.wait()

    handle = await hold.submit(travel)
    async with crashing_worker(hold):
        await reached.wait()
    assert set(await steps_of(hold, handle)) == {"holdfast:now", "book"}
    go_on.set()
    await work_until_idle(hold, handle)
    assert len(times) == 2
    assert times[0] == times[1]


async def test_what_was_buffered_is_not_lost_with_a_transaction_that_fails(hold: Holdfast, bookings: Bookings) -> None:
    async def book(tx: Transaction) -> None:
        await bookings.book(tx, "1A")
        raise LookupError

    @hold.task(retry=ONE_ATTEMPT)
    async def travel(ctx: Context) -> None:
        ctx.now()
        with pytest.raises(StepFailed):
            await ctx.transaction("book", book)

    handle = await hold.submit(travel)
    await work_until_idle(hold, handle)
    assert set(await steps_of(hold, handle)) == {"holdfast:now", "book"}


async def test_a_long_one_is_not_noted_as_running_afterwards(
    hold: Holdfast, bookings: Bookings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "NOTE_STEPS_AFTER", 0.01)
    go_on = asyncio.Event()

    async def book(tx: Transaction, seat: str) -> str:
        await asyncio.sleep(0.2)
        return await bookings.book(tx, seat)

    @hold.task(retry=ONE_ATTEMPT)
    async def travel(ctx: Context) -> None:
        await ctx.transaction("book", book, "1A")
        await go_on.wait()

    handle = await hold.submit(travel)
    async with hold.worker():
        await until(lambda: seats_are(hold, ["1A"]))
        await asyncio.sleep(0.1)
        assert (await steps_of(hold, handle))["book"].state is StepState.COMPLETED
        go_on.set()
        await ended(handle)


async def seats_are(hold: Holdfast, expected: list[str]) -> bool:
    return await seats(hold.store) == expected


# Being stopped


async def test_a_cancelled_task_leaves_nothing(hold: Holdfast, bookings: Bookings) -> None:
    inside = asyncio.Event()

    async def book(tx: Transaction) -> None:
        await bookings.book(tx, "1A")
        inside.set()
        await asyncio.Event().wait()

    @hold.task
    async def travel(ctx: Context) -> None:
        await ctx.transaction("book", book)

    handle = await hold.submit(travel)
    async with hold.worker() as worker:
        await inside.wait()
        cancelling = asyncio.create_task(handle.cancel("enough"))
        if not bookings.is_postgres:
            # No process can write the request while the transaction is open; the worker learns of it in memory.
            await settle()
            for attempt in list(worker._host.attempts.values()):
                attempt.hand_back()
        await cancelling
        with pytest.raises(TaskCancelled):
            await ended(handle)
    assert await seats(hold.store) == []


async def test_a_deadline_passes_inside_of_it(url: str, bookings: Bookings) -> None:
    inside, clock = asyncio.Event(), ManualClock()

    async def book(tx: Transaction) -> None:
        await bookings.book(tx, "1A")
        inside.set()
        await asyncio.Event().wait()

    async with Holdfast(url, clock=clock) as hold:
        await bookings.create(hold.store)

        @hold.task(deadline=5)
        async def travel(ctx: Context) -> None:
            await ctx.transaction("book", book)

        handle = await hold.submit(travel)
        async with hold.worker():
            await inside.wait()
            clock.advance(6)
            with pytest.raises(TaskFailed, match="deadline"):
                await ended(handle)
        assert await seats(hold.store) == []


async def test_a_zombies_transaction_writes_nothing(hold: Holdfast, bookings: Bookings) -> None:
    """A worker that was taken for dead, and does not know it: only what the other one did is there."""
    calls, held_up, go_on = 0, asyncio.Event(), asyncio.Event()
    transact = hold.store.transact

    async def book(tx: Transaction) -> str:
        nonlocal calls
        calls += 1
        return await bookings.book(tx, f"{calls}A")

    @hold.task
    async def travel(ctx: Context) -> str:
        return await ctx.transaction("book", book)

    async def hold_up(work: Work[Any], *, timeout: float) -> Any:  # noqa: ANN401
        held_up.set()
        await go_on.wait()
        return await transact(work, timeout=timeout)

    handle = await hold.submit(travel)
    with mock.patch.object(hold.store, "transact", hold_up):
        zombie = await hold.worker(concurrency=1).__aenter__()  # busy: it claims nothing, and so does not learn of it
        await held_up.wait()
    for beating in zombie._host._beating:  # nor from its heartbeat
        beating.cancel()
    await hold.store.retire(zombie.id)
    await work_until_idle(hold, handle)
    go_on.set()
    await until(lambda: not zombie._host.attempts)
    await vanish(zombie)
    assert calls == 2
    assert (await ended(handle), await seats(hold.store)) == ("1A", ["1A"])


async def test_an_attempt_that_is_over_writes_nothing(hold: Holdfast, bookings: Bookings) -> None:
    """The worker knows that it lost the task; a branch that is not awaited does not: the store has no news of it."""
    branches: list[asyncio.Future[Any]] = []
    waiting, go_on = asyncio.Event(), asyncio.Event()

    async def book(tx: Transaction, seat: str) -> str:
        waiting.set()
        await go_on.wait()
        return await bookings.book(tx, seat)

    @hold.task
    async def travel(ctx: Context) -> None:
        branches.append(asyncio.ensure_future(ctx.transaction("book", book, "1A")))
        await asyncio.Event().wait()

    handle = await hold.submit(travel)
    worker = await hold.worker().__aenter__()
    await waiting.wait()
    await vanish(worker)
    go_on.set()
    await asyncio.wait(branches)
    assert isinstance(branches[0].exception(), Unwind)
    assert await seats(hold.store) == []
    assert await hold.store.steps(handle.id) == []


async def test_a_worker_that_stops_hands_it_back(hold: Holdfast, bookings: Bookings) -> None:
    calls, inside = 0, asyncio.Event()

    async def book(tx: Transaction, seat: str) -> str:
        nonlocal calls
        calls += 1
        await bookings.book(tx, seat)
        if calls == 1:
            inside.set()
            await asyncio.Event().wait()
        return seat

    @hold.task
    async def travel(ctx: Context) -> str:
        return await ctx.transaction("book", book, "1A")

    handle = await hold.submit(travel)
    async with hold.worker(grace=0) as worker:
        await inside.wait()
        worker.force()
    assert (await handle.task()).state is TaskState.PENDING
    await work_until_idle(hold, handle)
    assert (await ended(handle), await seats(hold.store)) == ("1A", ["1A"])


# Mistakes


async def test_ctx_and_hold_are_refused_inside(hold: Holdfast, bookings: Bookings) -> None:
    said: list[str] = []

    async def nothing() -> None: ...

    @hold.task(retry=ONE_ATTEMPT)
    async def travel(ctx: Context) -> str:
        async def book(tx: Transaction) -> str:
            for mistake in (
                lambda: ctx.step("inner", nothing),
                lambda: ctx.transaction("inner", bookings.book, "9Z"),
                ctx.now,
                lambda: hold.submit(travel),
                lambda: hold.transaction(bookings.book, "9Z"),
            ):
                with pytest.raises(InvalidValue, match="not part of the transaction") as caught:  # noqa: PT012
                    made: Any = mistake()
                    await made
                said.append(str(caught.value))
            return await bookings.book(tx, "1A")

        seat = await ctx.transaction("book", book)
        await ctx.step("after", nothing)
        return seat

    handle = await hold.submit(travel)
    await work_until_idle(hold, handle)
    assert (await ended(handle), len(said)) == ("1A", 5)
    assert await seats(hold.store) == ["1A"]


async def test_ctx_is_refused_inside_a_blocking_function_too(hold: Holdfast, bookings: Bookings) -> None:
    @hold.task(retry=ONE_ATTEMPT)
    def travel(ctx: SyncContext) -> str:
        def book(tx: SyncTransaction) -> str:
            with pytest.raises(InvalidValue, match="ctx is not part of the transaction"):
                ctx.step("inner", str)
            tx.execute(bookings.insert, "1A")
            return "1A"

        return ctx.transaction("book", book)

    handle = await hold.submit(travel)
    await work_until_idle(hold, handle)
    assert await ended(handle) == "1A"


async def test_what_is_not_a_function_or_not_a_time(hold: Holdfast, bookings: Bookings) -> None:
    said: list[str] = []

    @hold.task(retry=ONE_ATTEMPT)
    async def travel(ctx: Context) -> None:
        for mistake in (
            lambda: ctx.transaction("a", "book"),  # type: ignore[call-overload]
            lambda: ctx.transaction("b", bookings.book, timeout=0),
        ):
            with pytest.raises(InvalidValue) as caught:
                mistake()
            said.append(str(caught.value))

    handle = await hold.submit(travel)
    await work_until_idle(hold, handle)
    assert "needs a function" in said[0]
    assert "timeout of transaction 'b'" in said[1]
    with pytest.raises(InvalidValue, match="cannot be called"):
        await hold.transaction("book")  # type: ignore[call-overload]


async def test_a_store_of_files_says_why_it_cannot(tmp_path: Path) -> None:
    async def book(tx: Transaction) -> None:
        raise AssertionError(tx)

    async with Holdfast(f"json:///{tmp_path}/hold") as hold:

        @hold.task
        async def travel(ctx: Context) -> None:
            await ctx.transaction("book", book)

        with pytest.raises(InvalidValue, match="no tables but Holdfast's own"):
            await hold.transaction(book)
        handle = await hold.submit(travel)
        async with hold.worker():
            with pytest.raises(TaskFailed, match=r"InvalidValue.*no tables but Holdfast's own"):
                await ended(handle)
        assert (await handle.task()).attempts == 1  # no retry could help


# Outside of tasks


async def test_ones_own_tables_outside_of_any_task(hold: Holdfast, bookings: Bookings) -> None:
    assert await hold.transaction(bookings.book, "1A") == "1A"

    def count(tx: SyncTransaction) -> int:
        [(number,)] = tx.execute("SELECT count(*) FROM bookings")
        return int(number)

    assert await hold.transaction(count) == 1

    async def fail(tx: Transaction) -> None:
        await bookings.book(tx, "2B")
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await hold.transaction(fail)
    assert await hold.transaction(count) == 1
    assert await hold.store.count() == {}


def test_blocking_code_has_the_same(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/hold.db"
    hold, bookings = Holdfast(url), Bookings(url)

    def create(tx: SyncTransaction) -> None:
        tx.execute("CREATE TABLE bookings (seat TEXT)")

    with hold.sync as h:
        h.transaction(create)
        assert h.transaction(bookings.book, "1A") == "1A"
        assert h.transaction(lambda tx: tx.execute("SELECT seat FROM bookings")) == [("1A",)]

        def nested(tx: SyncTransaction) -> None:
            tx.execute(bookings.insert, "2B")
            h.summary()

        with pytest.raises(InvalidValue, match="hold is not part of the transaction"):
            h.transaction(nested)
        assert h.transaction(lambda tx: tx.execute("SELECT seat FROM bookings")) == [("1A",)]


@pytest.mark.parametrize("repeat", [False, True])
async def test_a_new_round_repeats_it_only_with_repeat(hold: Holdfast, bookings: Bookings, repeat: bool) -> None:
    """As a once step: neither a retry from the start nor a rejection in review doubles it unseen."""
    results: list[str] = []

    @hold.task(retry=ONE_ATTEMPT)
    async def travel(ctx: Context) -> str:
        results.append(await ctx.transaction("book", bookings.book, "1A", repeat=repeat))
        if ctx.task.round < 3:
            raise LookupError
        return results[-1]

    handle = await hold.submit(travel)
    for _ in range(2):
        async with hold.worker():
            with pytest.raises(TaskFailed):
                await ended(handle)
        await hold.retry(handle)
    await work_until_idle(hold, handle)
    assert results == ["1A"] * 3
    assert await seats(hold.store) == ["1A"] * (3 if repeat else 1)
    assert [step.round for step in await hold.store.steps(handle.id) if step.kind == "transaction"] == [1, 2, 3]


async def test_a_new_round_that_asks_for_something_else_gets_an_error(hold: Holdfast, bookings: Bookings) -> None:
    @hold.task(retry=ONE_ATTEMPT)
    async def travel(ctx: Context) -> str:
        await ctx.transaction("book", bookings.book, f"{ctx.task.round}A")
        raise LookupError

    handle = await hold.submit(travel)
    async with hold.worker():
        with pytest.raises(TaskFailed, match="LookupError"):
            await ended(handle)
        await hold.retry(handle)
        with pytest.raises(TaskFailed, match=r"JournalMismatch.*other arguments.*repeat=True"):
            await ended(handle)
    assert await seats(hold.store) == ["1A"]


async def test_what_failed_in_an_earlier_round_is_done(hold: Holdfast, bookings: Bookings) -> None:
    async def book(tx: Transaction, seat: str) -> str:
        await bookings.book(tx, seat)
        if fail:
            raise LookupError
        return seat

    @hold.task(retry=ONE_ATTEMPT)
    async def travel(ctx: Context) -> str:
        return await ctx.transaction("book", book, "1A")

    fail = True
    handle = await hold.submit(travel)
    async with hold.worker():
        with pytest.raises(TaskFailed):
            await ended(handle)
    fail = False
    await hold.retry(handle)
    await work_until_idle(hold, handle)
    assert (await ended(handle), await seats(hold.store)) == ("1A", ["1A"])


async def test_resuming_a_failed_task_does_not(hold: Holdfast, bookings: Bookings) -> None:
    fail = True

    @hold.task(retry=ONE_ATTEMPT)
    async def travel(ctx: Context) -> str:
        seat = await ctx.transaction("book", bookings.book, "1A")
        if fail:
            raise LookupError
        return seat

    handle = await hold.submit(travel)
    async with hold.worker():
        with pytest.raises(TaskFailed):
            await ended(handle)
    fail = False
    await hold.resume(handle)
    await work_until_idle(hold, handle)
    assert (await ended(handle), await seats(hold.store)) == ("1A", ["1A"])


async def test_a_verifier_may_use_it(hold: Holdfast, bookings: Bookings) -> None:
    @hold.task
    async def travel(ctx: Context) -> str:
        return await ctx.transaction("book", bookings.book, "1A")

    @travel.verify
    async def is_booked(ctx: Context, seat: str) -> bool:
        async def look(tx: Transaction) -> bool:
            return (seat,) in await tx.execute("SELECT seat FROM bookings")

        return await ctx.transaction("book", look)

    handle = await hold.submit(travel)
    await work_until_idle(hold, handle)
    assert await ended(handle) == "1A"
    assert set(await steps_of(hold, handle)) == {"book", "verify/book"}
