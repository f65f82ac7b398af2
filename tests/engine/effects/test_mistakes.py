"""What could not be kept is refused before anything is written or called, in words that help."""

import asyncio
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Compensation, Context, EffectClass, Holdfast, InvalidValue, Retry, TaskFailed
from tests.engine.effects.support import World
from tests.engine.support import ended


async def refused(hold: Holdfast, call: Callable[[Context], Any], message: str) -> None:
    """Run a task that makes this call; it fails at once, for this reason, and leaves nothing behind."""
    runs = 0

    @hold.task(retry=Retry(max_attempts=5, initial=0.0))
    async def work(ctx: Context) -> None:
        nonlocal runs
        runs += 1
        await call(ctx)

    handle = await hold.submit(work)
    async with hold.worker():
        with pytest.raises(TaskFailed, match=re.escape(message)):
            await ended(handle)
    assert runs == 1, "it would be wrong the next time too"
    assert await hold.store.effects() == []
    assert [step for step in await hold.store.steps(handle.id) if step.kind != "attempt"] == []


# Arguments


class Client:
    """No data."""


@pytest.mark.parametrize(
    "argument",
    [Client(), object(), lambda: None, asyncio.Event(), threading.Lock(), {"client": Client()}, [1, 2, Client()]],
    ids=["object", "plain object", "function", "event", "what cannot be copied", "in a dict", "in a list"],
)
async def test_arguments_that_are_not_data(quick: Holdfast, world: World, argument: object) -> None:
    """They are written down before the call, and compared and shown to people afterwards."""
    await refused(
        quick,
        lambda ctx: ctx.step("pay", world.pay, argument, effect="once"),
        "The arguments of a 'once' step are recorded before it is called, so they have to be data; "
        "bind clients and connections into the function",
    )
    assert world.calls == []


async def test_such_arguments_are_fine_where_nothing_is_written_down(quick: Holdfast, world: World) -> None:
    client = Client()

    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay, client)

    handle = await quick.submit(work)
    async with quick.worker():
        assert (await ended(handle)).startswith("paid <")


async def two(first: int, second: int) -> None: ...
async def optional(first: int, second: int = 2) -> None: ...
async def named(first: int, *, second: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (two, ()),
        (two, (1,)),
        (two, (1, 2, 3)),
        (optional, ()),
        (optional, (1, 2, 3)),
        (named, (1,)),
        (named, (1, 2)),
        (World().pay, ()),
        (World().pay, (1, 2)),
    ],
)
async def test_arguments_that_the_function_does_not_take(
    quick: Holdfast, function: Callable[..., Any], args: tuple[int, ...]
) -> None:
    """A call that cannot be made is not intended either: it would never be known that it did not happen."""
    await refused(
        quick, lambda ctx: ctx.step("pay", function, *args, effect="once"), "step 'pay' cannot call its function: "
    )


# Terms


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"effect": "twice"},
            "effect of step 'pay' is 'twice'; choose one of 'pure', 'idempotent', 'once'",
        ),
        ({"effect": 1}, "effect of step 'pay' is 1; choose one of"),
        ({"effect": ""}, "effect of step 'pay' is ''; choose one of"),
        ({"effect": "idempotent", "reconcile": len}, "are for effect='once'; step 'pay' is idempotent"),
        ({"effect": "pure", "reconcile": len}, "are for effect='once'; step 'pay' is pure"),
        ({"reconcile": len}, "are for effect='once'; step 'pay' is idempotent"),
        ({"settle": 5}, "are for effect='once'"),
        ({"settle": 0}, "are for effect='once'"),
        ({"absent_on": ValueError}, "are for effect='once'"),
        ({"repeat": True}, "are for effect='once'"),
        ({"effect": "once", "settle": -1}, "the settle time of step 'pay' is -1 seconds"),
        ({"effect": "once", "settle": "soon"}, "the settle time of step 'pay' is 'soon'; give seconds or a timedelta"),
        ({"effect": "once", "settle": float("inf")}, "the settle time of step 'pay' is inf seconds"),
        ({"effect": "once", "timeout": 0}, "the timeout of step 'pay' is 0 seconds"),
        ({"effect": "once", "timeout": -1}, "the timeout of step 'pay' is -1 seconds"),
        ({"effect": "once", "absent_on": (5,)}, "absent_on holds 5; name exception classes, or their names as text"),
        ({"effect": "once", "absent_on": int}, "absent_on holds <class 'int'>"),
        ({"effect": "once", "reconcile": "look"}, "reconcile of step 'pay' is 'look'; give the function"),
        ({"approval": ""}, "approval is ''; write approval=Ask("),
        ({"approval": "yes"}, "approval is 'yes'; write approval=Ask("),
        ({"effect": "once", "approval": True}, "approval is True; write approval=Ask("),
        ({"compensate": "undo"}, "compensate of step 'pay' is 'undo'; give the function that undoes the step"),
        ({"effect": "once", "compensate": 5}, "compensate of step 'pay' is 5"),
    ],
    ids=str,
)
async def test_terms_that_make_no_sense(quick: Holdfast, world: World, options: dict[str, Any], message: str) -> None:
    async def pay(amount: int) -> None:
        world.calls.append(str(amount))

    await refused(quick, lambda ctx: ctx.step("pay", pay, 5, **options), message)
    assert world.calls == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"function": "undo"}, "a compensation needs a function to call; 'undo' is not a function"),
        ({"function": len, "effect": "twice"}, "'twice'; choose one of 'pure', 'idempotent', 'once'"),
        ({"function": len, "reconcile": len}, "of compensation len are for effect='once'"),
        ({"function": len, "settle": 5}, "of compensation len are for effect='once'"),
        ({"function": len, "absent_on": (ValueError,)}, "of compensation len are for effect='once'"),
        ({"function": len, "effect": "once", "settle": -1}, "settle time"),
        ({"function": len, "timeout": 0}, "the timeout of compensation len"),
    ],
    ids=str,
)
def test_compensations_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    """At once, and not when something has to be undone."""
    with pytest.raises(InvalidValue, match=re.escape(message)):
        Compensation(**options)


@pytest.mark.parametrize("effect", [EffectClass.ONCE, "once"])
async def test_a_class_may_be_given_by_its_name(quick: Holdfast, world: World, effect: EffectClass | str) -> None:
    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay, 5, effect=effect, settle=0, absent_on="ValueError")

    handle = await quick.submit(work)
    async with quick.worker():
        assert await ended(handle) == "paid 5"
    assert len(await quick.store.effects()) == 1


async def test_a_verifier_looks_and_undoes_nothing(quick: Holdfast, world: World) -> None:
    @quick.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:  # noqa: ARG001
        return "done"

    @work.verify
    async def check(ctx: Context, result: str) -> bool:  # noqa: ARG001
        await ctx.step("look", world.pay, 5, effect="once", compensate=len)
        return True

    handle = await quick.submit(work)
    async with quick.worker():
        with pytest.raises(TaskFailed, match="of a verifier cannot have compensate="):
            await ended(handle)
    assert world.calls == []
