"""Only a proof that nothing happened lets a call be made again unasked. Whatever else goes wrong is a doubt."""

import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import (
    Absent,
    Context,
    EffectState,
    Happened,
    Holdfast,
    NotHappened,
    Retry,
    StepFailed,
    StepState,
    TaskFailed,
)
from holdfast.model.retry import ErrorKind
from holdfast.testing import sandbox
from tests.engine.effects.support import World, effect_of, never_paid, open_doubt, stands
from tests.engine.effects.till import Till, closed_port
from tests.engine.support import ended, steps_of

S = EffectState
Kinds = tuple[ErrorKind, ...] | ErrorKind
THRICE = Retry(max_attempts=3, initial=0.0)


class Declined(Exception):
    """An error whose author knows that it comes before anything is done."""


class CardDeclined(Declined):
    pass


class Refused(NotHappened):
    pass


def named(name: str, base: type[Exception] = Exception) -> type[Exception]:
    """Make a class as another library has it."""
    module, _, own = name.rpartition(".")
    return type(own, (base,), {"__module__": module})


PROOFS: list[tuple[BaseException, Kinds]] = [
    (NotHappened("it said no"), ()),
    (Refused("it said no"), ()),
    (ConnectionRefusedError("closed"), ()),
    (socket.gaierror("no such host"), ()),
    (urllib.error.URLError(ConnectionRefusedError("closed")), ()),
    (named("httpx.ConnectError")("closed"), ()),
    (named("httpx.ConnectTimeout")("closed"), ()),
    (named("lib.Special", named("httpx.ConnectError"))("closed"), ()),
    (Declined("no money"), (Declined,)),
    (CardDeclined("no money"), (Declined,)),
    (CardDeclined("no money"), Declined),
    (Declined("no money"), f"{Declined.__module__}.Declined"),
    (CardDeclined("no money"), (ValueError, f"{Declined.__module__}.Declined")),
    (ValueError("no"), "ValueError"),
]
DOUBTS: list[tuple[BaseException, Kinds]] = [
    (TimeoutError("slow"), ()),
    (ConnectionResetError("reset"), ()),
    (ConnectionAbortedError("aborted"), ()),
    (BrokenPipeError("broken"), ()),
    (ConnectionError("some connection"), ()),
    (OSError("disk"), ()),
    (ValueError("wrong"), ()),
    (ZeroDivisionError("oops"), ()),
    (named("httpx.ReadTimeout")("slow"), ()),
    (named("other.ConnectError")("another library's"), ()),
    (Declined("not declared"), ()),
    (Declined("not declared"), (CardDeclined,)),
    (urllib.error.URLError(TimeoutError("slow")), ()),
    (ExceptionGroup("many", [NotHappened("one"), ValueError("another")]), ()),
]


def ids(case: object) -> str | None:
    return type(case).__name__ if isinstance(case, BaseException) else ""


def raised_from(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("blocking", [False, True], ids=["async", "blocking"])
@pytest.mark.parametrize(("error", "absent_on"), PROOFS, ids=ids)
async def test_a_proof_is_a_failure_and_tried_again(
    quick: Holdfast, world: World, *, error: BaseException, absent_on: Kinds, blocking: bool
) -> None:
    """By the step's policy, under the same id, without a question to a person."""
    world.raises = [error, None]
    pay: Callable[..., Any] = world.pay_blocking if blocking else world.pay

    @quick.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", pay, 5, effect="once", absent_on=absent_on, retry=THRICE, reconcile=world.was_paid)

    handle = await quick.submit(work)
    async with quick.worker():
        assert await ended(handle) == "paid 5"
    effect = await effect_of(quick, handle)
    assert effect.state is S.DONE
    assert effect.attempt == 2
    assert world.calls == [effect.effect_id] * 2
    assert world.asked == []


async def test_a_redirect_that_leads_nowhere_proves_nothing(quick: Holdfast) -> None:
    """The server charges and sends the customer to a place where nothing listens: urllib goes there by itself."""
    place = f"http://127.0.0.1:{closed_port()}/receipt"
    with Till(f"HTTP/1.1 303 So\r\nContent-Length: 0\r\nConnection: close\r\nLocation: {place}\r\n\r\n") as till:

        def charge(amount: int) -> str:
            with urllib.request.urlopen(till.url, data=str(amount).encode(), timeout=60) as response:  # noqa: S310 - the till's
                return str(response.read())

        @quick.task(retry=Retry(max_attempts=1))
        async def work(ctx: Context) -> str:
            return await ctx.step("charge", charge, 5, effect="once", retry=THRICE, settle=0)

        handle = await quick.submit(work)
        async with quick.worker():
            effect = (await open_doubt(quick, handle)).effect
    assert (effect.state, effect.attempt, till.charges) == (S.NEEDS_HUMAN, 1, 1)


async def test_what_is_proven_is_written_down(hold: Holdfast, world: World) -> None:
    """On every kind of store."""
    world.raises = [NotHappened("it said no")]

    @hold.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay, 5, effect="once")

    handle = await hold.submit(work)
    async with hold.worker():
        with pytest.raises(TaskFailed, match="NotHappened: it said no"):
            await ended(handle)
        effect = await effect_of(hold, handle)
        assert (effect.state, effect.note) == (S.FAILED, "NotHappened: it said no")
        assert await hold.doubts() == []
        assert (await steps_of(hold, handle))["pay"].state is StepState.FAILED
        await hold.resume(handle)
        assert await ended(handle) == "paid 5"
    assert world.calls == [effect.effect_id] * 2


async def test_a_proof_counts_as_a_try(app: Holdfast, world: World) -> None:
    """The schedule is kept, through waits that give the worker back."""
    world.raises = [NotHappened(str(number)) for number in range(3)]

    @app.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        retry = Retry(max_attempts=3, initial=10.0, jitter="none")
        return await ctx.step("pay", world.pay, 5, effect="once", retry=retry)

    async with sandbox(app) as box:
        handle = await app.submit(work)
        with pytest.raises(TaskFailed, match="NotHappened: 2") as failed:
            await handle.result()
        assert [one.message for one in failed.value.failure.tries] == ["2"]
        step = (await steps_of(app, handle))["pay"]
        assert box.elapsed.total_seconds() >= 30
        assert step.attempts == 3
    assert len(world.calls) == 3


@pytest.mark.parametrize("blocking", [False, True], ids=["async", "blocking"])
@pytest.mark.parametrize(("error", "absent_on"), DOUBTS, ids=ids)
async def test_anything_else_is_a_doubt(
    quick: Holdfast, world: World, *, error: BaseException, absent_on: Kinds, blocking: bool
) -> None:
    """However often the step may be tried: it is not, before a person or reconcile says that it did not happen."""
    world.raises = [error]
    pay: Callable[..., Any] = world.pay_blocking if blocking else world.pay

    @quick.task(retry=THRICE)
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", pay, 5, effect="once", absent_on=absent_on, retry=THRICE, settle=0)

    handle = await quick.submit(work)
    async with quick.worker():
        effect = (await open_doubt(quick, handle)).effect
    assert effect.state is S.NEEDS_HUMAN
    assert effect.note is not None
    assert effect.note.startswith(f"{type(error).__name__}: {error}")
    assert world.calls == [effect.effect_id]


async def test_a_cause_proves_nothing(quick: Holdfast, world: World) -> None:
    """It may be that of an earlier try inside the same call."""
    world.raises = [raised_from(ValueError("the second try failed"), ConnectionRefusedError("the first try"))]

    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay, 5, effect="once", settle=0, retry=THRICE)

    handle = await quick.submit(work)
    async with quick.worker():
        await open_doubt(quick, handle)
    assert len(world.calls) == 1


async def test_a_result_that_cannot_be_stored_is_a_doubt(quick: Holdfast) -> None:
    """The call was made, and did what it does. What its author says about errors is about those of the call."""
    calls: list[int] = []

    async def pay(amount: int) -> Any:  # noqa: ANN401
        calls.append(amount)
        if len(calls) == 1:
            raise Declined("the first time")
        return object()

    async def was_paid(effect_id: str, amount: int) -> Happened:  # noqa: ARG001
        return Happened(f"paid {amount}")

    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step(
            "pay", pay, 5, effect="once", settle=0, reconcile=was_paid, retry=THRICE, absent_on=(Declined, ValueError)
        )

    handle = await quick.submit(work)
    async with quick.worker():
        assert await ended(handle) == "paid 5"
    assert calls == [5, 5]
    note = (await effect_of(quick, handle)).note
    assert note is not None
    assert "CodecError" in note


@pytest.mark.parametrize("blocking", [False, True], ids=["async", "blocking"])
async def test_a_call_that_takes_too_long_is_a_doubt(app: Holdfast, world: World, blocking: bool) -> None:
    """At its timeout, and not before."""
    hang: Callable[..., Any] = world.hang_blocking if blocking else world.hang

    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", hang, 5, effect="once", timeout=60, settle=5, retry=THRICE)

    async with sandbox(app) as box:
        with box.frozen():
            handle = await app.submit(work)
            await box.advance(59)
            assert (await effect_of(app, handle)).state is S.ARMED
            await box.advance(2)
            effect = await stands(app, handle, S.IN_DOUBT)
            assert effect.note is not None
            assert "not over within its timeout of 60 s" in effect.note
            assert effect.settle_at is not None
            assert (effect.settle_at - box.clock.now()).total_seconds() == pytest.approx(4, abs=0.01)
            await box.advance(5)
            effect = (await open_doubt(app, handle)).effect
        world.release()
    assert effect.state is S.NEEDS_HUMAN
    assert len(world.calls) == 1


@pytest.mark.parametrize("before", [[], [TimeoutError("of its own")]], ids=["first try", "second try"])
async def test_our_own_timeout_is_not_a_proof_whatever_its_author_says_of_timeouts(
    app: Holdfast, world: World, before: list[BaseException]
) -> None:
    """He knows about those that his function raises; this one only says that the wait is over."""
    world.raises = [*before]

    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step(
            "pay", world.hang, 5, effect="once", timeout=60, retry=THRICE, absent_on=(TimeoutError, Exception)
        )

    async with sandbox(app):
        handle = await app.submit(work)
        doubt = await open_doubt(app, handle)
    assert doubt.effect.state is S.NEEDS_HUMAN
    assert len(world.calls) == len(before) + 1


async def test_a_call_without_a_timeout_has_one_all_the_same(app: Holdfast, world: World) -> None:
    """Without an end, "it did not happen" could never be certain."""

    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.hang, 5, effect="once", reconcile=world.was_paid)

    async with sandbox(app) as box:
        assert await (await app.submit(work)).result() == "paid 5"
        assert box.elapsed.total_seconds() == pytest.approx(305, abs=0.01)


async def test_a_call_that_catches_its_timeout_has_a_result(app: Holdfast, world: World) -> None:
    """It returned: whatever it says is true."""

    async def stubborn(amount: int, effect_id: str) -> str:
        try:
            return await world.hang(amount, effect_id)
        except BaseException:  # noqa: BLE001
            return "paid at the last moment"

    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", stubborn, 5, effect="once", timeout=60)

    async with sandbox(app):
        handle = await app.submit(work)
        assert await handle.result() == "paid at the last moment"
        assert (await effect_of(app, handle)).state is S.DONE


# What did not happen is tried again


@pytest.mark.parametrize("settle", [0, 1, 100], ids=["at once", "in the slot", "suspended"])
@pytest.mark.parametrize("blocking", [False, True], ids=["async", "blocking"])
async def test_an_error_that_turns_out_to_be_nothing_is_a_try_of_the_policy(
    app: Holdfast, world: World, settle: float, blocking: bool
) -> None:
    """Three tries, whether the task waited on its worker or was taken off it in between."""
    world.raises = [ConnectionResetError(str(number)) for number in range(10)]
    pay: Callable[..., Any] = world.pay_blocking if blocking else world.pay

    @app.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        with pytest.raises(StepFailed, match=r"after 3 tries: ConnectionResetError: 2") as failed:
            await ctx.step("pay", pay, 5, effect="once", settle=settle, reconcile=world.was_paid, retry=THRICE)
        return ", ".join(one.message for one in failed.value.failure.tries)

    async with sandbox(app):
        handle = await app.submit(work)
        assert await handle.result() == "0, 1, 2"
        effect = await effect_of(app, handle)
        assert (await steps_of(app, handle))["pay"].attempts == 3
        assert await app.doubts() == []
    assert effect.state is S.INTENDED
    assert world.calls == world.asked == [effect.effect_id] * 3


@pytest.mark.parametrize("settle", [0, 1, 100], ids=["at once", "in the slot", "suspended"])
async def test_an_error_that_turns_out_to_be_nothing_is_an_attempt_of_the_task(
    app: Holdfast, world: World, settle: float
) -> None:
    world.raises = [ConnectionResetError(str(number)) for number in range(10)]

    @app.task(retry=THRICE)
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay, 5, effect="once", settle=settle, reconcile=world.was_paid)

    async with sandbox(app):
        handle = await app.submit(work)
        with pytest.raises(TaskFailed, match="ConnectionResetError: 2") as failed:
            await handle.result()
        assert [one.message for one in failed.value.failure.tries] == ["0", "1", "2"]
    assert len(world.calls) == 3
    assert len(set(world.calls)) == 1


@pytest.mark.parametrize("settle", [0, 100], ids=["in the slot", "suspended"])
async def test_the_next_try_may_succeed(app: Holdfast, world: World, settle: float) -> None:
    world.raises = [ConnectionResetError("first"), ConnectionRefusedError("second"), TimeoutError("third")]

    @app.task
    async def work(ctx: Context) -> str:
        retry = Retry(max_attempts=4, initial=10.0)
        return await ctx.step("pay", world.pay, 5, effect="once", settle=settle, reconcile=world.was_paid, retry=retry)

    async with sandbox(app):
        handle = await app.submit(work)
        assert await handle.result() == "paid 5"
        effect = await effect_of(app, handle)
    assert world.calls == [effect.effect_id] * 4
    assert world.happened == [effect.effect_id]


async def test_a_policy_that_gives_up_on_it_is_followed(app: Holdfast, world: World) -> None:
    world.raises = [ConnectionResetError("no more")]

    @app.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        retry = Retry(max_attempts=9, give_up_on=(ConnectionResetError,))
        return await ctx.step("pay", world.pay, 5, effect="once", settle=100, reconcile=never_paid, retry=retry)

    async with sandbox(app):
        with pytest.raises(TaskFailed, match="ConnectionResetError: no more"):
            await (await app.submit(work)).result()
    assert len(world.calls) == 1


async def test_an_answer_of_the_tool_is_believed_over_the_error(app: Holdfast, world: World) -> None:
    """It happened: there is nothing to retry, whatever was raised."""

    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step(
            "pay", world.pay_then_lose_the_answer, 5, effect="once", reconcile=world.was_paid, retry=THRICE
        )

    async with sandbox(app):
        handle = await app.submit(work)
        assert await handle.result() == "paid 5"
        assert (await effect_of(app, handle)).state is S.DONE
        step = (await steps_of(app, handle))["pay"]
        assert (step.state, step.error) == (StepState.COMPLETED, None)
    assert len(world.calls) == 1


async def test_absent_is_only_a_word_for_the_tool(app: Holdfast, world: World) -> None:
    """A function cannot return it."""

    async def pay() -> Any:  # noqa: ANN401
        world.calls.append("paid")
        return Absent()

    @app.task
    async def work(ctx: Context) -> Any:  # noqa: ANN401
        return await ctx.step("pay", pay, effect="once")

    async with sandbox(app):
        handle = await app.submit(work)
        await open_doubt(app, handle)
    assert len(world.calls) == 1
