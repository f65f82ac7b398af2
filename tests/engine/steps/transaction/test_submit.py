"""tx.submit: a task that exists if and only if the transaction is committed, of its own or of a task."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest

from holdfast import (
    Context,
    DeadlineExceeded,
    Handle,
    Holdfast,
    HoldfastError,
    InvalidValue,
    KeyConflict,
    NotFound,
    QueueFull,
    Retry,
    StoreClosed,
    StoreUnavailable,
    SyncTransaction,
    Task,
    TaskDefinition,
    TaskExists,
    Transaction,
)
from holdfast.engine.api.sync.handle import SyncHandle
from holdfast.store.transaction import StoreTransaction, Work
from holdfast.testing.contract._support import row
from tests.engine.steps.transaction.support import Bookings, seats
from tests.engine.support import crashing_worker, ended, steps_of, until, vanish


@pytest.fixture
def bookings(url: str) -> Bookings:
    return Bookings(url)


@pytest.fixture(autouse=True)
def ticket(hold: Holdfast) -> TaskDefinition[[str], str]:
    """What is submitted."""

    @hold.task
    async def ticket(ctx: Context, seat: str) -> str:
        del ctx
        return f"ticket for {seat}"

    return ticket


async def submitted(hold: Holdfast) -> list[Task]:
    """Every ticket, in the order of their seats."""
    found = [task for task in (await hold.store.find()).items if task.name == "ticket"]
    return sorted(found, key=lambda task: str(task.user_input))


async def inputs(hold: Holdfast) -> list[Any]:
    return [task.user_input for task in await submitted(hold)]


# hold.transaction


async def test_row_and_task_are_there_together(hold: Holdfast, bookings: Bookings) -> None:
    """The handle is good after the commit; a worker that looks all the time finds the task then."""

    async def book(tx: Transaction, seat: str) -> Handle[Any]:
        await bookings.book(tx, seat)
        return await tx.submit("ticket", seat, key=seat, priority=3, labels={"tenant": "acme"})

    async with hold.worker():
        handle = await hold.transaction(book, "1A")
        assert await ended(handle) == "ticket for 1A"
    task = await handle.task()
    assert (task.key, task.priority, task.labels, task.parent_id) == ("1A", 3, {"tenant": "acme"}, None)
    assert await seats(hold.store) == ["1A"]


async def test_neither_is_there_if_it_raises(hold: Holdfast, bookings: Bookings) -> None:
    """Nor if its caller is cancelled, or it takes too long. Its handle then leads nowhere, and its key is free."""
    handles: list[Handle[Any]] = []
    inside = asyncio.Event()

    async def book(tx: Transaction) -> None:
        await bookings.book(tx, "1A")
        handles.append(await tx.submit("ticket", "1A", key="1A"))
        inside.set()

    async def fail(tx: Transaction) -> None:
        await book(tx)
        raise LookupError("no such plane")

    async def wait(tx: Transaction) -> None:
        await book(tx)
        await asyncio.Event().wait()

    async with hold.worker():
        with pytest.raises(LookupError):
            await hold.transaction(fail)
        with pytest.raises(DeadlineExceeded):
            await hold.transaction(wait, timeout=0.5)
        inside.clear()
        caller = asyncio.create_task(hold.transaction(wait))
        await inside.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        for handle in handles:
            with pytest.raises(NotFound):
                await handle.result(timeout=60)
    assert (await inputs(hold), await seats(hold.store)) == ([], [])
    assert await ended_by_a_worker(hold, await hold.submit("ticket", "2B", key="1A")) == "ticket for 2B"


async def ended_by_a_worker(hold: Holdfast, handle: Handle[Any]) -> Any:  # noqa: ANN401
    async with hold.worker():
        return await ended(handle)


async def test_a_refusal_is_raised_inside_and_leaves_the_rest(hold: Holdfast, bookings: Bookings) -> None:
    """Who catches it goes on, and commits; otherwise nothing is there."""
    await hold.queue("small", max_pending=1)
    await hold.submit("ticket", "0", key="taken", queue="small")
    refused: list[tuple[type[HoldfastError], dict[str, Any]]] = [
        (QueueFull, {"queue": "small"}),
        (KeyConflict, {"key": "taken"}),
        (TaskExists, {"key": "taken", "if_exists": "reject"}),
        (HoldfastError, {"key": "taken", "if_exists": "replace", "queue": "other"}),
        (InvalidValue, {"labels": {"a=b": "c"}}),
        (NotFound, {"limits": ["unknown"]}),
        (InvalidValue, {"limits": ["tenant"]}),
    ]
    await hold.limit("tenant", concurrency=1, each=True)
    for number, (error, options) in enumerate(refused):

        async def catch(tx: Transaction, number: int, kind: type[HoldfastError], options: dict[str, Any]) -> None:
            await bookings.book(tx, f"{number}")
            with pytest.raises(kind):
                await tx.submit("ticket", "unwanted", **options)
            await tx.submit("ticket", f"{number}", key=f"{number}")

        async def let_through(tx: Transaction, options: dict[str, Any]) -> None:
            await bookings.book(tx, "unwanted")
            await tx.submit("ticket", "beside")
            await tx.submit("ticket", "unwanted", **options)

        with row(error.__name__, number):
            await hold.transaction(catch, number, error, options)
            with pytest.raises(error):
                await hold.transaction(let_through, options)
    assert await seats(hold.store) == [str(number) for number in range(len(refused))]
    assert await inputs(hold) == [["0"], *([f"{number}"] for number in range(len(refused)))]


async def test_one_key_twice_in_one_transaction(hold: Holdfast) -> None:
    async def book(tx: Transaction) -> tuple[str, str]:
        first = await tx.submit("ticket", "1A", key="k")
        again = await tx.submit("ticket", "1A", key="k")
        with pytest.raises(KeyConflict):
            await tx.submit("ticket", "2B", key="k")
        return first.id, again.id

    first, again = await hold.transaction(book)
    assert first == again
    assert await inputs(hold) == [["1A"]]


async def test_options_mean_what_they_mean_to_submit(hold: Holdfast, ticket: TaskDefinition[[str], str]) -> None:
    """Delays, replacements, debounces and limits; bound arguments, and a task that only other processes define."""

    async def book(tx: Transaction) -> None:
        await tx.submit("ticket", "late", delay=timedelta(hours=1))
        await tx.submit("ticket", "first", key="k", delay=60)
        await tx.submit("ticket", "replaced", key="k", delay=60, if_exists="replace")
        await tx.submit("ticket", "1", key="d", debounce=60)
        await tx.submit("ticket", "debounced", key="d", debounce=60)
        await tx.submit(ticket.bind("bound"))
        await tx.submit("elsewhere", 1, queue="far", limits=["tenant:acme"])

    await hold.limit("tenant", concurrency=1, each=True)
    await hold.transaction(book)
    starts = {task.user_input[0]: task.available_at for task in await submitted(hold)}
    now = hold.services.time.now()
    assert {seat: at is not None and at > now for seat, at in starts.items()} == {
        **dict.fromkeys(("late", "replaced", "debounced"), True),
        "bound": False,
    }
    [far] = [task for task in (await hold.store.find()).items if task.name == "elsewhere"]
    assert (far.queue, far.limits) == ("far", ("tenant:acme",))


async def test_what_it_does_not_take(hold: Holdfast) -> None:
    """Options of an agent's start, and of a transaction of another kind: the error names what it takes."""

    async def book(tx: Transaction) -> None:
        for option in ("after", "artifacts", "connection", "kee"):
            with row(option), pytest.raises(InvalidValue, match=rf"tx\.submit has no option {option}="):
                await tx.submit("ticket", "1A", **{option: "x"})  # type: ignore[call-overload]

    await hold.transaction(book)
    assert await inputs(hold) == []


async def test_nested_uses_are_refused(hold: Holdfast) -> None:
    """Each would wait for the transaction, or believe itself inside; and the error names what to use."""
    old = await hold.submit("ticket", "0")

    async def book(tx: Transaction) -> Handle[Any]:
        handle = await tx.submit("ticket", "1A")
        for one in (handle, old):
            for use in (one.task, one.result, one.cancel, one.events().__anext__):
                with row(use), pytest.raises(InvalidValue, match=r"the handle of a task .* tx\.submit only"):
                    await use()
        with pytest.raises(InvalidValue, match=r"tx\.submit"):
            await hold.submit("ticket", "2B")
        with pytest.raises(InvalidValue, match=r"tx\.submit"):
            await hold.transaction(book)
        return handle

    handle = await hold.transaction(book)
    assert (await handle.task()).user_input == ["1A"]
    assert await inputs(hold) == [["0"], ["1A"]]


async def test_it_ends_with_its_function(hold: Holdfast) -> None:
    kept: list[Transaction] = []

    async def keep(tx: Transaction) -> None:
        kept.append(tx)

    await hold.transaction(keep)
    with pytest.raises(HoldfastError, match="a submission was not run; use tx inside of its function only"):
        await kept[0].submit("ticket", "1A")
    assert await inputs(hold) == []


async def test_a_blocking_function(hold: Holdfast, bookings: Bookings) -> None:
    """It gets a blocking transaction, and a handle that blocks: in its own thread, and in others."""

    def book(tx: SyncTransaction, *, fails: bool = False) -> SyncHandle[Any]:
        tx.execute(bookings.insert, "1A")
        handle = tx.submit("ticket", "1A", key="1A")
        with pytest.raises(InvalidValue, match=r"the handle of a task .* tx\.submit only"):
            handle.task()
        if fails:
            raise LookupError("no such plane")
        return handle

    with pytest.raises(LookupError):
        await hold.transaction(lambda tx: book(tx, fails=True))
    assert (await inputs(hold), await seats(hold.store)) == ([], [])
    handle = await hold.transaction(book)
    async with hold.worker():
        assert await asyncio.to_thread(handle.result, 60) == "ticket for 1A"
        assert [event.payload for event in await asyncio.to_thread(lambda: list(handle.events()))] == []
    with pytest.raises(HoldfastError, match="event loop's own thread"):
        handle.task()


def test_blocking_code(url: str) -> None:
    """hold.sync.transaction; and its handle is not used after the end of the block."""
    hold = Holdfast(url)

    @hold.task
    async def ticket(ctx: Context, seat: str) -> str:
        del ctx
        return seat

    def book(tx: SyncTransaction) -> SyncHandle[str]:
        return tx.submit(ticket, "1A")

    with hold.sync as h:
        handle = h.transaction(book)
        with h.worker():
            assert handle.result(timeout=60) == "1A"
    with pytest.raises(StoreClosed):
        handle.task()


# ctx.transaction


async def test_a_task_submits_another_one_once(hold: Holdfast, bookings: Bookings) -> None:
    """An independent one with its labels, whichever worker dies: before the commit nothing is there, after it one."""
    calls, inside, after, go_on = 0, asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def book(tx: Transaction, seat: str) -> str:
        nonlocal calls
        calls += 1
        await bookings.book(tx, seat)
        handle = await tx.submit("ticket", seat, labels={"kind": "ticket", "by": "book"}, queue="tickets")
        if calls == 1:
            inside.set()
            await asyncio.Event().wait()
        return handle.id

    @hold.task
    async def travel(ctx: Context) -> str:
        ticket_id = await ctx.transaction("book", book, "1A")
        after.set()
        await go_on.wait()
        return ticket_id

    handle = await hold.submit(travel, labels={"tenant": "acme", "kind": "travel"})
    async with crashing_worker(hold, queues=["default"]):
        await inside.wait()
    assert await inputs(hold) == []
    async with crashing_worker(hold, queues=["default"]):
        await after.wait()
    go_on.set()
    ticket_id = await ended_by_a_worker(hold, handle)
    [task] = await submitted(hold)
    assert (task.id, task.parent_id, calls, await seats(hold.store)) == (ticket_id, None, 2, ["1A"])
    assert task.labels == {"tenant": "acme", "kind": "ticket", "by": "book"}
    step = (await steps_of(hold, handle))["book"]
    [first] = [move for move in await hold.store.history(task.id) if move.from_state is None]
    workers = {worker.id for worker in await hold.store.workers()}
    assert first.actor in workers, "it says which worker submitted it"
    assert step.kind == "transaction"


async def test_a_try_that_failed_left_none(hold: Holdfast, bookings: Bookings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether its function failed, or the database gave up: the try that is committed submits the only one."""
    calls = 0
    submit = StoreTransaction.submit

    async def book(tx: Transaction, seat: str) -> str:
        nonlocal calls
        calls += 1
        await bookings.book(tx, seat)
        handle = await tx.submit("ticket", seat, key=seat)
        if calls == 1:
            raise ConnectionError("service down")
        return handle.id

    async def gives_up(self: StoreTransaction, *args: Any) -> Any:  # noqa: ANN401
        answer = await submit(self, *args)
        if calls == 2:
            raise StoreUnavailable("gave up")
        return answer

    monkeypatch.setattr(StoreTransaction, "submit", gives_up)

    @hold.task(retry=Retry(max_attempts=3, initial=0.0))
    async def travel(ctx: Context) -> str:
        return await ctx.transaction("book", book, "1A")

    handle = await hold.submit(travel)
    ticket_id = await ended_by_a_worker(hold, handle)
    assert ([task.id for task in await submitted(hold)], calls) == ([ticket_id], 3)
    assert await seats(hold.store) == ["1A"]


async def test_a_worker_that_lost_its_task_submits_nothing(hold: Holdfast, bookings: Bookings) -> None:
    """It learns of it at the COMMIT, which takes the submission back: the one of the other worker is the only one."""
    calls, held_up, go_on = 0, asyncio.Event(), asyncio.Event()
    transact = hold.store.transact

    async def book(tx: Transaction) -> str:
        nonlocal calls
        calls += 1
        handle = await tx.submit("ticket", await bookings.book(tx, f"{calls}A"), queue="tickets")
        return handle.id

    @hold.task
    async def travel(ctx: Context) -> str:
        return await ctx.transaction("book", book)

    async def hold_up(work: Work[Any], *, timeout: float) -> Any:  # noqa: ANN401
        held_up.set()
        await go_on.wait()
        return await transact(work, timeout=timeout)

    handle = await hold.submit(travel)
    with mock.patch.object(hold.store, "transact", hold_up):
        zombie = await hold.worker(queues=["default"], concurrency=1).__aenter__()  # busy: it claims nothing
        await held_up.wait()
    for beating in zombie._host._beating:  # nor does it hear of it by its heartbeat
        beating.cancel()
    await hold.store.retire(zombie.id)
    async with hold.worker(queues=["default"]):
        ticket_id = await ended(handle)
    go_on.set()
    await until(lambda: not zombie._host.attempts)
    await vanish(zombie)
    assert ([task.id for task in await submitted(hold)], calls) == ([ticket_id], 2)
    assert (await inputs(hold), await seats(hold.store)) == ([["1A"]], ["1A"])


async def test_an_undo_can_submit_too(hold: Holdfast, bookings: Bookings) -> None:
    """A transaction that undoes another one: its task is there once as well."""

    async def book(tx: Transaction) -> str:
        return await bookings.book(tx, "1A")

    async def refund(tx: Transaction, seat: str) -> None:
        await tx.submit("ticket", f"refund of {seat}")

    @hold.task(retry=Retry(max_attempts=1))
    async def travel(ctx: Context) -> None:
        await ctx.transaction("book", book, compensate=refund)
        raise LookupError("no such plane")

    handle = await hold.submit(travel)
    async with hold.worker():
        with pytest.raises(HoldfastError, match="no such plane"):
            await ended(handle)
    assert await inputs(hold) == [["refund of 1A"]]
