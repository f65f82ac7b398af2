"""What a forked child inherits refuses every use at once, on every store, and its parent goes on."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
import warnings
from collections.abc import Callable, Coroutine
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, cast

from holdfast import Context, Handle, Holdfast, SyncContext, SyncTransaction, Transaction
from holdfast.engine.api.sync.handle import SyncHandle
from holdfast.engine.worker.worker import Worker
from holdfast.store.base import StateStore
from tests.process_fork.child import ask_child


def define(url: str) -> Holdfast:
    hold = Holdfast(url)

    @hold.task
    async def double(ctx: Context, number: int) -> int:
        return await ctx.step("double", lambda: 2 * number)

    return hold


def refused(*uses: Callable[[], Any]) -> list[str]:
    """Return what the uses that were not refused did instead."""
    others = []
    for number, use in enumerate(uses):
        try:
            others.append(f"{number}: {use()!r}")
        except Exception as error:  # noqa: BLE001 - the test reports which one it is
            text = f"{type(error).__name__}: {error}"
            if not (text.startswith("StoreForked") and "after the fork" in text and "spawn" in text):
                others.append(f"{number}: {text}")
    return others


def test_blocking_code_in_a_child_is_refused_and_does_not_hang(urls: list[str]) -> None:
    for url in urls:
        _use_blocking(url)


def _use_blocking(url: str) -> None:
    hold = define(url)
    with hold.sync as h, h.worker(grace=0) as worker:
        handle: SyncHandle[int] = h.submit("double", 1)
        events = handle.events()
        unused = h.worker(label="another")

        def use_it() -> list[str]:
            others = refused(
                lambda: h.submit("double", 2),
                lambda: h.submit_many("double", [(2,)]),
                lambda: h.handle(handle.id),
                lambda: h.wait(hold.store.get(handle.id)),
                lambda: h.memory.store("a", "b", "c"),
                lambda: h.transaction(print),
                h.summary,
                h.worker,
                h.__enter__,
                hold.sync.__enter__,
                handle.task,
                lambda: handle.result(timeout=1),
                lambda: next(events),
                worker.join,
                worker.drain,
                worker.force,
                unused.__enter__,
            )
            # Leaving the blocks of the parent is not a use of them: a child that ends by sys.exit does it.
            worker.__exit__(None, None, None)
            h.__exit__(None, None, None)
            return others + refused(lambda: h.submit("double", 3))

        assert ask_child(use_it) == [], url
        assert handle.result(timeout=60) == 2
        assert h.submit("double", 4).result(timeout=60) == 8
        events.close()


async def test_asynchronous_code_in_a_child_is_refused(urls: list[str]) -> None:
    for url in urls:
        await _use_asynchronous(url)


async def _use_asynchronous(url: str) -> None:
    hold = define(url)
    async with hold, hold.worker(grace=0) as worker:
        handle: Handle[int] = await hold.submit("double", 1)
        store = hold.store
        unused = hold.worker(label="another")

        async def listen() -> None:
            async with store.listen():
                pass

        def use_it() -> list[str]:
            calls: list[Callable[[], Coroutine[Any, Any, object]]] = [
                hold.__aenter__,
                lambda: hold.submit("double", 2),
                lambda: hold.emit("channel"),
                lambda: hold.run(handle),
                handle.task,
                lambda: handle.result(timeout=1),
                unused.__aenter__,
                worker.join,
                store.open,
                store.now,
                store.workers,
                store.count,
                listen,
                lambda: store.get(handle.id),
                lambda: store.emit("channel", None),
            ]
            others = refused(
                *(partial(_run, call) for call in calls),
                hold.worker,
                lambda: hold.store,
                worker.drain,
            )
            asyncio.run(_leave(worker, hold, store))
            return others + refused(lambda: asyncio.run(store.get(handle.id)))

        assert ask_child(use_it) == [], url
        assert await handle.result(timeout=60) == 2
        assert await (await hold.submit("double", 4)).result(timeout=60) == 8


def _run(call: Callable[[], Coroutine[Any, Any, object]]) -> object:
    return asyncio.run(call())


async def _leave(worker: Worker, hold: Holdfast, store: StateStore) -> None:
    await worker.__aexit__(None, None, None)
    await hold.__aexit__(None, None, None)
    await store.close()


async def test_a_transaction_and_a_context_are_the_parents(tmp_path: Path, postgres_url: str) -> None:
    for url in (f"sqlite:///{tmp_path}/hold.db", postgres_url):
        await _use_inside(url)


async def _use_inside(url: str) -> None:
    hold = define(url)

    @hold.task
    def blocking(ctx: SyncContext) -> list[str]:
        return cast("list[str]", ask_child(lambda: refused(lambda: ctx.step("more", print), lambda: ctx.sleep(1))))

    def inside(tx: SyncTransaction) -> object:
        tx.execute("CREATE TABLE guests (x INTEGER)")
        return ask_child(lambda: refused(lambda: tx.execute("INSERT INTO guests VALUES (1)")))

    async def also_inside(tx: Transaction) -> object:
        return ask_child(lambda: refused(lambda: asyncio.run(tx.execute("INSERT INTO guests VALUES (1)"))))

    def own_store() -> str:
        with define("memory://").sync as h:
            return h.submit("double", 1).task().name

    async def opens_own(tx: Transaction) -> object:
        await tx.execute("SELECT 1")
        return ask_child(own_store)

    async with hold, hold.worker(grace=0):
        assert await hold.transaction(inside) == []
        assert await hold.transaction(also_inside) == []
        assert await hold.transaction(opens_own) == "double"  # the transaction is not the child's
        assert await (await hold.submit(blocking)).result(timeout=60) == []
        rows = await hold.transaction(lambda tx: tx.execute("SELECT count(*) FROM guests"))
        assert [tuple(row) for row in rows] == [(0,)]


def test_a_child_that_is_forked_while_a_thread_opens_can_open_for_itself() -> None:
    """The thread that holds the lock does not exist in the child."""
    hold = define("memory://")

    def use_it() -> str:
        with hold.sync as h:
            return h.submit("double", 1).task().name

    with hold.sync._gate:
        assert ask_child(use_it) == "double"
    assert ask_child(use_it) == "double"


def test_a_pool_of_forked_processes_in_a_step_runs_plain_code(tmp_path: Path) -> None:
    hold = Holdfast(f"sqlite:///{tmp_path}/hold.db")
    before = threading.active_count()

    def compute() -> list[int]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads, which is the point
            with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
                return list(pool.map(abs, [-1, -2, -3]))

    @hold.task
    def crunch(ctx: SyncContext) -> list[int]:
        return ctx.step("pool", compute)

    with hold.sync as h, h.worker(grace=0):
        assert h.submit(crunch).result(timeout=60) == [1, 2, 3]
        assert h.transaction(lambda _tx: compute(), timeout=60) == [1, 2, 3]
        assert h.submit(crunch).result(timeout=60) == [1, 2, 3]
    assert threading.active_count() <= before + 1
