"""``compensate=`` of a transaction: undone exactly once, in a transaction too."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import (
    Compensation,
    Context,
    Decision,
    Holdfast,
    InvalidValue,
    Retry,
    SyncContext,
    SyncTransaction,
    TaskFailed,
    TaskState,
    Transaction,
)
from holdfast.testing import crash_everywhere
from holdfast.testing.sandboxes import Sandbox
from tests.engine.steps.transaction.support import ask, seats
from tests.engine.support import crashing_worker, ended, until

ONE_ATTEMPT = Retry(max_attempts=1)


async def book(tx: Transaction, seat: str) -> str:
    await tx.execute("INSERT INTO bookings (seat) VALUES ($1)", seat)
    return f"ticket {seat}"


async def give_back(tx: Transaction, ticket: str, seat: str) -> None:
    assert ticket == f"ticket {seat}"
    await tx.execute("DELETE FROM bookings WHERE seat = $1", seat)
    await tx.execute("INSERT INTO bookings (seat) VALUES ($1)", f"{seat} free")


async def test_transactions_are_undone_in_reverse_and_once(hold: Holdfast) -> None:
    undone: list[str] = []
    inside = asyncio.Event()

    async def undo(tx: Transaction, ticket: str, seat: str) -> None:
        undone.append(seat)
        await give_back(tx, ticket, seat)
        if undone == ["1B", "1A"]:  # its worker dies here, and nothing of this undo is there
            inside.set()
            await asyncio.Event().wait()

    @hold.task(retry=ONE_ATTEMPT)
    async def travel(ctx: Context) -> None:
        for seat in ("1A", "1B"):
            await ctx.transaction(f"book-{seat}", book, seat, compensate=undo)
        await ctx.transaction("kept", book, "1C")
        raise RuntimeError("no flight")

    handle = await hold.submit(travel)
    async with crashing_worker(hold):
        await asyncio.wait_for(inside.wait(), 60)
    assert await seats(hold.store) == ["1A", "1B free", "1C"]
    async with hold.worker():
        with pytest.raises(TaskFailed, match="no flight"):
            await ended(handle)
    assert undone == ["1B", "1A", "1A"]
    assert await seats(hold.store) == ["1A free", "1B free", "1C"]


async def test_what_was_undone_is_done_again_by_a_resume_and_a_retry(hold: Holdfast) -> None:
    @hold.task(retry=ONE_ATTEMPT)
    async def travel(ctx: Context) -> str:
        ticket = await ctx.transaction("book", book, "1A", compensate=give_back)
        await ctx.transaction("note", book, "note")
        if (await ask(hold.store, "SELECT count(*) FROM bookings"))[0][0] < 6:
            raise RuntimeError
        return ticket

    handle = await hold.submit(travel)
    async with hold.worker():
        with pytest.raises(TaskFailed):
            await ended(handle)
        assert await seats(hold.store) == ["1A free", "note"]
        await hold.resume(handle, by="ada")
        with pytest.raises(TaskFailed):
            await ended(handle)
        assert await seats(hold.store) == ["1A free", "1A free", "note"]
        await hold.retry(handle, by="ada")
        with pytest.raises(TaskFailed):
            await ended(handle)
        assert await seats(hold.store) == ["1A free", "1A free", "1A free", "note"]
        await ask(hold.store, "INSERT INTO bookings (seat) VALUES ('x')")
        await hold.retry(handle, by="ada")
        assert await ended(handle) == "ticket 1A"
    assert await seats(hold.store) == ["1A", "1A free", "1A free", "1A free", "note", "x"]


async def test_a_blocking_undo_and_a_compensation_without_a_transaction(hold: Holdfast) -> None:
    called: list[tuple[Any, ...]] = []

    def book_here(tx: SyncTransaction, seat: str) -> str:
        tx.execute("INSERT INTO bookings (seat) VALUES ($1)", seat)
        return seat

    def give_back_here(tx: SyncTransaction, ticket: str, seat: str) -> None:
        assert ticket == seat
        tx.execute("DELETE FROM bookings WHERE seat = $1", seat)

    async def write_to_them(ticket: str, seat: str) -> None:
        called.append((ticket, seat))

    @hold.task(retry=ONE_ATTEMPT)
    def travel(ctx: SyncContext) -> None:
        ctx.transaction("one", book_here, "1A", compensate=give_back_here)
        ctx.transaction("two", book_here, "1B", compensate=Compensation(write_to_them))
        raise RuntimeError

    handle = await hold.submit(travel)
    async with hold.worker():
        with pytest.raises(TaskFailed):
            await ended(handle)
    assert await seats(hold.store) == ["1B"]
    assert called == [("1B", "1B")]


async def test_a_person_sees_to_an_undo_that_fails(hold: Holdfast) -> None:
    tries = 0

    async def fail(tx: Transaction, ticket: str, seat: str) -> None:
        nonlocal tries
        tries += 1
        await give_back(tx, ticket, seat)
        if tries <= Retry().max_attempts:
            raise NotADirectoryError("the office is closed")

    @hold.task(retry=ONE_ATTEMPT)
    async def travel(ctx: Context) -> None:
        await ctx.transaction("book", book, "1A", compensate=fail)
        raise RuntimeError

    handle = await hold.submit(travel)
    async with hold.worker():

        async def is_asked() -> bool:
            return bool(await hold.doubts())

        await until(is_asked)
        assert (await handle.task()).state is not TaskState.FAILED
        assert await seats(hold.store) == ["1A"]
        [doubt] = await hold.doubts()
        await hold.resolve(doubt.effect.effect_id, Decision.COMPENSATE, by="ada")
        with pytest.raises(TaskFailed):
            await ended(handle)
    assert await seats(hold.store) == ["1A free"]


async def test_a_saga_of_transactions_survives_every_crash() -> None:
    app = Holdfast("memory://")

    @app.task(retry=ONE_ATTEMPT)
    async def travel(ctx: Context) -> None:
        await ctx.transaction("book", book, "1A", compensate=give_back)
        await ctx.transaction("pay", book, "1B", compensate=give_back)
        raise RuntimeError

    async def scenario(box: Sandbox) -> list[str]:
        await ask(box.hold.store, "CREATE TABLE bookings (seat TEXT)")
        handle = await app.submit(travel)
        with pytest.raises(TaskFailed):
            await handle.result()
        return await seats(box.hold.store)

    survived = await crash_everywhere(app, scenario)
    assert survived.result == ["1A free", "1B free"]
    assert survived.crashes >= 2 * 4  # at each of the four transactions at least


async def test_where_it_makes_no_sense_it_is_refused(hold: Holdfast) -> None:
    @hold.task(retry=ONE_ATTEMPT)
    async def travel(ctx: Context) -> str:
        with pytest.raises(InvalidValue, match="give the function that undoes"):
            ctx.transaction("book", book, "1A", compensate=3)  # type: ignore[call-overload]
        return "done"

    @travel.verify
    async def check(ctx: Context, result: str) -> bool:
        with pytest.raises(InvalidValue, match="verifier"):
            await ctx.transaction("book", book, "1A", compensate=give_back)
        return result == "done"

    handle = await hold.submit(travel)
    async with hold.worker():
        assert await ended(handle) == "done"
    assert await seats(hold.store) == []
