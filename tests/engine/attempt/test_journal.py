"""Replay, keys, and what the journal keeps."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import (
    CodecError,
    Context,
    DuplicateName,
    Holdfast,
    InvalidValue,
    JournalMismatch,
    ManualClock,
    Retry,
    StepFailed,
    StepState,
    TaskFailed,
    TaskState,
    decode,
)
from tests.engine.support import Watched, crashing_worker, ended, reaches, settle, steps_of

ONCE = Retry(max_attempts=1)
AT_ONCE = Retry(max_attempts=3, initial=0.0)


@dataclasses.dataclass(frozen=True)
class Config:
    service: str
    ports: tuple[int, ...]
    made_at: datetime


MADE = Config("billing", (80, 443), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))


def make_config() -> Config:
    return MADE


async def test_a_completed_step_is_not_run_again(hold: Holdfast) -> None:
    ran: list[str] = []

    async def note(word: str) -> str:
        ran.append(word)
        return word.upper()

    @hold.task(retry=AT_ONCE)
    async def work(ctx: Context) -> list[str]:
        words = [await ctx.step("one", note, "a"), await ctx.step("two", note, "b")]
        if ctx.attempt == 1:
            raise ConnectionError("after the steps")
        return words

    handle = await hold.submit(work)
    assert await hold.run(handle) == ["A", "B"]
    assert ran == ["a", "b"]


async def test_keys_are_names_and_the_second_use_is_numbered(quick: Holdfast) -> None:
    @quick.task
    async def work(ctx: Context) -> list[int]:
        return [await ctx.step("fetch", int, n) for n in (7, 8, 9)]

    handle = await quick.submit(work)
    assert await quick.run(handle) == [7, 8, 9]
    journal = await steps_of(quick, handle)
    outputs = {key: decode(step.output or b"") for key, step in journal.items()}
    assert outputs == {"fetch": 7, "fetch#2": 8, "fetch#3": 9}


async def test_gathered_steps_keep_their_keys_whatever_their_timing(quick: Holdfast) -> None:
    delays = [0.0, 0.02, 0.01]
    ran: list[int] = []

    async def fetch(number: int) -> int:
        ran.append(number)
        await asyncio.sleep(delays[number])
        return number * 10

    @quick.task(retry=AT_ONCE)
    async def work(ctx: Context) -> list[int]:
        found = await asyncio.gather(*(ctx.step("fetch", fetch, n) for n in range(3)))
        if ctx.attempt == 1:
            delays.reverse()
            raise ConnectionError
        return list(found)

    handle = await quick.submit(work)
    assert await quick.run(handle) == [0, 10, 20]
    assert sorted(ran) == [0, 1, 2]
    journal = await steps_of(quick, handle)
    assert [decode(journal[key].output or b"") for key in ("fetch", "fetch#2", "fetch#3")] == [0, 10, 20]


async def test_a_name_that_another_branch_used_is_refused_on_the_first_run(quick: Holdfast) -> None:
    @quick.task
    async def work(ctx: Context) -> None:
        async def branch(number: int) -> None:
            await ctx.step("fetch", int, number)

        await asyncio.gather(branch(1), branch(2))

    handle = await quick.submit(work)
    with pytest.raises(TaskFailed, match=r"another concurrent branch.*key=") as failed:
        await quick.run(handle)
    assert failed.value.type_name.endswith(DuplicateName.__name__)
    assert (await handle.task()).attempts == 1  # a retry cannot help


async def test_branches_one_after_the_other_may_use_the_same_name(quick: Holdfast) -> None:
    """As in frameworks that run each call in an asyncio task of its own."""
    ran: list[int] = []

    def fetch(number: int) -> int:
        ran.append(number)
        return number * 10

    @quick.task(retry=AT_ONCE)
    async def work(ctx: Context) -> list[list[int]]:
        async def branch(number: int) -> int:
            return await ctx.step("fetch", fetch, number)

        async def inside() -> list[int]:
            return [await asyncio.ensure_future(branch(number)) for number in (7, 8)]

        started: list[asyncio.Task[int]] = []
        by_callback = asyncio.get_running_loop().create_future()

        def go_on(_: object) -> None:
            started.append(asyncio.create_task(branch(5)))
            started[-1].add_done_callback(by_callback.set_result)

        found = [await asyncio.create_task(branch(number)) for number in (1, 2)]
        async with asyncio.TaskGroup() as group:
            found.append(await group.create_task(branch(3)))
        last = asyncio.create_task(branch(4))
        last.add_done_callback(go_on)
        found += [await last, (await by_callback).result()]
        scoped = await ctx.step("inside", inside)
        if ctx.attempt == 1:
            raise ConnectionError
        return [found, scoped]

    handle = await quick.submit(work)
    assert await quick.run(handle) == [[10, 20, 30, 40, 50], [70, 80]]
    assert ran == [1, 2, 3, 4, 5, 7, 8]
    journal = await steps_of(quick, handle)
    assert [key for key in journal if key.startswith("fetch")] == ["fetch", "fetch#2", "fetch#3", "fetch#4", "fetch#5"]
    assert "inside›fetch#2" in journal  # noqa: RUF001


async def made_before_and_quiet(fetch: Callable[[], Coroutine[Any, Any, object]]) -> None:
    go = asyncio.Event()

    async def quiet() -> None:
        await go.wait()
        await fetch()

    other = asyncio.create_task(quiet())
    await asyncio.ensure_future(fetch())
    go.set()
    await other


async def made_by_the_other(fetch: Callable[[], Coroutine[Any, Any, object]]) -> None:
    async def first() -> asyncio.Future[object]:
        await fetch()
        return asyncio.ensure_future(fetch())

    await (await asyncio.create_task(first()))


async def made_while_the_other_slept(fetch: Callable[[], Coroutine[Any, Any, object]]) -> None:
    go, slept = asyncio.Event(), asyncio.Event()

    async def sleeper() -> None:
        await fetch()
        slept.set()
        await go.wait()

    async def second() -> None:
        await go.wait()
        await fetch()

    first = asyncio.create_task(sleeper())
    await slept.wait()
    other = asyncio.create_task(second())
    await asyncio.sleep(0)
    go.set()
    await first
    await other


async def by_the_main_branch(fetch: Callable[[], Coroutine[Any, Any, object]]) -> None:
    await asyncio.ensure_future(fetch())
    await fetch()


async def side_by_side(fetch: Callable[[], Coroutine[Any, Any, object]]) -> None:
    await asyncio.gather(fetch(), fetch())


async def test_a_branch_that_was_there_before_the_other_ended_is_not_a_later_one(quick: Holdfast) -> None:
    shapes = (made_before_and_quiet, made_by_the_other, made_while_the_other_slept, by_the_main_branch, side_by_side)
    for shape in shapes:
        for waits in (True, False):

            @quick.task(name=f"{shape.__name__}-{waits}", retry=ONCE)
            async def work(ctx: Context, shape: Any = shape, waits: Any = waits) -> None:  # noqa: ANN401
                async def fetch() -> None:
                    if waits:
                        await ctx.step("fetch", int, 1)
                    else:
                        ctx.uuid()  # takes its key, and waits for nothing

                await shape(fetch)

            handle = await quick.submit(work)
            with pytest.raises(TaskFailed, match=r"another concurrent branch.*key="):
                await quick.run(handle)


async def test_branches_with_keys_of_their_own_work(quick: Holdfast) -> None:
    @quick.task
    async def work(ctx: Context) -> list[int]:
        async def branch(number: int) -> int:
            return await ctx.step("fetch", int, number, key=f"fetch-{number}")

        return list(await asyncio.gather(branch(1), branch(2)))

    assert await quick.run(await quick.submit(work)) == [1, 2]


async def test_children_can_be_submitted_side_by_side(quick: Holdfast) -> None:
    """Like steps: keys are allotted when ``ctx.submit`` is called, in the order of the code."""

    @quick.task
    async def double(ctx: Context, number: int) -> int:
        return 2 * number

    @quick.task
    async def work(ctx: Context) -> list[int]:
        children = await asyncio.gather(*(ctx.submit(double, n) for n in range(3)))
        return list(await asyncio.gather(*(child.result() for child in children)))

    handle = await quick.submit(work)
    async with quick.worker():
        assert await ended(handle) == [0, 2, 4]


async def test_the_same_explicit_key_twice_is_refused(quick: Holdfast) -> None:
    @quick.task
    async def work(ctx: Context) -> None:
        await ctx.step("a", int, key="mine")
        await ctx.step("b", int, key="mine")

    with pytest.raises(TaskFailed, match="'mine' is used twice"):
        await quick.run(await quick.submit(work))


@pytest.mark.parametrize("named", [{"name": "holdfast:attempt-1"}, {"name": "a", "key": "holdfast:attempt-1"}])
async def test_the_engines_own_keys_are_refused(quick: Holdfast, named: dict[str, str]) -> None:
    @quick.task
    async def work(ctx: Context) -> None:
        await ctx.step(named["name"], int, key=named.get("key"))

    with pytest.raises(TaskFailed, match="Holdfast's own"):
        await quick.run(await quick.submit(work))


async def test_a_step_without_a_function_says_how_to_write_it(quick: Holdfast) -> None:
    @quick.task
    async def work(ctx: Context) -> None:
        await ctx.step("a", 3)  # type: ignore[call-overload]

    with pytest.raises(TaskFailed, match=r"not ctx.step\(\"name\", fetch\(url\)\)"):
        await quick.run(await quick.submit(work))


@pytest.mark.parametrize("catches", [False, True])
async def test_a_journal_that_does_not_fit_fails_the_task_and_resumes_with_the_old_code(
    quick: Holdfast, catches: bool
) -> None:
    changed = False

    @quick.task(retry=AT_ONCE)
    async def work(ctx: Context) -> str:
        nonlocal changed
        try:
            if changed:
                await ctx.sleep(0.01, key="one")
            else:
                await ctx.step("one", int)
        except JournalMismatch:
            if not catches:
                raise
        if ctx.attempt == 1:
            changed = True
            raise ConnectionError
        return "done"

    handle = await quick.submit(work)
    with pytest.raises(TaskFailed, match=r"'one' as 'step'.*asks for 'sleep'.*resume the task") as failed:
        await quick.run(handle)
    assert failed.value.type_name.endswith("JournalMismatch")
    assert "the code has to change first" in failed.value.failure.reason
    assert (await handle.task()).attempts == 2
    changed = False
    assert await quick.run(await quick.resume(handle)) == "done"


async def test_results_pass_through_the_codec_on_the_first_run_too(hold: Holdfast) -> None:
    seen: list[Any] = []

    def untyped() -> Any:  # noqa: ANN401
        return (1, 2)

    @hold.task(retry=AT_ONCE)
    async def work(ctx: Context) -> Config:
        seen.append(
            (
                await ctx.step("untyped", untyped),
                await ctx.step("typed", untyped, returns=tuple[int, int]),
                await ctx.step("config", make_config),
                await ctx.step("when", lambda: MADE.made_at),
                await ctx.step("returns", lambda: MADE, returns=Config),
            )
        )
        if ctx.attempt == 1:
            raise ConnectionError
        return MADE

    handle = await hold.submit(work)
    assert await hold.run(handle) == MADE
    assert await handle.result() == MADE
    first, replayed = seen
    assert first == replayed
    assert first[1:] == ((1, 2), MADE, MADE.made_at, MADE)
    assert type(first[0]) is type(replayed[0])


async def test_arguments_keep_their_types(hold: Holdfast) -> None:
    @hold.task
    async def work(ctx: Context, config: Config, *numbers: int, flag: bool = False) -> tuple[Config, list[int], bool]:
        return config, list(numbers), flag

    assert await hold.run(await hold.submit(work, MADE, 1, 2)) == (MADE, [1, 2], False)
    assert await hold.run(await hold.submit(work.bind(MADE, 3, flag=True))) == (MADE, [3], True)
    with pytest.raises(InvalidValue, match="cannot be called like this"):
        await hold.submit(work)  # type: ignore[arg-type]


async def test_a_step_result_that_cannot_be_stored_fails_clearly_and_once(quick: Holdfast) -> None:
    ran = 0

    def odd() -> object:
        nonlocal ran
        ran += 1
        return object()

    @quick.task(retry=AT_ONCE)
    async def work(ctx: Context) -> None:
        await ctx.step("odd", odd, retry=AT_ONCE)

    with pytest.raises(TaskFailed, match="'odd'") as failed:
        await quick.run(await quick.submit(work))
    assert failed.value.type_name.endswith(CodecError.__name__)
    assert ran == 1


async def test_a_task_result_that_cannot_be_stored_fails_clearly(quick: Holdfast) -> None:
    @quick.task(retry=AT_ONCE)
    async def work(ctx: Context) -> Any:  # noqa: ANN401
        return {1, object()}

    handle = await quick.submit(work)
    with pytest.raises(TaskFailed, match="result") as failed:
        await quick.run(handle)
    assert failed.value.type_name.endswith(CodecError.__name__)
    assert (await handle.task()).attempts == 1


async def test_now_random_and_uuid_are_the_same_on_a_replay(hold: Holdfast) -> None:
    seen: list[tuple[Any, ...]] = []

    @hold.task(retry=AT_ONCE)
    async def work(ctx: Context) -> None:
        drawn = (ctx.now(), ctx.random(), ctx.uuid(), ctx.now(), ctx.random(), ctx.uuid(key="order"))
        await ctx.step("one", int)
        seen.append(drawn)
        if len(seen) < 3:
            raise ConnectionError

    await hold.run(await hold.submit(work))
    assert seen[0] == seen[1] == seen[2]
    now, random, uuid, later, other_random, other_uuid = seen[0]
    assert now <= later
    assert random != other_random
    assert uuid != other_uuid


async def test_two_tasks_draw_different_numbers(quick: Holdfast) -> None:
    @quick.task
    async def work(ctx: Context) -> str:
        return f"{ctx.random()} {ctx.uuid()}"

    first, second = [await quick.run(await quick.submit(work)) for _ in range(2)]
    assert first != second


async def test_the_journal_tells_digest_attempts_and_timings(still: Holdfast, clock: ManualClock) -> None:
    tries = 0

    async def flaky(word: str) -> str:
        nonlocal tries
        tries += 1
        clock.advance(0.25)
        if tries < 3:
            raise ConnectionError
        return word

    @still.task
    async def work(ctx: Context) -> None:
        await ctx.step("flaky", flaky, "a", retry=Retry(initial=0.0, jitter="none"))
        await ctx.step("other", flaky, "b")
        await ctx.step("no-data", lambda _: None, object())

    handle = await still.submit(work)
    async with still.worker(grace=0.0):
        await ended(handle)
    journal = await steps_of(still, handle)
    flaky_step = journal["flaky"]
    assert flaky_step.attempts == 3
    assert flaky_step.started_at is not None
    assert flaky_step.finished_at is not None
    assert (flaky_step.finished_at - flaky_step.started_at).total_seconds() == 0.25  # of the try that worked
    assert flaky_step.digest != journal["other"].digest != ""
    assert journal["no-data"].digest == ""
    assert [step.position for step in await still.store.steps(handle.id)] == [1, 2, 3]


async def test_positions_grow_across_rounds(quick: Holdfast) -> None:
    @quick.task(retry=ONCE)
    async def work(ctx: Context) -> None:
        await ctx.step("one", int)
        await ctx.step("two", int)
        if ctx.task.round == 1:
            raise ConnectionError

    handle = await quick.submit(work)
    with pytest.raises(TaskFailed):
        await quick.run(handle)
    await quick.run(await quick.retry(handle))
    rows = await quick.store.steps(handle.id)
    assert [(step.round, step.key) for step in rows] == [(1, "one"), (1, "two"), (2, "one"), (2, "two")]
    assert [step.position for step in rows] == sorted({step.position for step in rows})


async def test_a_resume_loads_once_and_a_replayed_step_asks_nothing(watch: Callable[[], list[Watched]]) -> None:
    watches = watch()
    hold = Holdfast("memory://")
    arrived = asyncio.Event()

    @hold.task
    async def work(ctx: Context) -> int:
        total = sum([await ctx.step("n", int, n) for n in range(50)])
        if not arrived.is_set():
            arrived.set()
            await asyncio.sleep(60)
        return total

    async with hold:
        handle = await hold.submit(work)
        async with crashing_worker(hold):
            await arrived.wait()
        watched = watches[-1]
        watched.calls.clear()
        async with hold.worker():
            assert await ended(handle) == sum(range(50))
        assert watched.calls["load"] == 1
        assert watched.calls["commit"] == 1  # the end of the task
        assert watched.calls["steps"] == watched.calls["events"] == 0


async def test_a_fresh_task_is_not_loaded_at_all(watch: Callable[[], list[Watched]]) -> None:
    watches = watch()
    hold = Holdfast("memory://")

    @hold.task
    async def work(ctx: Context) -> int:
        return await ctx.step("n", int, 3)

    async with hold:
        handle = await hold.submit(work)
        async with hold.worker():
            await ended(handle)
        assert watches[-1].calls["load"] == 0


async def test_a_failure_the_code_handled_replays_as_a_failure(quick: Holdfast) -> None:
    ran: list[str] = []

    def fail() -> None:
        ran.append("fail")
        raise ConnectionError("gone")

    @quick.task(retry=AT_ONCE)
    async def work(ctx: Context) -> str:
        handled = "nothing"
        try:
            await ctx.step("fragile", fail)
        except StepFailed as failed:
            handled = f"{failed.type_name}: {failed.message} ({len(failed.failure.tries)})"
        if ctx.attempt == 1:
            raise TimeoutError
        return handled

    handle = await quick.submit(work)
    assert await quick.run(handle) == "ConnectionError: gone (1)"
    assert ran == ["fail"]
    assert (await steps_of(quick, handle))["fragile"].state is StepState.FAILED


async def test_the_step_that_ended_the_attempt_runs_again(hold: Holdfast) -> None:
    ran: list[str] = []

    def note(word: str) -> str:
        ran.append(word)
        if ran.count("b") == 1 and word == "b":
            raise ConnectionError
        return word

    @hold.task(retry=AT_ONCE)
    async def work(ctx: Context) -> str:
        return await ctx.step("one", note, "a") + await ctx.step("two", note, "b")

    handle = await hold.submit(work)
    assert await hold.run(handle) == "ab"
    assert ran == ["a", "b", "b"]
    assert (await steps_of(hold, handle))["two"].attempts == 2


async def test_a_long_step_is_seen_as_running_and_a_short_one_never_is(still: Holdfast, clock: ManualClock) -> None:
    go = asyncio.Event()
    tries = 0

    async def slow() -> str:
        nonlocal tries
        tries += 1
        await go.wait()
        go.clear()
        if tries == 1:
            raise ConnectionError
        return "done"

    @still.task
    async def work(ctx: Context) -> str:
        await ctx.step("quick", int)
        return await ctx.step("slow", slow, retry=Retry(initial=0.1, jitter="none"))

    handle = await still.submit(work)
    async with still.worker(grace=0.0):
        for attempt in (1, 2):
            await settle()
            clock.advance(1.1)
            await settle()
            clock.advance(1.1)
            await settle()
            seen = (await steps_of(still, handle))["slow"]
            assert (seen.state, seen.attempts) == (StepState.RUNNING, attempt)
            before = (await handle.task()).sequence
            clock.advance(1.1)
            await settle()
            assert (await handle.task()).sequence == before  # noted once, not every second
            go.set()
            await settle()
            clock.advance(0.2)
        assert await ended(handle) == "done"
    journal = await steps_of(still, handle)
    assert journal["slow"].state is journal["quick"].state is StepState.COMPLETED
    await reaches(handle, TaskState.COMPLETED)
