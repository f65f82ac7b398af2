"""Programs that fork, for tests in which a process dies, or ends as a program ends: with finalizers.

python family.py ROLE URL ...
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import time

from holdfast import Context, Holdfast, StoreForked, SyncContext, SyncTransaction, Transaction
from holdfast.store.sqlite import SqliteStore

hold = Holdfast(sys.argv[2])


@hold.task
async def double(ctx: Context, number: int) -> int:
    return await ctx.step("double", lambda: 2 * number)


@hold.task
def halve(ctx: SyncContext, number: int) -> int:
    return ctx.step("halve", lambda: number // 2)


def use(numbers: range) -> list[int]:
    """Submit and work, in this process, with the Holdfast of the module."""
    with hold.sync as h, h.worker(concurrency=4, grace=0):
        return [h.submit(double, number, key=str(number)).result(timeout=30) for number in numbers]


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


# Roles


def prefork() -> None:
    """As a prefork server does: the module made a Holdfast, each worker process opens it for itself."""
    children = []
    for number in range(2):
        pid = os.fork()
        if pid == 0:
            say("worker", use(range(10 * number, 10 * number + 5)))
            sys.exit(0)
        children.append(pid)
    say("ended", [os.waitpid(pid, 0)[1] for pid in children])


def prefork_opened() -> None:
    """The same, with the store opened before the fork."""
    with hold.sync as h:
        h.submit(double, 1)
        pid = os.fork()
        if pid == 0:
            try:
                use(range(1))
            except StoreForked as error:
                say(error)
            sys.exit(0)
        say("ended", os.waitpid(pid, 0)[1], "then", h.submit(double, 2).task().state.value)


def reopened() -> None:
    """The parent closes before the fork, and opens and closes again beside a child that is killed in the end."""
    use(range(3))
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        with hold.sync as h:
            h.submit(double, 100)
            os.write(writing, b"opened")
            h.submit(double, 101)
            with Holdfast(sys.argv[2]).sync as other:
                other.handle("none")
            signal.pause()
        os._exit(1)
    os.read(reading, 6)
    say("parent", use(range(10, 13)))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def count() -> None:
    """Say how many tasks there are, and whether the file is sound."""
    with hold.sync as h:
        states = h.wait(hold.store.count())
        say("tasks", sum(states.values()), h.wait(hold.store.vitals(thorough=True)).problems)


def killed_inside() -> None:
    """Die inside a transaction, and leave a forked child behind."""

    def inside(tx: SyncTransaction) -> None:
        tx.execute("CREATE TABLE IF NOT EXISTS own (x INTEGER PRIMARY KEY)")
        tx.execute("INSERT INTO own VALUES (1)")
        pid = os.fork()
        if pid == 0:
            os.close(1)
            os.close(2)
            time.sleep(600)
            os._exit(0)
        say(pid)
        os.kill(os.getpid(), signal.SIGKILL)

    with hold.sync as h:
        h.transaction(inside, timeout=500)


def write() -> None:
    """Write, which needs whatever an ended process may still hold."""
    with hold.sync as h:
        h.transaction(lambda tx: tx.execute("CREATE TABLE IF NOT EXISTS own (x INTEGER PRIMARY KEY)"))
        h.transaction(lambda tx: tx.execute("INSERT INTO own VALUES (1)"))
        say("written")


def finalized() -> None:
    """Fork in the middle of a large transaction; the child uses what it inherited, and ends as a program ends."""

    async def main() -> None:
        async with hold:
            await hold.submit(double, 1)
            listening = asyncio.create_task(_listen())
            await asyncio.sleep(0)
            await hold.transaction(_fill, timeout=120)
            pid = await hold.transaction(_grow, timeout=120)
            if pid == 0:
                return
            rows = await hold.transaction(_rows)
            say("rows", rows, "ended", _wait_for(pid))
            listening.cancel()

    asyncio.run(main())


async def _listen() -> None:
    async with hold.store.listen() as listener:
        while True:
            await listener.wait(60)


async def _fill(tx: Transaction) -> None:
    await tx.execute("CREATE TABLE own (x INTEGER PRIMARY KEY, filling TEXT)")


async def _grow(tx: Transaction) -> int:
    for number in range(2000):
        await tx.execute(f"INSERT INTO own VALUES ({number}, '{'x' * 4000}')")
    pid = os.fork()
    if pid == 0:
        try:
            await tx.execute("SELECT 1")
        except StoreForked:
            say("refused")
        gc.collect()
        sys.exit(0)
    _wait_for(pid)
    for number in range(2000, 2100):
        await tx.execute(f"INSERT INTO own VALUES ({number}, 'y')")
    [[seen]] = await tx.execute("SELECT count(*) FROM own WHERE x < 2000 AND length(filling) = 4000")
    say("seen", seen)
    return pid


async def _rows(tx: Transaction) -> int:
    [[rows]] = await tx.execute("SELECT count(*) FROM own")
    return int(rows)


def _wait_for(pid: int) -> int:
    """Wait until it has ended, and return how; it can be asked again."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return -1 if ended is None else ended.si_status


def collected() -> None:
    """Fork with a transaction half written to disk, and let the child's interpreter collect its copy of all of it."""
    store = SqliteStore(hold.url.removeprefix("sqlite:///"))
    asyncio.run(store.open())
    assert store._backend.writer is not None
    mine = store._backend.writer._connection
    mine.execute("CREATE TABLE own (x INTEGER PRIMARY KEY, filling TEXT); BEGIN IMMEDIATE")
    mine.executemany("INSERT INTO own VALUES (?, ?)", ((number, "x" * 4000) for number in range(3000)))
    pid = os.fork()
    if pid == 0:
        del mine, store
        gc.collect()
        sys.exit(0)
    ended = os.waitpid(pid, 0)[1]
    rows = mine.execute("SELECT count(*) FROM own WHERE length(filling) = 4000").get
    mine.execute("COMMIT")
    say("ended", ended, "rows", rows, mine.pragma("integrity_check"))
    asyncio.run(store.close())


if __name__ == "__main__":
    globals()[sys.argv[1]]()
