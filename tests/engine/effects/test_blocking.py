"""Blocking task functions, and hold.sync: the same calls, the same care."""

import inspect
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    Absent,
    Conflict,
    Context,
    Decision,
    EffectState,
    Handle,
    Happened,
    Holdfast,
    Intent,
    NotHappened,
    Retry,
    StepFailed,
    SyncContext,
    SyncHandle,
    SyncHoldfast,
    TaskCancelled,
    TaskFailed,
    TaskState,
    current_effect_id,
)
from holdfast.engine.api.signatures import StepOptions
from holdfast.testing import sandbox
from tests.engine.effects.support import A_WHILE, World, commits_of, effect_of, effects_by_key, effects_in, open_doubt
from tests.engine.support import crashing_worker, ended, reaches, until
from tests.stores import MEMORY, empty_store

S = EffectState
PATIENCE = 60.0


@pytest.mark.parametrize(
    ("asynchronous", "blocking"),
    [
        (Holdfast.doubts, SyncHoldfast.doubts),
        (Holdfast.resolve, SyncHoldfast.resolve),
        (Holdfast.summary, SyncHoldfast.summary),
    ],
    ids=["doubts", "resolve", "summary"],
)
def test_both_take_the_same(asynchronous: Any, blocking: Any) -> None:  # noqa: ANN401
    theirs, ours = (inspect.signature(function).parameters for function in (asynchronous, blocking))
    assert list(ours) == list(theirs)
    for name in set(ours) - {"self"}:
        assert (ours[name].kind, ours[name].default) == (theirs[name].kind, theirs[name].default), name


def test_the_options_of_a_step_stand_once_and_both_take_them() -> None:
    """A blocking step hands on whatever it is given, so only its own parameters are its own."""
    assert list(inspect.signature(SyncContext.step).parameters) == ["self", "name", "function", "args", "options"]
    taken = set(inspect.signature(Context.step).parameters) - {"self", "name", "function", "args", "unknown"}
    assert taken == set(StepOptions.__annotations__)


# Task functions that block


async def test_a_once_step_of_a_blocking_task(hold: Holdfast, world: World) -> None:
    """Blocking and asynchronous calls, on every kind of store."""
    seen: list[EffectState] = []

    async def look(effect_id: str) -> str:
        seen.extend([effect.state for effect in await hold.store.effects(effect_id=effect_id)])
        return effect_id

    @hold.task
    def work(ctx: SyncContext) -> list[str]:
        return [
            ctx.step("pay", world.pay_blocking, 5, effect="once"),
            ctx.step("pay-too", world.pay, 6, effect="once"),
            ctx.step("look", look, effect="once"),
        ]

    handle = await hold.submit(work)
    async with hold.worker():
        first, second, effect_id = await ended(handle)
    assert (first, second) == ("paid 5", "paid 6")
    assert seen == [S.ARMED]
    effects = await effects_by_key(hold, handle)
    assert {effect.state for effect in effects.values()} == {S.DONE}
    assert effects["look"].effect_id == effect_id


async def test_a_crash_around_a_call_of_a_blocking_task(app: Holdfast, world: World) -> None:
    @app.task
    def work(ctx: SyncContext) -> str:
        return ctx.step("pay", world.pay_blocking, 5, effect="once", reconcile=world.was_paid)

    async with sandbox(app) as box:
        box.crash("pay", when="after_effect")
        handle = await app.submit(work)
        assert await handle.result() == "paid 5"
        effect = await effect_of(app, handle)
    assert world.calls == world.asked == [effect.effect_id]


async def test_doubts_of_a_blocking_task(quick: Holdfast, world: World) -> None:
    """Its thread is unwound while a person thinks, and replays what they said."""

    @quick.task(retry=Retry(max_attempts=1))
    def work(ctx: SyncContext) -> str:
        paid = ctx.step("pay", world.pay_then_lose_the_answer, 5, effect="once", settle=0)
        try:
            ctx.step("pay-too", world.pay_then_lose_the_answer, 6, effect="once", settle=0)
        except StepFailed as failed:
            return f"{paid}, not {failed.step}"
        return "both"

    handle = await quick.submit(work)
    async with quick.worker():
        doubt = await open_doubt(quick, handle)
        await reaches(handle, TaskState.WAITING)
        await quick.resolve(doubt, "happened", result="paid 5", by="anna")
        await until(lambda: len(world.calls) == 2)
        await quick.resolve(await open_doubt(quick, handle), "abandon", by="anna")
        assert await ended(handle) == "paid 5, not pay-too"
    assert len(world.calls) == 2


async def test_a_blocking_task_arms_ahead(quick: Holdfast, world: World) -> None:
    sent = commits_of(quick)

    def choose() -> int:
        return 7

    @quick.task
    def work(ctx: SyncContext) -> str:
        amount = ctx.step("choose", choose, arms=lambda n: [Intent("pay", world.pay_blocking, n)])
        return ctx.step("pay", world.pay_blocking, amount, effect="once")

    handle = await quick.submit(work)
    async with quick.worker():
        assert await ended(handle) == "paid 7"
    assert len(sent) == 3
    assert [effect.state for effect in effects_in(sent)] == [S.ARMED, S.DONE]


async def test_a_blocking_task_that_is_cancelled_leaves_a_doubt(app: Holdfast, world: World) -> None:
    @app.task
    def work(ctx: SyncContext) -> str:
        return ctx.step("pay", world.hang_blocking, 5, effect="once")

    async with sandbox(app):
        handle = await app.submit(work)
        await until(lambda: world.calls)
        await app.cancel(handle)
        with pytest.raises(TaskCancelled):
            await handle.result()
        [doubt] = await app.doubts(handle)
        assert doubt.effect.state is S.IN_DOUBT
        world.release()
    assert len(world.calls) == 1


async def test_the_effect_id_is_that_of_the_step_and_not_of_the_task(quick: Holdfast) -> None:
    ids: list[str] = []

    def blocking() -> None:
        ids.append(current_effect_id())

    async def asynchronous() -> None:
        ids.append(current_effect_id())

    @quick.task
    def work(ctx: SyncContext) -> None:
        for effect in ("once", "idempotent"):
            for function in (blocking, asynchronous):
                ctx.step(f"{effect} {function.__name__}", function, effect=effect)

    async with quick.worker():
        await ended(await quick.submit(work))
    assert len(set(ids)) == 4


async def test_another_worker_takes_over_a_blocking_task(quick: Holdfast, world: World) -> None:
    """The thread of the first goes on, and what it learns is evidence."""

    @quick.task
    def work(ctx: SyncContext) -> str:
        return ctx.step(
            "pay", world.hang_blocking, 5, effect="once", timeout=A_WHILE, settle=0, reconcile=world.was_paid
        )

    handle: Handle[str] = await quick.submit(work)
    async with crashing_worker(quick):
        await until(lambda: world.calls)
    world.release()
    async with quick.worker():
        assert await ended(handle) == "paid 5 late"
    assert len(world.calls) == 1


# hold.sync


@pytest.fixture(params=[MEMORY, "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return empty_store(request.param, request, tmp_path)


def wait_for_doubt(hold: SyncHoldfast, handle: SyncHandle[Any]) -> Any:  # noqa: ANN401
    """Wait, in blocking code, until a person is asked about a task."""
    give_up_at = time.monotonic() + PATIENCE
    while True:
        asked = [doubt for doubt in hold.doubts(handle) if doubt.approval_id is not None]
        if asked:
            return asked[0]
        assert time.monotonic() < give_up_at
        time.sleep(0.005)


def test_blocking_code_lists_and_decides_doubts(store: str) -> None:
    hold, world = Holdfast(store), World()

    @hold.task(retry=Retry(max_attempts=1))
    def work(ctx: SyncContext, amount: int) -> str:
        return ctx.step("pay", world.pay_then_lose_the_answer, amount, effect="once", settle=0)

    with hold.sync as h, h.worker():
        handle = h.submit(work, 5)
        doubt = wait_for_doubt(h, handle)
        assert doubt.arguments == [5]
        assert [one.effect.effect_id for one in h.doubts()] == [doubt.effect.effect_id]
        assert h.summary().doubts == 1
        decided = h.resolve(doubt, Decision.HAPPENED, result="paid, says the bank", by="anna", note="saw it")
        assert (decided.state, decided.note) == (S.DONE, "happened, by anna: saw it")
        assert handle.result(timeout=PATIENCE) == "paid, says the bank"
        with pytest.raises(Conflict, match="happened, by anna"):
            h.resolve(doubt, "abandon", by="bob")
        given_up = h.submit(work, 6)
        h.resolve(wait_for_doubt(h, given_up).effect.effect_id, "abandon", by="anna")
        with pytest.raises(TaskFailed, match="was given up"):
            given_up.result(timeout=PATIENCE)
        assert h.doubts() == []
    assert world.amounts == [5, 6]


def test_blocking_tools_reconcile_and_prove(store: str) -> None:
    hold = Holdfast(store)
    happened: list[str] = []
    calls: list[str] = []

    def pay(amount: int, effect_id: str) -> str:
        assert threading.current_thread() is not threading.main_thread()
        calls.append(effect_id)
        match len(calls):
            case 1:
                raise NotHappened("closed")
            case 2:
                raise ConnectionResetError("lost before it arrived")
            case _:
                happened.append(effect_id)
                raise ConnectionResetError(f"lost after {amount} was paid")

    def was_paid(effect_id: str, amount: int) -> Happened | Absent:
        return Happened(f"paid {amount}") if effect_id in happened else Absent()

    @hold.task(retry=Retry(max_attempts=1))
    def work(ctx: SyncContext) -> str:
        retry = Retry(max_attempts=3, initial=0.0)
        return ctx.step("pay", pay, 5, effect="once", retry=retry, settle=0, reconcile=was_paid)

    with hold.sync as h, h.worker():
        assert h.submit(work).result(timeout=PATIENCE) == "paid 5"
    assert len(calls) == 3
    assert len(set(calls)) == len(happened) == 1
