"""What a step and a task cost, counted in statements and transactions: the same on every machine."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from holdfast import Context, Handle, Holdfast
from holdfast.engine.worker import host, worker
from holdfast.store.postgres import PostgresStore
from holdfast.store.sqlite import SqliteStore

STEPS = 20
SELDOM = 600.0
"""Seconds: longer than any test."""


async def nothing() -> str:
    return "done"


def define(hold: Holdfast) -> tuple[Any, Any]:
    @hold.task
    async def steps(ctx: Context, count: int) -> int:
        for _ in range(count):
            await ctx.step("nothing", nothing)
        return count

    @hold.task
    async def empty(ctx: Context) -> None: ...

    return steps, empty


@asynccontextmanager
async def statements_of(hold: Holdfast) -> AsyncIterator[Counter[str]]:
    """Count what is sent to the database by its first words (SQLite) or by the query's name (PostgreSQL)."""
    counted: Counter[str] = Counter()
    store = hold.store
    if isinstance(store, SqliteStore):
        writer = store._backend.writer
        assert writer is not None

        def trace(_: object, statement: str, __: object) -> bool:
            counted[statement.split(None, 1)[0]] += 1
            return True

        writer._connection.exec_trace = trace
        yield counted
        writer._connection.exec_trace = None
    else:
        assert isinstance(store, PostgresStore)
        fetch: Callable[..., Awaitable[Any]] = store._backend.fetch

        async def counting(name: str, *values: object, **options: object) -> object:
            if name != "task_standing":  # the test itself waits for results
                counted[name] += 1
            return await fetch(name, *values, **options)

        store._backend.fetch = counting  # type: ignore[method-assign, assignment]
        yield counted
        store._backend.fetch = fetch  # type: ignore[method-assign, assignment]


async def cost_of(hold: Holdfast, handles: list[Handle[Any]], concurrency: int) -> Counter[str]:
    """Count what these tasks cost, and not what a worker does every second or so: how many pass is the machine's."""
    with (
        mock.patch.object(worker, "LOOK_EVERY", SELDOM),
        mock.patch.object(host, "_SOONEST_BEAT", SELDOM),
        mock.patch.object(host, "NOTE_STEPS_AFTER", SELDOM),
    ):
        async with (
            statements_of(hold) as counted,
            hold.worker(concurrency=concurrency, lease=host.BEATS_PER_LEASE * SELDOM),
        ):
            await asyncio.gather(*(handle.result(timeout=60) for handle in handles))
            return Counter(counted)


async def test_a_lone_step_is_one_short_transaction_on_sqlite(tmp_path: Path) -> None:
    hold = Holdfast(f"sqlite:///{tmp_path}/cost.db")
    steps, _ = define(hold)
    async with hold:
        few = await cost_of(hold, [await hold.submit(steps, 1)], 1)
        many = await cost_of(hold, [await hold.submit(steps, 1 + STEPS)], 1)
    per_step = {what: (many[what] - few[what]) / STEPS for what in many}
    assert per_step["BEGIN"] <= 1.2
    # BEGIN, look at the fence, the task row, the step, COMMIT; now and then an epoch begins
    assert sum(per_step.values()) <= 5.8, per_step


async def test_a_lone_step_is_one_statement_on_postgresql(postgres_url: str) -> None:
    hold = Holdfast(postgres_url)
    steps, _ = define(hold)
    async with hold:
        few = await cost_of(hold, [await hold.submit(steps, 1)], 1)
        many = await cost_of(hold, [await hold.submit(steps, 1 + STEPS)], 1)
    assert many["write_step"] - few["write_step"] == STEPS
    assert sum(many.values()) - sum(few.values()) <= STEPS * 1.2


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
async def test_labels_cost_no_statement(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Neither the submission nor the end: triggers write them, within its own statements."""
    url = f"sqlite:///{tmp_path}/cost.db" if backend == "sqlite" else request.getfixturevalue("postgres_url")
    hold = Holdfast(url)
    _, empty = define(hold)
    submitted, worked = [], []
    async with hold:
        await cost_of(hold, [await hold.submit(empty)], 1)  # the first one of a process also looks at the file
        for labels in (None, {"tenant": "acme"}):
            async with statements_of(hold) as counted:
                handle = await hold.submit(empty, labels=labels)
                # Not the comments of triggers, nor what comes by time: the epoch, and the hint behind a submission.
                submitted.append({what: n for what, n in counted.items() if what not in {"--", "PRAGMA", "notify"}})
            cost = await cost_of(hold, [handle], 1)
            worked.append({what: cost[what] for what in ("INSERT", "UPDATE", "DELETE", "commit_batch", "commit_plain")})
    assert submitted[0] == submitted[1]
    assert worked[0] == worked[1]


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
async def test_many_tasks_share_transactions(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = f"sqlite:///{tmp_path}/cost.db" if backend == "sqlite" else request.getfixturevalue("postgres_url")
    hold = Holdfast(url)
    steps, empty = define(hold)
    async with hold:
        stepping = await cost_of(hold, await hold.submit_many(steps, [(10,)] * 100), 100)
        draining = await cost_of(hold, await hold.submit_many(empty, [()] * 500), 100)
    transactions = "BEGIN" if backend == "sqlite" else "all"
    stepping["all"], draining["all"] = stepping.total(), draining.total()
    assert stepping[transactions] < 200, stepping  # 1,000 steps and 100 ends
    assert draining[transactions] < 100, draining  # 500 claims and ends
