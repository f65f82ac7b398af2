"""A person verifies: approvals and questions inside a verifier."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

import pytest

from holdfast import Ask, Context, Holdfast, Rejected, TaskFailed, TaskState
from holdfast.testing import Sandbox, crash_everywhere
from tests.engine.steps.approval.support import AT_ONCE, all_approvals, question_of, see_to
from tests.engine.support import moves_of, reaches, until


async def test_a_person_may_verify(hold: Holdfast) -> None:
    ran: list[str] = []

    @hold.task
    async def write(ctx: Context) -> str:
        await ctx.step("write", ran.append, "draft")
        return "draft"

    @write.verify
    async def check(ctx: Context, text: str) -> bool:
        return (await ctx.approval("Is it good?", details={"text": text})).by == "anna"

    handle = await hold.submit(write)
    async with hold.worker(concurrency=1) as worker:
        approval = await question_of(hold, handle)
        assert (approval.step_key, approval.arguments) == ("verify/approval", {"text": "draft"})
        await reaches(handle, TaskState.WAITING)
        assert (await handle.task()).owner is None
        await until(lambda: worker.running == 0)
        await hold.approve(approval.id, by="anna")
        assert await handle.result(timeout=60) == "draft"
    assert ran == ["draft"]
    states = [to for _, to in await moves_of(hold, handle)]
    assert states == ["pending", "running", "review", "waiting", "pending", "running", "review", "completed"]
    assert (await handle.task()).attempts == 0


async def test_who_refuses_in_review_sends_the_task_back_with_the_reason(hold: Holdfast) -> None:
    """As a verifier does that returns a string: a new round begins, and a person is asked about its result."""

    @hold.task(retry=AT_ONCE)
    async def write(ctx: Context) -> str:
        return f"draft {ctx.attempt}, {ctx.feedback}"

    @write.verify
    async def check(ctx: Context, text: str) -> bool:
        await ctx.approval("Is it good?", details={"text": text})
        return True

    handle = await hold.submit(write)
    async with hold.worker():
        first = await question_of(hold, handle)
        await hold.reject(first.id, by="anna", note="too short")
        second = await question_of(hold, handle)
        assert second.arguments == {"text": "draft 2, 'Is it good?': rejected by anna: too short"}
        await hold.approve(second.id, by="anna")
        assert await handle.result(timeout=60) == "draft 2, 'Is it good?': rejected by anna: too short"
    task = await handle.task()
    assert (task.round, task.attempts) == (2, 1)
    assert ("review", "pending") in await moves_of(hold, handle)


async def test_a_task_that_is_refused_in_review_again_and_again_fails_and_keeps_its_result(box: Sandbox) -> None:
    @box.hold.task(retry=AT_ONCE)
    async def write(ctx: Context) -> int:
        return ctx.attempt

    @write.verify
    async def check(ctx: Context, result: int) -> bool:
        await ctx.approval("Is it good?", details=result)
        return True

    handle = await box.hold.submit(write)
    await see_to(box, handle, lambda approval: box.hold.reject(approval.id, by="anna", note="no"))
    with pytest.raises(TaskFailed, match="rejected by anna: no") as failed:
        await handle.result()
    assert failed.value.type_name == "Rejected"
    task = await handle.task()
    assert (task.state, task.attempts, task.result) == (TaskState.FAILED, 3, 3)
    assert sorted(one.arguments for one in await all_approvals(box.hold, handle)) == [1, 2, 3]


async def test_a_verifier_may_handle_the_rejection_itself(box: Sandbox) -> None:
    @box.hold.task(retry=AT_ONCE)
    async def write(ctx: Context) -> str:
        return f"draft {ctx.attempt}, {ctx.feedback}"

    @write.verify
    async def check(ctx: Context, text: str) -> bool | str:
        try:
            await ctx.approval("Is it good?", details=text)
        except Rejected:
            return f"what is wrong: {await ctx.ask('What is wrong?')}"
        return True

    handle = await box.hold.submit(write)
    await box.hold.reject((await question_of(box.hold, handle)).id, by="anna")
    await box.idle()
    await box.hold.answer((await question_of(box.hold, handle)).id, "the end", by="anna")
    await box.idle()
    await box.hold.approve((await question_of(box.hold, handle)).id, by="anna")
    assert await handle.result(timeout=60) == "draft 2, what is wrong: the end"


async def test_a_verifiers_step_may_need_an_approval(box: Sandbox) -> None:
    checked: list[str] = []

    @box.hold.task
    async def write(ctx: Context) -> str:
        return "draft"

    @write.verify
    async def check(ctx: Context, text: str) -> bool:
        await ctx.step("ask the lawyers", checked.append, text, effect="once", approval=Ask("For that much money?"))
        return True

    handle = await box.hold.submit(write)
    approval = await question_of(box.hold, handle)
    await box.idle()
    assert checked == []
    await box.hold.approve(approval.id, by="anna")
    assert await handle.result(timeout=60) == "draft"
    assert checked == ["draft"]


async def test_a_persons_review_survives_a_crash_at_every_commit() -> None:
    hold = Holdfast("memory://")
    ran: list[str] = []

    @hold.task(retry=AT_ONCE)
    async def write(ctx: Context) -> str:
        await ctx.step("write", ran.append, f"draft {ctx.attempt}")
        return f"draft {ctx.attempt}"

    @write.verify
    async def check(ctx: Context, text: str) -> bool:
        await ctx.approval("Is it good?", details=text)
        return True

    async def scenario(box: Sandbox) -> tuple[str, list[str], list[tuple[str, str]]]:
        ran.clear()
        handle = await hold.submit(write)
        await see_to(
            box,
            handle,
            lambda one: (hold.reject if "1" in str(one.arguments) else hold.approve)(one.id, by="anna"),
        )
        records = [(one.arguments, one.state.value) for one in await all_approvals(hold, handle)]
        return await handle.result(), sorted({*ran}), sorted(records)

    survived = await crash_everywhere(hold, scenario)
    assert survived.result == (
        "draft 2",
        ["draft 1", "draft 2"],
        [("draft 1", "rejected"), ("draft 2", "approved")],
    )
    assert survived.crashes >= 16
