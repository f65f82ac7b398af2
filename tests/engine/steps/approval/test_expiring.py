"""Approvals without a decision in time: what then holds, when, and which worker ends them."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import (
    ApprovalState,
    Ask,
    Conflict,
    Context,
    Decided,
    Holdfast,
    ManualClock,
    Rejected,
    TaskFailed,
    TaskState,
)
from holdfast.testing import Sandbox
from tests.engine.steps.approval.support import ONE_TRY, all_approvals, question_of, stored
from tests.engine.support import pass_time, reaches, until


async def test_an_approval_that_expires_is_a_rejection(box: Sandbox) -> None:
    @box.hold.task
    async def work(ctx: Context) -> str:
        try:
            await ctx.approval("Go on?", expires=timedelta(hours=2))
        except Rejected as rejected:
            await ctx.sleep(60)
            return str(rejected)
        return "approved"

    handle = await box.hold.submit(work)
    assert await handle.result(timeout=50_000) == "'Go on?': there was no decision in time, which counts as a rejection"
    assert box.elapsed == timedelta(hours=2, seconds=60)
    [record] = await all_approvals(box.hold, handle)
    assert (record.state, record.decided_by) == (ApprovalState.EXPIRED, None)
    assert record.decided_at == record.expires_at


async def test_an_approval_may_be_granted_by_default(box: Sandbox) -> None:
    @box.hold.task
    async def work(ctx: Context) -> Decided:
        return await ctx.approval("Go on?", expires=3600, default="approved")

    handle = await box.hold.submit(work)
    decided = await handle.result(timeout=50_000)
    [record] = await all_approvals(box.hold, handle)
    assert decided == Decided(
        approval_id=record.id, state=ApprovalState.EXPIRED, by=None, note=None, at=record.expires_at
    )
    assert box.elapsed == timedelta(hours=1)


@pytest.mark.parametrize("effect", ["once", "idempotent"])
@pytest.mark.parametrize("default", ["approved", "rejected"])
async def test_a_step_goes_by_the_default_of_its_approval(box: Sandbox, effect: str, default: str) -> None:
    paid: list[str] = []

    async def pay(amount: int, effect_id: str) -> int:
        paid.append(effect_id)
        return amount

    @box.hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> int:
        return await ctx.step("pay", pay, 5, effect=effect, approval=Ask("Pay?", expires=60, default=default))

    handle = await box.hold.submit(work)
    if default == "approved":
        assert await handle.result(timeout=5000) == 5
    else:
        with pytest.raises(TaskFailed, match="there was no decision in time"):
            await handle.result(timeout=5000)
    [record] = await all_approvals(box.hold, handle)
    assert (record.state, record.consumed_by) == (ApprovalState.EXPIRED, paid[0] if paid else None)
    assert len(paid) == (default == "approved")


async def test_a_decision_in_time_counts_however_late_it_is_seen(still: Holdfast, clock: ManualClock) -> None:
    @still.task
    async def work(ctx: Context) -> str | None:
        return (await ctx.approval("Go on?", expires=60)).by

    handle = await still.submit(work)
    async with still.worker(grace=0.0):
        approval = await question_of(still, handle)
        await reaches(handle, TaskState.WAITING)
    clock.advance(59.9)
    await still.approve(approval.id, by="anna")
    clock.advance(3600)
    async with still.worker(grace=0.0):
        await reaches(handle, TaskState.COMPLETED)
    assert (await handle.task()).result == "anna"


async def test_a_decision_after_the_expiry_is_refused_even_if_it_is_not_recorded(
    still: Holdfast, clock: ManualClock
) -> None:
    @still.task
    async def work(ctx: Context) -> None:
        await ctx.approval("Go on?", expires=60)

    handle = await still.submit(work)
    async with still.worker(grace=0.0):
        approval = await question_of(still, handle)
        await reaches(handle, TaskState.WAITING)
    clock.advance(60)
    assert (await stored(still, approval)).state is ApprovalState.OPEN  # no sweep has run
    for decide in (still.approve, still.reject):
        with pytest.raises(Conflict, match="expired"):
            await decide(approval.id, by="anna")
    assert await stored(still, approval) == approval
    await still.store.sweep()
    with pytest.raises(Conflict, match="expired"):
        await still.approve(approval.id, by="anna")
    async with still.worker(grace=0.0):
        await reaches(handle, TaskState.FAILED)


async def test_another_worker_handles_an_expiry_on_time(tmp_path: Path, clock: ManualClock) -> None:
    """No worker that knows the task is there: one for another queue, with other tasks, is enough."""
    url = f"sqlite:///{tmp_path}/hold.db"
    async with Holdfast(url, clock=clock) as mine, Holdfast(url, clock=clock) as theirs:

        @mine.task(queue="mine")
        async def asking(ctx: Context) -> str:
            return (await ctx.approval("Go on?", expires=60, default="approved")).state.value

        @theirs.task(queue="theirs")
        async def other(ctx: Context) -> None: ...

        handle = await mine.submit(asking)
        async with mine.worker(grace=0.0):
            approval = await question_of(mine, handle)
            await reaches(handle, TaskState.WAITING)
        async with theirs.worker(grace=0.0):
            await pass_time(clock, 59)
            await asyncio.sleep(0.05)
            assert (await stored(mine, approval)).state is ApprovalState.OPEN
            assert (await handle.task()).state is TaskState.WAITING
            clock.advance(1)

            async def is_awake() -> bool:
                clock.advance(0.001)
                return (await handle.task()).state is TaskState.PENDING

            await until(is_awake)
            assert (await stored(mine, approval)).state is ApprovalState.EXPIRED
        async with mine.worker(grace=0.0):
            await reaches(handle, TaskState.COMPLETED)
        assert (await handle.task()).result == "expired"


async def test_an_expiry_moves_a_task_without_a_worker(hold: Holdfast) -> None:
    @hold.task(queue="mine")
    async def asking(ctx: Context) -> str:
        return (await ctx.approval("Go on?", expires=0.3, default="approved")).state.value

    handle = await hold.submit(asking)
    async with hold.worker(queues=["mine"]):
        await until(lambda: all_approvals(hold, handle))  # on a busy machine it may have expired by then
        [approval] = await all_approvals(hold, handle)
        await reaches(handle, TaskState.WAITING, TaskState.COMPLETED)
    async with hold.worker(queues=["theirs"]):
        await reaches(handle, TaskState.PENDING, TaskState.COMPLETED)
    expired = await stored(hold, approval)
    assert expired.state is ApprovalState.EXPIRED
    assert expired.decided_at is not None
    assert expired.expires_at is not None
    assert expired.decided_at >= expired.expires_at
    async with hold.worker():
        assert await handle.result(timeout=60) == "expired"


async def test_the_time_to_decide_does_not_start_over_with_a_replay(box: Sandbox) -> None:
    @box.hold.task
    async def work(ctx: Context) -> str:
        async def naps() -> None:
            for _ in range(3):
                await ctx.sleep(40)

        decided: Decided
        decided, _ = await asyncio.gather(ctx.approval("Go on?", expires=100, default="approved"), naps())
        return decided.state.value

    handle = await box.hold.submit(work)
    assert await handle.result(timeout=5000) == "expired"
    [record] = await all_approvals(box.hold, handle)
    assert record.expires_at is not None
    assert record.created_at is not None
    assert record.expires_at - record.created_at == timedelta(seconds=100)
    assert record.decided_at == record.expires_at


async def test_a_resume_after_an_expiry_asks_again_with_new_time(box: Sandbox) -> None:
    @box.hold.task
    async def work(ctx: Context) -> str | None:
        return (await ctx.approval("Go on?", expires=100)).by

    handle = await box.hold.submit(work)
    with pytest.raises(TaskFailed, match="there was no decision in time"):
        await handle.result(timeout=5000)
    assert (await handle.task()).attempts == 1
    with box.frozen():
        await box.hold.resume(handle)
        again = await question_of(box.hold, handle)
        assert again.expires_at == box.clock.now() + timedelta(seconds=100)
        await box.hold.approve(again.id, by="anna")
    assert await handle.result(timeout=5000) == "anna"
