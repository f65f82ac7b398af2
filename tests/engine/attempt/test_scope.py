"""Steps inside steps: every try of a step meets the same inner keys, and a try ends with all of its branches."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

import asyncio
import gc
import threading
import uuid
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from holdfast import (
    Absent,
    Ask,
    Context,
    Handle,
    Holdfast,
    ManualClock,
    Retry,
    StepState,
    SyncContext,
    TaskCancelled,
    TaskFailed,
    TaskState,
)
from holdfast.engine.attempt.scope import INSIDE, LONGEST_PATH, discard, path_inside
from holdfast.model.task import FLAT_KEYS
from holdfast.model.worker import ALONE_AFTER, Claim, NewWorker
from tests.engine.support import crash, crashing_worker, ended, pass_time, reaches, steps_of, until

AT_ONCE = Retry(max_attempts=4, initial=0.001, jitter="none")
ONE_TRY = Retry(max_attempts=1)


class Bank:
    """Counts payments by what they are for, and not by their effect ids."""

    def __init__(self) -> None:
        self.paid: list[str] = []

    async def pay(self, what: str) -> str:
        self.paid.append(what)
        return f"receipt for {what}"


def failing(times: int) -> Callable[[], None]:
    """Return a function that raises so often, and then no more."""
    left = [times]

    def fail() -> None:
        if left[0]:
            left[0] -= 1
            raise ConnectionError("mail server")

    return fail


async def test_a_once_step_inside_a_retried_step_is_done_once(hold: Holdfast) -> None:
    bank, fail = Bank(), failing(2)

    @hold.task(retry=ONE_TRY)
    async def buy(ctx: Context) -> list[str]:
        async def checkout() -> list[str]:
            receipts = [await ctx.step("pay", bank.pay, what, effect="once") for what in ("book", "pen")]
            fail()
            return receipts

        return await ctx.step("checkout", checkout, retry=AT_ONCE)

    handle = await hold.submit(buy)
    async with hold.worker():
        assert await ended(handle) == ["receipt for book", "receipt for pen"]
    assert bank.paid == ["book", "pen"]
    assert set(await steps_of(hold, handle)) == {"checkout", f"checkout{INSIDE}pay", f"checkout{INSIDE}pay#2"}
    assert await hold.doubts() == []


async def test_the_inner_step_that_ended_a_try_runs_again_and_the_others_replay(quick: Holdfast) -> None:
    calls, fail = [], failing(1)

    async def first() -> int:
        calls.append("first")
        return 1

    async def second() -> int:
        calls.append("second")
        fail()
        return 2

    @quick.task(retry=ONE_TRY)
    async def job(ctx: Context) -> int:
        async def handled() -> None:
            raise ValueError("always")

        async def outer() -> int:
            with pytest.raises(Exception, match="always"):
                await ctx.step("handled", handled)
            return await ctx.step("first", first) + await ctx.step("second", second)

        return await ctx.step("outer", outer, retry=AT_ONCE)

    handle = await quick.submit(job)
    async with quick.worker():
        assert await ended(handle) == 3
    assert calls == ["first", "second", "second"]
    steps = await steps_of(quick, handle)
    assert steps[f"outer{INSIDE}handled"].attempts == 1, "a failure that the code handled is not repeated"


async def test_what_ended_a_step_for_good_runs_again_when_the_task_does(hold: Holdfast) -> None:
    """However deep it stands: the next attempt, and resume, repeat what the failure came from and nothing else."""
    bank, fail = Bank(), failing(2)

    async def innermost() -> str:
        fail()
        return "done"

    @hold.task(retry=Retry(max_attempts=2, initial=0.001))
    async def job(ctx: Context) -> str:
        async def middle() -> str:
            return await ctx.step("innermost", innermost)

        async def outer() -> str:
            await ctx.step("pay", bank.pay, "book", effect="once")
            return await ctx.step("middle", middle)

        return await ctx.step("outer", outer)

    handle = await hold.submit(job)
    async with hold.worker():
        with pytest.raises(TaskFailed, match="mail server"):
            await ended(handle)
        await hold.resume(handle)
        assert await ended(handle) == "done"
    assert bank.paid == ["book"]


async def test_numbers_times_and_ids_are_drawn_per_scope(quick: Holdfast) -> None:
    seen: list[tuple[datetime, float, uuid.UUID]] = []
    fail = failing(2)

    @quick.task(retry=ONE_TRY)
    async def job(ctx: Context) -> bool:
        async def outer() -> None:
            seen.append((ctx.now(), ctx.random(), ctx.uuid()))
            fail()

        await ctx.step("outer", outer, retry=AT_ONCE)
        return (ctx.random(), ctx.uuid()) != seen[0][1:]

    handle = await quick.submit(job)
    async with quick.worker():
        assert await ended(handle), "those of the task's own code are others"
    assert len(seen) == 3
    assert len(set(seen)) == 1


async def test_a_try_ends_with_its_branches(quick: Holdfast) -> None:
    """``gather`` leaves its members alive when one of them raises: the next try would meet them under the same keys."""
    bank, fail, prepared = Bank(), failing(1), asyncio.Event()
    began: list[int] = []

    async def prepare() -> None:
        began.append(1)
        prepared.set()
        if len(began) == 1:
            await asyncio.Event().wait()  # for ever: only the end of the try stops it

    @quick.task(retry=ONE_TRY)
    async def job(ctx: Context) -> None:
        async def outer() -> None:
            async def branch() -> None:
                await ctx.step("prepare", prepare)
                await ctx.step("pay", bank.pay, "book", effect="once")

            async def other() -> None:
                await prepared.wait()
                fail()

            await asyncio.gather(other(), branch())

        await ctx.step("outer", outer, retry=AT_ONCE)

    handle = await quick.submit(job)
    async with quick.worker():
        await ended(handle)
    assert (len(began), bank.paid) == (2, ["book"])


async def test_a_call_that_must_not_be_repeated_is_awaited_when_its_try_ends(quick: Holdfast) -> None:
    fail, sent, landed = failing(1), asyncio.Event(), []
    release = asyncio.Event()

    async def pay() -> str:
        sent.set()
        await release.wait()
        landed.append("book")
        return "receipt"

    @quick.task(retry=ONE_TRY)
    async def job(ctx: Context) -> str:
        async def outer() -> str:
            async def other() -> None:
                await sent.wait()
                asyncio.get_running_loop().call_soon(release.set)
                fail()

            paying = asyncio.create_task(ctx.step("pay", pay, effect="once"))
            await other()
            return await paying

        return await ctx.step("outer", outer, retry=AT_ONCE)

    handle = await quick.submit(job)
    async with quick.worker():
        assert await ended(handle) == "receipt"
    assert landed == ["book"]
    assert await quick.doubts() == []


async def test_a_call_cut_off_by_the_timeout_of_its_step_is_cleared_up_before_it_is_made_again(
    still: Holdfast, clock: ManualClock
) -> None:
    calls: list[str] = []

    async def pay() -> str:
        calls.append("pay")
        if len(calls) == 1:
            await asyncio.Event().wait()
        return "receipt"

    async def was_paid(effect_id: str) -> Absent:
        calls.append("asked")
        return Absent()

    @still.task(retry=ONE_TRY)
    async def job(ctx: Context) -> str:
        async def outer() -> str:
            return await ctx.step("pay", pay, effect="once", reconcile=was_paid, timeout=40, settle=0)

        return await ctx.step("outer", outer, retry=AT_ONCE, timeout=30)

    handle = await still.submit(job)
    async with still.worker(lease=10_000):
        await until(lambda: calls == ["pay"])
        await pass_time(clock, 60)
        assert await ended(handle) == "receipt"
    assert calls == ["pay", "asked", "pay"]


async def test_the_ctx_of_an_ended_try_is_refused(quick: Holdfast) -> None:
    left: list[asyncio.Task[int]] = []
    go = asyncio.Event()

    async def one() -> int:
        return 1

    @quick.task(retry=ONE_TRY)
    async def job(ctx: Context) -> str:
        async def outer() -> None:
            async def later() -> int:
                await go.wait()
                return await ctx.step("late", one)

            left.append(asyncio.create_task(later()))
            await asyncio.sleep(0)

        await ctx.step("outer", outer)
        go.set()
        await asyncio.wait(left)
        return str(left[0].exception())

    handle = await quick.submit(job)
    async with quick.worker():
        assert "after that try of the step had ended" in await ended(handle)
    assert set(await steps_of(quick, handle)) == {"outer"}


async def test_inner_steps_replay_after_a_take_over(hold: Holdfast) -> None:
    bank, reached, hang = Bank(), asyncio.Event(), [True]

    @hold.task
    async def job(ctx: Context) -> str:
        async def outer() -> str:
            receipt = await ctx.step("pay", bank.pay, "book", effect="once")
            reached.set()
            if hang:
                await asyncio.Event().wait()
            return receipt

        return await ctx.step("outer", outer)

    handle = await hold.submit(job)
    worker = await hold.worker().__aenter__()
    await reached.wait()
    hang.clear()
    await crash(hold, worker)
    async with hold.worker():
        assert await ended(handle) == "receipt for book"
    assert bank.paid == ["book"]


async def test_a_new_round_replays_what_was_done_once_inside_a_step(hold: Holdfast) -> None:
    bank = Bank()

    @hold.task
    async def job(ctx: Context) -> str:
        async def outer() -> str:
            return await ctx.step("pay", bank.pay, "book", effect="once")

        return f"{await ctx.step('outer', outer)}, round {ctx.task.round}"

    @job.verify
    async def check(ctx: Context, text: str) -> bool:
        return "round 2" in text

    handle = await hold.submit(job)
    async with hold.worker():
        assert await ended(handle) == "receipt for book, round 2"
    assert bank.paid == ["book"]


async def test_what_was_done_inside_a_step_is_undone_before_the_step_itself(hold: Holdfast) -> None:
    log: list[str] = []

    async def do(what: str) -> str:
        log.append(what)
        return what

    async def undo(_: str, what: str) -> None:
        log.append(f"undo {what}")

    async def undo_trip(_: None) -> None:
        log.append("undo trip")

    async def decline() -> None:
        raise PermissionError("card declined")

    @hold.task(retry=ONE_TRY)
    async def trip(ctx: Context) -> None:
        async def bookings() -> None:
            await ctx.step("flight", do, "flight", compensate=undo)
            await ctx.step("hotel", do, "hotel", effect="once", compensate=undo)

        await ctx.step("bookings", bookings, compensate=undo_trip)
        await ctx.step("pay", decline)

    handle = await hold.submit(trip)
    async with hold.worker():
        with pytest.raises(TaskFailed, match="declined"):
            await ended(handle)
    assert log == ["flight", "hotel", "undo hotel", "undo flight", "undo trip"]
    assert await hold.doubts() == []


async def test_what_is_inside_a_step_is_undone_before_it_though_another_life_ended_the_step(hold: Holdfast) -> None:
    log: list[str] = []
    booked = asyncio.Event()

    async def do(what: str) -> str:
        log.append(what)
        return what

    async def undo(_: str, what: str) -> None:
        log.append(f"undo {what}")

    async def undo_trip(_: None) -> None:
        log.append("undo trip")

    async def decline() -> None:
        raise PermissionError("card declined")

    @hold.task(retry=ONE_TRY)
    async def trip(ctx: Context) -> None:
        async def bookings() -> None:
            await ctx.step("hotel", do, "hotel", effect="once", compensate=undo)
            if not booked.is_set():
                booked.set()
                await asyncio.Event().wait()

        await ctx.step("bookings", bookings, compensate=undo_trip)
        await ctx.step("pay", decline)

    handle = await hold.submit(trip)
    async with crashing_worker(hold):
        await booked.wait()
    async with hold.worker():
        with pytest.raises(TaskFailed, match="declined"):
            await ended(handle)
    assert log == ["hotel", "undo hotel", "undo trip"]


async def test_waits_and_compensations_inside_a_once_step_are_refused_at_the_call(quick: Holdfast) -> None:
    @quick.task
    async def child(ctx: Context) -> int:
        return 1

    async def undo(_: object) -> None: ...

    async def one() -> int:
        return 1

    refused = {}

    @quick.task(retry=ONE_TRY)
    async def job(ctx: Context) -> None:
        async def outer() -> None:
            submitted = await ctx.submit(child)
            calls: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
                "sleep": lambda: ctx.sleep(1),
                "event": lambda: ctx.wait_event("paid"),
                "approval": lambda: ctx.approval("Really?"),
                "question": lambda: ctx.ask("Which?"),
                "child": submitted.result,
                "leave": lambda: ctx.step("leave", one, approval=Ask("Really?")),
                "undo": lambda: ctx.step("undo", one, compensate=undo),
            }
            for name, call in calls.items():
                try:
                    await call()
                except Exception as error:  # noqa: BLE001 - each is looked at below
                    refused[name] = str(error)
            await ctx.step("inner", one)  # a step that only does something is fine

        await ctx.step("outer", outer, effect="once")

    handle = await quick.submit(job)
    async with quick.worker():
        await ended(handle)
    assert len(refused) == 7
    assert all("cannot be used inside step 'outer'" in message for message in refused.values())


async def test_a_wait_inside_a_step_gives_its_slot_to_what_it_waits_for(hold: Holdfast) -> None:
    ran = []

    @hold.task
    async def child(ctx: Context, number: int) -> int:
        return number

    @hold.task
    async def parent(ctx: Context, number: int) -> int:
        async def delegate() -> int:
            ran.append(number)
            return await (await ctx.submit(child, number)).result()

        return await ctx.step("delegate", delegate)

    handles = [await hold.submit(parent, number) for number in range(3)]
    async with hold.worker(concurrency=1):
        assert [await ended(handle) for handle in handles] == [0, 1, 2]
    assert sorted(ran) == [0, 1, 2], "the step stayed where it was and did not run again"


async def test_an_attempt_that_rested_comes_before_the_queue_and_keeps_to_the_concurrency(quick: Holdfast) -> None:
    running, most, order = 0, 0, []

    async def busy(name: str) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        order.append(name)
        await asyncio.sleep(0.01)
        running -= 1

    @quick.task
    async def filler(ctx: Context, name: str) -> None:
        await ctx.step("busy", busy, name)

    @quick.task
    async def waiter(ctx: Context) -> None:
        async def outer() -> None:
            await ctx.wait_event("go")
            await ctx.step("busy", busy, "waiter")

        await ctx.step("outer", outer)

    first = await quick.submit(waiter)
    async with quick.worker(concurrency=1) as worker:
        await until(lambda: len(worker._host.slots.resting()) == 1)
        fillers = [await quick.submit(filler, f"filler {n}") for n in range(20)]
        await until(lambda: len(order) > 2)
        await quick.emit("go", None)
        await ended(first)
        for handle in fillers:
            await ended(handle)
    assert most == 1
    assert order.index("waiter") < len(order) - 1


async def test_code_after_a_wait_inside_a_step_has_a_slot(quick: Holdfast) -> None:
    """It needs no further call of ctx to be work."""
    at_work, most, may_end = 0, 0, asyncio.Event()

    @quick.task
    async def waiter(ctx: Context) -> None:
        async def outer() -> None:
            nonlocal at_work, most
            await ctx.wait_event("go")
            at_work += 1
            most = max(most, at_work)
            await may_end.wait()
            at_work -= 1

        await ctx.step("outer", outer)

    async with quick.worker(concurrency=1) as worker:
        slots, handles = worker._host.slots, []
        for number in range(3):
            handles.append(await quick.submit(waiter))
            await until(lambda resting=number + 1: len(slots.resting()) == resting)  # type: ignore[misc]
        await quick.emit("go", None)
        await until(lambda: at_work > 1 or slots.busy == 3)
        may_end.set()
        for handle in handles:
            await ended(handle)
    assert most == 1


async def test_draining_hands_back_at_once_what_waits_inside_a_step(quick: Holdfast) -> None:
    @quick.task
    async def waiter(ctx: Context) -> object:
        async def outer() -> object:
            return await ctx.wait_event("go")

        return await ctx.step("outer", outer)

    handle = await quick.submit(waiter)
    async with quick.worker(grace=3600) as worker:
        await until(lambda: len(worker._host.slots.resting()) == 1)
    assert (await handle.task()).state is TaskState.PENDING
    await quick.emit("go", 42)
    async with quick.worker():
        assert await ended(handle) == 42


async def test_a_suspect_that_waits_inside_a_step_makes_room_for_what_it_waits_for(quick: Holdfast) -> None:
    """A suspect runs alone. Its worker claims nothing else, and would wait for ever for a child that it has to run."""

    @quick.task
    async def child(ctx: Context) -> str:
        return "done"

    @quick.task
    async def parent(ctx: Context) -> str:
        async def outer() -> str:
            return await (await ctx.submit(child)).result()

        return await ctx.step("outer", outer)

    handle = await quick.submit(parent)
    while (await handle.task()).deaths < ALONE_AFTER:  # a slow machine may let a lease lapse before the claim
        dying = await quick.store.register(NewWorker(lease=0.05))
        await quick.store.claim(Claim(worker_id=dying.id, number=1, limit=1, names=["parent"]))
        await until(partial(_is_swept, quick, handle))
    async with quick.worker(lease=1):
        assert await ended(handle) == "done"


async def _is_swept(hold: Holdfast, handle: Handle[str]) -> bool:
    await hold.store.sweep()
    return (await handle.task()).owner is None


async def test_a_timer_inside_a_step_goes_on_counting(still: Holdfast, clock: ManualClock) -> None:
    @still.task
    async def job(ctx: Context) -> str:
        async def outer() -> str:
            await ctx.sleep(3600)
            return "rested"

        return await ctx.step("outer", outer)

    handle = await still.submit(job)
    async with still.worker(lease=10_000):
        await reaches(handle, TaskState.RUNNING)
        await pass_time(clock, 3601, by=60)
        assert await ended(handle) == "rested"


async def test_keys_inside_a_step_can_equal_no_key_of_the_user(quick: Holdfast) -> None:
    async def one() -> int:
        return 1

    refused = []

    @quick.task
    async def job(ctx: Context) -> None:
        for call in (
            lambda: ctx.step(f"a{INSIDE}b", one),
            lambda: ctx.step("a", one, key=f"a{INSIDE}b"),
            lambda: ctx.sleep(1, key=f"a{INSIDE}b"),
            lambda: ctx.now(key=f"a{INSIDE}b"),
        ):
            with pytest.raises(Exception, match="separates a step from the steps inside it") as error:
                call()
            refused.append(error)

    handle = await quick.submit(job)
    async with quick.worker():
        await ended(handle)
    assert len(refused) == 4


async def test_steps_may_be_nested_deeper_than_a_key_is_long(hold: Holdfast) -> None:
    bank, fail = Bank(), failing(1)
    depth = 12

    @hold.task(retry=ONE_TRY)
    async def job(ctx: Context) -> str:
        async def go(level: int) -> str:
            if level < depth:
                return await ctx.step(f"{'level ' * 25}{level}", go, level + 1)
            receipt = await ctx.step("pay", bank.pay, "book", effect="once")
            fail()
            return receipt

        return await ctx.step("outermost", go, 0, retry=AT_ONCE)

    handle = await hold.submit(job)
    async with hold.worker():
        assert await ended(handle) == "receipt for book"
    assert bank.paid == ["book"]
    keys = list(await steps_of(hold, handle))
    assert len(keys) == depth + 2
    assert max(len(key.encode()) for key in keys) <= LONGEST_PATH + 200
    assert path_inside("x" * LONGEST_PATH) != path_inside("y" * LONGEST_PATH)


# Threads


async def test_a_name_shared_by_threads_is_refused_on_the_first_run(quick: Holdfast) -> None:
    @quick.task(retry=ONE_TRY)
    def report(ctx: SyncContext) -> list[str]:
        with ThreadPoolExecutor(2) as pool:

            def one(name: str) -> str:
                return ctx.step("balance", str, name)

            return list(pool.map(ctx.branch(one), ["anna", "ben"]))

    handle = await quick.submit(report)
    async with quick.worker():
        with pytest.raises(TaskFailed, match="another concurrent branch"):
            await ended(handle)


async def test_threads_with_keys_of_their_own_get_their_own_results_on_a_replay(quick: Holdfast) -> None:
    runs: list[dict[str, str]] = []

    @quick.task(retry=ONE_TRY)
    def report(ctx: SyncContext) -> dict[str, str]:
        names = ["anna", "ben", "carl", "dora"]

        def one(name: str) -> str:
            return ctx.step("balance", str, f"{name} {len(runs)}", key=f"balance-{name}")

        with ThreadPoolExecutor(4) as pool:
            found = dict(zip(names, pool.map(ctx.branch(one), names), strict=True))
        runs.append(found)
        ctx.wait_event("go")
        return found

    handle = await quick.submit(report)
    async with quick.worker():
        await reaches(handle, TaskState.WAITING)
        await quick.emit("go", None)
        assert await ended(handle) == {name: f"{name} 0" for name in ("anna", "ben", "carl", "dora")}
    assert len(runs) == 2
    assert runs[0] == runs[1]


async def test_a_call_from_a_thread_that_cannot_say_where_it_belongs_is_refused_while_a_step_is_under_way(
    quick: Holdfast,
) -> None:
    @quick.task(retry=ONE_TRY)
    def job(ctx: SyncContext) -> str:
        def outer() -> str:
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(ctx.step, "inner", str, "x").result()

        return ctx.step("outer", outer)

    @quick.task(retry=ONE_TRY)
    def better(ctx: SyncContext) -> str:
        def outer() -> str:
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(ctx.branch(ctx.step), "inner", str, "x").result()

        return ctx.step("outer", outer)

    async with quick.worker():
        with pytest.raises(TaskFailed, match=r"ctx\.branch"):
            await ended(await quick.submit(job))
        handle = await quick.submit(better)
        assert await ended(handle) == "x"
    assert (await steps_of(quick, handle))[f"outer{INSIDE}inner"].state is StepState.COMPLETED


async def test_a_task_with_flat_keys_goes_on_in_threads_that_cannot_say_where_they_belong(quick: Holdfast) -> None:
    """It was begun before there were scopes: its calls belong to no step, so there is nothing to say."""
    both_at_work = threading.Barrier(2, timeout=60)

    @quick.task(retry=ONE_TRY)
    def job(ctx: SyncContext) -> list[int]:
        def fetch(number: int) -> int:
            return ctx.step("fetch", meet, number, key=f"fetch-{number}")

        def meet(number: int) -> int:
            both_at_work.wait()
            return number

        def inside() -> int:
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(ctx.step, "inner", int, 3).result()

        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(fetch, range(2)))
        return [*found, ctx.step("outer", inside)]

    handle = await quick.submit(job)
    await quick.store.register(NewWorker(id="old", lease=60))
    await quick.store.acquire(handle.id, "old", key_form=FLAT_KEYS)
    await quick.store.retire("old")
    async with quick.worker():
        assert await ended(handle) == [0, 1, 3]
    assert {"fetch-0", "fetch-1", "outer", "inner"} == (await steps_of(quick, handle)).keys()


async def test_a_blocking_step_inside_a_blocking_step_is_done_once(quick: Holdfast) -> None:
    paid, fail = [], failing(2)

    @quick.task(retry=ONE_TRY)
    def buy(ctx: SyncContext) -> str:
        def pay() -> str:
            paid.append("book")
            return "receipt"

        def checkout() -> str:
            receipt = ctx.step("pay", pay, effect="once")
            fail()
            return receipt

        return ctx.step("checkout", checkout, retry=AT_ONCE)

    handle = await quick.submit(buy)
    async with quick.worker():
        assert await ended(handle) == "receipt"
    assert paid == ["book"]


# What goes wrong inside


async def test_a_branch_that_ignores_its_cancel_can_do_no_harm_at_any_depth(
    quick: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.attempt.scope.CLEAN_UP_TIMEOUT", 0.05)
    bank, fail, ready, go = Bank(), failing(1), asyncio.Event(), asyncio.Event()

    @quick.task(retry=ONE_TRY)
    async def job(ctx: Context) -> None:
        tries = []

        async def outer() -> None:
            tries.append(1)

            async def stubborn() -> None:
                if len(tries) == 1:
                    ready.set()
                    while not go.is_set():
                        with suppress(asyncio.CancelledError):
                            await go.wait()
                await ctx.step("pay", bank.pay, "book", effect="once")

            async def other() -> None:
                await ready.wait()
                if len(tries) == 2:
                    go.set()
                fail()

            await asyncio.gather(other(), ctx.step("a", stubborn))

        await ctx.step("outer", outer, retry=AT_ONCE)

    handle = await quick.submit(job)
    async with quick.worker():
        await ended(handle)
    assert bank.paid == ["book"]


async def test_absent_lets_a_once_step_do_again_what_failed_inside_it(quick: Holdfast) -> None:
    fail, inner_calls = failing(1), []

    async def fetch() -> str:
        inner_calls.append(1)
        fail()
        return "fetched"

    async def absent(effect_id: str) -> Absent:
        return Absent()

    @quick.task(retry=ONE_TRY)
    async def job(ctx: Context) -> str:
        async def outer() -> str:
            return await ctx.step("fetch", fetch)

        return await ctx.step("outer", outer, effect="once", reconcile=absent, settle=0, retry=AT_ONCE)

    handle = await quick.submit(job)
    async with quick.worker():
        assert await ended(handle) == "fetched"
    assert len(inner_calls) == 2


async def test_a_cancel_in_the_middle_of_a_step_undoes_what_is_completed_inside_it(quick: Holdfast) -> None:
    log, booked = [], asyncio.Event()

    async def book() -> None:
        log.append("book")

    async def unbook(_: None) -> None:
        log.append("unbook")

    @quick.task
    async def trip(ctx: Context) -> None:
        async def outer() -> None:
            await ctx.step("book", book, compensate=unbook)
            booked.set()
            await asyncio.Event().wait()

        await ctx.step("outer", outer)

    handle = await quick.submit(trip)
    async with quick.worker(lease=3):
        await booked.wait()
        await quick.cancel(handle)
        with pytest.raises(TaskCancelled):
            await ended(handle)
    assert log == ["book", "unbook"]
    assert await quick.doubts() == []


async def test_a_step_inside_which_something_was_undone_is_done_again_and_undone_in_order(quick: Holdfast) -> None:
    log: list[str] = []

    async def do(what: str) -> str:
        log.append(what)
        return what

    async def undo(_: str, what: str) -> None:
        log.append(f"undo {what}")

    broken = [True]

    @quick.task(retry=ONE_TRY)
    async def trip(ctx: Context) -> str:
        async def outer() -> None:
            await ctx.step("hotel", do, "hotel", effect="once", compensate=undo)

        async def pay() -> None:
            if broken:
                raise PermissionError("declined")

        await ctx.step("outer", outer)
        await ctx.step("pay", pay)
        await ctx.step("car", do, "car", compensate=undo)
        raise RuntimeError("too late")

    handle = await quick.submit(trip)
    async with quick.worker():
        with pytest.raises(TaskFailed):
            await ended(handle)
        assert log == ["hotel", "undo hotel"]
        broken.clear()
        await quick.resume(handle)
        with pytest.raises(TaskFailed, match="too late"):
            await ended(handle)
    assert log[2:] == ["hotel", "car", "undo car", "undo hotel"]


async def test_a_call_that_never_begins_leaves_nothing(quick: Holdfast, recwarn: pytest.WarningsRecorder) -> None:
    """A blocking task that was stopped makes such calls: whatever its thread still wants to do is discarded."""

    @quick.task
    async def work(ctx: Context) -> None:
        async def inner() -> None:
            for call in (ctx.sleep(1), ctx.charge(steps=1), ctx.step("within", asyncio.sleep, 0)):
                discard(call)

        discard(ctx.sleep(1))
        await ctx.step("outer", inner)

    async with quick.worker():
        await ended(await quick.submit(work))
    gc.collect()
    assert not recwarn.list
