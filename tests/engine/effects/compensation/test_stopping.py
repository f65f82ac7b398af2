"""Deadlines and cancels, wherever they meet a saga: running, waiting, pending, in review, or being undone."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from holdfast import (
    ApprovalState,
    Ask,
    Context,
    Handle,
    Holdfast,
    ManualClock,
    Retry,
    TaskCancelled,
    TaskDefinition,
    TaskFailed,
    TaskFilter,
    TaskState,
)
from holdfast.testing import Sandbox
from tests.engine.effects.compensation.support import ONE_TRY, Agency, doubts_of, undos_of
from tests.engine.support import PATIENCE, count_moves, crash, ended, pass_time, passes, reaches, settle, until


async def is_undone(handle: Handle[Any], agency: Agency, why: type[Exception], pattern: str) -> None:
    """Pass if the one reservation of the task was released, and the task ended as it should."""
    with pytest.raises(why, match=pattern):
        await ended(handle)
    assert agency.book == ["+flight", "-flight"]
    task = await handle.task()
    assert not task.must_undo


# Cancelled


async def test_a_running_task_that_is_cancelled_undoes_its_steps(hold: Holdfast, agency: Agency) -> None:
    began = asyncio.Event()

    async def endless() -> None:
        began.set()
        await asyncio.sleep(60)

    @hold.task
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        await ctx.step("think", endless)

    handle = await hold.submit(travel)
    async with hold.worker():
        await until(began.is_set)
        assert await handle.cancel("ill") is TaskState.RUNNING
        await is_undone(handle, agency, TaskCancelled, "ill")
    last = (await hold.store.history(handle.id))[-1]
    assert (last.to_state, last.reason) == (TaskState.CANCELLED, "ill (1 step undone)")
    assert (await handle.task()).error is None


async def test_a_waiting_task_that_is_cancelled_undoes_its_steps(hold: Holdfast, agency: Agency) -> None:
    @hold.task
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        await ctx.wait_event("never")

    handle = await hold.submit(travel)
    async with hold.worker():
        await reaches(handle, TaskState.WAITING)
    assert await handle.cancel("ill") is TaskState.PENDING  # only a worker can undo anything
    async with hold.worker():
        await is_undone(handle, agency, TaskCancelled, "ill")


async def test_a_pending_task_that_is_cancelled_undoes_its_steps(hold: Holdfast, agency: Agency) -> None:
    @hold.task
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        await ctx.wait_event("go")

    handle = await hold.submit(travel)
    async with hold.worker():
        await reaches(handle, TaskState.WAITING)
    await hold.emit("go")
    assert (await handle.task()).state is TaskState.PENDING
    assert await handle.cancel("ill") is TaskState.PENDING
    async with hold.worker():
        await is_undone(handle, agency, TaskCancelled, "ill")


async def test_a_cancelled_task_is_run_by_name_through_its_undo(quick: Holdfast, agency: Agency) -> None:
    @quick.task
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        await ctx.wait_event("go")

    handle = await quick.submit(travel)
    async with quick.worker():
        await reaches(handle, TaskState.WAITING)
    await quick.emit("go")
    await handle.cancel("ill")
    assert (await handle.task()).state is TaskState.PENDING
    with pytest.raises(TaskCancelled, match="ill"):
        await asyncio.wait_for(quick.run(handle), PATIENCE)
    assert agency.book == ["+flight", "-flight"]


async def test_a_task_that_is_cancelled_between_two_attempts_does_not_wait_for_the_next(
    hold: Holdfast, agency: Agency
) -> None:
    @hold.task(retry=Retry(initial=3600, max_delay=3600, jitter="none"))
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        raise ConnectionError("try again in an hour")

    async with hold.worker():
        handle = await hold.submit(travel)
        await passes(hold, handle, TaskState.PENDING, times=2)
        await handle.cancel("ill")
        await is_undone(handle, agency, TaskCancelled, "ill")


async def test_a_task_that_is_cancelled_in_review_undoes_its_steps(hold: Holdfast, agency: Agency) -> None:
    """No worker holds it at that moment: its worker has died."""
    began = asyncio.Event()
    travel = reviewed(hold, agency, began)
    handle = await hold.submit(travel)
    worker = await hold.worker().__aenter__()
    await until(began.is_set)
    await crash(hold, worker)
    assert (await handle.task()).state is TaskState.REVIEW
    assert await handle.cancel("ill") is TaskState.REVIEW
    async with hold.worker():
        await is_undone(handle, agency, TaskCancelled, "ill")


async def test_a_task_that_is_cancelled_while_its_verifier_looks_at_it_undoes_its_steps(
    quick: Holdfast, agency: Agency
) -> None:
    began = asyncio.Event()
    handle = await quick.submit(reviewed(quick, agency, began))
    async with quick.worker():
        await until(began.is_set)
        assert await handle.cancel("ill") is TaskState.REVIEW
        await is_undone(handle, agency, TaskCancelled, "ill")


def reviewed(hold: Holdfast, agency: Agency, began: asyncio.Event) -> TaskDefinition[[], str]:
    """Define a task whose verifier takes long."""

    @hold.task
    async def travel(ctx: Context) -> str:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        return "there"

    @travel.verify
    async def check(ctx: Context, result: str) -> bool:
        began.set()
        await asyncio.sleep(60)
        return True

    return travel


@pytest.mark.parametrize("parent", ["waiting", "running"])
async def test_children_are_cancelled_before_anything_is_undone(quick: Holdfast, agency: Agency, parent: str) -> None:
    hold = quick
    states: list[TaskState] = []
    began = asyncio.Event()

    async def endless() -> None:
        began.set()
        await asyncio.sleep(60)

    async def release(booking: object, what: str) -> None:
        children = await hold.store.find(TaskFilter(parent_id=handle.id))
        states.extend(child.state for child in children.items)

    @hold.task
    async def child(ctx: Context) -> None:
        await ctx.wait_event("never")

    @hold.task
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=release)
        submitted = await ctx.submit(child)
        if parent == "running":
            await ctx.step("think", endless)
        await submitted.result()

    handle = await hold.submit(travel)
    async with hold.worker():
        await (until(began.is_set) if parent == "running" else reaches(handle, TaskState.WAITING))
        await handle.cancel("ill")
        with pytest.raises(TaskCancelled):
            await ended(handle)
    assert states == [TaskState.CANCELLED]


async def test_a_child_that_is_cancelled_with_its_parent_undoes_its_own_steps(hold: Holdfast, agency: Agency) -> None:
    @hold.task
    async def child(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        await ctx.wait_event("never")

    @hold.task
    async def parent(ctx: Context) -> None:
        await (await ctx.submit(child)).result()

    handle = await hold.submit(parent)
    async with hold.worker():
        await reaches(handle, TaskState.WAITING)
        [one] = (await hold.store.find(TaskFilter(parent_id=handle.id))).items
        await reaches(hold.handle(one.id), TaskState.WAITING)
        await handle.cancel("ill")
        await is_undone(hold.handle(one.id), agency, TaskCancelled, "ill")
        assert (await handle.task()).state is TaskState.CANCELLED


# Too late


async def test_a_running_task_whose_deadline_passes_undoes_its_steps(
    still: Holdfast, clock: ManualClock, agency: Agency
) -> None:
    began = asyncio.Event()

    async def endless() -> None:
        began.set()
        await asyncio.sleep(60)

    @still.task(deadline=10.0)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        await ctx.step("think", endless)

    handle = await still.submit(travel)
    async with still.worker(grace=0.0):
        await until(began.is_set)
        await pass_time(clock, 9.5)
        assert agency.book == ["+flight"]
        await pass_time(clock, 0.5)
        await is_undone(handle, agency, TaskFailed, "deadline of task")
    assert (await still.store.history(handle.id))[-1].reason == "deadline passed (1 step undone)"


async def test_a_waiting_task_whose_deadline_passes_is_woken_to_undo_its_steps(
    still: Holdfast, clock: ManualClock, agency: Agency
) -> None:
    @still.task(deadline=10.0)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        await ctx.wait_event("never")

    handle = await still.submit(travel)
    async with still.worker(grace=0.0):
        await reaches(handle, TaskState.WAITING)
        await pass_time(clock, 9.5)
        assert agency.book == ["+flight"]
        await pass_time(clock, 0.5)
        await is_undone(handle, agency, TaskFailed, "deadline of task .* passed")
    reasons = [move.reason for move in await still.store.history(handle.id)]
    assert reasons[-1] == "deadline passed (1 step undone)"


async def test_a_waiting_task_without_a_worker_is_undone_when_its_deadline_passes(
    hold: Holdfast, agency: Agency
) -> None:
    """A sweep may not just fail it."""

    @hold.task
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        await ctx.wait_event("never")

    handle = None
    for deadline in (0.2, 2.0, 20.0):  # a busy machine may need longer to get as far as that
        agency.clear()
        handle = await hold.submit(travel, deadline=deadline)
        async with hold.worker():
            await reaches(handle, TaskState.WAITING, TaskState.FAILED)
        if (await handle.task()).state is TaskState.WAITING:
            break
        async with hold.worker():  # so that nothing of it is left to be undone beside the next one
            await reaches(handle, TaskState.FAILED)
    assert handle is not None
    while (await handle.task()).state is TaskState.WAITING:
        await hold.store.sweep()
        await asyncio.sleep(0.01)
    assert (await handle.task()).state is TaskState.PENDING
    async with hold.worker():
        await is_undone(handle, agency, TaskFailed, "deadline")


async def test_a_pending_task_whose_deadline_passes_does_nothing_more_but_undo_its_steps(
    still: Holdfast, clock: ManualClock, agency: Agency
) -> None:
    @still.task(deadline=10.0)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        await ctx.wait_event("go")
        await ctx.step("hotel", agency.reserve, "hotel", compensate=agency.release)

    handle = await still.submit(travel)
    async with still.worker(grace=0.0):
        await reaches(handle, TaskState.WAITING)
    await still.emit("go")
    assert (await handle.task()).state is TaskState.PENDING
    clock.advance(60)
    await still.store.sweep()
    assert (await handle.task()).state is TaskState.PENDING
    async with still.worker(grace=0.0):
        await is_undone(handle, agency, TaskFailed, "deadline")


async def test_a_task_in_review_whose_deadline_passes_undoes_its_steps(
    still: Holdfast, clock: ManualClock, agency: Agency
) -> None:
    began = asyncio.Event()

    @still.task(deadline=10.0)
    async def travel(ctx: Context) -> str:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        return "there"

    @travel.verify
    async def check(ctx: Context, result: str) -> bool:
        began.set()
        await asyncio.sleep(60)
        return True

    handle = await still.submit(travel)
    async with still.worker(grace=0.0):
        await until(began.is_set)
        await pass_time(clock, 10)
        await is_undone(handle, agency, TaskFailed, "deadline")


async def test_a_failing_compensation_is_tried_again_though_the_deadline_has_passed(box: Sandbox) -> None:
    tried: list[timedelta] = []

    async def release(booking: object) -> None:
        tried.append(box.elapsed)
        if len(tried) < 3:
            raise ConnectionError("try again")

    @box.hold.task(deadline=10.0)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", lambda: "flight", returns=str, compensate=release)
        await ctx.wait_event("never")

    handle = await box.hold.submit(travel)
    with pytest.raises(TaskFailed, match="deadline"):
        await handle.result(timeout=5000)
    assert len(tried) == 3
    assert await box.hold.doubts() == []


@pytest.mark.parametrize("how", ["deadline", "cancel", "failure"])
async def test_an_undo_that_waits_for_a_person_is_woken_by_nothing_else(
    still: Holdfast, clock: ManualClock, agency: Agency, how: str
) -> None:
    """Neither by the deadline that has passed, nor by the cancel that was asked for."""

    @still.task(deadline=10.0 if how == "deadline" else None, retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        if how == "failure":
            raise ValueError("no money left")
        await ctx.wait_event("never")

    agency.broken = {"flight"}
    handle = await still.submit(travel)
    async with still.worker(grace=0.0):
        if how != "failure":
            await reaches(handle, TaskState.WAITING)
        if how == "cancel":
            await handle.cancel("ill")
        await pass_time(clock, 20)
        [doubt] = await doubts_of(still, handle, "flight")
        await reaches(handle, TaskState.WAITING)
        before = await still.store.history(handle.id)
        claims = await count_moves(still, handle, TaskState.RUNNING)
        await pass_time(clock, 120)
        await settle(1000)
        assert await still.store.history(handle.id) == before
        assert await count_moves(still, handle, TaskState.RUNNING) == claims
        agency.broken = set()
        await still.resolve(doubt, "compensate", by="anna")
        kind, why = {"deadline": (TaskFailed, "deadline"), "cancel": (TaskCancelled, "ill")}.get(
            how, (TaskFailed, "no money left")
        )
        await is_undone(handle, agency, kind, why)


# While it is being undone


@pytest.mark.parametrize("when", ["running", "waiting"])
async def test_a_cancel_while_it_is_being_undone_changes_nothing(hold: Holdfast, agency: Agency, when: str) -> None:
    undoing, go = asyncio.Event(), asyncio.Event()

    async def release(booking: object, what: str) -> None:
        undoing.set()
        await go.wait()

    @hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release_at_once)
        await ctx.step("hotel", agency.reserve, "hotel", compensate=release)
        raise ValueError("no money left")

    if when == "waiting":
        agency.broken = {"flight"}
    handle = await hold.submit(travel)
    async with hold.worker():
        await until(undoing.is_set)
        if when == "running":
            await handle.cancel("ill")
            await asyncio.sleep(0.1)
        go.set()
        if when == "waiting":
            [doubt] = await doubts_of(hold, handle, "flight")
            await reaches(handle, TaskState.WAITING)
            before = len(await hold.store.history(handle.id))
            await handle.cancel("ill")
            await asyncio.sleep(0.3)
            assert len(await hold.store.history(handle.id)) <= before + 3, "it runs in circles"
            agency.broken = set()
            await hold.resolve(doubt, "compensate", by="anna")
        with pytest.raises(TaskFailed, match="no money left"):
            await ended(handle)
    assert agency.book == ["+flight", "+hotel", "-flight"]
    last = (await hold.store.history(handle.id))[-1]
    assert last.reason == "attempt 1 of 1 failed: ValueError: no money left (2 steps undone)"


async def test_a_worker_that_stops_hands_an_undo_on_to_the_next(hold: Holdfast, agency: Agency) -> None:
    undoing = asyncio.Event()
    ids: list[str] = []

    async def release(booking: object, what: str, effect_id: str) -> None:
        ids.append(effect_id)
        if len(ids) == 1:
            undoing.set()
            await asyncio.sleep(60)

    @hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release_at_once)
        await ctx.step("hotel", agency.reserve, "hotel", compensate=release)
        await ctx.step("car", agency.reserve, "car", compensate=agency.release)
        raise ValueError("no money left")

    handle = await hold.submit(travel)
    async with hold.worker(grace=0.0):
        await until(undoing.is_set)
    assert agency.book == ["+flight", "+hotel", "+car", "-car"]
    undoing_began, handed_back = (await hold.store.history(handle.id))[-2:]
    assert (handed_back.to_state, handed_back.reason) == (TaskState.PENDING, "handed back")
    assert handed_back.fence == undoing_began.fence  # by the attempt itself: its worker did not have to wait for it
    async with hold.worker():
        with pytest.raises(TaskFailed, match="no money left"):
            await ended(handle)
    assert agency.book == ["+flight", "+hotel", "+car", "-car", "-flight"]
    assert ids == [ids[0]] * 2
    assert agency.tries == {"car": 1, "flight": 1}
    assert len(await undos_of(hold, handle)) == 3


async def test_no_approval_is_asked_while_it_is_being_undone(hold: Holdfast, agency: Agency) -> None:
    """Its questions are taken back at once, and not only when the last undo is through."""

    @hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        async def fails() -> None:
            await ctx.wait_event("fail")
            raise ValueError("no money left")

        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release_at_once)
        await asyncio.gather(
            ctx.approval("Go on?"),
            ctx.ask("Where to?"),
            ctx.step("hotel", agency.reserve, "hotel", approval=Ask("A hotel?"), compensate=agency.release),
            fails(),
        )

    agency.broken = {"flight"}
    handle = await hold.submit(travel)
    async with hold.worker():
        await reaches(handle, TaskState.WAITING)
        assert len(await hold.approvals(handle)) == 3
        await hold.emit("fail")
        [doubt] = await doubts_of(hold, handle, "flight")
        assert await hold.approvals(handle) == []
        assert len(await hold.approvals(handle, states=[ApprovalState.VOID])) == 3
        await hold.resolve(doubt, "abandon", by="anna")
        with pytest.raises(TaskFailed, match="no money left"):
            await ended(handle)
    assert agency.book == ["+flight"]
