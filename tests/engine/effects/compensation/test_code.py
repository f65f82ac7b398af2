"""What a saga needs of the task's code: it is replayed to find how each step is undone, and does nothing else."""

# ruff: noqa: ARG001 - a function takes what it is given, whether it needs it or not

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from holdfast import (
    ApprovalState,
    Context,
    EffectState,
    Goto,
    Happened,
    Holdfast,
    Machine,
    SyncContext,
    TaskCancelled,
    TaskFailed,
    TaskState,
)
from holdfast.testing import Sandbox
from tests.engine.effects.compensation.support import ONE_TRY, Agency, Booking, doubts_of, states_of
from tests.engine.steps.approval.support import question_of
from tests.engine.support import ended, reaches, steps_of, until

# Code that has changed


@pytest.mark.parametrize("change", ["the step is gone", "its compensation is gone"])
async def test_a_step_that_the_code_no_longer_undoes_is_for_a_person(box: Sandbox, agency: Agency, change: str) -> None:
    """It is not forgotten, and the others do not wait for it."""
    deployed = "old"

    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        if deployed == "old":
            await ctx.step("hotel", agency.reserve, "hotel", compensate=agency.release)
        elif change == "its compensation is gone":
            await ctx.step("hotel", agency.reserve, "hotel")
        await ctx.step("car", agency.reserve, "car", compensate=agency.release)
        await ctx.wait_event("go")

    handle = await box.hold.submit(travel)
    await box.idle()
    deployed = "new"
    await handle.cancel("ill")
    [doubt] = await doubts_of(box.hold, handle, "hotel")
    await box.idle()
    assert "the code no longer has a way to undo step 'hotel'" in doubt.question
    assert agency.book[3:] == ["-car", "-flight"]
    assert (await states_of(box.hold, handle))["hotel"] is EffectState.NEEDS_HUMAN
    await box.hold.resolve(doubt, "undone", by="anna")
    with pytest.raises(TaskCancelled):
        await handle.result(timeout=60)
    assert agency.book[3:] == ["-car", "-flight"]
    assert (await steps_of(box.hold, handle))["hotel"].undone_at is not None


async def test_code_that_was_put_right_undoes_it_after_all(box: Sandbox, agency: Agency) -> None:
    deployed = "old"

    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        if deployed != "broken":
            await ctx.step("hotel", agency.reserve, "hotel", compensate=agency.release)
        await ctx.wait_event("go")

    handle = await box.hold.submit(travel)
    await box.idle()
    deployed = "broken"
    await handle.cancel("ill")
    [doubt] = await doubts_of(box.hold, handle, "hotel")
    await box.idle()
    deployed = "mended"
    await box.hold.resolve(doubt, "compensate", by="anna")
    with pytest.raises(TaskCancelled):
        await handle.result(timeout=60)
    assert agency.book == ["+hotel", "-hotel"]


async def test_a_doubtful_step_that_is_gone_from_the_code_is_for_a_person_first(box: Sandbox, agency: Agency) -> None:
    deployed = "old"
    called = asyncio.Event()

    async def reserve(what: str) -> str:
        called.set()
        raise TimeoutError("no answer")

    async def was_reserved(effect_id: str, what: str) -> Happened:
        raise AssertionError("asked by code that is gone")

    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        if deployed == "old":
            await ctx.step("hotel", reserve, "hotel", effect="once", settle=3600, reconcile=was_reserved)

    handle = await box.hold.submit(travel)
    with box.frozen():
        await until(called.is_set)
        await box.idle()
        deployed = "new"
        await handle.cancel("ill")
        await box.advance(10)
        [doubt] = await doubts_of(box.hold, handle, "hotel")
        assert agency.book == ["+flight"]
        await box.hold.resolve(doubt, "absent", by="anna")
    with pytest.raises(TaskCancelled):
        await handle.result(timeout=7200)  # the call has to settle first
    assert agency.book == ["+flight", "-flight"]


async def test_a_doubtful_step_with_other_arguments_is_for_a_person_first(box: Sandbox, agency: Agency) -> None:
    """It is unknown which of the two calls is meant, and the task must still end."""
    hotel = "Grand"
    called = asyncio.Event()

    async def reserve(what: str) -> str:
        called.set()
        raise TimeoutError("no answer")

    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        await ctx.step("hotel", reserve, hotel, effect="once", settle=3600, compensate=agency.release)

    handle = await box.hold.submit(travel)
    with box.frozen():
        await until(called.is_set)
        await box.idle()
        hotel = "Budget"
        await handle.cancel("ill")
        await box.advance(10)
        [doubt] = await doubts_of(box.hold, handle, "hotel")
        assert doubt.arguments == ["Grand"]
        await box.hold.resolve(doubt, "happened", result="a room", by="anna")
    with pytest.raises(TaskCancelled):
        await handle.result(timeout=7200)  # the call has to settle first
    assert agency.book == ["+flight", "-Grand", "-flight"]  # what was called is undone, not what would be called now


async def test_a_compensation_gets_the_arguments_the_step_was_called_with(hold: Holdfast, agency: Agency) -> None:
    seat = "3A"

    async def reserve(what: str, seat: str) -> str:
        return f"{what} {seat}"

    released: list[tuple[str, str, str]] = []

    async def release(result: str, what: str, seat: str) -> None:
        released.append((result, what, seat))

    @hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", reserve, "flight", seat, compensate=release)
        await ctx.wait_event("go")

    handle = await hold.submit(travel)
    async with hold.worker():
        await reaches(handle, TaskState.WAITING)
        seat = "27F"
        await handle.cancel("ill")
        with pytest.raises(TaskCancelled):
            await ended(handle)
    assert released == [("flight 3A", "flight", "3A")]


async def test_a_result_that_the_code_no_longer_understands_is_for_a_person(box: Sandbox) -> None:
    @dataclass
    class Ticket:
        number: int

    @dataclass
    class Pass:
        name: str
        valid: bool

    kind: type = Ticket

    async def reserve() -> object:
        return Ticket(7)

    async def release(ticket: object) -> None:
        raise AssertionError("called")

    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", reserve, returns=kind, compensate=release)
        await ctx.wait_event("go")

    handle = await box.hold.submit(travel)
    await box.idle()
    kind = Pass
    await handle.cancel("ill")
    [doubt] = await doubts_of(box.hold, handle, "flight")
    await box.hold.resolve(doubt, "abandon", by="anna")
    with pytest.raises(TaskCancelled):
        await handle.result(timeout=60)


# A replay that does nothing


async def test_the_replay_before_an_undo_does_nothing_new(box: Sandbox, agency: Agency) -> None:
    """No step, no event, no question, no child, no line of the journal that was not there."""
    calls: list[str] = []

    @box.hold.task
    async def child(ctx: Context) -> None:
        calls.append("child")

    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context, way: str) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        if undoing.is_set():  # the code finds another way than the first time
            match way:
                case "step":
                    await ctx.step("new", calls.append, "step")
                case "once":
                    await ctx.step("new", calls.append, "once", effect="once")
                case "progress":
                    await ctx.progress(1)
                case "approval":
                    await ctx.approval("Go on?")
                case "child":
                    await ctx.submit(child)
                case _:
                    ctx.now()
                    await ctx.sleep(3600)
        await ctx.step("hotel", agency.reserve, "hotel", compensate=agency.release)
        undoing.set()
        raise ValueError("no money left")

    for way in ("step", "once", "progress", "approval", "child", "sleep"):
        agency.clear()
        undoing = asyncio.Event()
        handle = await box.hold.submit(travel, way)
        [doubt] = await doubts_of(box.hold, handle, "hotel")  # the code did not get that far
        await box.idle()
        assert agency.book == ["+flight", "+hotel", "-flight"]
        await box.hold.resolve(doubt, "abandon", by="anna")
        with pytest.raises(TaskFailed, match="no money left"):
            await handle.result(timeout=5000)
        own = {key for key in await steps_of(box.hold, handle) if not key.startswith("holdfast:undo")}
        assert own == {"flight", "hotel"}
        assert await box.hold.store.events(f"task:{handle.id}") == []
        assert await box.hold.approvals(handle, states=list(ApprovalState)) == []
    assert calls == []


async def make_another_call(ctx: Context, made_before: Coroutine[Any, Any, None], done: list[str]) -> None:
    made_before.close()
    await ctx.step("another", done.append, "another", effect="once")


async def await_an_earlier_call(ctx: Context, made_before: Coroutine[Any, Any, None], done: list[str]) -> None:
    await made_before


async def ask_a_person(ctx: Context, made_before: Coroutine[Any, Any, None], done: list[str]) -> None:
    made_before.close()
    await ctx.approval("Go on?")


@pytest.mark.parametrize("act", [make_another_call, await_an_earlier_call, ask_a_person])
async def test_a_branch_that_is_left_behind_can_do_nothing_while_steps_are_undone(
    quick: Holdfast, agency: Agency, act: Callable[..., Awaitable[None]]
) -> None:
    """It wakes up after the replay has found all it was looking for, in the middle of the undoing."""
    undoing, go = asyncio.Event(), asyncio.Event()
    done: list[str] = []
    lagging: list[asyncio.Task[None]] = []

    async def release(booking: Booking, what: str) -> None:
        undoing.set()
        await go.wait()

    @quick.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        async def lag() -> None:
            made_before = ctx.step("made before", done.append, "made before")
            await until(undoing.is_set)
            await act(ctx, made_before, done)
            done.append("went on")

        lagging.append(asyncio.create_task(lag()))
        await ctx.step("flight", agency.reserve, "flight", compensate=release)
        await asyncio.sleep(0)
        raise ValueError("no money left")

    handle = await quick.submit(travel)
    async with quick.worker():
        await until(lambda: len(lagging) == 2 and lagging[1].done())
        assert undoing.is_set()
        assert await quick.approvals(handle) == []
        go.set()
        with pytest.raises(TaskFailed, match="no money left"):
            await ended(handle)
    await asyncio.gather(*lagging, return_exceptions=True)
    assert done == []
    assert {key for key in await steps_of(quick, handle) if not key.startswith("holdfast:undo")} == {"flight"}


async def test_a_branch_that_waits_for_approval_is_not_resumed_while_steps_are_undone(
    hold: Holdfast, agency: Agency
) -> None:
    """A resumed task would take its question for one that was refused."""
    works = False

    @hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> str | None:
        leave = asyncio.create_task(ctx.approval("Go on?"))
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release_at_once)
        await ctx.wait_event("fail", earlier=True)
        if not works:
            leave.cancel()
            raise ValueError("no money left")
        return (await leave).by

    agency.broken = {"flight"}
    handle = await hold.submit(travel)
    async with hold.worker():
        await reaches(handle, TaskState.WAITING)
        await hold.emit("fail")
        [doubt] = await doubts_of(hold, handle, "flight")
        await reaches(handle, TaskState.WAITING)
        agency.broken = set()
        await hold.resolve(doubt, "compensate", by="anna")
        with pytest.raises(TaskFailed, match="no money left"):
            await ended(handle)
        works = True
        await hold.resume(handle)
        await hold.approve((await question_of(hold, handle)).id, by="anna")
        assert await ended(handle) == "anna"
    assert agency.book == ["+flight", "-flight", "+flight"]


async def test_a_replay_that_never_gets_to_a_step_leaves_it_to_a_person(box: Sandbox, agency: Agency) -> None:
    """The code waits for something else before it, for ever. The undo of the others goes on after a while."""
    deployed = "old"

    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        if deployed == "new":
            await asyncio.Event().wait()
        await ctx.step("hotel", agency.reserve, "hotel", compensate=agency.release)
        await ctx.wait_event("never")

    handle = await box.hold.submit(travel)
    await box.idle()
    deployed = "new"
    await handle.cancel("ill")
    [doubt] = await doubts_of(box.hold, handle, "hotel")
    await box.idle()
    assert agency.book == ["+flight", "+hotel", "-flight"]
    await box.hold.resolve(doubt, "undone", by="anna")
    with pytest.raises(TaskCancelled):
        await handle.result(timeout=5000)


async def test_a_replay_that_waits_for_what_no_longer_comes_does_not_hold_up_the_undo(
    box: Sandbox, agency: Agency
) -> None:
    """One branch feeds another one through a queue of its own; it was stopped, and never feeds it again."""
    began = asyncio.Event()

    async def endless() -> str:
        began.set()
        await asyncio.sleep(60)
        return "never"

    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        found: asyncio.Queue[str] = asyncio.Queue()

        async def look() -> None:
            await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
            found.put_nowait(await ctx.step("endless", endless))

        looking = asyncio.create_task(look())
        await ctx.step("hotel", agency.reserve, "hotel", compensate=agency.release)
        await found.get()
        await looking

    handle = await box.hold.submit(travel)
    await until(began.is_set)
    await handle.cancel("ill")
    with pytest.raises(TaskCancelled):
        await handle.result(timeout=5000)
    assert sorted(agency.book) == ["+flight", "+hotel", "-flight", "-hotel"]
    assert box.elapsed < timedelta(minutes=10)


async def test_a_blocking_tasks_replay_ends_with_its_thread(box: Sandbox, agency: Agency) -> None:
    runs: list[str] = []

    @box.hold.task(retry=ONE_TRY)
    def travel(ctx: SyncContext) -> None:
        runs.append("began")
        ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        ctx.step("hotel", agency.reserve, "hotel", compensate=agency.release)
        runs.append("went on")
        ctx.sleep(60)
        raise ValueError("no money left")

    handle = await box.hold.submit(travel)
    with pytest.raises(TaskFailed, match="no money left"):
        await handle.result(timeout=5000)
    assert agency.book == ["+flight", "+hotel", "-hotel", "-flight"]
    assert runs.count("began") == runs.count("went on") + 1  # the replay stopped at the last step it looked for


async def test_a_machine_is_a_saga_as_well(box: Sandbox, agency: Agency) -> None:
    machine: Machine[None] = Machine(
        "journey", initial="book", transitions={"book": ["pay"], "pay": ["there"]}, final=["there"]
    )

    @machine.state("book")
    async def book(ctx: Context, data: None) -> str:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        return "pay"

    @machine.state("pay")
    async def pay(ctx: Context, data: None) -> Goto[None]:
        await ctx.step("hotel", agency.reserve, "hotel", effect="once", compensate=agency.release)
        raise ValueError("no money left")

    handle = await box.hold.submit(box.hold.register(machine), None)
    with pytest.raises(TaskFailed, match="no money left"):
        await handle.result(timeout=5000)
    assert agency.book == ["+flight", "+hotel", "-hotel", "-flight"]
