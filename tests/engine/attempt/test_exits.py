"""What is not an Exception, raised by a task's code, is that code's failure. Only Ctrl-C ends the process."""

import asyncio
import gc
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from holdfast import (
    Context,
    EffectState,
    Holdfast,
    Machine,
    ManualClock,
    Retry,
    StepFailed,
    StepState,
    SyncContext,
    TaskFailed,
    TaskState,
    Unknown,
)
from tests.engine.support import ended, pass_time, reaches, steps_of

EXITS: dict[str, type[BaseException]] = {
    "SystemExit": SystemExit,
    "GeneratorExit": GeneratorExit,
    "CancelledError": asyncio.CancelledError,
}
ONCE = Retry(max_attempts=1)


def leave(name: str) -> NoReturn:
    raise EXITS[name]


async def leave_async(name: str) -> NoReturn:
    leave(name)


async def in_a_step(ctx: Context, name: str) -> None:
    await ctx.step("leave", leave_async, name)


async def in_a_thread(ctx: Context, name: str) -> None:
    await ctx.step("leave", leave, name)


async def in_a_branch(ctx: Context, name: str) -> None:
    await asyncio.gather(ctx.step("leave", leave_async, name), ctx.step("other", asyncio.sleep, 0))


async def with_a_timeout(ctx: Context, name: str) -> None:
    await ctx.step("leave", leave_async, name, timeout=60.0)


async def in_the_code(_ctx: Context, name: str) -> None:
    leave(name)


async def in_the_name_of_what_follows(ctx: Context, name: str) -> None:
    def arms(_result: object) -> NoReturn:
        leave(name)

    await asyncio.create_task(ctx.step("leave", asyncio.sleep, 0, arms=arms))


def in_blocking_code(_ctx: SyncContext, name: str) -> None:
    leave(name)


SHAPES: tuple[Any, ...] = (in_a_step, in_a_thread, in_a_branch, with_a_timeout, in_the_code, in_blocking_code)


async def test_an_exit_is_how_the_task_failed(quick: Holdfast) -> None:
    tasks = [quick.task(retry=ONCE)(shape) for shape in SHAPES]
    async with quick.worker(grace=0.0):
        for name in EXITS:
            for task in tasks:
                with pytest.raises(TaskFailed, match=name):
                    await ended(await quick.submit(task, name))
        named = quick.task(retry=ONCE)(in_the_name_of_what_follows)
        with pytest.raises(TaskFailed, match="SystemExit"):
            await ended(await quick.submit(named, "SystemExit"))


async def test_code_that_cancels_its_own_asyncio_task_has_failed(quick: Holdfast) -> None:
    """Taken for a cancel of the worker, it would be begun again and again."""
    runs: list[str] = []

    async def cancel_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    @quick.task(name="code", retry=ONCE)
    async def in_code(ctx: Context) -> None:
        runs.append(ctx.task_id)
        await cancel_itself()

    @quick.task(name="step", retry=ONCE)
    async def in_step(ctx: Context) -> None:
        runs.append(ctx.task_id)
        await ctx.step("leave", cancel_itself)

    async with quick.worker(grace=0.0):
        for task in (in_code, in_step):
            with pytest.raises(TaskFailed, match="CancelledError"):
                await ended(await quick.submit(task))
    assert len(runs) == len(set(runs)) == 2


async def test_code_that_something_else_cancels_again_and_again_is_poison(
    quick: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    """A callback of a library cancels the asyncio task. Without a count that would be repeated for ever."""
    runs = 0

    @quick.task
    async def work(ctx: Context) -> None:
        nonlocal runs
        runs += 1
        await ctx.step("before", asyncio.sleep, 0)
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel)
        await asyncio.sleep(3600)

    @quick.task
    async def other(ctx: Context) -> int:
        return await ctx.step("one", lambda: 1)

    async with quick.worker(concurrency=2):
        handle = await quick.submit(work)
        with pytest.raises(TaskFailed, match="was cancelled by something else than Holdfast"):
            await ended(handle)
        assert await ended(await quick.submit(other)) == 1
    assert runs == 3
    assert caplog.text.count("was cancelled by something else than Holdfast") == 3
    assert [step.state for step in (await steps_of(quick, handle)).values() if step.kind == "step"] == [
        StepState.COMPLETED
    ]


async def test_a_program_that_ends_counts_against_no_task(tmp_path: Path) -> None:
    """asyncio.run cancels every asyncio task when the program is interrupted."""
    hold = Holdfast(f"sqlite:///{tmp_path / 'agents.db'}")
    begun = asyncio.Event()

    @hold.task
    async def work(_ctx: Context) -> None:
        begun.set()
        await asyncio.sleep(3600)

    async def program() -> None:
        async with hold, hold.worker():
            await hold.submit(work)
            await asyncio.sleep(3600)

    before = asyncio.all_tasks()
    running = asyncio.create_task(program())
    await begun.wait()
    for task in asyncio.all_tasks() - before:
        task.cancel()
    await asyncio.wait([running])
    async with hold:
        [left] = (await hold.store.find()).items
        assert await hold.store.steps(left.id) == []


async def test_the_code_can_handle_a_step_that_exited(quick: Holdfast) -> None:
    @quick.task
    async def work(ctx: Context, name: str) -> str:
        try:
            await ctx.step("leave", leave_async, name)
        except StepFailed as error:
            return error.failure.type_name

    async with quick.worker(grace=0.0):
        for name in EXITS:
            handle = await quick.submit(work, name)
            assert (await ended(handle)).endswith(name)
            assert (await steps_of(quick, handle))["leave"].state is StepState.FAILED


async def test_a_call_that_exited_is_in_doubt(quick: Holdfast) -> None:
    @quick.task(retry=ONCE)
    async def work(ctx: Context, name: str, blocking: bool) -> None:
        function: Any = leave if blocking else leave_async
        await ctx.step("pay", function, name, effect="once", settle=0.0)

    async with quick.worker(grace=0.0):
        for name in EXITS:
            for blocking in (False, True):
                handle = await quick.submit(work, name, blocking)
                await reaches(handle, TaskState.WAITING)
                [doubt] = await quick.doubts(handle)
                assert doubt.effect.state is EffectState.NEEDS_HUMAN
                assert name in (doubt.effect.note or "")
                await quick.resolve(doubt.effect.effect_id, "abandon", by="a test")
                with pytest.raises(TaskFailed, match="given up"):
                    await ended(handle)


async def test_a_reconcile_that_exits_could_not_tell(still: Holdfast, clock: ManualClock) -> None:
    async def reconcile(_effect_id: str, _name: str) -> Unknown:
        sys.exit("reconcile leaves, too")

    @still.task(retry=ONCE)
    async def work(ctx: Context) -> None:
        await ctx.step("pay", leave_async, "SystemExit", effect="once", reconcile=reconcile)

    async with still.worker(grace=0.0):
        handle = await still.submit(work)
        await pass_time(clock, 1000.0, by=10.0)
        await reaches(handle, TaskState.WAITING)
        [doubt] = await still.doubts(handle)
        assert "reconcile raised SystemExit: reconcile leaves, too" in (doubt.effect.note or "")


async def test_undo_and_machines_and_verifiers_may_exit(quick: Holdfast) -> None:
    async def undo(_result: object) -> NoReturn:
        sys.exit("undo")

    @quick.task(retry=ONCE)
    async def saga(ctx: Context) -> None:
        await ctx.step("done", asyncio.sleep, 0, compensate=undo)
        raise ValueError

    machine: Machine[None] = Machine("exits", initial="begin", transitions={"begin": "end"}, final="end", retry=ONCE)

    @machine.state("begin", timeout=60.0)
    async def begin(_ctx: Context, _data: None) -> str:
        sys.exit("handler")

    @quick.task(retry=ONCE)
    async def verified(_ctx: Context) -> int:
        return 1

    @verified.verify
    async def verify(_ctx: Context, _result: int) -> bool:
        sys.exit("verifier")

    exits = quick.register(machine)
    async with quick.worker(grace=0.0):
        handle = await quick.submit(saga)
        await reaches(handle, TaskState.WAITING)  # for a person: the step was not undone
        assert "was not undone" in (await quick.doubts(handle))[0].question
        for task, args in ((exits, (None,)), (verified, ())):
            with pytest.raises(TaskFailed, match="SystemExit"):
                await ended(await quick.submit(task.name, *args))


def test_only_ctrl_c_ends_the_process() -> None:
    """In a thread Python never raises KeyboardInterrupt by itself: there it is an error of the code's own."""

    def interrupt() -> NoReturn:
        raise KeyboardInterrupt

    async def interrupt_async() -> NoReturn:
        raise KeyboardInterrupt

    failed = []

    async def main() -> None:
        async with Holdfast("memory://") as hold:

            @hold.task(retry=ONCE)
            async def work(ctx: Context, is_async: int) -> None:
                await ctx.step("leave", interrupt_async if is_async else interrupt)

            async with hold.worker(grace=0.0):
                with pytest.raises(TaskFailed, match="KeyboardInterrupt"):
                    await ended(await hold.submit(work, 0))
                failed.append(1)
                await ended(await hold.submit(work, 1))

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert failed == [1]


async def test_what_is_dropped_is_not_reported_as_never_retrieved(quick: Holdfast) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))
    begun, over = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        begun.set()
        await over.wait()

    def drop(*calls: Any) -> None:  # noqa: ANN401
        for call in calls:
            asyncio.ensure_future(call)  # noqa: RUF006 - the point

    @quick.task
    async def suspended(ctx: Context) -> None:
        drop(ctx.wait_event("never", key="1"))
        asyncio.gather(ctx.wait_event("never", key="2"), ctx.wait_event("never", key="3"))
        await ctx.wait_event("never")

    @quick.task
    async def stopped(ctx: Context) -> None:
        async def late() -> None:
            while True:
                await ctx.step("late", asyncio.sleep, 0)

        drop(ctx.step("hang", hang), late())
        await ctx.step("once", hang, effect="once")

    async with quick.worker(grace=0.0):
        waiting, cancelled = await quick.submit(suspended), await quick.submit(stopped)
        await reaches(waiting, TaskState.WAITING)
        await begun.wait()
        await cancelled.cancel()
        await reaches(cancelled, TaskState.CANCELLED)
        await waiting.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
        gc.collect()
    assert reported == []
