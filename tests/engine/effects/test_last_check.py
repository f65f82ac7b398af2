"""The last act before a call: may it still be made? If not, it is not made, and the journal says so."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast import (
    Context,
    Effect,
    EffectState,
    Holdfast,
    ManualClock,
    Retry,
    StepState,
    TaskCancelled,
    TaskFailed,
    TaskState,
)
from holdfast.engine.runtime.store_time import StoreTime
from holdfast.engine.worker.lease import LeaseClock
from holdfast.model.commit import Commit, Verdict
from holdfast.testing import sandbox
from tests.engine.effects.support import Send, World, effect_of, effects_in, stand_between, step_states, writes
from tests.engine.support import ended, pass_time, reaches, settle, until

S = EffectState
NOT_MADE = (S.FAILED, "the call was not made")


class AtArming:
    """Has something happen at the moment at which an effect is armed, the first time."""

    def __init__(self, hold: Holdfast, happens: Callable[[], object], *, durable: bool = True) -> None:
        """``durable``: after the Commit that arms it, and before its answer arrives."""
        self.armed: list[Effect] = []
        self._happens, self._durable = happens, durable
        stand_between(hold, self._around)

    async def _around(self, commits: Sequence[Commit], send: Send) -> list[Verdict]:
        now = writes(commits, S.ARMED) and not self.armed
        self.armed += [effect for effect in effects_in(commits) if effect.state is S.ARMED]
        if now and not self._durable:
            await self._happen()
        verdicts = await send(commits)
        if now and self._durable:
            await self._happen()
        return verdicts

    async def _happen(self) -> None:
        happens = self._happens()
        if asyncio.iscoroutine(happens):
            await happens


# Time


async def test_a_store_that_answers_too_late_has_the_call_armed_again_for_longer(app: Holdfast, world: World) -> None:
    """Another worker may rely on the call not being made after its time."""
    armed: list[Effect] = []
    moments: list[datetime] = []

    async def slow(commits: Sequence[Commit], send: Send) -> list[Verdict]:
        verdicts = await send(commits)
        if writes(commits, S.ARMED):
            armed.extend(effects_in(commits))
            moments.append(box.clock.now())
            box.clock.advance(3.5)
        return verdicts

    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay, 5, effect="once", timeout=10, settle=1)

    async with sandbox(app) as box:
        stand_between(app, slow)
        handle = await app.submit(work)
        assert await handle.result() == "paid 5"
        effect = await effect_of(app, handle)
    windows = [
        (one.dispatch_by - moment).total_seconds()
        for one, moment in zip(armed, moments, strict=True)
        if one.dispatch_by is not None
    ]
    assert windows == [1, 2, 4]
    assert [one.attempt for one in armed] == [1, 2, 3]
    assert {one.effect_id for one in armed} == {effect.effect_id}
    assert effect.settle_at == moments[-1] + timedelta(seconds=4 + 10 + 1)
    assert world.calls == [effect.effect_id]


@pytest.mark.parametrize("blocking", [False, True], ids=["async", "blocking"])
async def test_without_a_lease_no_call_is_made(world: World, blocking: bool) -> None:
    """The lease runs out while the store answers; the call waits until it is renewed."""
    clock, renewed = ManualClock(), asyncio.Event()
    async with Holdfast("memory://", clock=clock) as hold:
        beat = hold.store.heartbeat

        async def beat_later(worker_id: str) -> Any:  # noqa: ANN401
            await renewed.wait()
            return await beat(worker_id)

        hold.store.heartbeat = beat_later  # type: ignore[method-assign]
        moment = AtArming(hold, lambda: clock.advance(0.95))  # of a lease of 1 s; the call itself may begin within 1 s

        @hold.task
        async def work(ctx: Context) -> str:
            return await ctx.step("pay", world.pay_blocking if blocking else world.pay, 5, effect="once")

        handle = await hold.submit(work)
        async with hold.worker(lease=1, grace=0):
            await until(lambda: moment.armed)
            await settle()
            await asyncio.sleep(0.01 if blocking else 0)  # a thread takes its own time
            assert world.calls == []
            renewed.set()
            assert await ended(handle) == "paid 5"
    assert len(moment.armed) == 2
    assert len(world.calls) == 1


async def test_after_the_deadline_of_the_task_no_call_is_made(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if it passes in the very last moment, before it is recorded."""
    clock = ManualClock()
    holds = LeaseClock.holds.fget  # type: ignore[attr-defined]
    async with Holdfast("memory://", clock=clock) as hold:
        moment = AtArming(hold, lambda: None)

        def pass_the_deadline(lease: LeaseClock) -> bool:
            if moment.armed:
                clock.advance(0.6)
            return bool(holds(lease))

        monkeypatch.setattr(LeaseClock, "holds", property(pass_the_deadline))

        @hold.task(deadline=0.5)
        async def work(ctx: Context) -> str:
            return await ctx.step("pay", world.pay, 5, effect="once")

        handle = await hold.submit(work)
        async with hold.worker(grace=0):
            with pytest.raises(TaskFailed, match="DeadlineExceeded"):
                await ended(handle)
        effect = await effect_of(hold, handle)
        assert (effect.state, effect.note) == NOT_MADE
        assert await hold.doubts() == []
    assert len(moment.armed) == 1
    assert world.calls == []


# Being stopped


@pytest.mark.parametrize("blocking", [False, True], ids=["async", "blocking"])
async def test_a_task_that_is_cancelled_meanwhile_makes_no_call(hold: Holdfast, world: World, blocking: bool) -> None:
    """The Commit that arms the call brings the news. On every kind of store."""

    @hold.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay_blocking if blocking else world.pay, 5, effect="once")

    handle = await hold.submit(work)
    moment = AtArming(hold, lambda: hold.cancel(handle, "just in time"), durable=False)
    async with hold.worker():
        with pytest.raises(TaskCancelled, match="just in time"):
            await ended(handle)
    assert len(moment.armed) == 1
    effect = await effect_of(hold, handle)
    assert (effect.state, effect.note) == NOT_MADE
    assert await hold.doubts() == []
    assert world.calls == []


async def test_a_worker_that_stops_meanwhile_makes_no_call(quick: Holdfast, world: World) -> None:
    """Nothing has to be resolved: the next worker arms it again and makes it."""

    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay, 5, effect="once")

    handle = await quick.submit(work)
    worker = quick.worker()
    moment = AtArming(quick, worker.force)
    async with worker:
        await worker.join()
    assert len(moment.armed) == 1
    assert (await handle.task()).state is TaskState.PENDING
    effect = await effect_of(quick, handle)
    assert (effect.state, effect.note) == NOT_MADE
    assert world.calls == []
    async with quick.worker():
        assert await ended(handle) == "paid 5"
    assert world.calls == [effect.effect_id]


async def test_a_worker_that_loses_its_task_meanwhile_makes_no_call(app: Holdfast, world: World) -> None:
    """It cannot report that, so the worker that takes over has to find out."""

    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay, 5, effect="once", reconcile=world.was_paid)

    async with sandbox(app) as box:
        moment = AtArming(app, box.crash_now)
        handle = await app.submit(work)
        await until(lambda: moment.armed)
        await settle()
        assert (await effect_of(app, handle)).state is S.ARMED
        assert world.calls == []
        assert await handle.result() == "paid 5"
    assert len(world.calls) == 1
    assert len(world.asked) == 2, "early, and when it had settled"


async def test_a_thread_that_begins_too_late_makes_no_call(
    quick: Holdfast, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is just making its last check while the loop says that the call was not made."""
    checking, go_on = threading.Event(), threading.Event()
    now = StoreTime.now

    def slow_in_threads(self: StoreTime) -> datetime:
        if threading.current_thread().name == "holdfast-blocking" and not checking.is_set():
            checking.set()
            assert go_on.wait(60)
        return now(self)

    monkeypatch.setattr(StoreTime, "now", slow_in_threads)

    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay_blocking, 5, effect="once")

    handle = await quick.submit(work)
    async with quick.worker(grace=0):
        await until(checking.is_set)
    effect = await effect_of(quick, handle)
    assert (effect.state, effect.note) == NOT_MADE
    go_on.set()
    await until(lambda: quick.services.threads._idle)  # the thread has come to its end
    assert world.calls == []
    async with quick.worker():
        assert await ended(handle) == "paid 5"
    assert len(world.calls) == 1


# Code that does not wait for its call


@pytest.mark.parametrize("ending", ["returns", "raises", "waits"])
@pytest.mark.parametrize("turns", range(8))
async def test_a_task_that_lets_go_while_the_call_is_on_its_way_does_not_lie_about_it(
    app: Holdfast, world: World, ending: str, turns: int
) -> None:
    """Wherever the call is when the task ends or is taken off its worker: what was made is not recorded as not made."""

    @app.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        left_behind = asyncio.create_task(ctx.step("pay", world.hang, 5, effect="once"))
        left_behind.add_done_callback(lambda task: task.cancelled() or task.exception())
        for _ in range(turns):
            await asyncio.sleep(0)
        if ending == "raises":
            raise ZeroDivisionError
        if ending == "waits":
            await ctx.wait_event("never")
        return "ended"

    async with sandbox(app) as box:
        handle = await app.submit(work)
        await reaches(handle, TaskState.COMPLETED, TaskState.FAILED, TaskState.WAITING, TaskState.RUNNING)
        await box.idle()
        effects = await app.store.effects(task_id=handle.id)
        listed = [doubt.effect.effect_id for doubt in await app.doubts()]
    called = bool(world.calls)
    assert len(world.calls) <= 1
    if not effects:
        assert not called
    for effect in effects:
        if effect.state is S.FAILED:
            assert not called, "it was called, and is recorded as not made"
        else:
            is_under_way = ending == "waits" and effect.state is S.ARMED
            assert effect.effect_id in listed or is_under_way, "the call would stay unknown"


async def test_time_may_pass_between_two_steps(world: World) -> None:
    """What was armed long ago does not affect a call that comes later."""
    clock = ManualClock()
    async with Holdfast("memory://", clock=clock) as hold:

        @hold.task
        async def work(ctx: Context) -> str:
            await ctx.step("first", world.pay, 1, effect="once")
            await pass_time(clock, 5)
            return await ctx.step("second", world.pay, 2, effect="once")

        handle = await hold.submit(work)
        async with hold.worker(grace=0):
            assert await ended(handle) == "paid 2"
        assert set((await step_states(hold, handle)).values()) == {StepState.COMPLETED}
    assert world.amounts == [1, 2]
