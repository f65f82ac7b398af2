"""Waiting for a decision: without a worker, through crashes, and what becomes of it."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

import asyncio
from contextlib import suppress

import pytest

from holdfast import (
    Approval,
    ApprovalState,
    Context,
    Decided,
    Holdfast,
    Rejected,
    Retry,
    StepState,
    TaskFailed,
    TaskState,
)
from holdfast.testing import Sandbox, crash_everywhere
from tests.engine.steps.approval.support import AT_ONCE, ONE_TRY, all_approvals, asked, question_of, see_to, stored
from tests.engine.support import crash, reaches, steps_of, until


async def test_a_task_that_waits_for_a_decision_holds_no_worker(hold: Holdfast) -> None:
    @hold.task
    async def asking(ctx: Context) -> str | None:
        return (await ctx.approval("Go on?")).by

    @hold.task
    async def busy(ctx: Context, number: int) -> int:
        return number

    handle = await hold.submit(asking)
    async with hold.worker(concurrency=1) as worker:
        approval = await question_of(hold, handle)
        await reaches(handle, TaskState.WAITING)
        assert (await handle.task()).owner is None
        others = await hold.submit_many(busy, [(number,) for number in range(3)])
        assert [await other.result(timeout=60) for other in others] == [0, 1, 2]
        await until(lambda: worker.running == 0)
        assert (await handle.task()).state is TaskState.WAITING
        await hold.approve(approval.id, by="anna")
        assert await handle.result(timeout=60) == "anna"


async def test_a_decision_needs_no_worker_and_is_found_by_the_next(hold: Holdfast) -> None:
    @hold.task
    async def asking(ctx: Context) -> str | None:
        return (await ctx.approval("Go on?")).by

    handle = await hold.submit(asking)
    async with hold.worker():
        approval = await question_of(hold, handle)
        await reaches(handle, TaskState.WAITING)
    await hold.approve(approval.id, by="anna")
    assert (await handle.task()).state is TaskState.PENDING
    assert (await hold.store.history(handle.id))[-1].reason == "decided"
    async with hold.worker():
        assert await handle.result(timeout=60) == "anna"


async def test_a_decision_that_comes_before_the_task_is_off_its_worker_is_not_missed(quick: Holdfast) -> None:
    """Its code keeps the slot: a branch of it waits for something that is not Holdfast's."""
    go = asyncio.Event()

    @quick.task
    async def asking(ctx: Context) -> str | None:
        decided: Decided
        decided, _ = await asyncio.gather(ctx.approval("Go on?"), go.wait())
        return decided.by

    handle = await quick.submit(asking)
    async with quick.worker():
        approval = await question_of(quick, handle)
        assert (await handle.task()).state is TaskState.RUNNING
        await quick.approve(approval.id, by="anna")
        go.set()
        assert await handle.result(timeout=60) == "anna"


async def test_a_decision_is_journaled_and_replays(box: Sandbox) -> None:
    seen: list[Decided] = []

    @box.hold.task
    async def work(ctx: Context) -> None:
        seen.append(await ctx.approval("Go on?", details={"a": 1}))
        await ctx.sleep(3600)

    handle = await box.hold.submit(work)
    approval = await question_of(box.hold, handle)
    await box.hold.approve(approval.id, by="anna", note="fine")
    await handle.result(timeout=5000)
    assert len(seen) == 2
    assert seen[0] == seen[1]
    step = (await steps_of(box.hold, handle))["approval"]
    assert (step.kind, step.state) == ("approval", StepState.COMPLETED)
    assert len(await all_approvals(box.hold, handle)) == 1


async def test_a_decision_survives_a_crash_at_every_commit() -> None:
    hold = Holdfast("memory://")
    written: dict[str, str] = {}

    async def write(text: str, effect_id: str) -> None:
        written[effect_id] = text

    @hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> str:
        before = await ctx.step("before", lambda: "before", returns=str)
        first = await ctx.approval("First?", details=before)
        await ctx.step("between", write, f"between, by {first.by}")
        second = await ctx.approval("Second?")
        try:
            await ctx.approval("Third?")
        except Rejected as rejected:
            return f"{first.by}, {second.note}, {rejected}"
        return "approved"

    async def decide(approval: Approval) -> None:
        if approval.question == "Third?":
            await hold.reject(approval.id, by="bert", note="enough")
        else:
            await hold.approve(approval.id, by="anna", note=approval.question)

    async def scenario(box: Sandbox) -> tuple[str, list[str], list[tuple[str, str]]]:
        written.clear()
        handle = await hold.submit(work)
        await see_to(box, handle, decide)
        result = await handle.result()
        records = [(approval.question, approval.state.value) for approval in await all_approvals(hold, handle)]
        return result, [*written.values()], sorted(records)

    survived = await crash_everywhere(hold, scenario)
    assert survived.result == (
        "anna, Second?, 'Third?': rejected by bert: enough",
        ["between, by anna"],
        [("First?", "approved"), ("Second?", "approved"), ("Third?", "rejected")],
    )
    assert survived.crashes >= 16


async def test_two_approvals_are_waited_for_at_once(hold: Holdfast) -> None:
    @hold.task
    async def work(ctx: Context) -> list[str | None]:
        both = await asyncio.gather(*(ctx.approval(f"{name}?", key=name) for name in ("first", "second")))
        return [decided.by for decided in both]

    handle = await hold.submit(work)
    async with hold.worker():
        both = {approval.question: approval for approval in await asked(hold, handle, 2)}
        await reaches(handle, TaskState.WAITING)
        await hold.approve(both["second?"].id, by="bert")
        [left] = await asked(hold, handle, 1)
        assert left == both["first?"]
        await reaches(handle, TaskState.WAITING)
        await hold.approve(left.id, by="anna")
        assert await handle.result(timeout=60) == ["anna", "bert"]
    assert len(await all_approvals(hold, handle)) == 2


# Rejections


async def test_a_rejection_is_raised_and_says_who_and_why(hold: Holdfast) -> None:
    @hold.task(retry=Retry(max_attempts=5, initial=0.0))
    async def work(ctx: Context) -> None:
        await ctx.approval("Drop the table?")

    handle = await hold.submit(work)
    async with hold.worker():
        approval = await question_of(hold, handle)
        await hold.reject(approval.id, by="anna", note="certainly not")
        with pytest.raises(TaskFailed, match="'Drop the table\\?': rejected by anna: certainly not") as failed:
            await handle.result(timeout=60)
    assert failed.value.type_name == "holdfast.Rejected"
    task = await handle.task()
    assert (task.state, task.attempts) == (TaskState.FAILED, 1)  # never tried again by itself
    [record] = await all_approvals(hold, handle)
    assert (record.state, record.decided_by, record.note) == (ApprovalState.REJECTED, "anna", "certainly not")


async def test_a_rejection_can_be_handled_and_is_raised_again_on_every_replay(box: Sandbox) -> None:
    seen: list[tuple[str, str | None, str | None]] = []

    @box.hold.task
    async def work(ctx: Context) -> str:
        try:
            await ctx.approval("The fast way?")
        except Rejected as rejected:
            seen.append((str(rejected), rejected.approval_id, rejected.step))
        await ctx.sleep(3600)
        return "the slow way"

    handle = await box.hold.submit(work)
    approval = await question_of(box.hold, handle)
    await box.hold.reject(approval.id, by="anna")
    assert await handle.result(timeout=5000) == "the slow way"
    assert seen == [("'The fast way?': rejected by anna", approval.id, "approval")] * 2
    assert len(await all_approvals(box.hold, handle)) == 1


async def test_a_rejection_that_was_handled_stays_rejected_when_another_error_is_retried(box: Sandbox) -> None:
    @box.hold.task(retry=AT_ONCE)
    async def work(ctx: Context) -> str:
        with suppress(Rejected):
            await ctx.approval("The fast way?")
        if ctx.attempt < 3:
            raise ConnectionError
        return "the slow way"

    handle = await box.hold.submit(work)
    await box.hold.reject((await question_of(box.hold, handle)).id, by="anna")
    assert await handle.result(timeout=5000) == "the slow way"
    assert (await handle.task()).attempts == 2
    assert len(await all_approvals(box.hold, handle)) == 1


@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "as the cause of another error"])
async def test_a_resume_after_a_rejection_asks_again(hold: Holdfast, wrapped: bool) -> None:
    @hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> str | None:
        try:
            return (await ctx.approval("Go on?", details={"n": 1})).by
        except Rejected as rejected:
            if wrapped:
                raise ValueError("not allowed") from rejected
            raise

    handle = await hold.submit(work)
    async with hold.worker():
        first = await question_of(hold, handle)
        await hold.reject(first.id, by="anna")
        with pytest.raises(TaskFailed):
            await handle.result(timeout=60)
        await hold.resume(handle)
        second = await question_of(hold, handle)
        assert second.id != first.id
        assert (second.question, second.arguments_hash) == (first.question, first.arguments_hash)
        await hold.reject(second.id, by="bert")  # and again
        await reaches(handle, TaskState.FAILED)
        await hold.resume(handle)
        third = await question_of(hold, handle)
        await hold.approve(third.id, by="carl")
        assert await handle.result(timeout=60) == "carl"
    states = [(approval.state.value, approval.decided_by) for approval in await all_approvals(hold, handle)]
    assert states == [("rejected", "anna"), ("rejected", "bert"), ("approved", "carl")]


async def test_a_retry_asks_again_what_had_been_approved(box: Sandbox) -> None:
    """A new round does everything again; an approval was for the old one."""
    runs = 0

    @box.hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> str | None:
        nonlocal runs
        decided = await ctx.approval("Go on?")
        runs += 1
        if runs == 1:
            raise ValueError("broken")
        return decided.by

    handle = await box.hold.submit(work)
    await box.hold.approve((await question_of(box.hold, handle)).id, by="anna")
    with pytest.raises(TaskFailed):
        await handle.result(timeout=5000)
    await box.hold.retry(handle)
    await box.hold.approve((await question_of(box.hold, handle)).id, by="bert")
    assert await handle.result(timeout=5000) == "bert"
    assert {approval.decided_by for approval in await all_approvals(box.hold, handle)} == {"anna", "bert"}


async def test_a_resume_does_not_ask_again_what_was_approved(box: Sandbox) -> None:
    runs = 0

    @box.hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> str | None:
        nonlocal runs
        decided = await ctx.approval("Go on?")
        runs += 1
        if runs == 1:
            raise ValueError("broken")
        return decided.by

    handle = await box.hold.submit(work)
    await box.hold.approve((await question_of(box.hold, handle)).id, by="anna")
    with pytest.raises(TaskFailed):
        await handle.result(timeout=5000)
    await box.hold.resume(handle)
    assert await handle.result(timeout=5000) == "anna"
    assert len(await all_approvals(box.hold, handle)) == 1


async def test_an_open_question_outlives_its_worker(hold: Holdfast) -> None:
    """The worker dies while it still holds the task: the next one finds the same question."""
    go = asyncio.Event()

    @hold.task
    async def work(ctx: Context) -> str | None:
        decided: Decided
        decided, _ = await asyncio.gather(ctx.approval("Go on?"), go.wait())
        return decided.by

    handle = await hold.submit(work)
    worker = await hold.worker().__aenter__()
    approval = await question_of(hold, handle)
    await crash(hold, worker)
    go.set()
    async with hold.worker():
        await reaches(handle, TaskState.WAITING)
        assert await question_of(hold, handle) == approval
        await hold.approve(approval.id, by="anna")
        assert await handle.result(timeout=60) == "anna"
    assert (await stored(hold, approval)).decided_by == "anna"
