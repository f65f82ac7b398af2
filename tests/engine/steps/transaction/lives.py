"""A warm process that forks one worker after the other on one database, each of them killed in the middle of its work.

    python -m tests.engine.steps.transaction.lives URL SEED KILLS

They do the same twenty tasks, of three transactions each, which each insert one row into a table without any key, and
submit one task without any key. After each death the store is inspected: every row and every such task is of a
transaction that is journaled, and the other way round. One more life does the rest; then there is exactly one row and
one task for each transaction. Prints how many were killed, and where.

The parent has no event loop and no thread at any time, so forking is safe; whatever needs one runs in a child.
"""

from __future__ import annotations

import asyncio
import faulthandler
import inspect
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any
from unittest import mock

from holdfast import Context, Holdfast, SyncTransaction, TaskDefinition, TaskState, Transaction, make_store, open_store
from holdfast.model.queries import TaskFilter
from holdfast.model.step import StepState
from holdfast.model.transitions import OPEN
from holdfast.store.postgres import user_transaction
from holdfast.store.simple import SimpleInterface
from holdfast.store.sqlite import SqliteStore
from tests.engine.steps.transaction.support import ask
from tests.proof.engine.conditions import eventually, until_alone

TASKS, LEGS = 20, 3
LONGEST_LIFE = 60
LEASE = 60.0
"""Seconds: no worker loses its tasks for being slow. The inspector gives back those of dead workers."""

ANY_TIME = "at any time"
POINTS = (
    "before a statement",
    "after a statement",
    "after a submission",
    "before the commit is applied",
    "before COMMIT",
    "after COMMIT",
    "after the answer",
    ANY_TIME,
)
MOST = 6
"""A life ends at one of its first so many passes of a point: eight lives together leave work to be done."""

APPLY, FINISH = user_transaction._apply, user_transaction._finish


class Doom:
    """Where a life ends: at the n-th time that it passes a point."""

    def __init__(self, point: str, number: int, began: int) -> None:
        """``began`` is a pipe, on which it says that its first transaction is under way; nothing counts before."""
        self.point = point
        self._left = number
        self._began = began

    def passes(self, point: str) -> None:
        if self._began and point == POINTS[0]:
            os.write(self._began, b"!")
            self._began = 0
        if not self._began and point == self.point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def around(self, before: str, function: Callable[..., Any], after: str = "") -> Callable[..., Any]:
        """Have a function, blocking or not, pass these points."""
        if inspect.iscoroutinefunction(function):

            async def passing(*args: Any, **named: Any) -> Any:  # noqa: ANN401
                self.passes(before)
                answer = await function(*args, **named)
                self.passes(after)
                return answer

            return passing

        def passing_blocking(*args: Any, **named: Any) -> Any:  # noqa: ANN401
            self.passes(before)
            answer = function(*args, **named)
            self.passes(after)
            return answer

        return passing_blocking

    def await_in(self, store: SimpleInterface) -> None:
        """Put the points into a store that is open."""
        apply, finish = POINTS[3], POINTS[4:6]
        vars(store)["transact"] = self.around("", store.transact, POINTS[6])
        if isinstance(store, SqliteStore):
            writer = store._backend.writer
            assert writer is not None
            writer._close_with = self.around(apply, writer._close_with)  # type: ignore[method-assign]
            # Every transaction of the writer's ends here, also those that only Holdfast knows.
            writer._commit = self.around(finish[0], writer._commit, finish[1])
        else:
            user_transaction._apply = self.around(apply, APPLY)
            user_transaction._finish = self.around(finish[0], FINISH, finish[1])


def define(hold: Holdfast) -> TaskDefinition[[int], list[int]]:
    insert = f"INSERT INTO legs VALUES ({'%s, %s' if hold.url.startswith('postgres') else '?, ?'})"

    @hold.task
    async def arrive(ctx: Context, number: int, leg: int) -> None:
        del ctx, number, leg

    async def travel(tx: Transaction, number: int, leg: int) -> int:
        await tx.execute(insert, number, leg)
        await tx.submit(arrive, number, leg)
        return leg

    def travel_blocking(tx: SyncTransaction, number: int, leg: int) -> int:
        tx.execute(insert, number, leg)
        tx.submit(arrive, number, leg)
        return leg

    async def rest() -> None:
        await asyncio.sleep(0)

    @hold.task
    async def journey(ctx: Context, number: int) -> list[int]:
        first = await ctx.transaction("leg-1", travel, number, 1)
        second = await ctx.transaction("leg-2", travel_blocking, number, 2)
        _, third = await asyncio.gather(ctx.step("rest", rest), ctx.transaction("leg-3", travel, number, 3))
        return [first, second, third]

    return journey


async def live(url: str, doom: Doom, *, is_first: bool) -> None:
    """Work until the end comes."""
    hold = Holdfast(url)
    journey = define(hold)
    async with hold:
        if is_first:
            await ask(hold.store, "CREATE TABLE legs (task INTEGER, leg INTEGER)")
            await hold.submit_many(journey, [(number,) for number in range(TASKS)])
        doom.await_in(hold.store)
        submit = doom.around("", Transaction.submit, POINTS[2])
        with (
            mock.patch.object(Transaction, "execute", doom.around(POINTS[0], Transaction.execute, POINTS[1])),
            mock.patch.object(Transaction, "submit", submit),
        ):
            async with hold.worker(lease=LEASE, concurrency=TASKS):
                await asyncio.Event().wait()


async def look_at(url: str) -> None:
    """Give back what the dead held, and compare the rows with the journal."""
    await until_alone(url)
    async with open_store(url) as store:
        for worker in await store.workers():
            await store.retire(worker.id)
        rows = Counter(await rows_of(store))
        assert rows == Counter(await journaled(store))
        assert rows == Counter(await submitted(store))


async def finish(url: str) -> None:
    """Do what is left, and look at the end."""
    hold = Holdfast(url)
    define(hold)
    async with hold:
        async with hold.worker(lease=LEASE, concurrency=TASKS):

            async def all_ended() -> bool:
                return not set(await hold.store.count()) & OPEN

            await eventually("every task has ended", all_ended, within=LONGEST_LIFE)
        assert await hold.store.count() == {TaskState.COMPLETED: TASKS * (1 + LEGS)}
        everything = [(number, leg) for number in range(TASKS) for leg in range(1, LEGS + 1)]
        assert sorted(await rows_of(hold.store)) == everything
        assert sorted(await journaled(hold.store)) == everything
        assert sorted(await submitted(hold.store)) == everything


async def rows_of(store: SimpleInterface) -> list[tuple[int, int]]:
    return [(task, leg) for task, leg in await ask(store, "SELECT task, leg FROM legs")]


async def submitted(store: SimpleInterface) -> list[tuple[int, int]]:
    found = (await store.find(TaskFilter(name="arrive"), limit=TASKS * LEGS * 2)).items
    return [(task.user_input[0], task.user_input[1]) for task in found]


async def journaled(store: SimpleInterface) -> list[tuple[int, int]]:
    found = []
    for task in (await store.find(TaskFilter(name="journey"), limit=TASKS + 1)).items:
        number = task.user_input[0]
        for step in await store.steps(task.id):
            if step.kind == "transaction":
                assert step.state is StepState.COMPLETED
                found.append((number, int(step.key.removeprefix("leg-"))))
    return found


def fork(what: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Run it in a process of its own; return its id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        faulthandler.dump_traceback_later(LONGEST_LIFE, exit=True)
        asyncio.run(what())
        os._exit(0)
    except BaseException:  # noqa: BLE001 - it must not return into the parent's code
        traceback.print_exc()
        os._exit(1)


def end_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def end_a_life(url: str, point: str, dice: random.Random, *, is_first: bool) -> None:
    number, patience = dice.randint(1, MOST), dice.uniform(0.0, 0.05)
    has_begun, began = os.pipe()
    pid = fork(lambda: live(url, Doom(point, number, began), is_first=is_first))
    os.close(began)
    assert os.read(has_begun, 1) == b"!", f"no transaction was begun: {end_of(pid)}"
    os.close(has_begun)
    if point == ANY_TIME:
        time.sleep(patience)
        os.kill(pid, signal.SIGKILL)
    assert end_of(pid) == -signal.SIGKILL, f"this life was to end {point}, the {number}. time, and did not"
    assert end_of(fork(lambda: look_at(url))) == 0, f"the inspection failed after a life that ended {point}"


def main(url: str, seed: str, kills: str) -> None:
    make_store(url)  # imports its driver here, once, and not in every child
    dice = random.Random(int(seed))
    points: list[str] = []
    while len(points) < int(kills):
        points += dice.sample(POINTS, len(POINTS))
    for life, point in enumerate(points[: int(kills)]):
        end_a_life(url, point, dice, is_first=life == 0)
    assert end_of(fork(lambda: finish(url))) == 0, "the last life failed"
    print(int(kills), *sorted(set(points[: int(kills)])), sep="\n")  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
