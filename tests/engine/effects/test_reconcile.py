"""The tool itself is asked what became of a call: when that can be known, as often as it takes, and not for ever."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import (
    Absent,
    Context,
    EffectState,
    Happened,
    Holdfast,
    Retry,
    StepState,
    TaskState,
    Unknown,
)
from holdfast.testing import sandbox
from tests.engine.effects.support import A_WHILE, World, effect_of, open_doubt, stands
from tests.engine.support import crashing_worker, ended, reaches, steps_of, until

S = EffectState


# Who answers


class Asked:
    """Every way to write a reconcile."""

    def __init__(self) -> None:
        self.with_arguments: list[tuple[Any, ...]] = []

    def _answer(self, *args: Any) -> Happened:  # noqa: ANN401
        self.with_arguments.append(args)
        return Happened("found")

    async def answer(self, effect_id: str, *args: Any) -> Happened:  # noqa: ANN401
        return self._answer(effect_id, *args)

    def answer_blocking(self, effect_id: str, *args: Any) -> Happened:  # noqa: ANN401
        return self._answer(effect_id, *args)

    def answer_by_coroutine(self, effect_id: str, *args: Any) -> Any:  # noqa: ANN401
        return self.answer(effect_id, *args)

    async def __call__(self, effect_id: str, *args: Any) -> Happened:  # noqa: ANN401
        return self._answer(effect_id, *args)


@pytest.mark.parametrize("way", ["answer", "answer_blocking", "answer_by_coroutine", "__call__"])
async def test_it_is_asked_with_the_id_and_the_arguments(quick: Holdfast, world: World, way: str) -> None:
    asked = Asked()
    reconcile = asked if way == "__call__" else getattr(asked, way)

    async def pay(amount: int, to: dict[str, Any], effect_id: str) -> str:  # noqa: ARG001
        return await world.pay_then_lose_the_answer(amount, effect_id)

    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", pay, 5, {"iban": "DE1"}, effect="once", reconcile=reconcile, settle=0)

    handle = await quick.submit(work)
    async with quick.worker():
        assert await ended(handle) == "found"
    [effect_id] = world.calls
    assert asked.with_arguments == [(effect_id, 5, {"iban": "DE1"})]


async def test_it_is_not_asked_before_the_call_has_settled(app: Holdfast, world: World) -> None:
    """Sooner, "absent" would prove nothing."""

    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step(
            "pay", world.pay_then_lose_the_answer, 5, effect="once", reconcile=world.was_paid, settle=30
        )

    async with sandbox(app) as box:
        with box.frozen():
            handle = await app.submit(work)
            await box.idle()
            effect = await effect_of(app, handle)
            assert effect.settle_at == box.clock.now() + timedelta(seconds=30)
            assert (await handle.task()).state is TaskState.WAITING, "it needs no worker for that"
            await box.advance(29.9)
            assert world.asked == []
            assert (await effect_of(app, handle)).state is S.IN_DOUBT
            await box.advance(0.1)
            assert world.asked == [effect.effect_id]
        assert await handle.result() == "paid 5"


async def test_a_call_whose_worker_died_settles_when_it_can_no_longer_be_under_way(app: Holdfast, world: World) -> None:
    """The last moment at which it may have been sent, its timeout, and the time it may take effect after that."""

    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.hang, 5, effect="once", reconcile=world.was_paid, timeout=100, settle=10)

    async with sandbox(app) as box:
        with box.frozen():
            handle = await app.submit(work)
            await box.idle()
            began = box.clock.now()
            app.services.is_gone = lambda *_: False  # it is only silent
            box.crash_now()
            await box.advance(110.9)
            [doubt] = await app.doubts(handle)
            assert (doubt.effect.state, doubt.decisions) == (S.IN_DOUBT, ())
            assert doubt.effect.settle_at == began + timedelta(seconds=1 + 100 + 10)
            assert world.asked == []
            await box.advance(0.2)
        assert await handle.result() == "paid 5"
    assert len(world.calls) == len(world.asked) == 1


# What it may answer


@dataclass
class Receipt:
    number: int
    at: datetime


RECEIPT = Receipt(7, datetime(2026, 1, 1, tzinfo=UTC))


async def lost(effect_id: str) -> Receipt:  # noqa: ARG001
    raise ConnectionResetError


async def lost_untyped(effect_id: str):  # type: ignore[no-untyped-def]  # noqa: ANN201, ARG001
    raise ConnectionResetError


async def find_receipt(effect_id: str) -> Happened:  # noqa: ARG001
    return Happened(RECEIPT)


@pytest.mark.parametrize("declared", ["annotated", "returns="])
async def test_a_result_has_the_type_the_call_would_have_returned(hold: Holdfast, declared: str) -> None:
    """Live, and on a replay; on every kind of store."""
    seen: list[object] = []

    @hold.task(retry=Retry(max_attempts=2, initial=0.0))
    async def work(ctx: Context) -> int:
        options: dict[str, Any] = {} if declared == "annotated" else {"returns": Receipt}
        function: Any = lost if declared == "annotated" else lost_untyped
        receipt = await ctx.step("pay", function, effect="once", reconcile=find_receipt, settle=0, **options)
        seen.append(receipt)
        if ctx.attempt == 1:
            raise ConnectionError("once more")
        return int(receipt.number)

    handle = await hold.submit(work)
    async with hold.worker():
        assert await ended(handle) == 7
    assert seen == [RECEIPT, RECEIPT]


async def test_happened_without_a_result_returns_none(quick: Holdfast, world: World) -> None:
    async def happened(*_: object) -> Happened:
        return Happened()

    @quick.task
    async def work(ctx: Context) -> str | None:
        return await ctx.step("pay", world.pay_then_lose_the_answer, 5, effect="once", reconcile=happened, settle=0)

    handle = await quick.submit(work)
    async with quick.worker():
        assert await ended(handle) is None


async def absent_class(*_: object) -> Any:  # noqa: ANN401
    return Absent


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Unknown("the ledger is down"), "the ledger is down"),
        (Unknown(), "ConnectionResetError: the connection was lost"),
        (None, "reconcile returned None; it has to return Happened(...), Absent() or Unknown()"),
        (True, "reconcile returned True; it has to"),
        (False, "reconcile returned False; it has to"),
        ("absent", "reconcile returned 'absent'; it has to"),
        (Absent, "has to return Happened(...), Absent() or Unknown()"),
        (Happened(object()), "the result that reconcile returned"),
    ],
    ids=lambda answer: type(answer).__name__ if not isinstance(answer, str) else "",
)
async def test_what_reconcile_cannot_decide_is_for_a_person_with_the_reason(
    quick: Holdfast, world: World, answer: object, why: str
) -> None:
    async def answers(*_: object) -> Any:  # noqa: ANN401
        return answer

    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay_then_lose_the_answer, 5, effect="once", reconcile=answers, settle=0)

    handle = await quick.submit(work)
    async with quick.worker():
        doubt = await open_doubt(quick, handle)
    assert doubt.effect.state is S.NEEDS_HUMAN
    assert why in str(doubt.effect.note)
    assert why in doubt.question
    assert len(world.calls) == 1


async def test_without_a_reconcile_a_person_is_asked_at_once_it_has_settled(app: Holdfast, world: World) -> None:
    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay_then_lose_the_answer, 5, effect="once", settle=30)

    async with sandbox(app) as box:
        with box.frozen():
            handle = await app.submit(work)
            await box.advance(29)
            assert [doubt.decisions for doubt in await app.doubts(handle)] == [()]
            await box.advance(2)
            doubt = await open_doubt(app, handle)
    assert "its step names no reconcile=" in doubt.question
    assert "ConnectionResetError" in doubt.question


# How often it is asked


async def test_one_that_raises_a_few_times_is_asked_again(app: Holdfast, world: World) -> None:
    moments: list[float] = []

    async def shaky(effect_id: str, amount: int) -> Any:  # noqa: ANN401
        moments.append(box.elapsed.total_seconds())
        if len(moments) < 5:
            raise OSError("the ledger is down")
        return await world.was_paid(effect_id, amount)

    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay_then_lose_the_answer, 5, effect="once", reconcile=shaky, settle=0)

    async with sandbox(app) as box:
        handle = await app.submit(work)
        assert await handle.result() == "paid 5"
    assert moments == sorted(moments)
    assert len(set(moments)) == 5, "each time a while later"
    assert len(world.calls) == 1


async def test_one_that_always_raises_is_not_asked_for_ever(app: Holdfast, world: World) -> None:
    asked = 0

    def broken(effect_id: str, amount: int) -> Any:  # noqa: ANN401, ARG001
        nonlocal asked
        asked += 1
        raise OSError(f"the ledger is down, {asked}")

    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay_then_lose_the_answer, 5, effect="once", reconcile=broken)

    async with sandbox(app) as box:
        handle = await app.submit(work)
        doubt = await open_doubt(app, handle)
        assert "reconcile raised OSError: the ledger is down, 5" in str(doubt.effect.note)
        await box.advance(24 * 3600)
        assert asked == 5
        [same] = await app.doubts(handle)
        assert same.approval_id == doubt.approval_id
        await app.resolve(doubt, "happened", result="paid 5", by="anna")
        assert await handle.result() == "paid 5"
    assert asked == 5


async def test_one_that_hangs_is_asked_no_longer_than_the_call_may_take(app: Holdfast, world: World) -> None:
    asked = 0

    async def hangs(effect_id: str, amount: int) -> Any:  # noqa: ANN401
        nonlocal asked
        asked += 1
        if asked == 1:
            await asyncio.Event().wait()
        return await world.was_paid(effect_id, amount)

    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step(
            "pay", world.pay_then_lose_the_answer, 5, effect="once", reconcile=hangs, timeout=20, settle=0
        )

    async with sandbox(app) as box:
        assert await (await app.submit(work)).result() == "paid 5"
        assert box.elapsed.total_seconds() == pytest.approx(20.5, abs=0.1)
    assert asked == 2


async def test_a_crash_while_it_is_asked_asks_it_again(app: Holdfast, world: World) -> None:
    asked = 0

    async def deadly(effect_id: str, amount: int) -> Any:  # noqa: ANN401
        nonlocal asked
        asked += 1
        if asked == 1:
            box.crash_now()
            await asyncio.Event().wait()
        return await world.was_paid(effect_id, amount)

    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay_then_lose_the_answer, 5, effect="once", reconcile=deadly, settle=0)

    async with sandbox(app) as box:
        handle = await app.submit(work)
        assert await handle.result() == "paid 5"
        assert (await handle.task()).deaths == 1
    assert asked == 2
    assert len(world.calls) == 1


# A person's for good


async def test_what_is_a_persons_stays_theirs(hold: Holdfast, world: World) -> None:
    """Neither another worker nor a restart asks the tool again, and the question stays the same. On every store."""
    asked: list[str] = []

    async def no_idea(effect_id: str, amount: int) -> Unknown:  # noqa: ARG001
        asked.append(effect_id)
        return Unknown("no idea")

    @hold.task
    async def work(ctx: Context) -> str:
        await ctx.step("before", world.pay, 1)
        return await ctx.step("pay", world.pay_then_lose_the_answer, 5, effect="once", reconcile=no_idea, settle=0)

    handle = await hold.submit(work)
    async with crashing_worker(hold):
        doubt = await open_doubt(hold, handle)
    for _ in range(2):
        async with hold.worker():
            await reaches(handle, TaskState.WAITING)
            [same] = await hold.doubts(handle)
            assert (same.approval_id, same.effect.effect_id) == (doubt.approval_id, doubt.effect.effect_id)
    assert len(asked) == 1
    async with hold.worker():
        await hold.resolve(doubt, "happened", result="paid 5", by="anna")
        assert await ended(handle) == "paid 5"
    assert len(asked) == 1
    assert (await steps_of(hold, handle))["pay"].state is StepState.COMPLETED


async def test_what_is_a_persons_stays_theirs_when_the_task_is_brought_back(quick: Holdfast, world: World) -> None:
    """The task was stopped for another reason while they thought about it; it comes back with a new question."""
    asked: list[str] = []
    broken = asyncio.Event()

    async def no_idea(effect_id: str, amount: int) -> Unknown:  # noqa: ARG001
        asked.append(effect_id)
        return Unknown("no idea")

    @quick.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        pay = ctx.step("pay", world.pay_then_lose_the_answer, 5, effect="once", reconcile=no_idea, settle=0)
        if ctx.task.fence > 2:
            return await pay
        async with asyncio.TaskGroup() as group:
            group.create_task(pay)
            await broken.wait()
            raise ZeroDivisionError

    handle = await quick.submit(work)
    async with quick.worker():
        first = await open_doubt(quick, handle)
        broken.set()
        await reaches(handle, TaskState.FAILED)
        await stands(quick, handle, S.NEEDS_HUMAN)
        while (await handle.task()).fence < 3:  # the code above goes another way then
            await quick.resume(handle)
            await until(lambda: quick.doubts(handle))
        await reaches(handle, TaskState.WAITING)
        second = await open_doubt(quick, handle)
        assert second.effect.effect_id == first.effect.effect_id
        assert second.approval_id not in {None, first.approval_id}
        await quick.resolve(second, "happened", result="paid 5", by="anna")
        assert await ended(handle) == "paid 5"
    assert len(asked) == len(world.calls) == 1


# Calls in threads


async def test_absent_proves_nothing_while_a_thread_may_go_on(quick: Holdfast, world: World) -> None:
    """Its worker was lost, but not its process: the call may still happen, long after its timeout."""

    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step(
            "pay", world.hang_blocking, 5, effect="once", reconcile=world.was_paid, timeout=A_WHILE, settle=0.1
        )

    handle = await quick.submit(work)
    async with crashing_worker(quick):
        await until(lambda: world.calls)
    async with quick.worker():
        doubt = await open_doubt(quick, handle)
        assert doubt.effect.state is S.NEEDS_HUMAN
        assert "a thread cannot be stopped" in doubt.question
        assert len(world.asked) == len(world.calls) == 1
        world.release()


async def test_absent_proves_nothing_of_a_thread_that_outlives_its_timeout(app: Holdfast, world: World) -> None:
    """Here, and with the same worker: it was left behind, and goes on."""

    @app.task
    async def work(ctx: Context) -> str:
        retry = Retry(max_attempts=3, initial=0.0)
        return await ctx.step(
            "pay", world.hang_blocking, 5, effect="once", reconcile=world.was_paid, timeout=20, retry=retry
        )

    async with sandbox(app):
        handle = await app.submit(work)
        doubt = await open_doubt(app, handle)
        assert "a thread cannot be stopped" in doubt.question
        assert len(world.asked) == len(world.calls) == 1
        world.release()


async def test_absent_is_believed_of_a_thread_that_timed_out_and_came_to_its_end(app: Holdfast, world: World) -> None:
    async def pay_after_the_end(effect_id: str, amount: int) -> Any:  # noqa: ANN401
        """It raised in the end, and said so, before the tool was asked."""
        await until(lambda: app.store.evidence(handle.id, effect_id))
        return await world.was_paid(effect_id, amount)

    def hang(amount: int, effect_id: str) -> str:
        if not world.calls:
            world.calls.append(effect_id)
            assert world.gate.wait(60)
            raise OSError("not sent after all")
        return world.pay_blocking(amount, effect_id)

    @app.task
    async def work(ctx: Context) -> str:
        retry = Retry(max_attempts=2, initial=0.0)
        return await ctx.step(
            "pay", hang, 5, effect="once", reconcile=pay_after_the_end, timeout=20, settle=600, retry=retry
        )

    async with sandbox(app):
        handle = await app.submit(work)
        await stands(app, handle, S.IN_DOUBT)
        world.release()
        assert await handle.result() == "paid 5"
    assert len(world.happened) == 1
    assert len(set(world.calls)) == 1


async def test_absent_is_believed_of_a_thread_whose_process_is_gone(app: Holdfast, world: World) -> None:
    """In a sandbox a crash is that of a process, and nothing in it goes on."""

    def pay(amount: int, effect_id: str) -> str:
        if not world.calls:
            world.calls.append(effect_id)
            world.gate.wait(60)
            return "of a process that is gone"
        return world.pay_blocking(amount, effect_id)

    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", pay, 5, effect="once", reconcile=world.was_paid, timeout=20)

    async with sandbox(app) as box:
        handle = await app.submit(work)
        await until(lambda: world.calls)
        box.crash_now()
        assert await handle.result() == "paid 5"
        world.release()
    assert len(world.happened) == 1
