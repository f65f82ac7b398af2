"""What the journal says of effects: no stray lines, no old errors again, no action on a line that does not fit."""

# ruff: noqa: ARG001 - tools, their probes and their undos all take what the step was called with

from datetime import timedelta
from typing import Any

import pytest

from holdfast import Absent, Context, EffectState, Happened, Holdfast, JournalMismatch, ManualClock
from holdfast.testing import Sandbox
from tests.engine.effects.races.support import AT_ONCE, ONE_TRY, Agency, failed
from tests.engine.effects.support import World, commits_of
from tests.engine.support import ended, steps_of, until

S = EffectState
LONG = 3.0
"""Seconds after which a step that is under way is noted in the journal."""


async def slowly(box: Sandbox, answer: Any) -> Any:  # noqa: ANN401
    """Answer so late that steps under way are noted in the journal meanwhile."""
    await box.clock.sleep(LONG)
    return answer


async def test_asking_the_tool_leaves_no_line_that_passes_for_the_step(box: Sandbox) -> None:
    """It takes long, the task fails and starts over: the step's result of the first round is still its own."""
    hold, agency = box.hold, Agency()

    async def reserve(what: str, effect_id: str) -> str:
        if not agency.ids:
            agency.ids.append(effect_id)
            raise ConnectionResetError("not sent")
        return await agency.reserve(what, effect_id)

    async def was_reserved(effect_id: str, what: str) -> Absent:
        answer: Absent = await slowly(box, Absent())
        return answer

    @hold.task(retry=ONE_TRY)
    async def trip(ctx: Context) -> list[str]:
        booked = await ctx.step(
            "flight", reserve, "flight", effect="once", reconcile=was_reserved, timeout=600, settle=1, retry=AT_ONCE
        )
        return [booked, await ctx.step("pay", agency.pay)]

    handle = await hold.submit(trip)
    await failed(handle)
    assert {*await steps_of(hold, handle)} == {"flight", "pay"}
    agency.declines = False
    await hold.retry(handle)
    assert await ended(handle) == ["flight 2", "paid"]
    assert agency.book == ["+flight"]


async def test_what_the_tool_was_asked_about_at_length_is_undone_and_done_again(box: Sandbox) -> None:
    hold, agency = box.hold, Agency()

    async def reserve(what: str, effect_id: str) -> str:
        await agency.reserve(what, effect_id)
        raise ConnectionResetError("the answer was lost")

    async def was_reserved(effect_id: str, what: str) -> Happened:
        answer: Happened = await slowly(box, Happened(f"{what} {len(agency.ids)}"))
        return answer

    @hold.task(retry=ONE_TRY)
    async def trip(ctx: Context) -> list[str]:
        booked = await ctx.step(
            "flight",
            reserve,
            "flight",
            effect="once",
            reconcile=was_reserved,
            compensate=agency.release,
            timeout=600,
            settle=1,
        )
        return [booked, await ctx.step("pay", agency.pay)]

    handle = await hold.submit(trip)
    await failed(handle)
    assert agency.book == ["+flight", "-flight"]
    agency.declines = False
    await hold.resume(handle)
    assert await ended(handle) == ["flight 2", "paid"]
    assert agency.book == ["+flight", "-flight", "+flight"]
    assert len(set(agency.ids)) == 2


async def test_nothing_more_is_done_on_a_journal_that_misfits_even_if_the_code_swallows_that(
    box: Sandbox, world: World
) -> None:
    hold, amount, swallowed = box.hold, [1], list[Exception]()

    @hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> None:
        try:
            await ctx.step("first", world.pay, amount[0], effect="once")
        except Exception as error:  # noqa: BLE001 - that is the mistake
            swallowed.append(error)
        await ctx.wait_event("on")
        await ctx.step("second", world.pay, 100, effect="once")

    handle = await hold.submit(work)
    await until(lambda: world.calls)
    await box.idle()
    amount[0] = 2
    await hold.emit("on", 1)
    assert "JournalMismatch" in str(await failed(handle))
    assert [type(error) for error in swallowed] == [JournalMismatch]
    assert world.amounts == [1]


async def test_a_deadline_that_the_stores_time_jumped_over_ends_the_task(world: World) -> None:
    """Its alarm counts on as if nothing had happened; nothing is armed again and again until it rings."""
    clock = ManualClock()

    async with Holdfast("memory://", clock=clock) as hold:

        async def jump() -> None:
            """As a store does that learns that its server's clock was set forward."""
            time = hold.services.time
            time._known = (time.now() + timedelta(seconds=60), hold.services.clock.boot())

        @hold.task(deadline=30)
        async def work(ctx: Context) -> str:
            await ctx.step("jump", jump)
            return await ctx.step("pay", world.pay, 5, effect="once", timeout=1)

        sent = commits_of(hold)
        handle = await hold.submit(work)
        async with hold.worker():
            assert "deadline" in str(await failed(handle))
        assert await hold.store.effects(task_id=handle.id) == []
    assert world.calls == []
    assert len(sent) < 5


class Writer:
    """A ready-made tool that brings its terms along."""

    effect = "once"

    def __init__(self, world: World) -> None:
        self._world = world

    async def __call__(self, amount: int, effect_id: str) -> str:
        return await self._world.pay(amount, effect_id)

    async def reconcile(self, effect_id: str, amount: int) -> object:
        return await self._world.was_paid(effect_id, amount)


@pytest.mark.parametrize("effect", ["idempotent", "pure", "once", None])
async def test_a_tools_own_reconcile_is_for_once_alone(box: Sandbox, world: World, effect: str | None) -> None:
    """A step that declares itself idempotent need not remove the tool's reconcile first."""
    hold = box.hold

    @hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> str:
        return await ctx.step("write", Writer(world), 5, effect=effect)

    handle = await hold.submit(work)
    assert await ended(handle) == "paid 5"
    expected = 1 if effect in {"once", None} else 0
    assert len(await hold.store.effects(task_id=handle.id)) == expected
