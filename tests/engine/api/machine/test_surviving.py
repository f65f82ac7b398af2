"""What a machine survives: dead workers at every Commit, failures, timeouts, and code that has changed."""

# ruff: noqa: ANN401, ARG001 - a handler takes its ctx and data, whatever they are and whether it needs them or not

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from holdfast import (
    Conflict,
    Context,
    Goto,
    Holdfast,
    Machine,
    ManualClock,
    Reached,
    Retry,
    StepState,
    SyncContext,
    TaskFailed,
    TaskState,
)
from holdfast.engine.attempt.outbox import Outbox
from holdfast.model.commit import Verdict
from holdfast.model.operations import Move, Operation
from holdfast.testing.contract._support import row
from tests.engine.api.machine.support import Deaths, moves_of, passing_time, reaches, result_of

LOOP = ["draft", "review", "draft", "review", "done"]


def document(work: Counter[str], *, with_timeouts: bool = False) -> Machine[int]:
    """A machine that goes round twice; its handlers do two steps each, which count how often they really run."""
    timeout = 60.0 if with_timeouts else None
    machine = Machine(
        "document",
        initial="draft",
        transitions={"draft": ["review"], "review": ["draft", "done"]},
        final=["done"],
        data=int,
        retry=Retry(max_attempts=1),
    )

    def do(what: str) -> str:
        work[what] += 1
        return what

    @machine.state("draft", timeout=timeout)
    async def write(ctx: Context, number: int) -> Goto[int]:
        await ctx.step("open", do, f"open {number}")
        await ctx.step("write", do, f"write {number}")
        return Goto("review", number + 1)

    @machine.state("review", timeout=timeout)
    def read(ctx: SyncContext, number: int) -> Goto[int]:
        ctx.step("read", do, f"read {number}")
        answer = ctx.step("judge", do, f"judge {number}")
        return Goto("done" if number > 2 else "draft", number + 1, reason=answer)

    return machine


EVERY_STEP_ONCE = Counter(
    f"{verb} {number}" for number in range(4) for verb in (("read", "judge") if number % 2 else ("open", "write"))
)
COMMITS = {False: 13, True: 17}
"""Of one run: two steps and a move for each of four visits, and the end; with timeouts one more for each visit."""


@pytest.mark.parametrize("with_timeouts", [False, True])
async def test_a_worker_that_dies_at_any_commit_costs_one_step_and_no_move(
    monkeypatch: pytest.MonkeyPatch, with_timeouts: bool
) -> None:
    """Those that die at the same Commit die side by side: until another goes on, each of them is waited for."""
    deaths = Deaths(monkeypatch)

    async def run(at: int, *, stored: bool) -> None:
        work = Counter[str]()
        machine = document(work, with_timeouts=with_timeouts)
        async with Holdfast("memory://") as hold:
            deaths.plan(hold.store, at=at, stored=stored)
            handle = await hold.submit(hold.register(machine), 0)
            with row(f"dies at {at}", f"stored: {stored}"):
                assert await result_of(hold, handle) == Reached("done", 4)
                assert [visit.state for visit in await machine.history(handle)] == LOOP
                assert await moves_of(handle) == list(zip([None, *LOOP], LOOP, strict=False))
                again = work - EVERY_STEP_ONCE
                assert work.keys() == EVERY_STEP_ONCE.keys()
                assert again.total() <= (0 if stored else 1)  # only the step whose record was lost
            commits = COMMITS[with_timeouts]
            assert deaths.commits[hold.store] == (commits + 1 if at <= commits and not stored else commits)

    places = range(1, COMMITS[with_timeouts] + 2)  # at the last of them no worker dies
    async with asyncio.TaskGroup() as runs:
        for at in places:
            for stored in (False, True):
                runs.create_task(run(at, stored=stored))


async def test_a_replay_runs_no_handler_whose_move_is_recorded(hold: Holdfast) -> None:
    calls: list[str] = []
    machine = Machine("m", initial="a", transitions={"a": "b", "b": ["a", "c"]}, final="c")

    @machine.state("a")
    async def first(ctx: Context, data: Any) -> Goto[int]:
        calls.append("a")
        return Goto("b", (data or 0) + 1)

    @machine.state("b")
    async def second(ctx: Context, data: int) -> str:
        calls.append("b")
        await ctx.wait_event("go")
        return "a" if data < 3 else "c"

    handle = await hold.submit(hold.register(machine))
    for _ in range(3):  # a worker of its own for each: everything before its part is replayed
        async with hold.worker():
            await reaches(handle, TaskState.WAITING)
        await hold.emit("go")
    assert await result_of(hold, handle) == Reached("c", 3)
    assert calls == ["a", "b", *["b", "a", "b"] * 2, "b"]  # once to wait and once to go on, and "a" only once a visit


async def test_a_worker_that_is_abandoned_inside_a_handler_writes_nothing_more(quick: Holdfast) -> None:
    entered, calls = asyncio.Event(), list[int]()
    machine = Machine("m", initial="a", transitions={"a": ["b", "c"]}, final=["b", "c"])

    @machine.state("a")
    async def linger(ctx: Context, data: Any) -> str:
        calls.append(ctx.task.fence)
        entered.set()
        if len(calls) == 1:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return "b"  # a zombie that goes on
        return "c"

    handle = await quick.submit(quick.register(machine))
    async with quick.worker() as worker:
        await entered.wait()
        worker._host.abandon("a test killed it")
        await quick.store.retire(worker.id)
        assert (await handle.result(timeout=60)).state == "c"
    assert len(calls) == 2
    assert calls[0] < calls[1]
    assert [visit.state for visit in await machine.history(handle)] == ["a", "c"]


# Failures


async def test_an_error_is_retried_by_the_policy_of_the_task_from_the_state_it_is_in(hold: Holdfast) -> None:
    calls: list[str] = []
    machine = Machine(
        "m",
        initial="a",
        transitions={"a": "b", "b": "c"},
        final="c",
        data=list[str],
        retry=Retry(max_attempts=3, initial=0.0),
    )

    @machine.state("a")
    async def first(ctx: Context, data: list[str]) -> str:
        calls.append("a")
        data.append("a")
        return "b"

    @machine.state("b")
    async def second(ctx: Context, data: list[str]) -> str:
        data.append(await ctx.step("good", note, calls, "good"))
        await ctx.step("flaky", fail_twice, calls)
        return "c"

    handle = await hold.submit(hold.register(machine), [])
    assert await result_of(hold, handle) == Reached("c", ["a", "good"])
    assert calls == ["a", "good", "flaky", "flaky", "flaky"]
    assert (await handle.task()).attempts == 2


async def test_a_state_with_a_policy_of_its_own_is_tried_again_without_counting_attempts(hold: Holdfast) -> None:
    calls: list[str] = []
    machine = Machine("m", initial="a", transitions={"a": "b"}, final="b", retry=Retry(max_attempts=1))

    @machine.state("a", retry=Retry(max_attempts=3, initial=0.01), timeout=60)
    async def first(ctx: Context, data: Any) -> str:
        await ctx.step("good", note, calls, "good")
        await ctx.step("flaky", fail_twice, calls)
        return "b"

    handle = await hold.submit(hold.register(machine))
    assert (await result_of(hold, handle)).state == "b"
    assert calls == ["good", "flaky", "flaky", "flaky"]
    assert (await handle.task()).attempts == 0
    reasons = [move.reason for move in await hold.store.history(handle.id)]
    assert [reason for reason in reasons if "try 1 of 3" in reason or "try 2 of 3" in reason] == [
        reason for reason in reasons if reason.startswith("state 'a' failed")
    ]


async def test_a_state_whose_policy_is_used_up_fails_the_task_and_can_be_resumed(quick: Holdfast) -> None:
    calls: list[str] = []
    machine = Machine("m", initial="a", transitions={"a": "b"}, final="b", retry=Retry(max_attempts=1))

    @machine.state("a", retry=Retry(max_attempts=2, initial=0.0))
    async def first(ctx: Context, data: Any) -> str:
        calls.append("a")
        if len(calls) < 4:
            raise ConnectionError("no")
        return "b"

    handle = await quick.submit(quick.register(machine))
    with pytest.raises(TaskFailed, match="ConnectionError: no"):
        await result_of(quick, handle)
    assert len(calls) == 2
    await quick.resume(handle)
    assert (await result_of(quick, handle)).state == "b"  # with two tries of its own again
    assert len(calls) == 4


async def test_a_next_try_that_cannot_be_put_off_is_left_to_the_policy_of_the_task(
    quick: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store refuses the Commit that would end the attempt. The error is the task's to retry."""
    machine = Machine("m", initial="a", transitions={"a": "b"}, final="b", retry=Retry(max_attempts=2, initial=0.0))
    tries, commit = 0, Outbox.commit

    async def refuse(outbox: Outbox, *operations: Operation) -> Verdict:
        if any(isinstance(one, Move) and one.reason.startswith("state 'a' failed") for one in operations):
            raise Conflict("not now")
        return await commit(outbox, *operations)

    @machine.state("a", retry=Retry(max_attempts=9, initial=0.0), timeout=60)
    async def first(ctx: Context, data: Any) -> str:
        nonlocal tries
        tries += 1
        await ctx.step("one", note, [], "one")
        raise ConnectionError("away")

    monkeypatch.setattr(Outbox, "commit", refuse)
    handle = await quick.submit(quick.register(machine))
    with pytest.raises(TaskFailed, match="ConnectionError: away"):
        await result_of(quick, handle)
    assert tries == 2
    error = (await handle.task()).error
    assert isinstance(error, dict)
    assert "its next try could not be postponed: not now" in str(error)


@pytest.mark.parametrize("by_a_step", [False, True])
async def test_more_tries_than_are_remembered_are_still_counted(quick: Holdfast, by_a_step: bool) -> None:
    calls: list[int] = []
    machine = Machine("m", initial="a", transitions={"a": "b"}, final="b", retry=Retry(max_attempts=1))
    often = Retry(max_attempts=120, initial=0.0)

    async def fail() -> str:
        calls.append(1)
        raise ConnectionError

    @machine.state("a", retry=None if by_a_step else often)
    async def never(ctx: Context, data: Any) -> str:
        return await (ctx.step("never", fail, retry=often) if by_a_step else fail())

    with pytest.raises(TaskFailed):
        await result_of(quick, await quick.submit(quick.register(machine)))
    assert len(calls) == 120


# Timeouts


async def test_a_handler_that_takes_too_long_is_stopped(still: Holdfast, clock: ManualClock) -> None:
    stopped: list[str] = []
    machine = Machine("m", initial="a", transitions={"a": "b"}, final="b", retry=Retry(max_attempts=1))

    @machine.state("a", timeout=timedelta(minutes=1))
    async def linger(ctx: Context, data: Any) -> str:
        try:
            await clock.sleep(3600)
        finally:
            stopped.append("a")
        return "b"

    handle = await still.submit(still.register(machine))
    async with passing_time(clock):
        with pytest.raises(TaskFailed, match="the deadline of state 'a'"):
            await result_of(still, handle)
    assert stopped == ["a"]


async def test_a_handler_that_waits_off_its_worker_is_woken_when_its_time_is_up(
    still: Holdfast, clock: ManualClock
) -> None:
    machine = Machine("m", initial="a", transitions={"a": ["b"]}, final="b", retry=Retry(max_attempts=1))

    @machine.state("a", timeout=600)
    async def wait(ctx: Context, data: Any) -> str:
        await ctx.wait_event("never")
        return "b"

    handle = await still.submit(still.register(machine))
    async with still.worker():
        await reaches(handle, TaskState.WAITING)
        clock.advance(599)
        await asyncio.sleep(0.05)
        assert (await handle.task()).state is TaskState.WAITING
        async with passing_time(clock):
            await reaches(handle, TaskState.FAILED)
    task = await handle.task()
    assert task.error["type"] == "holdfast.DeadlineExceeded"


async def test_a_blocking_handler_with_a_timeout_waits_off_its_worker_too(still: Holdfast, clock: ManualClock) -> None:
    machine = Machine("m", initial="a", transitions={"a": ["b"]}, final="b", retry=Retry(max_attempts=1))

    @machine.state("a", timeout=600)
    def wait(ctx: SyncContext, data: Any) -> str:
        return str(ctx.wait_event(data))

    task = still.register(machine)
    handle = await still.submit(task, "where")
    async with still.worker():
        await reaches(handle, TaskState.WAITING)
        await still.emit("where", "b")
        await reaches(handle, TaskState.COMPLETED)
        late = await still.submit(task, "nowhere")
        await reaches(late, TaskState.WAITING)
        async with passing_time(clock):
            await reaches(late, TaskState.FAILED)


async def test_a_timer_beside_work_that_has_just_ended_does_not_put_the_task_to_sleep(quick: Holdfast) -> None:
    """The task looks as if everything in it waited while the end of the other branch is on its way."""

    async def turns(number: int) -> int:
        for _ in range(number):
            await asyncio.sleep(0)
        return number

    @quick.task
    async def race(ctx: Context, number: int) -> int:
        timer = asyncio.create_task(ctx.sleep(600))
        work = asyncio.create_task(turns(number))
        await asyncio.wait([timer, work], return_when=asyncio.FIRST_COMPLETED)
        timer.cancel()
        await asyncio.gather(timer, return_exceptions=True)
        return work.result()

    handles = await quick.submit_many(race, [(number,) for number in range(40)])
    async with quick.worker():
        assert [await handle.result(timeout=60) for handle in handles] == list(range(40))


async def test_each_try_of_a_state_has_its_timeout_and_a_resume_has_one_again(
    still: Holdfast, clock: ManualClock
) -> None:
    machine = Machine("m", initial="a", transitions={"a": ["b"]}, final="b", retry=Retry(max_attempts=1))
    calls: list[int] = []

    @machine.state("a", timeout=100, retry=Retry(max_attempts=2, initial=1.0))
    async def wait(ctx: Context, data: Any) -> str:
        calls.append(1)
        await ctx.wait_event("go")
        return "b"

    began_at = clock.now()
    handle = await still.submit(still.register(machine))
    async with still.worker(), passing_time(clock, step=5):
        await reaches(handle, TaskState.FAILED)
        failed_at = clock.now()
        await still.resume(handle)
        await reaches(handle, TaskState.WAITING)
        await still.emit("go")
        await reaches(handle, TaskState.COMPLETED)
    assert failed_at - began_at >= timedelta(seconds=200)


async def test_an_interrupted_try_goes_on_against_the_same_deadline(still: Holdfast, clock: ManualClock) -> None:
    machine = Machine("m", initial="a", transitions={"a": ["b"]}, final="b", retry=Retry(max_attempts=1))
    entered = asyncio.Event()

    @machine.state("a", timeout=100)
    async def linger(ctx: Context, data: Any) -> str:
        entered.set()
        await clock.sleep(10_000)
        return "b"

    handle = await still.submit(still.register(machine))
    async with still.worker(grace=0.0):
        await entered.wait()
        clock.advance(20)
    [line] = [step for step in await still.store.steps(handle.id) if step.key == "m:2"]
    assert line.state is StepState.RUNNING
    async with still.worker(), passing_time(clock):
        await reaches(handle, TaskState.FAILED)
    assert (clock.now() - (line.started_at or clock.now())).total_seconds() == pytest.approx(100, abs=30)


# Changed code


async def test_a_state_that_the_code_no_longer_has_is_not_guessed(quick: Holdfast) -> None:
    machine = Machine("m", initial="a", transitions={"a": "b", "b": "c"}, final="c")
    machine.state("a")(to("b"))

    @machine.state("b")
    async def wait(ctx: Context, data: Any) -> str:
        await ctx.wait_event("go")
        return "c"

    handle = await quick.submit(quick.register(machine))
    async with quick.worker():
        await reaches(handle, TaskState.WAITING)
    removed = machine.handlers.pop("b")
    await quick.emit("go")
    with pytest.raises(TaskFailed, match="is in state 'b', which machine 'm' does not have any more"):
        await result_of(quick, handle)
    machine.handlers["b"] = removed
    await quick.resume(handle)
    assert (await result_of(quick, handle)).state == "c"


async def test_a_task_stays_where_it_began_when_another_state_becomes_the_first(quick: Holdfast) -> None:
    old = Machine("m", initial="a", transitions={"a": "c"}, final="c")

    @old.state("a")
    async def wait(ctx: Context, data: Any) -> str:
        await ctx.wait_event("go")
        return "c"

    handle = await quick.submit(quick.register(old))
    async with quick.worker():
        await reaches(handle, TaskState.WAITING)
    new = Machine("m", initial="z", transitions={"z": "a", "a": "c"}, final="c")
    new.state("a")(wait)
    new.state("z")(to("a"))
    quick.definitions._by_name["m"] = new.task_definition()
    await quick.emit("go")
    assert (await result_of(quick, handle)).state == "c"
    assert [visit.state for visit in await new.history(handle)] == ["a", "c"]


def to(state: str) -> Any:
    async def go(ctx: Context, data: Any) -> str:
        return state

    return go


def note(calls: list[str], what: str) -> str:
    calls.append(what)
    return what


def fail_twice(calls: list[str]) -> None:
    calls.append("flaky")
    if calls.count("flaky") < 3:
        raise ConnectionError("not yet")
