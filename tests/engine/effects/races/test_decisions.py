"""People decide at awkward moments, and about calls that are hard to show."""

# ruff: noqa: ARG001 - tools, their probes and their undos all take what the step was called with

import asyncio
import enum
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any

import pytest

from holdfast import Context, EffectGivenUp, EffectState, Holdfast, TaskCancelled, TaskState
from holdfast.model.commit import Commit, Verdict
from holdfast.model.limits import DEFAULT_LIMITS
from holdfast.model.operations import OpenApproval
from holdfast.testing import Sandbox
from tests.engine.effects.compensation.support import doubts_of
from tests.engine.effects.races.support import ONE_TRY, Agency, failed
from tests.engine.effects.support import Send, World, open_doubt, stand_between
from tests.engine.support import ended, passes, reaches, until

S = EffectState


async def test_a_decision_between_the_load_of_an_attempt_and_its_question_is_heard(
    quick: Holdfast, world: World
) -> None:
    """Otherwise it would ask once more, about an effect that is no longer in doubt, and no answer would be possible."""
    attempts: list[int] = []
    go_on = asyncio.Event()

    @quick.task
    async def work(ctx: Context) -> str:
        attempts.append(ctx.attempt)
        if len(attempts) > 1:
            await go_on.wait()  # code between the steps
        other = asyncio.create_task(_event(ctx, "on"))
        paid = await ctx.step("pay", world.pay_then_lose_the_answer, 5, effect="once", settle=0)
        await other
        return paid

    async with quick.worker():
        handle = await quick.submit(work)
        doubt = await open_doubt(quick, handle)
        await reaches(handle, TaskState.WAITING)
        await quick.emit("on", 1)
        await until(lambda: len(attempts) == 2)
        await quick.resolve(doubt, "happened", result="it did", by="anna")
        go_on.set()
        assert await ended(handle) == "it did"
    assert len(world.calls) == 1


async def _event(ctx: Context, name: str) -> None:
    await ctx.wait_event(name)


async def test_a_wish_to_undo_between_the_look_for_a_question_and_the_next_one_is_heard(
    quick: Holdfast, world: World
) -> None:
    """An undo that fails may become a question, so the store alone does not refuse another one."""
    released: list[Any] = []

    async def release(paid: object, amount: int) -> None:
        released.append((paid, amount))

    attempts: list[int] = []
    go_on = asyncio.Event()

    @quick.task(retry=ONE_TRY)
    async def work(ctx: Context) -> str:
        attempts.append(ctx.attempt)
        if len(attempts) == 2:
            await go_on.wait()
        other = asyncio.create_task(_event(ctx, "on"))
        paid = await ctx.step("pay", world.pay_then_lose_the_answer, 5, effect="once", settle=0, compensate=release)
        await other
        return paid

    async with quick.worker():
        handle = await quick.submit(work)
        doubt = await open_doubt(quick, handle)
        await reaches(handle, TaskState.WAITING)
        await quick.emit("on", 1)
        await until(lambda: len(attempts) == 2)
        await quick.resolve(doubt, "compensate", by="anna")
        go_on.set()
        assert "was undone" in str(await failed(handle))
    assert released == [(None, 5)]
    assert await quick.doubts() == []


async def test_a_decision_just_before_a_person_is_asked_counts(quick: Holdfast, world: World) -> None:
    """It is listed as a doubt already, and the question about it is on its way."""

    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay_then_lose_the_answer, 5, effect="once", settle=0)

    decided: list[str] = []

    async def decide(commits: Sequence[Commit], send: Send) -> list[Verdict]:
        operations = [operation for commit in commits for operation in commit.operations]
        if any(isinstance(operation, OpenApproval) for operation in operations) and not decided:
            [doubt] = await quick.doubts()
            decided.append(doubt.effect.effect_id)
            await quick.resolve(doubt, "happened", result="it did", by="anna")
        return await send(commits)

    stand_between(quick, decide)
    async with quick.worker():
        handle = await quick.submit(work)
        assert await ended(handle) == "it did"
    assert decided
    assert len(world.calls) == 1


class Colour(enum.Enum):
    RED = 1


@dataclass
class Parcel:
    weight: int


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


DEEP = DEFAULT_LIMITS.max_depth - 2
"""As deep as an argument may be: it is stored two levels deeper."""

ODD = {
    "dataclass": Parcel(1),
    "decimal": Decimal("1.0"),
    "moment": datetime(2026, 1, 1, tzinfo=UTC),
    "bytes": b"\x00",
    "set": {1, 2},
    "tuple": (1, 2),
    "numbers as keys": {1: 2},
    "enum": Colour.RED,
    "not a number": float("nan"),
    "huge": 10**30,
    "control": "\x00",
    "surrogate": "\ud800",
    "path": PurePosixPath("/x"),
    "deep": nested(DEEP),
    "long": "x" * (DEFAULT_LIMITS.max_bytes - 40),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
async def test_whatever_can_be_armed_can_be_asked_about(quick: Holdfast, odd: object) -> None:
    """The question holds the arguments and more; what is too much for it is left out, and the effect still has it."""

    async def send(what: object) -> str:
        raise ConnectionResetError("the answer was lost")

    @quick.task(retry=ONE_TRY)
    async def work(ctx: Context) -> str:
        return await ctx.step("send", send, odd, effect="once", settle=0)

    async with quick.worker():
        handle = await quick.submit(work)
        doubt = await open_doubt(quick, handle)
        assert len(doubt.decisions) == 3
        await quick.resolve(doubt, "happened", result="sent", by="anna")
        assert await ended(handle) == "sent"


async def test_what_a_person_wanted_undone_can_be_done_again_after_a_resume(box: Sandbox) -> None:
    hold, agency = box.hold, Agency()

    async def reserve(what: str, effect_id: str) -> str:
        booking = await agency.reserve(what, effect_id)
        if len(agency.ids) == 1:
            raise ConnectionResetError("the answer was lost")
        return booking

    @hold.task(retry=ONE_TRY)
    async def trip(ctx: Context) -> str:
        return await ctx.step("flight", reserve, "flight", effect="once", compensate=agency.release, settle=1)

    handle = await hold.submit(trip)
    [doubt] = await doubts_of(hold, handle, "flight")
    await hold.resolve(doubt, "compensate", by="anna")
    error = await failed(handle)
    assert EffectGivenUp.__name__ in str(error)
    assert agency.book == ["+flight", "-flight"]
    await hold.resume(handle)
    assert await ended(handle) == "flight 2"
    assert agency.book == ["+flight", "-flight", "+flight"]
    assert len(set(agency.ids)) == 2, "what is done again is another effect"
    assert await hold.doubts() == []


async def test_what_a_person_undid_while_no_worker_ran_it_is_done_again(quick: Holdfast) -> None:
    agency = Agency()
    agency.broken.add("flight")

    @quick.task(retry=ONE_TRY)
    async def trip(ctx: Context) -> list[str]:
        booked = await ctx.step("flight", agency.reserve, "flight", effect="once", compensate=agency.release_in_one_try)
        return [booked, await ctx.step("pay", agency.pay)]

    handle = await quick.submit(trip)
    async with quick.worker():
        [doubt] = await doubts_of(quick, handle, "flight")
        await reaches(handle, TaskState.WAITING)
    await quick.resolve(doubt, "undone", by="anna")
    async with quick.worker():
        assert "declined" in str(await failed(handle))
        agency.declines = False
        await quick.resume(handle)
        assert await ended(handle) == ["flight 2", "paid"]
    assert agency.book == ["+flight", "+flight"]
    assert len(set(agency.ids)) == 2


async def test_a_wish_to_undo_is_carried_out_by_code_that_learned_how_meanwhile(
    quick: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step was armed by code without a ``compensate``; it is found in doubt, and undone, by code that has one."""
    agency, terms = Agency(), dict[str, Any]()
    monkeypatch.setattr(
        "holdfast.engine.steps.suspension.HOLD_SLOT", 0.0
    )  # it waits off its worker until it has settled

    async def send(what: str) -> None:
        raise ConnectionResetError("the answer was lost")

    @quick.task(retry=ONE_TRY)
    async def work(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        await ctx.step("letter", send, "letter", effect="once", settle=1.5, **terms)

    async with quick.worker():
        handle = await quick.submit(work)
        await reaches(handle, TaskState.WAITING)
        terms["compensate"] = agency.release
        await handle.cancel("ill")
        [doubt] = await doubts_of(quick, handle, "letter")
        await quick.resolve(doubt, "compensate", by="anna")
        with pytest.raises(TaskCancelled):
            await ended(handle)
    assert agency.book == ["+flight", "-letter", "-flight"]
    assert await quick.doubts() == []


async def test_an_open_question_keeps_its_answers_when_the_code_learns_another(quick: Holdfast) -> None:
    """Only offered decisions are possible, and every offered decision is carried out."""
    agency, terms = Agency(), dict[str, Any]()

    async def send(what: str) -> None:
        raise ConnectionResetError("the answer was lost")

    @quick.task(retry=ONE_TRY)
    async def work(ctx: Context) -> None:
        await ctx.step("flight", agency.reserve, "flight", compensate=agency.release)
        await ctx.step("letter", send, "letter", effect="once", settle=0, **terms)

    async with quick.worker():
        handle = await quick.submit(work)
        [doubt] = await doubts_of(quick, handle, "letter")
        await reaches(handle, TaskState.WAITING)
        terms["compensate"] = agency.release
        await handle.cancel("ill")
        await passes(quick, handle, TaskState.RUNNING, times=2)
        [doubt] = await doubts_of(quick, handle, "letter")
        await quick.resolve(doubt, "happened", result=None, by="anna")
        with pytest.raises(TaskCancelled):
            await ended(handle)
    assert agency.book[0] == "+flight"
    assert agency.book[-1] == "-flight"
    assert await quick.doubts() == []
