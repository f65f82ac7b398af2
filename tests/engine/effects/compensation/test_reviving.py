"""A task that comes back after its steps were undone: it does them again, as effects of their own."""

from datetime import timedelta

import pytest

from holdfast import Absent, Ask, Conflict, Context, EffectState, Holdfast, Retry, StepFailed, TaskFailed, TaskState
from holdfast.testing import Sandbox, sandbox
from tests.engine.effects.compensation.support import ONE_TRY, Agency, doubts_of, states_of
from tests.engine.steps.approval.support import all_approvals, question_of
from tests.engine.support import steps_of

EFFECTS = pytest.mark.parametrize("effect", ["once", "idempotent"])
REVIVALS = pytest.mark.parametrize("revive", ["resume", "retry"])


async def bring_back(hold: Holdfast, handle: object, revive: str) -> None:
    await getattr(hold, revive)(handle)


@EFFECTS
@REVIVALS
async def test_steps_that_were_undone_are_done_again_under_new_ids(
    hold: Holdfast, agency: Agency, effect: str, revive: str
) -> None:
    rich = False

    @hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> str:
        await ctx.step("flight", agency.reserve, "flight", effect=effect, compensate=agency.release)
        await ctx.step("hotel", agency.reserve, "hotel", effect=effect, compensate=agency.release)
        if not rich:
            raise ValueError("no money left")
        return "there"

    handle = await hold.submit(travel)
    async with hold.worker():
        with pytest.raises(TaskFailed):
            await handle.result(timeout=60)
        rich = True
        await bring_back(hold, handle, revive)
        assert await handle.result(timeout=60) == "there"
    assert agency.book == ["+flight", "+hotel", "-hotel", "-flight", "+flight", "+hotel"]
    assert len(agency.ids_of("flight")) == 2
    assert len(agency.ids_of("hotel")) == 2
    steps = await steps_of(hold, handle)
    assert [steps[key].undone_at for key in ("flight", "hotel")] == [None, None]
    assert steps["flight"].effect_id == agency.ids_of("flight")[-1]
    assert not (await handle.task()).cancel_requested


@EFFECTS
@REVIVALS
async def test_what_is_done_again_can_be_undone_again(box: Sandbox, agency: Agency, effect: str, revive: str) -> None:
    hold = box.hold

    @hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", effect=effect, compensate=agency.release)
        await ctx.step("hotel", agency.reserve, "hotel", compensate=agency.release)
        raise ValueError("no money left")

    handle = await hold.submit(travel)
    with pytest.raises(TaskFailed):
        await handle.result(timeout=60)
    for _ in range(2):
        await box.advance(1)
        await bring_back(hold, handle, revive)
        with pytest.raises(TaskFailed, match="no money left"):
            await handle.result(timeout=60)
    assert agency.book == ["+flight", "+hotel", "-hotel", "-flight"] * 3
    assert len({*agency.reserved, *agency.released}) == 12
    assert (await hold.store.history(handle.id))[-1].reason.endswith("(2 steps undone)")
    assert not (await handle.task()).must_undo


async def test_only_what_was_undone_is_done_again(box: Sandbox, agency: Agency) -> None:
    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> str:
        await ctx.step("insurance", agency.reserve, "insurance")
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        await ctx.step("visa", agency.reserve, "visa", effect="once")
        if ctx.attempt == 1:
            raise ValueError("no money left")
        return "there"

    handle = await box.hold.submit(travel)
    with pytest.raises(TaskFailed):
        await handle.result(timeout=60)
    await box.hold.resume(handle)
    assert await handle.result(timeout=60) == "there"
    assert agency.book == ["+insurance", "+flight", "+visa", "-flight", "+flight"]


@pytest.mark.parametrize("effect", ["once", "idempotent"])
async def test_the_new_id_is_kept_through_retries_and_crashes(effect: str) -> None:
    """The second time, the step fails a few times, waits off its worker in between, and its worker dies."""
    hold = Holdfast("memory://")
    ids: list[str] = []
    second_time = False

    async def reserve(what: str, effect_id: str) -> str:
        ids.append(effect_id)
        if second_time and len(ids) < 5:
            raise ConnectionRefusedError("try again")
        return what

    async def was_reserved(effect_id: str, what: str) -> Absent:  # noqa: ARG001 - what it is given
        return Absent()

    @hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> str:
        patient = Retry(max_attempts=9, initial=60, jitter="none")
        reconcile = was_reserved if effect == "once" else None
        await ctx.step(
            *("flight", reserve, "flight"), effect=effect, reconcile=reconcile, compensate=print, retry=patient
        )
        if not second_time:
            raise ValueError("no money left")
        return "there"

    async with sandbox(hold) as box:
        handle = await hold.submit(travel)
        with pytest.raises(TaskFailed):
            await handle.result(timeout=5000)
        second_time = True
        box.crash("flight", when="before_effect")
        await hold.resume(handle)
        assert await handle.result(timeout=5000) == "there"
    assert len(ids) == 5
    assert len({*ids[1:]}) == 1
    assert ids[0] != ids[1]


@pytest.mark.parametrize("effect", ["once", "idempotent"])
async def test_what_is_done_again_needs_an_approval_again(hold: Holdfast, agency: Agency, effect: str) -> None:
    """An approval is for one effect: what is done once more is another one."""

    @hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> str:
        await ctx.step(
            *("flight", agency.reserve, "flight"),
            effect=effect,
            compensate=agency.release,
            approval=Ask("A flight?"),
        )
        if ctx.attempt == 1:
            raise ValueError("no money left")
        return "there"

    handle = await hold.submit(travel)
    async with hold.worker():
        first = await question_of(hold, handle)
        await hold.approve(first.id, by="anna")
        with pytest.raises(TaskFailed, match="no money left"):
            await handle.result(timeout=60)
        await hold.resume(handle)
        second = await question_of(hold, handle)
        assert second.id != first.id
        assert agency.book == ["+flight", "-flight"]
        await hold.approve(second.id, by="anna")
        assert await handle.result(timeout=60) == "there"
    assert agency.book == ["+flight", "-flight", "+flight"]
    assert [one.consumed_by for one in await all_approvals(hold, handle)] == agency.ids_of("flight")


async def test_a_step_whose_undo_was_given_up_still_counts_as_done(box: Sandbox, agency: Agency) -> None:
    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> str:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        await ctx.step("hotel", agency.reserve, "hotel", compensate=agency.release)
        if ctx.attempt == 1:
            raise ValueError("no money left")
        return "there"

    agency.broken = {"flight"}
    handle = await box.hold.submit(travel)
    [doubt] = await doubts_of(box.hold, handle, "flight")
    await box.hold.resolve(doubt, "abandon", by="anna", note="we keep it")
    with pytest.raises(TaskFailed):
        await handle.result(timeout=60)
    await box.hold.resume(handle)
    assert await handle.result(timeout=60) == "there"
    assert agency.book == ["+flight", "+hotel", "-hotel", "+hotel"]
    assert (await states_of(box.hold, handle))["flight"] is EffectState.ABANDONED


@pytest.mark.parametrize("effect", ["once", "idempotent"])
async def test_a_step_that_was_undone_by_hand_is_done_again(box: Sandbox, agency: Agency, effect: str) -> None:
    """The task waited for that decision without a worker."""

    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> str:
        await ctx.step("flight", agency.reserve, "flight", effect=effect, compensate=agency.release)
        if ctx.attempt == 1:
            raise ValueError("no money left")
        return "there"

    agency.broken = {"flight"}
    handle = await box.hold.submit(travel)
    [doubt] = await doubts_of(box.hold, handle, "flight")
    await box.idle()
    assert (await handle.task()).state is TaskState.WAITING
    await box.hold.resolve(doubt, "undone", by="anna", note="by telephone")
    with pytest.raises(TaskFailed):
        await handle.result(timeout=60)
    assert (await steps_of(box.hold, handle))["flight"].undone_at is not None
    await box.hold.resume(handle)
    assert await handle.result(timeout=60) == "there"
    assert agency.book == ["+flight", "+flight"]
    assert len(agency.ids_of("flight")) == 2


async def test_a_failure_that_was_handled_before_the_undo_is_not_tried_again_by_a_resume(
    box: Sandbox, agency: Agency
) -> None:
    tried = 0

    async def full() -> None:
        nonlocal tried
        tried += 1
        raise ConnectionError("no room left")

    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> str:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        try:
            await ctx.step("hotel", full)
        except StepFailed:
            await ctx.step("tent", agency.reserve, "tent", compensate=agency.release)
        if ctx.attempt == 1:
            raise ValueError("no money left")
        return "there"

    handle = await box.hold.submit(travel)
    with pytest.raises(TaskFailed):
        await handle.result(timeout=60)
    await box.hold.resume(handle)
    assert await handle.result(timeout=60) == "there"
    assert tried == 1
    assert agency.book == ["+flight", "+tent", "-tent", "-flight", "+flight", "+tent"]


async def test_a_retry_runs_through_more_than_one_undone_round(box: Sandbox, agency: Agency) -> None:
    @box.hold.task(retry=ONE_TRY)
    async def travel(ctx: Context) -> str:
        await ctx.step("flight", agency.reserve, "flight", effect="once", compensate=agency.release)
        if ctx.task.round < 4:
            raise ValueError(f"round {ctx.task.round}")
        return "there"

    handle = await box.hold.submit(travel)
    for number in range(1, 4):
        with pytest.raises(TaskFailed, match=f"round {number}"):
            await handle.result(timeout=60)
        await box.hold.retry(handle)
    assert await handle.result(timeout=60) == "there"
    assert agency.book == ["+flight", "-flight"] * 3 + ["+flight"]
    assert len(agency.ids_of("flight")) == 4
    assert box.elapsed < timedelta(minutes=10)


async def test_a_cancelled_task_stays_cancelled(box: Sandbox, agency: Agency) -> None:
    @box.hold.task
    async def travel(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        await ctx.wait_event("never")

    handle = await box.hold.submit(travel)
    await box.idle()
    await handle.cancel("ill")
    await box.idle()
    assert (await handle.task()).state is TaskState.CANCELLED
    with pytest.raises(Conflict, match="final"):
        await box.hold.resume(handle)
    assert agency.book == ["+flight", "-flight"]
