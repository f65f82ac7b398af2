"""Scene: one proof's own Holdfast, and the ways in which a task can come by a piece of its code a second time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from holdfast import Context, Handle, Holdfast, Retry, StepState, Task, TaskCancelled, TaskFailed, TaskFilter, TaskState
from holdfast.testing import Sandbox
from tests.engine.support import ended, reaches, steps_of, until

Part = Callable[[Context], Awaitable[Any]]
"""A piece of a task's code: what a row of the table is about."""

ONE_TRY = Retry(max_attempts=1)
AT_ONCE = Retry(max_attempts=2, initial=0.001, jitter="none")
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
SOON = timedelta(seconds=20)
"""The deadline of a task whose deadline passes: short, because a worker at work beats all the way to it."""


class Calls(list[str]):
    """What was done to the world, in order. It never takes two calls for one."""

    def do(self, what: str) -> str:
        """Do it, and say so."""
        self.append(what)
        return f"{what}, call {len(self)}"


@dataclass(frozen=True)
class Run:
    """A task that came by its part twice."""

    handle: Handle[Any]
    result: Any


@dataclass(frozen=True)
class Scene:
    """Time skips what no task needs; one worker does the work, and a fresh one follows it when it dies."""

    box: Sandbox
    folder: Path
    """Empty, for files that a proof wants of its own."""

    @property
    def hold(self) -> Holdfast:
        return self.box.hold

    # The part was done; the task comes by again

    async def by_automatic_retry(self, part: Part) -> Run:
        """The first attempt fails behind the part; the next one follows by itself."""

        @self.hold.task(retry=AT_ONCE)
        async def job(ctx: Context) -> Any:  # noqa: ANN401
            value = await part(ctx)
            if ctx.attempt == 1:
                raise RuntimeError("the first attempt fails")
            return value

        return await self._end(await self.hold.submit(job))

    async def by_resume(self, part: Part, *, new: Part | None = None) -> Run:
        """The task fails behind the part and is resumed; with ``new``, after a deploy that changed the part."""
        handle, code = await self._failed(part)
        code[0] = new or part
        await self.hold.resume(handle)
        return await self._end(handle)

    async def by_deploy(self, part: Part, new: Part) -> Run:
        """The task fails behind the part; the code of the part changes; the task is resumed."""
        return await self.by_resume(part, new=new)

    async def by_retry(self, part: Part) -> Run:
        """The task fails behind the part and is retried by hand: a new round."""
        handle, _ = await self._failed(part)
        await self.hold.retry(handle, feedback="better")
        return await self._end(handle)

    async def by_new_round(self, part: Part) -> Run:
        """A verifier rejects the first round."""

        @self.hold.task
        async def job(ctx: Context) -> Any:  # noqa: ANN401
            return await part(ctx)

        @job.verify
        async def second_round(ctx: Context, _: object) -> bool | str:
            return ctx.task.round == 2 or "better"

        return await self._end(await self.hold.submit(job))

    async def by_fork(self, part: Part, *, at: str | None = None) -> Run:
        """The task is completed, and forked; the run is the fork's."""

        @self.hold.task
        async def job(ctx: Context) -> Any:  # noqa: ANN401
            return await part(ctx)

        origin = await self._end(await self.hold.submit(job))
        return await self._end(await self.hold.fork(origin.handle, at=at))

    async def by_suspension(self, part: Part) -> Run:
        """The task waits for an hour behind the part, off its worker."""

        @self.hold.task
        async def job(ctx: Context) -> Any:  # noqa: ANN401
            value = await part(ctx)
            await ctx.sleep(HOUR, key="long")
            return value

        run = await self._end(await self.hold.submit(job))
        assert TaskState.WAITING in (await self.box.trace(run.handle)).states
        return run

    async def by_take_over(self, part: Part) -> Run:
        """The worker dies behind the part, and another one takes over."""

        @self.hold.task
        async def job(ctx: Context) -> Any:  # noqa: ANN401
            value = await part(ctx)
            await ctx.step("mark", lambda: None)
            return value

        self.box.crash("mark", when="before_effect")
        run = await self._end(await self.hold.submit(job))
        assert (await self.box.trace(run.handle)).deaths == 1
        return run

    async def by_prune(self, part: Part) -> Run:
        """The task is completed, and pruned two days later."""

        @self.hold.task
        async def job(ctx: Context) -> Any:  # noqa: ANN401
            return await part(ctx)

        run = await self._end(await self.hold.submit(job))
        await self.prune()
        assert await self.hold.store.get(run.handle.id) is None
        assert await self.hold.store.steps(run.handle.id) == []
        return run

    # The part is under way

    async def begun(
        self, part: Part, *, name: str = "job", deadline: timedelta | None = None, retry: Retry = ONE_TRY
    ) -> Handle[Any]:
        """Submit a task that does the part; return at once."""

        @self.hold.task(name=name, deadline=deadline, retry=retry)
        async def job(ctx: Context) -> Any:  # noqa: ANN401
            return await part(ctx)

        return await self.hold.submit(job)

    async def by_cancel(self, part: Part, *, when: Callable[[], Any]) -> Handle[Any]:
        """Cancel a task in its part, once ``when`` is true; return when it is cancelled."""
        handle = await self.begun(part)
        await until(when)
        await self.hold.cancel(handle, "not wanted", by="anna")
        await self.is_cancelled(handle)
        return handle

    async def by_deadline(self, part: Part) -> Handle[Any]:
        """Let the deadline of a task pass in its part; return when it has failed."""
        handle = await self.begun(part, deadline=SOON, retry=AT_ONCE)
        assert "DeadlineExceeded" in await self.failure(handle)
        return handle

    # Looking

    async def failure(self, handle: Handle[Any]) -> str:
        """Return what a task fails with: the type and the message."""
        try:
            result = await ended(handle)
        except TaskFailed as error:
            return f"{error.failure.type_name}: {error.failure.message}"
        raise AssertionError(f"it has not failed, and returned {result!r}")

    async def is_cancelled(self, handle: Handle[Any]) -> None:
        """Wait until the task has ended, which it does because it was cancelled."""
        try:
            await ended(handle)
        except TaskCancelled:
            return
        raise AssertionError("it was not cancelled")

    async def state(self, handle: Handle[Any], key: str) -> StepState | None:
        """Return what the journal says of a step."""
        step = (await steps_of(self.hold, handle)).get(key)
        return None if step is None else step.state

    async def waits(self, handle: Handle[Any]) -> None:
        """Return when the task is off its worker."""
        await reaches(handle, TaskState.WAITING)

    async def children(self, handle: Handle[Any]) -> list[Task]:
        """Return the children of a task, in the order in which they were submitted."""
        page = await self.hold.store.find(TaskFilter(parent_id=handle.id), limit=100, newest_first=False)
        return list(page.items)

    async def prune(self, older_than: timedelta = DAY) -> None:
        """Let two days pass, and delete what ended before the last of them."""
        with self.box.frozen():
            await self.box.advance(2 * DAY)
            await self.hold.store.prune(older_than)

    # Its own

    async def _failed(self, part: Part) -> tuple[Handle[Any], list[Part]]:
        code, broken = [part], [True]

        @self.hold.task(retry=ONE_TRY)
        async def job(ctx: Context) -> Any:  # noqa: ANN401
            value = await code[0](ctx)
            if broken:
                raise RuntimeError("no paper")
            return value

        handle = await self.hold.submit(job)
        assert "no paper" in await self.failure(handle)
        broken.clear()
        return handle, code

    async def _end(self, handle: Handle[Any]) -> Run:
        return Run(handle, await ended(handle))
