"""Sagas: what was done is undone, the last first, when a task ends badly, and only then."""

# ruff: noqa: ARG001 - a function takes what it is given, whether it needs it or not

import asyncio
import threading
from collections.abc import Awaitable
from typing import Any

import pytest

from holdfast import (
    Compensation,
    Context,
    EffectState,
    Holdfast,
    InvalidValue,
    StepFailed,
    StepState,
    SyncContext,
    TaskFailed,
    TaskState,
)
from holdfast.testing import Sandbox
from tests.engine.effects.compensation.support import AT_ONCE, ONE_TRY, Agency, Booking, effects_of, states_of, undos_of
from tests.engine.support import moves_of, steps_of

EFFECTS = pytest.mark.parametrize("effect", ["once", "idempotent", "pure"])


@pytest.mark.parametrize("effect", ["once", "idempotent"])
async def test_completed_steps_are_undone_in_reverse(hold: Holdfast, agency: Agency, effect: str) -> None:
    @hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        for what in ("flight", "hotel", "car"):
            await ctx.step(what, agency.reserve, what, effect=effect, compensate=agency.release)
        raise ValueError("no money left")

    handle = await hold.submit(travel)
    async with hold.worker():
        with pytest.raises(TaskFailed, match="no money left") as failed:
            await handle.result(timeout=60)
    assert agency.book == ["+flight", "+hotel", "+car", "-car", "-hotel", "-flight"]

    # How it ended is what it would have been without anything to undo.
    assert failed.value.type_name == "ValueError"
    task = await handle.task()
    assert (task.state, task.attempts, task.must_undo) == (TaskState.FAILED, 1, False)
    last = (await hold.store.history(handle.id))[-1]
    assert last.reason == "attempt 1 of 1 failed: ValueError: no money left (3 steps undone)"
    assert [to for _, to in await moves_of(hold, handle)] == ["pending", "running", "pending", "running", "failed"]

    # Every undo is a line of the journal, and so is that the step does not count any more.
    steps = await steps_of(hold, handle)
    for what in ("flight", "hotel", "car"):
        assert steps[what].state is StepState.COMPLETED
        assert steps[what].undone_at is not None
    undos = await undos_of(hold, handle)
    assert [(undo.kind, undo.state) for undo in undos] == [("undo", StepState.COMPLETED)] * 3
    assert [undo.key.rpartition(":")[2] for undo in undos] == [*reversed(agency.reserved)]
    assert set((await states_of(hold, handle)).values()) == {EffectState.COMPENSATED}

    # Under ids of their own.
    assert len({*agency.reserved, *agency.released}) == 6


async def test_a_compensation_gets_the_steps_typed_result_and_its_arguments(hold: Holdfast) -> None:
    seen: list[tuple[Any, ...]] = []

    def reserve(what: str, days: list[int], price: float | None) -> Booking:
        return Booking(what, sum(days))

    def release(booking: Booking, what: str, days: list[int], price: float | None) -> None:
        seen.append((booking, what, days, price))

    @hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", reserve, "flight", [1, 2], None, compensate=release)
        await ctx.step("hotel", reserve, "hotel", [], 9.5, effect="once", compensate=release)
        raise ValueError("no money left")

    handle = await hold.submit(travel)
    async with hold.worker():
        with pytest.raises(TaskFailed):
            await handle.result(timeout=60)
    assert seen == [(Booking("hotel", 0), "hotel", [], 9.5), (Booking("flight", 3), "flight", [1, 2], None)]


@EFFECTS
async def test_a_compensation_may_block_or_be_async_or_return_what_is_to_be_awaited(box: Sandbox, effect: str) -> None:
    seen: list[tuple[str, bool]] = []
    loop_thread = threading.current_thread()

    async def reserve(what: str) -> str:
        return what

    def note(kind: str) -> None:
        seen.append((kind, threading.current_thread() is loop_thread))

    def blocking(result: str, what: str) -> None:
        note("blocking")

    async def native(result: str, what: str) -> object:
        note("native")
        return object()  # what an undo returns is not read

    def handing_on(result: str, what: str) -> Awaitable[object]:
        return native(result, what)

    class Callable:
        async def __call__(self, result: str, what: str) -> None:
            assert result == what
            note("callable")

    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        undos: tuple[Any, ...] = (blocking, native, Callable(), handing_on)
        for number, undo in enumerate(undos):
            compensation = Compensation(undo, effect=effect)
            await ctx.step(f"step {number}", reserve, "it", compensate=compensation)
        raise ValueError("no money left")

    handle = await box.hold.submit(travel)
    with pytest.raises(TaskFailed, match="no money left"):
        await handle.result(timeout=5000)
    assert seen == [("native", True), ("callable", True), ("native", True), ("blocking", False)]
    assert (await box.hold.store.history(handle.id))[-1].reason.endswith("(4 steps undone)")


async def test_a_blocking_task_is_a_saga_as_well(box: Sandbox, agency: Agency) -> None:
    @box.hold.task(retry=ONE_TRY)
    def travel(ctx: SyncContext) -> None:
        ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        ctx.step("hotel", agency.reserve, "hotel", effect="once", compensate=agency.release)
        raise ValueError("no money left")

    handle = await box.hold.submit(travel)
    with pytest.raises(TaskFailed, match="no money left"):
        await handle.result(timeout=5000)
    assert agency.book == ["+flight", "+hotel", "-hotel", "-flight"]


async def test_steps_without_a_compensation_are_left_alone(box: Sandbox, agency: Agency) -> None:
    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        await ctx.step("hotel", agency.reserve, "hotel", effect="once")
        await ctx.step("car", agency.reserve, "car")
        raise ValueError("no money left")

    handle = await box.hold.submit(travel)
    with pytest.raises(TaskFailed):
        await handle.result(timeout=60)
    assert agency.book == ["+flight", "+hotel", "+car", "-flight"]
    assert await states_of(box.hold, handle) == {"flight": EffectState.COMPENSATED, "hotel": EffectState.DONE}
    assert [key for key, step in (await steps_of(box.hold, handle)).items() if step.undone_at] == ["flight"]


async def test_a_step_that_was_not_completed_is_not_undone(box: Sandbox, agency: Agency) -> None:
    async def full(what: str) -> None:
        raise ConnectionError(f"no {what} left")

    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        await ctx.step("hotel", full, "hotel", compensate=agency.release)

    handle = await box.hold.submit(travel)
    with pytest.raises(TaskFailed, match="no hotel left") as failed:
        await handle.result(timeout=60)
    assert failed.value.failure.steps == ("hotel",)
    assert agency.book == ["+flight", "-flight"]


async def test_a_failure_that_the_code_handles_undoes_nothing(box: Sandbox, agency: Agency) -> None:
    async def full(what: str) -> None:
        raise ConnectionError(f"no {what} left")

    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> str:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        try:
            await ctx.step("hotel", full, "hotel", compensate=agency.release)
        except StepFailed:
            await ctx.step("tent", agency.reserve, "tent", compensate=agency.release)
        return "off we go"

    handle = await box.hold.submit(travel)
    assert await handle.result(timeout=60) == "off we go"
    assert agency.book == ["+flight", "+tent"]


async def test_success_undoes_nothing(hold: Holdfast, agency: Agency) -> None:
    @hold.task
    async def travel(ctx: Context) -> str:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        await ctx.step("hotel", agency.reserve, "hotel", effect="once", compensate=agency.release)
        return "off we go"

    handle = await hold.submit(travel)
    async with hold.worker():
        assert await handle.result(timeout=60) == "off we go"
    assert agency.book == ["+flight", "+hotel"]
    assert set((await states_of(hold, handle)).values()) == {EffectState.DONE}
    assert await undos_of(hold, handle) == []


async def test_a_retry_with_attempts_left_undoes_nothing(hold: Holdfast, agency: Agency) -> None:
    books: list[list[str]] = []

    @hold.task(retry=AT_ONCE)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        books.append([*agency.book])
        raise ConnectionError("try again")

    handle = await hold.submit(travel)
    async with hold.worker():
        with pytest.raises(TaskFailed, match="try again"):
            await handle.result(timeout=60)
    assert books[:3] == [["+flight"]] * 3
    assert agency.book == ["+flight", "-flight"]
    assert (await handle.task()).attempts == 3


async def test_a_task_with_nothing_to_undo_ends_at_once(box: Sandbox, agency: Agency) -> None:
    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight")
        raise ValueError("no money left")

    handle = await box.hold.submit(travel)
    with pytest.raises(TaskFailed):
        await handle.result(timeout=60)
    assert [to for _, to in await moves_of(box.hold, handle)] == ["pending", "running", "failed"]


# Rounds and verifiers


async def test_the_last_rejection_in_review_undoes_the_steps_of_every_round(hold: Holdfast, agency: Agency) -> None:
    @hold.task(retry=AT_ONCE)
    async def travel(ctx: Context) -> str:
        await ctx.step("flight", agency.reserve, f"flight {ctx.attempt}", compensate=agency.release)
        await ctx.step("hotel", agency.reserve, "hotel", effect="once", compensate=agency.release)
        return f"round {ctx.task.round}"

    @travel.verify
    async def check(ctx: Context, result: str) -> str:
        assert "-" not in "".join(agency.book), "undone with attempts left"
        return f"{result} is not good enough"

    handle = await hold.submit(travel)
    async with hold.worker():
        with pytest.raises(TaskFailed, match="round 3 is not good enough") as failed:
            await handle.result(timeout=60)
    assert agency.book[:4] == ["+flight 1", "+hotel", "+flight 2", "+flight 3"]
    # The hotel was done once, in the first round. Its place is the one it has in the last, behind that flight.
    assert agency.book[4:] == ["-hotel", "-flight 3", "-flight 2", "-flight 1"]
    assert failed.value.type_name == "Rejected"
    task = await handle.task()
    assert (task.state, task.attempts, task.result, task.feedback) == (
        TaskState.FAILED,
        3,
        "round 3",
        "round 3 is not good enough",
    )
    assert (await hold.store.history(handle.id))[-1].reason.startswith("rejected, no attempts left: round 3 is not")


async def test_a_verifiers_steps_cannot_be_undone(box: Sandbox, agency: Agency) -> None:
    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> str:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        return "there"

    @travel.verify
    async def check(ctx: Context, result: str) -> bool:
        await ctx.step("look", agency.reserve, "look", compensate=agency.release)
        return True

    handle = await box.hold.submit(travel)
    with pytest.raises(TaskFailed, match="'look' of a verifier cannot have compensate="):
        await handle.result(timeout=60)
    assert agency.book == ["+flight", "-flight"]


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: Compensation("refund"),  # type: ignore[arg-type]
        lambda: Compensation(print, effect="sometimes"),
        lambda: Compensation(print, reconcile=print),
        lambda: Compensation(print, settle=5),
        lambda: Compensation(print, timeout=-1),
        lambda: Compensation(print, effect="once", settle=-1),
        lambda: Compensation(print, absent_on=(KeyError,)),
    ],
)
def test_a_compensation_that_could_not_be_followed_is_refused_at_once(mistake: Any) -> None:  # noqa: ANN401
    with pytest.raises(InvalidValue):
        mistake()


async def test_what_is_not_a_compensation_is_refused_before_the_step_is_done(box: Sandbox, agency: Agency) -> None:
    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate="release")  # type: ignore[call-overload]

    handle = await box.hold.submit(travel)
    with pytest.raises(TaskFailed, match="give the function that undoes the step"):
        await handle.result(timeout=60)
    assert agency.book == []


# Branches


@pytest.mark.parametrize("way", ["gather", "TaskGroup"])
async def test_steps_of_branches_are_undone_in_the_reverse_order_of_the_journal(
    hold: Holdfast, agency: Agency, way: str
) -> None:
    """The order in which they were begun; the journal decides which of them came first."""

    @hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        async def book(what: str) -> None:
            await ctx.step(what, agency.reserve, what, compensate=agency.release)
            await ctx.step(f"{what} seat", agency.reserve, f"{what} seat", compensate=agency.release)
            if what == "car":
                raise ValueError("no money left")
            await ctx.wait_event("never", key=f"never {what}")

        if way == "gather":
            await asyncio.gather(*(book(what) for what in ("flight", "hotel", "car")))
        else:
            async with asyncio.TaskGroup() as group:
                for what in ("flight", "hotel", "car"):
                    group.create_task(book(what))

    handle = await hold.submit(travel)
    async with hold.worker():
        with pytest.raises(TaskFailed, match="no money left"):
            await handle.result(timeout=60)
    reserved = [line for line in agency.book if line[0] == "+"]
    released = agency.book[len(reserved) :]
    steps = await steps_of(hold, handle)
    by_position = sorted((line[1:] for line in reserved), key=lambda what: steps[what].position, reverse=True)
    assert released == [f"-{what}" for what in by_position]
    assert len(released) == len(reserved) >= 5


async def test_a_step_in_a_loop_is_undone_each_time(box: Sandbox, agency: Agency) -> None:
    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        for number in range(4):
            await ctx.step("night", agency.reserve, f"night {number}", compensate=agency.release)
        raise ValueError("no money left")

    handle = await box.hold.submit(travel)
    with pytest.raises(TaskFailed):
        await handle.result(timeout=60)
    assert agency.book[4:] == ["-night 3", "-night 2", "-night 1", "-night 0"]


async def test_arguments_that_are_not_data_are_those_of_the_code(box: Sandbox) -> None:
    """A client is passed to the step; the journal cannot keep it, the code brings it along again."""
    client = object()
    seen: list[tuple[str, object]] = []

    async def reserve(client: object) -> str:
        return "booked"

    async def release(result: str, client: object) -> None:
        seen.append((result, client))

    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", reserve, client, compensate=release)
        raise ValueError("no money left")

    handle = await box.hold.submit(travel)
    with pytest.raises(TaskFailed):
        await handle.result(timeout=60)
    assert seen == [("booked", client)]


async def test_a_tool_may_bring_its_compensation_along(box: Sandbox) -> None:
    seen: list[str] = []

    class Reserve:
        effect = "once"

        async def __call__(self, what: str) -> str:
            seen.append(f"+{what}")
            return what

        async def compensate(self, result: str, what: str) -> None:
            seen.append(f"-{what} ({result})")

    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", Reserve(), "flight")
        raise ValueError("no money left")

    handle = await box.hold.submit(travel)
    with pytest.raises(TaskFailed):
        await handle.result(timeout=60)
    assert seen == ["+flight", "-flight (flight)"]
    [effect] = (await effects_of(box.hold, handle)).values()
    assert effect.state is EffectState.COMPENSATED
