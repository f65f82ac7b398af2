"""Commits that are on their way when their try ends: what the store has taken, the next try must not do again."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Holdfast, Retry, StepState, SyncTransaction, TaskFailed, TaskFilter
from holdfast.model.commit import Commit, Verdict
from holdfast.model.operations import WriteStep
from tests.engine.support import Watched, ended, settle

AT_ONCE = Retry(max_attempts=4, initial=0.001, jitter="none")
ONE_TRY = Retry(max_attempts=1)

Branch = Callable[[Context], Awaitable[Any]]


class Moment:
    """The moment at which a line is stored and its Commit has not been answered: a sibling of its branch fails then."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._failed = False
        self.came = asyncio.Event()

    async def after_commit(self, commits: Sequence[Commit], _: list[Verdict]) -> None:
        for commit in commits:
            for operation in commit.operations:
                if isinstance(operation, WriteStep) and self._is_it(operation) and not self.came.is_set():
                    self.came.set()
                    await settle()

    def _is_it(self, operation: WriteStep) -> bool:
        return operation.step.key.endswith(self._key) and operation.step.state is StepState.COMPLETED

    async def fail(self) -> None:
        await self.came.wait()
        if not self._failed:
            self._failed = True
            raise ConnectionError("a sibling")


async def run(hold: Holdfast, watched: Watched, moment: Moment, branch: Branch, *, nested: bool = True) -> Any:  # noqa: ANN401
    """Run the branch beside a sibling that fails at the moment, in a step that is tried again; return its result."""

    @hold.task(name="job", retry=ONE_TRY)
    async def job(ctx: Context) -> Any:  # noqa: ANN401
        async def outer() -> Any:  # noqa: ANN401
            return (await asyncio.gather(branch(ctx), moment.fail()))[0]

        return await (ctx.step("outer", outer, retry=AT_ONCE, returns=Any) if nested else outer())

    handle = await hold.submit(job)
    await hold.emit("paid", 42)
    watched.after_commit = moment.after_commit
    async with hold.worker():
        try:
            return await ended(handle)
        finally:
            assert moment.came.is_set()


async def test_a_step(watch: Callable[[], list[Watched]]) -> None:
    watches, done = watch(), []

    async def do() -> str:
        done.append(1)
        return "done"

    async with Holdfast("memory://") as hold:
        assert await run(hold, watches[-1], Moment("do"), lambda ctx: ctx.step("do", do)) == "done"
    assert done == [1]


async def test_a_child(watch: Callable[[], list[Watched]]) -> None:
    watches = watch()
    async with Holdfast("memory://") as hold:

        @hold.task
        async def child(ctx: Context) -> str:
            return "done"

        async def branch(ctx: Context) -> str:
            return await (await ctx.submit(child)).result()

        assert await run(hold, watches[-1], Moment("submit:child"), branch) == "done"
        found = await hold.store.find(TaskFilter())
        assert sorted(task.name for task in found.items) == ["child", "job"]


async def test_an_event(watch: Callable[[], list[Watched]]) -> None:
    watches = watch()
    async with Holdfast("memory://") as hold:
        assert await run(hold, watches[-1], Moment("event:paid"), lambda ctx: ctx.wait_event("paid")) == 42


async def test_a_step_that_has_to_be_undone(watch: Callable[[], list[Watched]]) -> None:
    """Also without a step around it: whether there is something to undo is read after all that was sent is answered."""
    watches = watch()
    log: list[str] = []

    async def book() -> None:
        log.append("book")

    async def unbook(_: None) -> None:
        log.append("unbook")

    async with Holdfast("memory://") as hold:
        with pytest.raises(TaskFailed):
            await run(
                hold, watches[-1], Moment("book"), lambda ctx: ctx.step("book", book, compensate=unbook), nested=False
            )
    assert log == ["book", "unbook"]


async def test_a_transaction_on_its_way_when_its_try_ended_is_done_once(tmp_path: Path) -> None:
    fail, written = [True], asyncio.Event()
    async with Holdfast(f"sqlite:///{tmp_path}/hold.db") as hold:
        await hold.transaction(lambda tx: tx.execute("CREATE TABLE seats (name TEXT)"))
        transact = hold.store.transact

        async def slow(*args: Any, **named: Any) -> Any:  # noqa: ANN401
            answer = await transact(*args, **named)
            written.set()
            await settle()
            return answer

        hold.store.transact = slow  # type: ignore[method-assign]

        @hold.task(retry=ONE_TRY)
        async def job(ctx: Context) -> None:
            def book(tx: SyncTransaction) -> None:
                tx.execute("INSERT INTO seats VALUES (?)", "1A")

            async def other() -> None:
                await written.wait()
                if fail:
                    fail.clear()
                    raise ConnectionError("a sibling")

            async def outer() -> None:
                await asyncio.gather(ctx.transaction("book", book), other())

            await ctx.step("outer", outer, retry=AT_ONCE)

        handle = await hold.submit(job)
        async with hold.worker():
            await ended(handle)
        seats = await hold.transaction(lambda tx: tx.execute("SELECT * FROM seats"))
    assert written.is_set()
    assert len(seats) == 1
