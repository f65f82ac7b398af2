"""Deadlines of tasks that come back: resume and retry take a new one, and need one if the old one has passed."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast import Conflict, Context, Handle, Holdfast, InvalidValue, ManualClock, Retry, Task, TaskFailed, TaskState
from holdfast.engine.effects.compensation import MARKER
from holdfast.model.commit import Commit, Expect
from holdfast.model.operations import Move
from holdfast.model.step import StepState
from tests.engine.support import crash, ended, reaches, steps_of, until

ONE_TRY = Retry(max_attempts=1)
NEEDS_ONE = r"deadline of task .* passed .* give it a new deadline: hold\.(resume|retry)\('.*', deadline=\.\.\.\)"

Verb = Callable[..., Awaitable[Handle[Any]]]


async def everything_about(hold: Holdfast, handle: Handle[Any]) -> tuple[object, ...]:
    """What a refusal must leave as it is."""
    return await handle.task(), await hold.store.history(handle.id), await hold.store.steps(handle.id)


async def let_the_deadline_pass(hold: Holdfast, handle: Handle[Any], clock: ManualClock) -> None:
    """Have a task fail that no worker holds."""
    clock.advance(10)
    assert (await hold.store.sweep()).failed == (handle.id,)


async def fail(
    hold: Holdfast, clock: ManualClock, handle: Handle[str], where: str, reached: asyncio.Event
) -> Handle[str]:
    """Have the deadline find a task there."""
    if where != "queue":
        worker = await hold.worker(grace=0.0).__aenter__()
        await (reaches(handle, TaskState.WAITING) if where == "waiting" else until(reached.is_set))
        if where == "running":
            clock.advance(10)
            await reaches(handle, TaskState.FAILED)
        await crash(hold, worker)
    if where != "running":
        await let_the_deadline_pass(hold, handle, clock)
    return handle


async def test_a_task_that_failed_by_its_deadline_comes_back_with_a_new_one_only(
    timed: Holdfast, clock: ManualClock
) -> None:
    """Wherever the deadline found it: in the queue, running, waiting, in review."""
    first, is_over, reached = 0, False, asyncio.Event()

    def count() -> None:
        nonlocal first
        first += 1

    @timed.task(deadline=10.0)
    async def work(ctx: Context, where: str) -> str:
        await ctx.step("first", count)
        if where == "running" and not is_over:
            reached.set()
            await asyncio.Event().wait()
        if where == "waiting":
            await ctx.wait_event(where)
        return where

    @work.verify
    async def check(ctx: Context, result: str) -> bool:
        if result == "review" and not is_over:
            reached.set()
            await asyncio.Event().wait()
        return True

    for where in ("queue", "running", "waiting", "review"):
        first, is_over = 0, False
        reached.clear()
        handle = await fail(timed, clock, await timed.submit(work, where), where, reached)
        is_over = True
        before = await everything_about(timed, handle)
        for verb in (timed.resume, timed.retry):
            with pytest.raises(Conflict, match=NEEDS_ONE):
                await verb(handle)
        assert await everything_about(timed, handle) == before, where
        await timed.resume(handle, deadline=60)
        assert (await handle.task()).deadline == clock.now() + timedelta(seconds=60)
        async with timed.worker(grace=0.0):
            await timed.emit(where)
            assert await ended(handle) == where
        assert first == 1, where
        assert (await handle.task()).round == 1


async def test_a_new_deadline_is_a_moment_or_a_time_from_now(timed: Holdfast, clock: ManualClock) -> None:
    @timed.task(deadline=10.0)
    async def work(ctx: Context) -> None: ...

    verbs: tuple[tuple[Verb, int], ...] = ((timed.resume, 1), (timed.retry, 2))
    for verb, round_ in verbs:
        for given in (20, timedelta(seconds=20), clock.now() + timedelta(minutes=1)):
            handle = await timed.submit(work)
            await let_the_deadline_pass(timed, handle, clock)
            until_then = given if isinstance(given, datetime) else clock.now() + timedelta(seconds=20)
            await verb(handle, deadline=given)
            task = await handle.task()
            assert (task.state, task.deadline, task.round) == (TaskState.PENDING, until_then, round_)
            assert not (await timed.store.sweep()).failed
            await timed.cancel(handle)


async def test_a_new_deadline_that_is_not_ahead_is_refused(timed: Holdfast, clock: ManualClock) -> None:
    """Also for a task that would need none."""

    @timed.task
    async def work(ctx: Context) -> None: ...

    now = clock.now()
    late, free = await timed.submit(work, deadline=10.0), await timed.submit(work)
    await let_the_deadline_pass(timed, late, clock)
    failed = Commit(task_id=free.id, guard=Expect(), operations=(Move(to=TaskState.FAILED, reason="by hand"),))
    assert (await timed.store.commit([failed]))[0].applied
    for handle in (late, free):
        before = await everything_about(timed, handle)
        for verb in (timed.resume, timed.retry):
            for given, why in (
                (now, r"deadline of task .* passed 10 s ago; give it a deadline in the future"),
                (clock.now(), "in the future"),
                (clock.now().replace(tzinfo=None), "time zone"),
                (0, "more than 0"),
                (timedelta(seconds=-1), "more than 0"),
                ("soon", "give seconds"),
            ):
                with pytest.raises(InvalidValue, match=why):
                    await verb(handle, deadline=given)  # type: ignore[arg-type]
        assert await everything_about(timed, handle) == before


async def test_any_failure_needs_a_new_deadline_once_the_old_one_has_passed(
    timed: Holdfast, clock: ManualClock
) -> None:
    is_mended = False

    @timed.task(deadline=10.0, retry=ONE_TRY)
    async def work(ctx: Context) -> str:
        if not is_mended:
            raise ValueError("broken")
        return "mended"

    handle = await timed.submit(work)
    deadline = (await handle.task()).deadline

    async def run() -> Task:
        async with timed.worker(grace=0.0):
            await reaches(handle, TaskState.FAILED, TaskState.COMPLETED)
        return await handle.task()

    await run()
    for verb in (timed.resume, timed.retry):  # while it is ahead, it is kept
        await verb(handle)
        assert (await run()).deadline == deadline
    clock.advance(9.999)
    await timed.resume(handle)
    await run()
    clock.advance(0.001)
    for verb in (timed.resume, timed.retry):
        with pytest.raises(Conflict, match=r"passed 0 s ago, and it would fail again at once; give it a new deadline"):
            await verb(handle)
    is_mended = True
    await timed.resume(handle, deadline=1)
    assert (await run()).result == "mended"


async def test_retry_opens_a_round_with_the_new_deadline(timed: Holdfast, clock: ManualClock) -> None:
    seen: list[tuple[datetime | None, str | None]] = []

    @timed.task(deadline=10.0)
    async def work(ctx: Context) -> int:
        seen.append((ctx.deadline, ctx.feedback))
        await ctx.step("one", int)
        return await ctx.wait_event("go") if len(seen) == 1 else len(seen)

    handle = await timed.submit(work)
    async with timed.worker(grace=0.0):
        await reaches(handle, TaskState.WAITING)
    await let_the_deadline_pass(timed, handle, clock)
    await timed.retry(handle, feedback="hurry", deadline=timedelta(minutes=1))
    async with timed.worker(grace=0.0):
        assert await ended(handle) == 2
    assert seen[-1] == (clock.now() + timedelta(minutes=1), "hurry")
    assert {step.round for step in await timed.store.steps(handle.id) if step.key == "one"} == {1, 2}


async def test_the_new_deadline_ends_the_task_like_the_first(timed: Holdfast, clock: ManualClock) -> None:
    began = asyncio.Event()

    @timed.task(deadline=10.0)
    async def work(ctx: Context) -> None:
        began.set()
        await asyncio.Event().wait()

    handle = await timed.submit(work)
    await let_the_deadline_pass(timed, handle, clock)
    await timed.resume(handle, deadline=5)
    async with timed.worker(grace=0.0):
        await until(began.is_set)
        clock.advance(4.5)
        assert (await handle.task()).state is TaskState.RUNNING
        clock.advance(0.5)
        with pytest.raises(TaskFailed, match=r"deadline of task .* passed 0 s ago"):
            await ended(handle)


async def test_a_task_that_has_not_failed_keeps_its_deadline(timed: Holdfast, clock: ManualClock) -> None:
    @timed.task(deadline=10.0)
    async def work(ctx: Context) -> None: ...

    handle = await timed.submit(work)
    before = await everything_about(timed, handle)
    await timed.resume(handle, deadline=60)
    assert await everything_about(timed, handle) == before
    await timed.cancel(handle)
    before = await everything_about(timed, handle)
    clock.advance(10)
    with pytest.raises(Conflict, match="cancelled, which is final"):
        await timed.resume(handle, deadline=60)
    with pytest.raises(Conflict, match="needs a task that is failed"):
        await timed.retry(handle, deadline=60)
    assert await everything_about(timed, handle) == before


async def test_a_saga_that_failed_by_its_deadline_is_done_again_by_the_new_one(
    timed: Holdfast, clock: ManualClock
) -> None:
    book: list[str] = []
    is_slow = True

    @timed.task(deadline=10.0)
    async def travel(ctx: Context) -> str:
        await ctx.step("flight", book.append, "+flight", compensate=lambda _, __: book.append("-flight"))
        if is_slow:
            await ctx.wait_event("never")
        return "there"

    handle = await timed.submit(travel)
    async with timed.worker(grace=0.0):
        await reaches(handle, TaskState.WAITING)
        clock.advance(10)
        await reaches(handle, TaskState.FAILED)
    assert book == ["+flight", "-flight"]
    first = (await steps_of(timed, handle))["flight"].effect_id
    with pytest.raises(Conflict, match=NEEDS_ONE):
        await timed.resume(handle)
    is_slow = False
    await timed.resume(handle, deadline=10)
    async with timed.worker(grace=0.0):
        assert await ended(handle) == "there"
    assert book == ["+flight", "-flight", "+flight"]
    assert (await steps_of(timed, handle))["flight"].effect_id != first


async def test_undoing_that_was_broken_off_goes_on_without_a_new_deadline(timed: Holdfast, clock: ManualClock) -> None:
    """No deadline ends it, so that none is asked for."""
    book: list[str] = []
    began, go = asyncio.Event(), asyncio.Event()

    async def release(booked: None, what: str) -> None:
        began.set()
        await go.wait()
        book.append(what)

    @timed.task(deadline=10.0)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", book.append, "flight", compensate=release)
        await ctx.wait_event("never")

    handle = await timed.submit(travel)
    worker = await timed.worker(grace=0.0).__aenter__()
    await reaches(handle, TaskState.WAITING)
    clock.advance(10)
    await until(began.is_set)
    await crash(timed, worker)
    # As a sweep does to a task that keeps killing its workers.
    poisoned = Move(to=TaskState.FAILED, reason="poison", error={"type": "Poison", "message": "it kills"})
    [verdict] = await timed.store.commit([Commit(task_id=handle.id, guard=Expect(), operations=(poisoned,))])
    assert verdict.applied
    assert (await steps_of(timed, handle))[MARKER].state is StepState.RUNNING
    go.set()
    await timed.resume(handle)
    async with timed.worker(grace=0.0):
        await until(lambda: book == ["flight", "flight"])
        with pytest.raises(TaskFailed, match="deadline"):
            await ended(handle)


async def test_one_who_resumes_too_late_changes_nothing(timed: Holdfast, clock: ManualClock) -> None:
    """Of two callers that give a deadline, the first counts."""

    @timed.task(deadline=10.0)
    async def work(ctx: Context) -> None: ...

    handle = await timed.submit(work)
    await let_the_deadline_pass(timed, handle, clock)
    await asyncio.gather(*(timed.resume(handle, deadline=seconds) for seconds in (20, 20)))
    await timed.resume(handle, deadline=30)
    assert (await handle.task()).deadline == clock.now() + timedelta(seconds=20)
    assert [move.to_state for move in await timed.store.history(handle.id)].count(TaskState.PENDING) == 2
