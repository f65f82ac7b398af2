"""Review: what a verifier says, and what becomes of the task then."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

import asyncio

import pytest

from holdfast import Context, DuplicateName, Holdfast, Retry, SyncContext, TaskFailed, TaskState
from tests.engine.support import crash, ended, moves_of, reaches, steps_of

AT_ONCE = Retry(initial=0.0)


async def test_an_accepted_task_is_completed(hold: Holdfast) -> None:
    seen: list[tuple[int, str]] = []

    @hold.task
    async def work(ctx: Context) -> tuple[int, str]:
        return 7, "result"

    @work.verify
    async def check(ctx: Context, result: tuple[int, str]) -> bool:
        seen.append(result)
        return True

    handle = await hold.submit(work)
    assert await hold.run(handle) == (7, "result")
    assert seen == [(7, "result")]
    assert [to for _, to in await moves_of(hold, handle)] == ["pending", "running", "review", "completed"]


@pytest.mark.parametrize(("answer", "why"), [("too short", "too short"), (False, "rejected by its verifier")])
async def test_a_rejected_task_runs_again_with_the_reason(hold: Holdfast, answer: bool | str, why: str) -> None:
    ran: list[str] = []
    feedback: list[str | None] = []

    async def write(word: str) -> str:
        ran.append(word)
        return word

    @hold.task(retry=AT_ONCE)
    async def work(ctx: Context) -> str:
        feedback.append(ctx.feedback)
        return await ctx.step("write", write, f"draft {ctx.attempt}")

    @work.verify
    def check(ctx: SyncContext, result: str) -> bool | str:
        return True if result == "draft 2" else answer

    handle = await hold.submit(work)
    assert await hold.run(handle) == "draft 2"
    assert ran == ["draft 1", "draft 2"]
    assert feedback == [None, why]
    task = await handle.task()
    assert (task.round, task.attempts) == (2, 1)
    assert ("review", "pending") in await moves_of(hold, handle)


async def test_a_task_that_is_always_rejected_fails_with_the_last_reason_and_keeps_its_result(quick: Holdfast) -> None:
    runs = 0

    @quick.task(retry=AT_ONCE)
    async def work(ctx: Context) -> int:
        nonlocal runs
        runs += 1
        return runs

    @work.verify
    async def check(ctx: Context, result: int) -> str:
        return f"{result} is not enough"

    handle = await quick.submit(work)
    with pytest.raises(TaskFailed, match="3 is not enough") as failed:
        await quick.run(handle)
    assert failed.value.type_name == "Rejected"
    task = await handle.task()
    assert (task.state, task.attempts, task.result, runs) == (TaskState.FAILED, 3, 3, 3)


async def test_an_error_of_the_verifier_is_not_a_rejection_and_is_retried(quick: Holdfast) -> None:
    ran: list[str] = []
    asked = 0

    @quick.task(retry=AT_ONCE)
    async def work(ctx: Context) -> str:
        await ctx.step("write", ran.append, "draft")
        return "draft"

    @work.verify
    async def check(ctx: Context, result: str) -> bool:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise ConnectionError("the model does not answer")
        return True

    handle = await quick.submit(work)
    assert await quick.run(handle) == "draft"
    assert (asked, ran) == (2, ["draft"])
    task = await handle.task()
    assert (task.round, task.attempts) == (1, 1)


async def test_a_verifier_that_answers_nonsense_fails_the_task_clearly(quick: Holdfast) -> None:
    @quick.task(retry=AT_ONCE)
    async def work(ctx: Context) -> int:
        return 1

    @work.verify
    async def check(ctx: Context, result: int) -> int:
        return 1

    with pytest.raises(TaskFailed, match="return True to accept"):
        await quick.run(await quick.submit(work))


async def test_a_verifiers_steps_have_keys_of_their_own(quick: Holdfast) -> None:
    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step("ask", lambda: "work")

    @work.verify
    async def check(ctx: Context, result: str) -> bool:
        await ctx.sleep(0.001)
        return await ctx.step("ask", lambda: "verifier") == "verifier" and ctx.random() >= 0

    handle = await quick.submit(work)
    assert await quick.run(handle) == "work"
    assert set(await steps_of(quick, handle)) == {"ask", "verify/sleep", "verify/ask"}


async def test_a_take_over_in_review_does_not_run_the_work_again(hold: Holdfast) -> None:
    runs = 0
    asked = asyncio.Event()

    @hold.task
    async def work(ctx: Context) -> str:
        nonlocal runs
        runs += 1
        return "done"

    @work.verify
    async def check(ctx: Context, result: str) -> bool:
        if not asked.is_set():
            asked.set()
            await asyncio.sleep(60)
        return result == "done"

    handle = await hold.submit(work)
    worker = await hold.worker().__aenter__()
    await asked.wait()
    await crash(hold, worker)
    assert (await handle.task()).state is TaskState.REVIEW
    async with hold.worker():
        assert await handle.result(timeout=60) == "done"
    assert runs == 1


async def test_a_verifier_may_wait_without_a_slot(still: Holdfast) -> None:
    ran: list[str] = []

    @still.task
    async def work(ctx: Context) -> str:
        await ctx.step("write", ran.append, "draft")
        return "draft"

    @work.verify
    async def check(ctx: Context, result: str) -> bool:
        return bool(await ctx.wait_event("verdict"))

    handle = await still.submit(work)
    async with still.worker(grace=0.0):
        await reaches(handle, TaskState.WAITING)
        await still.emit("verdict", payload=True)
        assert await ended(handle) == "draft"
    assert ran == ["draft"]


async def test_a_task_has_one_verifier(quick: Holdfast) -> None:
    @quick.task
    async def work(ctx: Context) -> None: ...

    work.verify(lambda *_: True)
    with pytest.raises(DuplicateName):
        work.verify(lambda *_: True)
