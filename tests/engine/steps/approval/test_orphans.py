"""Questions whose task has ended: they are closed, and to decide them is refused with a reason."""

import asyncio

import pytest

from holdfast import (
    Approval,
    ApprovalState,
    Ask,
    Conflict,
    Context,
    Decided,
    Holdfast,
    TaskCancelled,
    TaskFailed,
    TaskState,
)
from holdfast.testing import Sandbox
from tests.engine.steps.approval.support import ONE_TRY, all_approvals, asked, question_of, stored
from tests.engine.support import reaches, settle, until


async def is_closed(hold: Holdfast, approval: Approval) -> None:
    """Pass if the approval was closed with its task, and cannot be decided any more."""
    closed = await stored(hold, approval)
    assert (closed.state, closed.decided_by) == (ApprovalState.CLOSED, None)
    assert await hold.approvals(approval.task_id) == []
    for decide in (hold.approve, hold.reject):
        with pytest.raises(Conflict, match=r"closed: its task ended before a decision; nothing was changed"):
            await decide(approval.id, by="anna")
    assert await stored(hold, approval) == closed


async def test_cancelling_a_task_closes_its_questions(hold: Holdfast) -> None:
    @hold.task
    async def work(ctx: Context) -> None:
        await asyncio.gather(ctx.approval("Go on?"), ctx.ask("Where to?"))

    handle = await hold.submit(work)
    async with hold.worker():
        both = await asked(hold, handle, 2)
        await reaches(handle, TaskState.WAITING)
        assert await handle.cancel("enough") is TaskState.CANCELLED
    approval, question = sorted(both, key=lambda one: one.kind)
    await is_closed(hold, approval)
    with pytest.raises(Conflict, match="its task ended"):
        await hold.answer(question.id, "anywhere", by="anna")


async def test_cancelling_a_parent_closes_the_questions_of_its_children(hold: Holdfast) -> None:
    @hold.task
    async def child(ctx: Context) -> None:
        await ctx.approval("Go on?")

    @hold.task
    async def parent(ctx: Context) -> None:
        await (await ctx.submit(child)).result()

    handle = await hold.submit(parent)
    async with hold.worker():
        await reaches(handle, TaskState.WAITING)
        await until(hold.approvals)
        [approval] = await hold.approvals()
        assert approval.task_id != handle.id
        await reaches(hold.handle(approval.task_id), TaskState.WAITING)
        await handle.cancel("enough")
    await is_closed(hold, approval)


async def test_a_deadline_closes_a_tasks_questions(hold: Holdfast) -> None:
    @hold.task
    async def work(ctx: Context) -> None:
        await ctx.step("pay", print, approval=Ask("Pay?"))

    approvals: list[Approval] = []
    async with hold.worker():
        for deadline in (0.2, 2.0, 20.0):  # a busy machine may need longer to get as far as that
            handle = await hold.submit(work, deadline=deadline)
            with pytest.raises(TaskFailed, match="deadline"):
                await handle.result(timeout=60)
            if approvals := await all_approvals(hold, handle):
                break
    [approval] = approvals
    await is_closed(hold, approval)


async def test_a_failure_beside_it_closes_a_question(hold: Holdfast) -> None:
    @hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> None:
        async def fails() -> None:
            await ctx.wait_event("fail")
            raise ValueError("broken")

        await asyncio.gather(ctx.approval("Go on?"), fails())

    handle = await hold.submit(work)
    async with hold.worker():
        approval = await question_of(hold, handle)
        await reaches(handle, TaskState.WAITING)
        await hold.emit("fail")
        with pytest.raises(TaskFailed, match="broken"):
            await handle.result(timeout=60)
    await is_closed(hold, approval)


async def test_a_task_that_goes_another_way_closes_a_question(box: Sandbox) -> None:
    @box.hold.task
    async def work(ctx: Context) -> str:
        leave = asyncio.create_task(ctx.approval("Go on?"))
        event = asyncio.create_task(ctx.wait_event("never mind"))
        done, _ = await asyncio.wait({leave, event}, return_when=asyncio.FIRST_COMPLETED)
        return "went on" if leave in done else "did without"

    handle = await box.hold.submit(work)
    approval = await question_of(box.hold, handle)
    await box.hold.emit("never mind")
    assert await handle.result(timeout=60) == "did without"
    await is_closed(box.hold, approval)


async def test_an_attempt_that_is_retried_leaves_its_question_open(box: Sandbox) -> None:
    """Nothing has ended: the next attempt asks the same, and finds that a person is being asked."""
    failed = asyncio.Event()

    @box.hold.task
    async def work(ctx: Context) -> str:
        async def fails() -> None:
            await ctx.wait_event("fail")
            if not failed.is_set():
                failed.set()
                raise ValueError("broken")

        decided: Decided
        decided, _ = await asyncio.gather(ctx.approval("Go on?"), fails())
        return decided.approval_id

    handle = await box.hold.submit(work)
    approval = await question_of(box.hold, handle)
    await box.idle()
    await box.hold.emit("fail")
    await until(failed.is_set)
    await box.idle()
    assert await question_of(box.hold, handle) == approval
    await box.hold.approve(approval.id, by="anna")
    assert await handle.result(timeout=60) == approval.id
    assert (await handle.task()).attempts == 1


@pytest.mark.parametrize("revive", ["resume", "retry"])
async def test_a_revived_task_asks_again_what_was_closed(hold: Holdfast, revive: str) -> None:
    works = False

    @hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> str:
        async def fails() -> None:
            await ctx.wait_event("fail", earlier=True)
            if not works:
                raise ValueError("broken")

        decided: Decided
        decided, _ = await asyncio.gather(ctx.approval("Go on?"), fails())
        return decided.approval_id

    handle = await hold.submit(work)
    async with hold.worker():
        first = await question_of(hold, handle)
        await reaches(handle, TaskState.WAITING)
        await hold.emit("fail")
        with pytest.raises(TaskFailed, match="broken"):
            await handle.result(timeout=60)
        works = True
        await (hold.resume(handle) if revive == "resume" else hold.retry(handle))
        second = await question_of(hold, handle)
        assert second.id != first.id
        await hold.approve(second.id, by="anna")
        if revive == "retry":
            await hold.emit("fail")
        assert await handle.result(timeout=60) == second.id
    assert [one.state.value for one in await all_approvals(hold, handle)] == ["closed", "approved"]


async def test_a_revived_task_asks_again_for_a_step_whose_question_was_closed(box: Sandbox) -> None:
    paid: list[int] = []

    @box.hold.task(retry=ONE_TRY, deadline=3600)
    async def work(ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            for amount in (1, 2):
                key = f"pay-{amount}"
                group.create_task(
                    ctx.step("pay", paid.append, amount, key=key, effect="once", approval=Ask(f"Pay {amount}?"))
                )

    handle = await box.hold.submit(work)
    first, _ = await asked(box.hold, handle, 2)
    await box.hold.reject(first.id, by="anna")
    with pytest.raises(TaskFailed, match="rejected by anna"):
        await handle.result(timeout=60)
    assert sorted(one.state.value for one in await all_approvals(box.hold, handle)) == ["closed", "rejected"]
    await box.hold.resume(handle)
    for approval in await asked(box.hold, handle, 2):
        await box.hold.approve(approval.id, by="bert")
    await handle.result(timeout=60)
    assert sorted(paid) == [1, 2]


async def test_a_cancelled_task_does_not_go_on_with_what_was_approved(hold: Holdfast) -> None:
    """Approved, then cancelled, before any worker went on."""
    paid: list[int] = []

    @hold.task
    async def work(ctx: Context) -> None:
        await ctx.step("pay", paid.append, 5, effect="once", approval=Ask("Pay?"))

    handle = await hold.submit(work)
    async with hold.worker():
        approval = await question_of(hold, handle)
        await reaches(handle, TaskState.WAITING)
    await hold.approve(approval.id, by="anna")
    await handle.cancel("on second thoughts")
    async with hold.worker():
        with pytest.raises(TaskCancelled):
            await handle.result(timeout=60)
    assert paid == []
    record = await stored(hold, approval)
    assert (record.state, record.consumed_by) == (ApprovalState.APPROVED, None)


async def test_a_failure_in_the_very_moment_in_which_a_task_is_taken_off_its_worker_is_not_lost(
    quick: Holdfast,
) -> None:
    """One branch waits for an approval. The other one fails while the engine finds that no branch is busy any more."""

    @quick.task(retry=ONE_TRY)
    async def work(ctx: Context, turns: int) -> None:
        async def fails() -> None:
            await ctx.wait_event(f"fail {turns}")
            raise ValueError("broken")

        await asyncio.gather(ctx.approval("Go on?"), fails())

    async with quick.worker():
        for turns in range(40):
            handle = await quick.submit(work, turns)
            await question_of(quick, handle)
            await settle(turns)
            await quick.emit(f"fail {turns}")
            with pytest.raises(TaskFailed, match="broken"):
                await handle.result(timeout=60)
