"""Steps under limits: they wait for a permit without a slot, and give it back when their call has ended."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast import (
    Context,
    EffectState,
    Handle,
    Holdfast,
    Intent,
    Limit,
    LimitUse,
    ManualClock,
    NotFound,
    Retry,
    TaskDefinition,
    TaskFailed,
    TaskFilter,
    TaskState,
)
from tests.engine.support import crash, ended, pass_time, reaches, steps_of, until


class Gate:
    """What a step waits at, and how many are at it at the same time."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.now = self.most = self.begun = 0

    async def __call__(self) -> int:
        self.begun += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.open.wait()
        finally:
            self.now -= 1
        return self.begun


async def use(hold: Holdfast, name: str = "api") -> LimitUse:
    [found] = await hold.limits(name)
    return found


def waiting_is(hold: Holdfast, count: int) -> Callable[[], Any]:
    async def check() -> bool:
        return (await use(hold)).waiting == count

    return check


def taken_is(hold: Holdfast, count: int) -> Callable[[], Any]:
    async def check() -> bool:
        return (await use(hold)).taken == count

    return check


async def passing(clock: ManualClock, condition: Callable[[], Any]) -> None:
    """Let time pass, so slowly that the store can follow, until the condition is true."""
    while not ((answer := condition()) is True or (answer is not False and await answer)):
        await pass_time(clock, 0.5)
        await asyncio.sleep(0.01)


def is_waiting(handle: Handle[Any]) -> Callable[[], Any]:
    async def check() -> bool:
        return (await handle.task()).state is TaskState.WAITING

    return check


async def test_steps_wait_without_a_slot_and_all_of_them_are_done(hold: Holdfast) -> None:
    gate = Gate()
    await hold.limit("api", concurrency=2)

    @hold.task
    async def limited(ctx: Context) -> int:
        return await ctx.step("ask", gate, limits=["api"])

    @hold.task
    async def plain(_: Context) -> str:
        return "done"

    handles = [await hold.submit(limited) for _ in range(6)]
    async with hold.worker(concurrency=3):
        await until(lambda: gate.now == 2)
        await until(waiting_is(hold, 4))
        # Four of them wait, and two have slots: there is one for this.
        assert await ended(await hold.submit(plain)) == "done"
        gate.open.set()
        for handle in handles:
            await ended(handle)
    assert gate.most == 2
    assert await use(hold) == LimitUse(key="api", limit=(await use(hold)).limit)


async def test_what_waits_for_a_limit_stays_on_its_worker(hold: Holdfast) -> None:
    gate = Gate()
    await hold.limit("api", concurrency=1)

    @hold.task
    async def limited(ctx: Context) -> int:
        return await ctx.step("ask", gate, limits=["api"])

    handles = [await hold.submit(limited) for _ in range(2)]
    async with hold.worker(concurrency=2):

        async def one_rests() -> bool:
            return any([(await handle.task()).resting for handle in handles])

        await until(one_rests)
        [resting] = [handle for handle in handles if (await handle.task()).resting]
        assert (await resting.task()).state is TaskState.RUNNING
        assert "ask" not in await steps_of(hold, resting)
        gate.open.set()
        for handle in handles:
            await ended(handle)
    assert [move.to_state for move in await hold.store.history(resting.id)].count(TaskState.WAITING) == 0


async def test_a_rate_lets_so_many_begin_in_its_time(timed: Holdfast, clock: ManualClock) -> None:
    begun: list[float] = []
    await timed.limit("api", rate=2, per=timedelta(seconds=10))

    async def ask() -> None:
        begun.append(clock.boot())

    @timed.task
    async def limited(ctx: Context) -> None:
        await ctx.step("ask", ask, limits=["api"])

    handles = [await timed.submit(limited) for _ in range(6)]
    async with timed.worker(lease=3600.0):
        await until(lambda: len(begun) == 2)
        await passing(clock, lambda: len(begun) == 6)
        for handle in handles:
            await ended(handle)
    for first, third in zip(begun, begun[2:], strict=False):
        assert third - first >= 10.0


@pytest.mark.parametrize("how", ["cancel", "deadline", "pause", "drain", "crash"])
async def test_a_wait_for_a_limit_ends_with_its_task(hold: Holdfast, how: str) -> None:
    gate = Gate()
    await hold.limit("api", concurrency=1)

    @hold.task
    async def limited(ctx: Context) -> int:
        return await ctx.step("ask", gate, limits=["api"])

    first = await hold.submit(limited)
    worker = await hold.worker(concurrency=2, grace=0.0).__aenter__()
    await until(lambda: gate.now == 1)
    waiting = await hold.submit(limited, deadline=1.0 if how == "deadline" else None)
    await until(waiting_is(hold, 1))
    if how == "cancel":
        await hold.cancel(waiting)
        await reaches(waiting, TaskState.CANCELLED)
    elif how == "deadline":
        with pytest.raises(TaskFailed):
            await ended(waiting)
    elif how == "pause":
        await hold.pause(waiting)
        await reaches(waiting, TaskState.PENDING)
    elif how == "drain":
        await worker.stop(grace=0.0)
        await reaches(waiting, TaskState.PENDING)
    else:
        await crash(hold, worker)

        async def swept() -> bool:
            await hold.store.sweep()
            return (await use(hold)).waiting == 0

        await until(swept)
    await until(waiting_is(hold, 0))
    assert gate.begun == 1
    await worker.stop(grace=0.0)
    if how != "crash":
        await until(taken_is(hold, 0))
    assert not (await first.task()).state.is_terminal


async def test_a_call_that_must_not_be_repeated_is_not_armed_before_it_has_its_permit(hold: Holdfast) -> None:
    gate = Gate()
    await hold.limit("api", concurrency=1)

    @hold.task
    async def pay(ctx: Context) -> int:
        return await ctx.step("pay", gate, effect="once", limits=["api"])

    handles = [await hold.submit(pay) for _ in range(2)]
    async with hold.worker(concurrency=2):
        await until(lambda: gate.now == 1)
        await until(waiting_is(hold, 1))
        effects = [one for handle in handles for one in await hold.store.effects(task_id=handle.id)]
        assert len(effects) == 1
        gate.open.set()
        for handle in handles:
            await ended(handle)
    assert gate.most == 1


async def test_an_abandoned_thread_keeps_its_permit_until_it_ends(hold: Holdfast) -> None:
    release, begun = threading.Event(), [0]
    await hold.limit("api", concurrency=1)

    def block() -> None:
        begun[0] += 1
        release.wait(30)

    @hold.task
    async def limited(ctx: Context, timeout: float) -> None:
        await ctx.step("ask", block, limits=["api"], timeout=timeout)

    async with hold.worker(concurrency=2):
        first = await hold.submit(limited, 0.1)
        await until(lambda: begun[0] == 1)
        second = await hold.submit(limited, 30.0)
        await until(waiting_is(hold, 1))
        await hold.cancel(first)
        await reaches(first, TaskState.CANCELLED)
        assert await waiting_is(hold, 1)()
        assert await taken_is(hold, 1)()
        release.set()
        await ended(second)
    assert begun[0] == 2


async def test_a_limit_that_was_never_set_is_refused_before_anything_is_called(hold: Holdfast) -> None:
    begun: list[str] = []
    await hold.limit("tenant", concurrency=1, each=True)

    async def ask(what: str) -> None:
        begun.append(what)

    @hold.task
    async def limited(ctx: Context, key: str, effect: str) -> str:
        with pytest.raises((NotFound, ValueError)) as refused:
            await ctx.step("ask", ask, key, limits=[key], effect=effect)
        return str(refused.value)

    @hold.task
    async def parent(ctx: Context, key: str) -> str:
        with pytest.raises((NotFound, ValueError)) as refused:
            await ctx.submit(limited, key, "once", limits=[key])
        return str(refused.value)

    async with hold.worker():
        for key, words in (("nope", "hold.limit('nope'"), ("tenant", "name one: 'tenant:<key>'")):
            assert words in await ended(await hold.submit(parent, key))
            for effect in ("idempotent", "once"):
                handle = await hold.submit(limited, key, effect)
                assert words in await ended(handle)
                assert await steps_of(hold, handle) == {}
    assert begun == []
    for refused in (["nope"], ["tenant"]):
        with pytest.raises((NotFound, ValueError)):
            await hold.submit(limited, "tenant:a", "once", limits=refused)


async def test_a_step_inside_a_step_cannot_wait_for_the_limit_that_the_outer_one_has(hold: Holdfast) -> None:
    await hold.limit("api", concurrency=5)
    await hold.limit("calls", rate=100, per=timedelta(seconds=1))

    @hold.task
    async def nested(ctx: Context) -> list[str]:
        async def inner() -> str:
            return "in"

        async def outer(key: str) -> str:
            return await ctx.step("inner", inner, limits=[key])

        found = [await ctx.step("calls", outer, "calls", limits=["calls"])]  # a rate is never waited for in vain
        with pytest.raises(Exception, match="step 'api' around it has already") as refused:
            await ctx.step("api", outer, "api", limits=["api"])
        return [*found, type(refused.value).__name__]

    async with hold.worker():
        assert await ended(await hold.submit(nested)) == ["in", "StepFailed"]


async def test_a_step_under_a_limit_of_concurrency_has_a_timeout(timed: Holdfast, clock: ManualClock) -> None:
    await timed.limit("api", concurrency=1)
    await timed.limit("calls", rate=100, per=timedelta(seconds=1))
    gate = Gate()

    @timed.task
    async def limited(ctx: Context, key: str) -> None:
        await ctx.step("ask", gate, limits=[key])

    limited.retry = Retry(max_attempts=1)
    short, long = await timed.submit(limited, "api"), await timed.submit(limited, "calls")
    async with timed.worker(lease=3600.0):
        await until(lambda: gate.now == 2)
        await pass_time(clock, 310.0, by=10.0)
        with pytest.raises(TaskFailed, match="not over within its timeout of 300 s"):
            await ended(short)
        assert not (await long.task()).state.is_terminal
        gate.open.set()
        await ended(long)


async def test_a_task_that_waits_for_a_limit_is_spilled_for_a_short_time(timed: Holdfast, clock: ManualClock) -> None:
    gate = Gate()
    await timed.limit("api", concurrency=1)

    @timed.task
    async def limited(ctx: Context) -> int:
        return await ctx.step("ask", gate, limits=["api"])

    first = await timed.submit(limited)
    async with timed.worker(residents=0, lease=3600.0):
        await until(lambda: gate.now == 1)
        second = await timed.submit(limited)
        await until(waiting_is(timed, 1))
        await passing(clock, is_waiting(second))
        assert [move.reason for move in await timed.store.history(second.id)][-1] == "waits for a limit"
        await until(waiting_is(timed, 0))
        gate.open.set()
        await ended(first)
        due = (await timed.store.sweep()).next_due
        assert due is not None
        assert due - await timed.store.now() <= timedelta(seconds=60)  # not the five minutes of an unknown wait
        await passing(clock, lambda: gate.begun == 2)
        await ended(second)


class Busy(Exception):
    status = 429
    retry_after = 30.0


async def test_a_provider_that_asks_for_a_pause_closes_the_limit_for_all(timed: Holdfast, clock: ManualClock) -> None:
    asked: list[float] = []
    await timed.limit("api", rate=100, per=timedelta(seconds=1))
    await timed.limit("tenant", concurrency=5)

    async def ask() -> None:
        asked.append(clock.boot())
        if len(asked) == 1:
            raise Busy

    @timed.task
    async def limited(ctx: Context) -> None:
        await ctx.step("ask", ask, limits=["api", "tenant"], retry=Retry(max_attempts=3, jitter="none"))

    async with timed.worker(lease=3600.0):
        first = await timed.submit(limited)
        await until(lambda: len(asked) == 1)

        async def is_tried_later() -> bool:
            line = (await steps_of(timed, first)).get("ask")
            return line is not None and line.retry_at is not None

        await until(is_tried_later)
        assert (await use(timed, "tenant")).closed_until is None
        closed, again = (await use(timed, "api")).closed_until, (await steps_of(timed, first))["ask"].retry_at
        assert closed == again  # it is waited for once, not twice
        second = await timed.submit(limited)
        await passing(clock, lambda: len(asked) == 3)
        await ended(second)
        await ended(first)
    assert [at - asked[0] >= 30.0 for at in asked] == [False, True, True]


async def test_a_request_without_a_slot_gives_way_to_other_workers_and_goes_back_to_the_queue(url: str) -> None:
    async with Holdfast(url) as full:
        if not full.store.capabilities.multi_process:
            return
        gate, blocked = Gate(), asyncio.Event()
        await full.limit("api", concurrency=1)

        def define(hold: Holdfast) -> TaskDefinition[[], int]:
            @hold.task
            async def limited(ctx: Context) -> int:
                return await ctx.step("ask", gate, limits=["api"])

            return limited

        limited = define(full)

        @full.task
        async def block(ctx: Context) -> None:
            await ctx.step("block", blocked.wait)

        async with full.worker(concurrency=2):
            first = await full.submit(limited)
            await until(lambda: gate.now == 1)
            second = await full.submit(limited)
            await until(waiting_is(full, 1))
            blockers = [await full.submit(block)]
            await reaches(blockers[0], TaskState.RUNNING)
            await full.submit(block)  # takes the slot that the first call leaves, should it come first
            other = Holdfast(url)
            define(other)
            async with other, other.worker(concurrency=2):
                gate.open.set()
                await ended(first)
                await ended(second)
            blocked.set()


async def test_an_intent_that_was_armed_before_its_step_named_a_limit_is_taken_back(hold: Holdfast) -> None:
    gate = Gate()
    await hold.limit("api", concurrency=1)

    @hold.task
    async def pay(ctx: Context, *, says_so: bool) -> int:
        limits = ["api"]
        intent = Intent("pay", gate, limits=limits if says_so else ())
        await ctx.step("choose", lambda: 1, arms=lambda _: [intent])
        return await ctx.step("pay", gate, effect="once", limits=limits)

    @hold.task
    async def keep(ctx: Context) -> int:
        return await ctx.step("keep", gate, limits=["api"])

    async with hold.worker():
        first = await hold.submit(keep)
        await until(lambda: gate.now == 1)
        handles = [await hold.submit(pay.bind(says_so=says_so)) for says_so in (True, False)]
        await until(waiting_is(hold, 2))
        states = {one.state for handle in handles for one in await hold.store.effects(task_id=handle.id)}
        assert states <= {EffectState.FAILED}
        gate.open.set()
        for handle in (first, *handles):
            await ended(handle)
    assert gate.most == 1
    assert gate.begun == 3


async def test_what_is_paused_begins_when_it_is_unpaused(hold: Holdfast) -> None:
    await hold.limit("api", concurrency=5)
    await hold.limit("tenant", rate=100, per=timedelta(seconds=1), each=True)
    asked: list[str] = []

    @hold.task
    async def limited(ctx: Context, key: str) -> None:
        await ctx.step("ask", asked.append, key, limits=[key])

    async with hold.worker():
        for subject, key in (("limit:api", "api"), ("limit:tenant:a", "tenant:a"), ("limit:tenant", "tenant:b")):
            await hold.pause(subject)
            handle = await hold.submit(limited, key)

            async def one_waits(key: str = key) -> bool:
                return [one.waiting for one in await hold.limits() if one.key == key] == [1]

            await until(one_waits)
            assert key not in asked
            assert await hold.unpause(subject)
            await ended(handle)
    assert asked == ["api", "tenant:a", "tenant:b"]


async def test_the_same_limit_again_writes_nothing_and_another_one_counts_at_once(hold: Holdfast) -> None:
    first = await hold.limit("api", concurrency=1)
    set_limit = hold.store.set_limit
    calls: list[Limit] = []

    def note(limit: Limit) -> Awaitable[Limit]:
        calls.append(limit)
        return set_limit(limit)

    vars(hold.store)["set_limit"] = note
    assert await hold.limit("api", concurrency=1) == first
    assert calls == []
    gate = Gate()

    @hold.task
    async def limited(ctx: Context) -> None:
        await ctx.step("ask", gate, limits=["api"])

    handles = [await hold.submit(limited) for _ in range(3)]
    async with hold.worker():
        await until(lambda: gate.now == 1)
        await hold.limit("api", concurrency=3)
        await until(lambda: gate.now == 3)
        gate.open.set()
        for handle in handles:
            await ended(handle)
    assert [use.limit for use in await hold.limits()] == calls


async def test_tasks_and_schedules_name_limits_that_add_to_those_of_their_definition(hold: Holdfast) -> None:
    for name in ("api", "mail"):
        await hold.limit(name, concurrency=1)

    @hold.task(limits=["mail"])
    async def child(_: Context) -> str:
        return "done"

    @hold.task(limits=["api"])
    async def parent(ctx: Context) -> str:
        return await (await ctx.submit(child)).result()

    handle = await hold.submit(parent, limits=["mail", "api"])
    assert (await handle.task()).limits == ("api", "mail")
    async with hold.worker():
        assert await ended(handle) == "done"
        page = await hold.store.find(TaskFilter(parent_id=handle.id))
        assert [task.limits for task in page.items] == [("mail",)]
        await hold.schedule("nightly", child, cron="0 3 * * *", limits=["api"])
        fired = await hold.trigger("nightly")
        assert (await fired.task()).limits == ("api", "mail")
        with pytest.raises(NotFound):
            await hold.schedule("weekly", child, cron="0 3 * * mon", limits=["nope"])
