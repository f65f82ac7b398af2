"""Mistakes of users, and their errors: at once, with what to do, and without anything hanging."""

# ruff: noqa: ARG001, ARG005 - a task takes its ctx, whether it needs it or not

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import pytest

from holdfast import (
    Conflict,
    Context,
    DeadlineExceeded,
    Handle,
    Holdfast,
    HoldfastError,
    InvalidValue,
    Retry,
    SyncContext,
    TaskFailed,
    TaskState,
)
from holdfast.model.queries import TaskFilter
from holdfast.model.task import NewTask
from tests.engine.support import crashing_worker, ended, reaches, settle

P = ParamSpec("P")
R = TypeVar("R")

ONCE = Retry(max_attempts=1)
TWICE = Retry(max_attempts=2, initial=0.0)


async def failure_of(handle: Handle[Any]) -> TaskFailed:
    """Return what a task ends with that is about to fail."""
    with pytest.raises(TaskFailed) as failed:
        await handle.result(timeout=60)
    return failed.value


# Definitions


async def _async_generator(ctx: Context) -> AsyncIterator[int]:
    yield 1


def _generator(ctx: SyncContext) -> Iterator[int]:
    yield 1


async def _without_parameters() -> None: ...


async def _without_positional(*, ctx: Context) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        pytest.param(_async_generator, "_async_generator yields", id="an async generator"),
        pytest.param(_generator, "_generator yields", id="a generator"),
        pytest.param(_without_parameters, "_without_parameters takes no context", id="no parameters"),
        pytest.param(_without_positional, "_without_positional takes no context", id="only keywords"),
        pytest.param(lambda ctx: 1, "task name is empty", id="a lambda without a name"),
        pytest.param(5, "5 is not a function", id="a number"),
        pytest.param("report", "'report' is not a function", id="a name"),
    ],
)
async def test_what_cannot_be_a_task_is_refused_where_it_is_defined(
    quick: Holdfast, function: Callable[..., Any], message: str
) -> None:
    with pytest.raises(InvalidValue, match=message):
        quick.task(function)
    assert list(quick.definitions.names) == []


async def test_a_number_of_retries_is_refused_where_the_task_is_defined(quick: Holdfast) -> None:
    async def work(ctx: Context) -> None: ...

    with pytest.raises(InvalidValue, match=r"retry=Retry\(max_attempts=5\)"):
        quick.task(retry=5)(work)  # type: ignore[call-overload]


async def test_a_number_of_retries_is_refused_in_a_step(quick: Holdfast) -> None:
    ran: list[str] = []

    @quick.task
    async def work(ctx: Context) -> None:
        await ctx.step("one", ran.append, "ran", retry=3)  # type: ignore[call-overload]

    handle = await quick.submit(work)
    async with quick.worker():
        failed = await failure_of(handle)
    assert "retry=Retry(max_attempts=3)" in failed.message
    assert ((await handle.task()).attempts, ran) == (1, [])


async def test_a_step_may_not_be_called_as_those_of_verifiers(quick: Holdfast) -> None:
    """It would answer for the verifier's own step, which then would not run."""
    asked: list[str] = []

    @quick.task
    async def work(ctx: Context) -> str:
        await ctx.step("verify/check", bool, 1)
        return "done"

    @work.verify
    async def verify(ctx: Context, result: str) -> bool:
        asked.append(result)
        return await ctx.step("check", bool, 1)

    handle = await quick.submit(work)
    async with quick.worker():
        failed = await failure_of(handle)
    assert "'verify/' are for verifiers only" in failed.message
    assert asked == []


def traced(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Stand for any decorator: all functions under it share one code object."""

    @functools.wraps(function)
    async def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        return await function(*args, **kwargs)

    return wrapper


@dataclass
class User:
    name: str


@dataclass
class Order:
    name: str


@traced
async def get_user() -> User:
    return User("a")


@traced
async def get_order() -> Order:
    return Order("b")


@traced
async def charge(effect_id: str) -> str:
    return effect_id


async def test_functions_under_one_decorator_are_distinguished(quick: Holdfast) -> None:
    @quick.task(retry=ONCE)
    async def work(ctx: Context) -> list[str]:
        found = [await ctx.step("user", get_user), await ctx.step("order", get_order)]
        assert found == [User("a"), Order("b")]
        return [type(one).__name__ for one in found] + [str(len(await ctx.step("charge", charge)))]

    assert await quick.run(await quick.submit(work)) == ["User", "Order", "36"]


# Submitting and managing


async def test_an_undefined_task_is_refused_unless_its_queue_is_named(quick: Holdfast) -> None:
    @quick.task
    async def report(ctx: Context) -> None: ...

    with pytest.raises(InvalidValue, match=r"no task named 'reprot' is defined here.*did you mean 'report'"):
        await quick.submit("reprot")
    with pytest.raises(InvalidValue) as refused:
        await quick.submit("something else")
    assert "did you mean" not in str(refused.value)
    elsewhere: Handle[Any] = await quick.submit("something else", queue="theirs")
    assert (await elsewhere.task()).queue == "theirs"
    assert (await quick.store.count()) == {TaskState.PENDING: 1}


@pytest.mark.parametrize("many", [["ab", "cd"], "ab", [1, 2]])
async def test_many_submissions_need_a_tuple_of_arguments_each(quick: Holdfast, many: list[Any]) -> None:
    """A string is a sequence of strings, and never one of argument tuples."""

    @quick.task
    async def work(ctx: Context, *letters: str) -> None: ...

    with pytest.raises(InvalidValue, match="takes a tuple of arguments for each task"):
        await quick.submit_many(work, many)
    assert await quick.store.count() == {}


async def test_a_definition_cannot_be_run(quick: Holdfast) -> None:
    @quick.task
    async def work(ctx: Context) -> None: ...

    with pytest.raises(InvalidValue, match="neither the handle nor the id of a task; submit it first"):
        await quick.run(work)  # type: ignore[call-overload]


async def test_a_cancelled_task_cannot_be_resumed(quick: Holdfast) -> None:
    @quick.task
    async def work(ctx: Context) -> None: ...

    handle = await quick.submit(work)
    await handle.cancel()
    with pytest.raises(Conflict, match="was cancelled, which is final; submit it again"):
        await quick.resume(handle)
    assert (await handle.task()).state is TaskState.CANCELLED


async def test_a_resumed_task_is_not_cancelled_by_a_request_that_came_too_late(still: Holdfast) -> None:
    """It failed before its worker learned of the cancel; a caller that resumes it wants it to run."""
    began, go = asyncio.Event(), asyncio.Event()

    @still.task(retry=ONCE)
    async def work(ctx: Context) -> str:
        if began.is_set():
            return "done"
        began.set()
        await go.wait()
        raise ConnectionError

    handle = await still.submit(work)
    async with still.worker(grace=0.0):
        await began.wait()
        assert await handle.cancel() is TaskState.RUNNING
        go.set()
        await reaches(handle, TaskState.FAILED)
        await still.resume(handle)
        assert await ended(handle) == "done"


# Working


async def test_a_worker_for_no_queue_is_refused(quick: Holdfast) -> None:
    with pytest.raises(InvalidValue, match="queues is empty"):
        quick.worker(queues=[])


async def test_a_worker_without_tasks_says_that_it_will_do_nothing(
    quick: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    async with quick.worker():
        pass
    assert [(record.levelno, record.message) for record in caplog.records] == [
        (logging.WARNING, "this worker has no tasks defined and does nothing; define some with @hold.task first")
    ]


async def test_waiting_for_a_task_without_a_worker_shows_why(quick: Holdfast) -> None:
    @quick.task(queue="reports")
    async def work(ctx: Context) -> None: ...

    handle = await quick.submit(work)
    with pytest.raises(DeadlineExceeded, match=r"still pending in queue 'reports' \(no worker is alive\)"):
        await handle.result(timeout=0.02)
    async with quick.worker(queues=["others"]):
        with pytest.raises(DeadlineExceeded, match=r"still pending in queue 'reports' after"):
            await handle.result(timeout=0.02)


# Using things where, or when, they do not work


async def test_a_blocking_step_that_submits_in_its_own_loop_gets_an_error(quick: Holdfast) -> None:
    """Many at once, beside submissions that are in order: none of them hangs or harms another."""

    @quick.task(queue="nowhere")
    async def other(ctx: Context, number: int) -> None: ...

    def tool(number: int) -> str:
        return asyncio.run(quick.submit(other, number)).id

    @quick.task(retry=ONCE)
    async def work(ctx: Context, number: int) -> str:
        return await ctx.step("tool", tool, number)

    async with quick.worker(queues=["default"]):
        handles = [await quick.submit(work, number) for number in range(5)]
        await asyncio.gather(*(quick.submit(other, number) for number in range(20)))
        for handle in handles:
            assert "open in another event loop" in (await failure_of(handle)).message
    assert await quick.store.count() == {TaskState.FAILED: 5, TaskState.PENDING: 20}


@pytest.mark.parametrize(
    "made",
    [
        "in the other loop",
        "before the other loop",
    ],
)
async def test_ctx_in_another_loop_is_refused(quick: Holdfast, made: str) -> None:
    def tool(ctx: Context) -> int:
        async def inner() -> int:
            return await ctx.step("inner", int)

        return asyncio.run(inner() if made == "in the other loop" else ctx.step("inner", int))

    @quick.task(retry=ONCE)
    async def work(ctx: Context) -> int:
        return await ctx.step("tool", tool, ctx)

    handle = await quick.submit(work)
    async with quick.worker():
        assert "was used in another event loop" in (await failure_of(handle)).message


async def test_ctx_after_the_end_of_its_task_is_refused(quick: Holdfast) -> None:
    kept: list[Context] = []
    ran: list[str] = []

    @quick.task
    async def work(ctx: Context) -> None:
        kept.append(ctx)

    await quick.run(await quick.submit(work))
    [ctx] = kept
    for use in (
        lambda: ctx.step("late", ran.append, "late"),
        lambda: ctx.sleep(1),
        lambda: ctx.wait_event("news"),
        lambda: ctx.submit(work),
        lambda: ctx.progress(1),
        ctx.now,
    ):
        with pytest.raises(HoldfastError, match="has ended, so its ctx cannot be used any more"):
            use()
    assert ran == []


async def test_a_branch_that_outlives_its_task_gets_an_error(quick: Holdfast) -> None:
    go = asyncio.Event()
    branches: list[asyncio.Task[None]] = []
    ran: list[str] = []

    @quick.task
    async def work(ctx: Context) -> None:
        async def late() -> None:
            await go.wait()
            await ctx.step("late", ran.append, "late")

        branches.append(asyncio.create_task(late()))

    handle = await quick.submit(work)
    await quick.run(handle)
    go.set()
    with pytest.raises(HoldfastError, match="await what runs in the background before the task function returns"):
        await branches[0]
    assert (ran, await quick.store.steps(handle.id)) == ([], [])


async def test_a_blocking_ctx_after_the_end_of_its_task_is_refused(quick: Holdfast) -> None:
    kept: list[SyncContext] = []
    ran: list[str] = []

    @quick.task
    def work(ctx: SyncContext) -> None:
        kept.append(ctx)

    await quick.run(await quick.submit(work))
    with pytest.raises(HoldfastError, match="has ended, so its ctx cannot be used any more"):
        await asyncio.to_thread(kept[0].step, "late", ran.append, "late")
    with pytest.raises(HoldfastError, match="has ended, so its ctx cannot be used any more"):
        kept[0].sleep(1)
    await settle()
    assert ran == []


# Errors, and how they are reported


class Unreadable(Exception):
    def __str__(self) -> str:
        return str(self.args[1])  # a typical slip


@pytest.mark.parametrize("where", ["the task", "a step", "a step with retries", "a group"])
async def test_an_error_that_cannot_be_read_counts_as_one(quick: Holdfast, where: str) -> None:
    runs = 0

    async def fail() -> None:
        nonlocal runs
        runs += 1
        raise Unreadable("one")

    @quick.task(retry=ONCE if where == "a step with retries" else TWICE)
    async def work(ctx: Context) -> None:
        match where:
            case "the task":
                await fail()
            case "a step":
                await ctx.step("fail", fail)
            case "a step with retries":
                await ctx.step("fail", fail, retry=TWICE)
            case _:
                async with asyncio.TaskGroup() as group:
                    group.create_task(fail())

    handle = await quick.submit(work)
    async with quick.worker():
        failed = await failure_of(handle)
    assert failed.type_name.endswith("Unreadable")
    assert "IndexError in __str__" in failed.message
    assert runs == 2
    assert (await handle.task()).attempts == (1 if where == "a step with retries" else 2)


async def test_the_error_of_a_branch_is_not_hidden_in_its_group(quick: Holdfast) -> None:
    @quick.task(retry=TWICE)
    async def work(ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.step("charge", charge_card))

    async def charge_card() -> None:
        raise PermissionError("no such card")

    handle = await quick.submit(work)
    async with quick.worker():
        failed = await failure_of(handle)
    assert (failed.type_name, failed.message) == ("PermissionError", "no such card")
    assert str(failed) == f"task {handle.id} failed in step 'charge': PermissionError: no such card"
    assert [one.message for one in failed.failure.tries] == ["no such card"] * 2


async def test_all_errors_of_a_group_are_reported(quick: Holdfast) -> None:
    @quick.task(retry=ONCE)
    async def work(ctx: Context) -> None:
        raise ExceptionGroup("both", [ConnectionError("one"), ExceptionGroup("inner", [KeyError("two")])])

    async with quick.worker():
        failed = await failure_of(await quick.submit(work))
    assert failed.message == "ConnectionError: one; KeyError: 'two'"


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(PermissionError("given up on"), id="given up on"),
        pytest.param(InvalidValue("hopeless"), id="hopeless"),
    ],
)
@pytest.mark.parametrize("beside", [0, 1])
async def test_a_group_is_not_retried_if_one_of_its_errors_is_not(
    quick: Holdfast, error: Exception, beside: int
) -> None:
    @quick.task(retry=Retry(max_attempts=3, initial=0.0, give_up_on=(PermissionError,)))
    async def work(ctx: Context) -> None:
        raise ExceptionGroup("some", [*[ConnectionError("beside")] * beside, error])

    handle = await quick.submit(work)
    async with quick.worker():
        failed = await failure_of(handle)
    assert str(error) in failed.message
    assert (await handle.task()).attempts == 1


async def test_a_final_failure_is_a_warning_that_says_where_it_happened(
    quick: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    def charge_card() -> None:
        raise PermissionError("no such card")

    @quick.task(retry=TWICE)
    async def work(ctx: Context) -> None:
        await ctx.step("charge", charge_card)

    handle = await quick.submit(work)
    with caplog.at_level(logging.INFO, logger="holdfast"):
        async with quick.worker():
            failed = await failure_of(handle)
    line = charge_card.__code__.co_firstlineno + 1
    assert failed.failure.where == f"test_mistakes.py:{line} in charge_card"
    [record] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.message == (
        f"task work {handle.id}: running -> failed (attempt 2 of 2 failed: PermissionError: no such card "
        f"at test_mistakes.py:{line} in charge_card)"
    )


async def test_a_step_that_replays_with_other_arguments_is_logged(
    quick: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    """A step was put in front of one of the same name: the new one gets the old one's result."""
    asked: list[str] = []

    async def fetch(what: str) -> str:
        asked.append(what)
        return f"the {what}"

    @quick.task
    async def work(ctx: Context) -> list[str]:
        names = ["page"] if not asked else ["config", "page"]
        found = [await ctx.step("fetch", fetch, name) for name in names]
        await ctx.step("pause", go.wait)
        return found

    go = asyncio.Event()
    handle = await quick.submit(work)
    async with crashing_worker(quick):
        await reaches(handle, TaskState.RUNNING)
        await settle()
    go.set()
    async with quick.worker():
        assert await handle.result(timeout=60) == ["the page", "the page"]
    assert asked == ["page", "page"]
    [record] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "step fetch was recorded with other arguments; its recorded result is used" in record.message


async def test_the_ctx_of_another_task_that_is_over_fails_the_task_that_used_it(quick: Holdfast) -> None:
    """It would unwind the wrong task, which then has nothing to record and no end."""
    kept: list[Context] = []

    @quick.task
    async def first(ctx: Context) -> None:
        kept.append(ctx)
        await ctx.wait_event("never")

    @quick.task(retry=Retry(max_attempts=1))
    async def second(ctx: Context) -> None:
        await kept[0].step("stolen", int)

    async with quick.worker():
        suspended = await quick.submit(first)
        await reaches(suspended, TaskState.WAITING)
        failure = await failure_of(await quick.submit(second))
    assert "another task" in failure.message


# Times


@pytest.mark.parametrize("option", ["delay", "deadline"])
@pytest.mark.parametrize("seconds", [1e12, 1e300])
async def test_a_time_that_cannot_be_written_is_refused_and_nothing_is_stored(
    quick: Holdfast, option: str, seconds: float
) -> None:
    @quick.task
    async def work(ctx: Context) -> None: ...

    with pytest.raises(InvalidValue, match=f"the {option} is .* at most a thousand years are allowed"):
        await quick.submit(work, **{option: seconds})  # type: ignore[call-overload]
    assert (await quick.store.find(TaskFilter())).items == ()


@pytest.mark.parametrize("option", ["sleep", "expires"])
async def test_a_task_that_waits_for_longer_than_can_be_written_fails(quick: Holdfast, option: str) -> None:
    @quick.task(retry=ONCE)
    async def work(ctx: Context) -> None:
        if option == "sleep":
            await ctx.sleep(1e12)
        else:
            await ctx.approval("Go on?", expires=1e12)

    handle = await quick.submit(work)
    async with quick.worker():
        assert "at most a thousand years are allowed" in str(await failure_of(handle))


# Queues


async def test_a_queue_can_be_written_into_a_list_of_queues(quick: Holdfast) -> None:
    with pytest.raises(InvalidValue, match="has a comma"):
        quick.task(queue="a,b")(_nothing)
    work = quick.task(_nothing)
    with pytest.raises(InvalidValue, match="has a comma"):
        await quick.submit(work, queue="a,b")
    assert (await quick.store.find(TaskFilter())).items == ()
    assert (await (await quick.submit(work, queue="two words")).task()).queue == "two words"


async def test_a_task_in_a_queue_that_could_not_be_named_today_is_worked_on_and_forked(quick: Holdfast) -> None:
    quick.task(_nothing)
    await quick.store.submit([NewTask(id="old", name="_nothing", queue="a,b", user_input=[])])
    async with quick.worker(queues=["a,b"]):
        await ended(quick.handle("old"))
        fork: Handle[None] = await quick.fork("old", user_input=[])
        await ended(fork)
    assert (await fork.task()).queue == "a,b"


async def _nothing(ctx: Context) -> None: ...
