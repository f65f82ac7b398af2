"""Opening, submitting, running by name, resuming and retrying: asking twice does nothing twice."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from holdfast import (
    ApprovalState,
    Conflict,
    Context,
    DeadlineExceeded,
    DuplicateName,
    Handle,
    Holdfast,
    HoldfastError,
    InvalidURL,
    InvalidValue,
    KeyConflict,
    ManualClock,
    NotFound,
    Retry,
    StepState,
    StoreClosed,
    TaskCancelled,
    TaskFailed,
    TaskState,
)
from holdfast.engine.attempt.outcome import KEPT_FOR
from holdfast.engine.worker.run_one import run_task
from holdfast.store.memory import MemoryStore
from tests.engine.support import PATIENCE, moves_of, pass_time, reaches, steps_of

ONCE = Retry(max_attempts=1)

F = TypeVar("F")


async def until_some(look: Callable[[], Awaitable[F]]) -> F:
    """Look until there is something."""
    async with asyncio.timeout(PATIENCE):
        while not (found := await look()):  # noqa: ASYNC110 - the store sets no Event
            await asyncio.sleep(0.01)
    return found


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Holdfast]:
    """An open Holdfast on each database."""
    async with Holdfast(database_url) as hold:
        yield hold


async def test_a_completed_task_is_not_run_again(hold: Holdfast) -> None:
    runs = 0

    @hold.task
    async def work(ctx: Context, number: int) -> int:
        nonlocal runs
        runs += 1
        return number

    handle = await hold.submit(work, 7)
    assert [await hold.run(handle), await hold.run(handle.id), await handle.result()] == [7, 7, 7]
    before = await handle.task()
    await hold.resume(handle)
    assert await handle.task() == before
    with pytest.raises(Conflict, match="is completed; this needs a task that is failed"):
        await hold.retry(handle)
    assert runs == 1


async def test_a_failed_task_raises_and_is_not_run_again(hold: Holdfast) -> None:
    runs = 0

    @hold.task(retry=ONCE)
    async def work(ctx: Context) -> None:
        nonlocal runs
        runs += 1
        raise ConnectionError("gone")

    handle = await hold.submit(work)
    for _ in range(2):
        with pytest.raises(TaskFailed, match="ConnectionError: gone"):
            await hold.run(handle)
    assert runs == 1


async def test_resume_goes_on_where_it_stopped(hold: Holdfast) -> None:
    ran: list[str] = []
    mended = False

    def note(word: str) -> str:
        ran.append(word)
        if word == "b" and not mended:
            raise ConnectionError
        return word

    @hold.task(retry=ONCE)
    async def work(ctx: Context) -> str:
        return await ctx.step("one", note, "a") + await ctx.step("two", note, "b")

    handle = await hold.submit(work)
    with pytest.raises(TaskFailed):
        await hold.run(handle)
    mended = True
    assert await hold.run(await hold.resume(handle, by="ann")) == "ab"
    assert ran == ["a", "b", "b"]
    task = await handle.task()
    assert (task.round, task.error) == (1, None)
    history = await hold.store.history(handle.id)
    assert any(move.reason == "resumed by ann" and move.actor == "ann" for move in history)


async def test_retry_starts_over_in_a_new_round(hold: Holdfast) -> None:
    ran: list[str] = []

    @hold.task(retry=ONCE)
    async def work(ctx: Context) -> str | None:
        await ctx.step("one", ran.append, "a")
        if ctx.task.round == 1:
            raise ConnectionError
        return ctx.feedback

    handle = await hold.submit(work)
    with pytest.raises(TaskFailed):
        await hold.run(handle)
    assert await hold.run(await hold.retry(handle, feedback="once more")) == "once more"
    assert ran == ["a", "a"]
    assert [(step.round, step.state) for step in await hold.store.steps(handle.id) if step.kind == "step"] == [
        (1, StepState.COMPLETED),
        (2, StepState.COMPLETED),
    ]


async def test_a_resumed_failure_fails_again_with_all_its_tries(quick: Holdfast) -> None:
    @quick.task(retry=Retry(max_attempts=2, initial=0.0))
    async def work(ctx: Context) -> None:
        raise ConnectionError(f"attempt {ctx.attempt}")

    handle = await quick.submit(work)
    with pytest.raises(TaskFailed):
        await quick.run(handle)
    with pytest.raises(TaskFailed) as failed:
        await quick.run(await quick.resume(handle))
    assert failed.value.message == "attempt 3"


async def test_run_waits_for_the_worker_that_has_the_task(hold: Holdfast) -> None:
    go, runs = asyncio.Event(), 0

    @hold.task
    async def work(ctx: Context) -> str:
        nonlocal runs
        runs += 1
        await go.wait()
        return "done"

    handle = await hold.submit(work)
    async with hold.worker():
        await reaches(handle, TaskState.RUNNING)
        running = asyncio.create_task(hold.run(handle))
        await asyncio.sleep(0.02)
        assert not running.done()
        go.set()
        assert await running == "done"
    assert runs == 1


async def test_two_runs_of_one_task_run_it_once(hold: Holdfast) -> None:
    runs = 0

    @hold.task
    async def work(ctx: Context) -> str:
        nonlocal runs
        runs += 1
        await asyncio.sleep(0.01)
        return "done"

    handle = await hold.submit(work)
    assert await asyncio.gather(*(hold.run(handle) for _ in range(3))) == ["done"] * 3
    assert runs == 1


async def test_run_sleeps_and_retries_by_itself(still: Holdfast, clock: ManualClock) -> None:
    @still.task(retry=Retry(initial=0.02, jitter="none"))
    async def work(ctx: Context) -> int:
        await ctx.sleep(0.01)
        if ctx.attempt < 3:
            raise ConnectionError
        return ctx.attempt

    running = asyncio.create_task(still.run(await still.submit(work)))
    await pass_time(clock, 0.3, by=0.01)  # it wakes when the retry is due, and does not only look every second
    assert running.done()
    assert await running == 3


async def test_a_run_that_is_cancelled_hands_the_task_back(hold: Holdfast) -> None:
    began = asyncio.Event()

    @hold.task
    async def work(ctx: Context) -> None:
        began.set()
        await asyncio.sleep(60)

    handle = await hold.submit(work)
    running = asyncio.create_task(hold.run(handle))
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    task = await handle.task()
    assert (task.state, task.owner, task.attempts, task.deaths) == (TaskState.PENDING, None, 0, 0)


async def test_running_what_is_not_there_or_not_defined_is_an_error(quick: Holdfast) -> None:
    with pytest.raises(NotFound):
        await quick.run("no-such-task")
    handle: Handle[None] = await quick.submit("from-elsewhere", 1, queue="default")
    with pytest.raises(InvalidValue, match="import its module first"):
        await quick.run(handle)


async def test_the_same_key_is_the_same_task(hold: Holdfast) -> None:
    @hold.task
    async def work(ctx: Context, number: int) -> int:
        return number

    @hold.task
    async def other(ctx: Context, number: int) -> int:
        return -number

    first = await hold.submit(work, 1, key="a", priority=5)
    again = await hold.submit(work, 1, key="a", queue="elsewhere")
    assert first.id == again.id
    assert (await again.task()).priority == 5
    with pytest.raises(KeyConflict, match=first.id):
        await hold.submit(work, 2, key="a")
    assert (await hold.submit(other, 2, key="a")).id != first.id
    at_once = await asyncio.gather(*(hold.submit(work, 3, key="b") for _ in range(10)))
    assert len({handle.id for handle in at_once}) == 1
    assert await hold.run(first) == 1
    assert await (await hold.submit(work, 1, key="a")).result() == 1  # also after its end


async def test_submit_many_submits_each(hold: Holdfast) -> None:
    @hold.task
    async def work(ctx: Context, number: int) -> int:
        return number

    handles = await hold.submit_many(work, [(n,) for n in range(20)], priority=3)
    assert {(await handle.task()).priority for handle in handles} == {3}
    async with hold.worker():
        assert [await handle.result(timeout=60) for handle in handles] == list(range(20))


async def test_a_delayed_task_waits(still: Holdfast, clock: ManualClock) -> None:
    @still.task
    async def work(ctx: Context) -> None: ...

    async with still.worker(grace=0.0):
        began = clock.now()
        handle = await still.submit(work, delay=timedelta(milliseconds=80))
        await pass_time(clock, 0.1, by=0.01)  # in time, and not only at the next look
        task = await handle.task()
    assert task.state is TaskState.COMPLETED
    assert task.started_at is not None
    assert task.started_at - began == timedelta(milliseconds=80)


async def test_a_result_that_is_not_there_in_time_is_an_error_and_the_task_goes_on(quick: Holdfast) -> None:
    @quick.task
    async def work(ctx: Context) -> int:
        return 7

    handle = await quick.submit(work)
    with pytest.raises(DeadlineExceeded, match=r"still pending in queue .default. \(no worker is alive\) after 0.01 s"):
        await handle.result(timeout=0.01)
    assert await quick.run(handle) == 7


# Opening


async def test_nothing_works_before_it_is_open() -> None:
    hold = Holdfast("memory://")

    @hold.task
    async def work(ctx: Context) -> None: ...

    for call in (hold.submit(work), hold.submit_many(work, []), hold.emit("c"), hold.run("x"), hold.summary()):
        with pytest.raises(StoreClosed, match="async with hold"):
            await call
    with pytest.raises(StoreClosed):
        hold.worker()


async def test_blocks_may_be_nested_and_opened_again(tmp_path: Path) -> None:
    hold = Holdfast(f"sqlite:///{tmp_path}/hold.db")

    @hold.task
    async def work(ctx: Context) -> int:
        return 7

    async with hold:
        async with hold as same:
            assert same is hold
            handle = await hold.submit(work)
        assert (await handle.task()).state is TaskState.PENDING
    with pytest.raises(StoreClosed):
        await hold.submit(work)
    async with hold:
        assert await hold.run(handle.id) == 7


async def test_two_who_open_it_at_once_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    open_at_once, opened = MemoryStore.open, 0

    async def open_slowly(store: MemoryStore) -> MemoryStore:
        nonlocal opened
        opened += 1
        await asyncio.sleep(0.01)
        return await open_at_once(store)

    monkeypatch.setattr(MemoryStore, "open", open_slowly)
    hold = Holdfast("memory://")

    async def use() -> object:
        async with hold:
            await asyncio.sleep(0.01)
            return hold.store

    first, second = await asyncio.gather(use(), use())
    assert first is second
    assert opened == 1


def test_a_second_live_loop_is_refused() -> None:
    hold = Holdfast("memory://")

    async def main() -> None:
        async with hold:

            def elsewhere() -> None:
                asyncio.run(hold.__aenter__())

            with pytest.raises(HoldfastError, match="another event loop"):
                await asyncio.to_thread(elsewhere)
        async with hold:
            pass

    asyncio.run(main())
    asyncio.run(main())  # closed there, it may be opened here


async def test_a_store_that_cannot_be_opened_leaves_it_closed(tmp_path: Path) -> None:
    (tmp_path / "hold").write_text("not a folder")
    hold = Holdfast(f"json:///{tmp_path}/hold")
    for _ in range(2):
        with pytest.raises(HoldfastError):
            await hold.__aenter__()
    (tmp_path / "hold").unlink()
    async with hold:
        await hold.summary()


def test_a_bad_url_is_refused_at_once() -> None:
    with pytest.raises(InvalidURL):
        Holdfast("mysql://nowhere")


def test_the_url_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_DATABASE_URL", raising=False)
    assert Holdfast().url == "sqlite:///holdfast.db"
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", "memory://")
    assert Holdfast().url == "memory://"


def test_two_tasks_of_one_name_are_refused() -> None:
    hold = Holdfast("memory://")

    @hold.task(name="work")
    async def one(ctx: Context) -> None: ...

    with pytest.raises(DuplicateName, match="'work' is defined already"):

        @hold.task(name="work")
        async def two(ctx: Context) -> None: ...


async def test_calling_a_task_calls_its_function(quick: Holdfast) -> None:
    @quick.task
    async def helper(ctx: Context, number: int) -> int:
        return await ctx.step("double", lambda: 2 * number)

    @quick.task
    async def work(ctx: Context) -> int:
        result: int = await helper(ctx, 4)
        return result

    handle = await quick.submit(work)
    assert await quick.run(handle) == 8
    assert set(await steps_of(quick, handle)) == {"double"}
    assert (await moves_of(quick, handle))[-1] == ("running", "completed")


async def test_what_is_run_by_name_stays_in_this_process_whatever_workers_are_alive(database: Holdfast) -> None:
    """Through a wait for a person, a try that fails, and a rejected result; a worker beside it has nothing to do."""
    hold, drafts = database, 0

    @hold.task(retry=Retry(max_attempts=3, initial=0.001, jitter="none"))
    async def work(ctx: Context) -> str:
        nonlocal drafts
        drafts += 1
        await ctx.approval("Go on?")
        if drafts == 1:
            raise ConnectionError("gone")
        return f"draft {drafts}"

    @work.verify
    async def check(ctx: Context, result: str) -> bool:
        return drafts > 2

    async with hold.worker():
        handle = await hold.submit(work, delay=KEPT_FOR)
        running = asyncio.create_task(run_task(hold.services, handle.id, lease=30.0, at_once=True))
        for round_ in (1, 2):
            [asked] = await until_some(lambda: hold.approvals(handle.id))
            await hold.approve(asked.id, by=f"ann {round_}")
            await until_some(partial(_decided, hold, handle, round_))
        assert await asyncio.wait_for(running, PATIENCE) == "draft 3"
    moves = [(move.to_state, move.reason) for move in await hold.store.history(handle.id)]
    assert [reason for state, reason in moves if state is TaskState.RUNNING] == ["run by name"] * 3
    assert TaskState.WAITING not in {state for state, _ in moves}


async def _decided(hold: Holdfast, handle: Handle[str], count: int) -> bool:
    return len(await hold.approvals(handle.id, states=(ApprovalState.APPROVED,))) == count


async def test_what_is_kept_between_two_tries_can_be_cancelled(database: Holdfast) -> None:
    hold, tries = database, 0

    @hold.task(retry=Retry(initial=60, jitter="none"))
    async def work(ctx: Context) -> None:
        nonlocal tries
        tries += 1
        raise ConnectionError("gone")

    async def is_kept(handle: Handle[None]) -> bool:
        task = await handle.task()
        return task.state is TaskState.PENDING and task.owner is not None and task.attempts == 1

    handle = await hold.submit(work)
    running = asyncio.create_task(hold.run(handle))
    await until_some(partial(is_kept, handle))
    await handle.cancel("changed my mind")
    with pytest.raises(TaskCancelled):
        await asyncio.wait_for(running, PATIENCE)
    assert tries == 1


async def test_a_run_that_is_stopped_in_a_wait_leaves_the_task_waiting(database: Holdfast) -> None:
    """A task that waits costs no worker, and the next process need not find out again what it waits for."""
    hold = database

    @hold.task
    async def work(ctx: Context) -> str:
        await ctx.approval("Go on?")
        return "done"

    handle = await hold.submit(work)
    running = asyncio.create_task(hold.run(handle))
    [asked] = await until_some(lambda: hold.approvals(handle.id))
    await until_some(partial(_rests, handle))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    task = await handle.task()
    assert (task.state, task.owner) == (TaskState.WAITING, None)
    await hold.approve(asked.id, by="ann")
    assert await hold.run(handle) == "done"


async def _rests(handle: Handle[str]) -> bool:
    return (await handle.task()).resting
