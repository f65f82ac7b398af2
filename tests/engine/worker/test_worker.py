"""Workers: slots, queues, priorities, leases, deaths, and how they end."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

import asyncio
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from holdfast import (
    Context,
    Handle,
    Holdfast,
    InvalidValue,
    ManualClock,
    StoreUnavailable,
    TaskFailed,
    TaskState,
    Worker,
)
from holdfast.engine.worker import host as hosting
from holdfast.engine.worker import worker as working
from holdfast.model.worker import Claim, Claimed, WorkerState
from tests.engine.support import PATIENCE, Watched, ended, moves_of, pass_time, reaches, settle, steps_of, until, vanish

Watch = Callable[[], list[Watched]]


async def test_slots_are_refilled_one_by_one(quick: Holdfast) -> None:
    """No batch has to be over before the next task begins: one slow task holds up one slot."""
    go, most, running, done = asyncio.Event(), 0, 0, 0

    @quick.task
    async def work(ctx: Context, pace: str) -> None:
        nonlocal most, running, done
        running += 1
        most = max(most, running)
        if pace == "slow":
            await go.wait()
        await asyncio.sleep(0)
        running -= 1
        done += 1

    await quick.submit(work, "slow", priority=1)
    await quick.submit_many(work, [("fast",)] * 30)
    async with quick.worker(concurrency=3) as worker:
        await until(lambda: done == 30 and worker.running == 1)
        go.set()
        await until(lambda: done == 31)
    assert most == 3


async def test_higher_priorities_go_first_and_the_old_overtake(still: Holdfast, clock: ManualClock) -> None:
    order: list[str] = []

    @still.task
    async def work(ctx: Context, name: str) -> None:
        order.append(name)

    await still.submit(work, "old", priority=0)
    clock.advance(11 * 60)  # more than one point of priority is worth
    for name, priority in (("normal", 0), ("high", 5), ("a bit", 1), ("low", -1)):
        await still.submit(work, name, priority=priority)
        clock.advance(1)
    async with still.worker(grace=0.0, concurrency=1):
        await until(lambda: len(order) == 5)
    assert order == ["high", "old", "a bit", "normal", "low"]


async def test_a_worker_claims_only_names_it_knows_and_queues_it_was_given(hold: Holdfast) -> None:
    @hold.task
    async def known(ctx: Context) -> str:
        return ctx.task.queue

    @hold.task(queue="special")
    async def special(ctx: Context) -> str:
        return ctx.task.queue

    unknown: Handle[None] = await hold.submit("from-a-newer-version", queue="default")
    elsewhere = await hold.submit(known, queue="elsewhere")
    async with hold.worker():  # by default the queues of the defined tasks
        assert await (await hold.submit(known)).result(timeout=60) == "default"
        assert await (await hold.submit(special)).result(timeout=60) == "special"
        assert (await unknown.task()).state is (await elsewhere.task()).state is TaskState.PENDING
    async with hold.worker(queues="elsewhere"):
        assert await elsewhere.result(timeout=60) == "elsewhere"
        left = await hold.submit(known)
        await asyncio.sleep(0.02)
        assert (await left.task()).state is TaskState.PENDING


async def test_a_worker_without_tasks_waits_quietly(quick: Holdfast) -> None:
    handle: Handle[None] = await quick.submit("anything", queue="default")
    async with quick.worker() as worker:
        await asyncio.sleep(0.02)
        assert worker.running == 0
    assert (await handle.task()).state is TaskState.PENDING


async def test_tasks_of_a_worker_that_vanished_go_to_another(still: Holdfast, clock: ManualClock) -> None:
    runs: list[str] = []
    go = asyncio.Event()

    @still.task
    async def work(ctx: Context) -> str:
        await ctx.step("one", runs.append, "step")
        runs.append("code")
        await go.wait()
        return "done"

    handle = await still.submit(work)
    first = await still.worker(lease=10).__aenter__()
    await until(lambda: "code" in runs)
    await vanish(first)
    go.set()
    async with still.worker(lease=10, grace=0.0):
        await pass_time(clock, 9.0)
        assert (await handle.task()).state is TaskState.RUNNING
        await pass_time(clock, 2.0)
        assert await ended(handle) == "done"
    assert runs == ["step", "code", "code"]
    task = await handle.task()
    assert (task.deaths, task.attempts) == (1, 0)


async def test_what_a_fenced_worker_still_does_is_not_written(still: Holdfast, clock: ManualClock) -> None:
    """It slept through its lease: another one took over, and the first one wakes up and commits."""
    gates = [asyncio.Event(), asyncio.Event()]
    writers: list[int] = []

    @still.task
    async def work(ctx: Context) -> int:
        number = len(writers)
        writers.append(number)

        async def write() -> int:
            await gates[number].wait()
            return number

        return await ctx.step("write", write)

    handle = await still.submit(work)
    asleep = await still.worker(lease=10).__aenter__()
    await until(lambda: len(writers) == 1)
    for beating in asleep._host._beating:
        beating.cancel()
    assert asleep._work is not None
    asleep._work.cancel()
    async with still.worker(lease=10, grace=0.0):
        await pass_time(clock, 12.0)
        await until(lambda: len(writers) == 2)
        gates[0].set()
        await settle()
        assert (await handle.task()).state is TaskState.RUNNING
        gates[1].set()
        assert await ended(handle) == 1
    assert asleep.running == 0
    await vanish(asleep)


async def test_a_worker_whose_lease_ran_out_here_starts_nothing_more(still: Holdfast, clock: ManualClock) -> None:
    ran: list[str] = []
    go = asyncio.Event()

    @still.task
    async def work(ctx: Context) -> None:
        await ctx.step("one", ran.append, "one")
        await go.wait()
        await ctx.step("two", ran.append, "two")

    handle = await still.submit(work)
    async with still.worker(lease=10, grace=0.0) as worker:
        await until(lambda: ran == ["one"])
        beat = worker._host._beat_once
        worker._host._beat_once = _unanswered  # type: ignore[method-assign]
        await pass_time(clock, 9.5)  # most of the lease; the task is still its own
        go.set()
        await settle()
        assert ran == ["one"]
        assert (await handle.task()).state is TaskState.RUNNING
        worker._host._beat_once = beat  # type: ignore[method-assign]
        await pass_time(clock, 1.0)
        await until(lambda: ran == ["one", "two"])


async def _unanswered() -> None:
    raise StoreUnavailable("no answer")


async def test_a_worker_declared_dead_goes_on_as_another_one(still: Holdfast, clock: ManualClock) -> None:
    runs = 0
    go = asyncio.Event()

    @still.task
    async def work(ctx: Context) -> int:
        nonlocal runs
        runs += 1
        await go.wait()
        return runs

    handle = await still.submit(work)
    async with still.worker(lease=10, grace=0.0) as worker:
        await until(lambda: runs == 1)
        dead = worker.id
        clock.advance(60)  # the whole process slept
        await still.services.store.sweep()  # and another worker noticed
        await pass_time(clock, 4.0)
        assert worker.id != dead
        await until(lambda: runs == 2)
        go.set()
        assert await ended(handle) == 2
    states = {one.id: one.state for one in await still.store.workers()}
    assert states[dead] is WorkerState.DEAD
    assert len(states) == 2  # one new incarnation, though the heartbeat and the claim both found out


async def test_the_heartbeat_and_a_claim_that_both_find_it_dead_register_one_successor(quick: Holdfast) -> None:
    async with quick.worker() as worker:
        dead = worker.id
        await asyncio.gather(worker._host.register_again(dead), worker._host.register_again(dead))
        assert worker.id != dead
        assert len(await quick.store.workers()) == 2


async def test_a_claim_whose_answer_was_lost_is_asked_again_by_its_number(quick: Holdfast) -> None:
    store = quick.services.store
    claim = store.claim
    numbers: list[int] = []

    async def lose_the_first_answer(request: Claim) -> list[Claimed]:
        numbers.append(request.number)
        claimed = await claim(request)
        if claimed and len(set(numbers)) == len(numbers):
            raise StoreUnavailable("the answer was lost")
        return claimed

    store.claim = lose_the_first_answer  # type: ignore[assignment, method-assign]

    @quick.task
    async def work(ctx: Context) -> str:
        return "done"

    handle = await quick.submit(work)
    async with quick.worker():
        assert await handle.result(timeout=60) == "done"
    assert len(numbers) > len(set(numbers))  # one of them came twice
    assert [to for _, to in await moves_of(quick, handle)] == ["pending", "running", "completed"]  # claimed once


async def test_tasks_it_owns_and_does_not_know_are_adopted(still: Holdfast, clock: ManualClock) -> None:
    @still.task
    async def work(ctx: Context) -> str:
        return "done"

    async with still.worker(lease=3, grace=0.0, queues=["none"]) as worker:
        handle = await still.submit(work)
        await still.services.store.acquire(handle.id, worker.id)  # a claim that no worker here knows of
        await pass_time(clock, 3.0 / hosting.BEATS_PER_LEASE * hosting.LOOK_FOR_STRAYS_EVERY * 3, by=0.25)
        assert await ended(handle) == "done"


async def test_a_task_that_keeps_killing_its_worker_is_set_aside_and_its_neighbours_are_not(
    still: Holdfast, clock: ManualClock
) -> None:
    begun: list[str] = []

    @still.task
    async def work(ctx: Context, name: str) -> str:
        begun.append(name)
        if name == "killer" or (await ctx._attempt.services.store.get(killer.id)).state is not TaskState.FAILED:  # type: ignore[union-attr]
            await asyncio.sleep(60)
        return name

    killer: Handle[str] = await still.submit(work, "killer", priority=1)
    neighbours = [await still.submit(work, f"neighbour {n}") for n in range(3)]
    together: list[int] = []
    for _ in range(8):
        begun.clear()
        worker = await still.worker(lease=3, grace=0.0).__aenter__()
        for _ in range(40):
            await pass_time(clock, 0.5)
            if "killer" in begun or (await killer.task()).state is TaskState.FAILED:
                break
        if (await killer.task()).state is TaskState.FAILED:
            await worker.stop(grace=0.0)
            break
        together.append(worker.running)
        await vanish(worker)
        clock.advance(4)
    task = await killer.task()
    assert (task.state, task.lone_deaths) == (TaskState.FAILED, 3)
    assert together == [4, 4, 1, 1, 1]  # after two deaths it runs alone, and only lone deaths condemn
    with pytest.raises(TaskFailed, match="3 workers died while running only this task"):
        await ended(killer)
    async with still.worker(lease=3, grace=0.0):
        for _ in range(60):
            await pass_time(clock, 0.5)
            if all([(await one.task()).state is TaskState.COMPLETED for one in neighbours]):
                break
        assert [await ended(one) for one in neighbours] == [f"neighbour {n}" for n in range(3)]


async def test_a_worker_that_stops_lets_tasks_finish(hold: Holdfast) -> None:
    began, go = asyncio.Event(), asyncio.Event()

    @hold.task
    async def work(ctx: Context) -> str:
        began.set()
        await go.wait()
        return "finished"

    async def submit_while_it_stops(worker: Worker) -> Handle[str]:
        await until(lambda: worker._work is None)
        later = await hold.submit(work)
        await asyncio.sleep(0.05)
        go.set()
        return later

    handle = await hold.submit(work)
    async with hold.worker(grace=PATIENCE) as worker:
        await began.wait()
        submitting = asyncio.create_task(submit_while_it_stops(worker))
    later = await submitting
    assert (await handle.task()).state is TaskState.COMPLETED
    assert (await later.task()).state is TaskState.PENDING  # a worker that stops claims nothing more
    assert {one.state for one in await hold.store.workers()} == {WorkerState.DEAD}


async def test_what_does_not_finish_in_time_is_handed_back_without_blame(hold: Holdfast) -> None:
    began = asyncio.Event()

    @hold.task
    async def work(ctx: Context) -> str:
        await ctx.step("one", int)
        if not began.is_set():
            began.set()
            await asyncio.sleep(60)
        return "done"

    handle = await hold.submit(work)
    async with hold.worker(grace=0.02):
        await began.wait()
    task = await handle.task()
    assert (task.state, task.owner, task.deaths, task.attempts) == (TaskState.PENDING, None, 0, 0)
    assert (await hold.store.history(handle.id))[-1].reason == "handed back"
    async with hold.worker():
        assert await handle.result(timeout=60) == "done"


async def test_an_error_in_the_block_does_not_wait_for_the_grace(quick: Holdfast) -> None:
    began = asyncio.Event()

    @quick.task
    async def work(ctx: Context) -> None:
        began.set()
        await asyncio.sleep(60)

    handle = await quick.submit(work)

    async def fail() -> None:
        async with quick.worker(grace=60):
            await began.wait()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert (await handle.task()).state is TaskState.PENDING


async def test_drain_and_join(quick: Holdfast) -> None:
    began, go = asyncio.Event(), asyncio.Event()

    @quick.task
    async def work(ctx: Context) -> str:
        began.set()
        await go.wait()
        return "finished"

    handle = await quick.submit(work)
    async with quick.worker(grace=30) as worker:
        await began.wait()
        joining = asyncio.create_task(worker.join())
        await asyncio.sleep(0.01)
        assert not joining.done()
        worker.drain()
        await asyncio.sleep(0.01)
        assert not joining.done()
        go.set()
        await joining
        await worker.stop(grace=0.0)  # twice is fine
    assert await handle.result() == "finished"


async def test_force_does_not_wait(quick: Holdfast) -> None:
    began = asyncio.Event()

    @quick.task
    async def work(ctx: Context) -> None:
        began.set()
        await asyncio.sleep(60)

    handle = await quick.submit(work)
    async with quick.worker(grace=60) as worker:
        await began.wait()
        joining = asyncio.create_task(worker.join())
        worker.drain()
        await asyncio.sleep(0.01)
        worker.force()
        async with asyncio.timeout(30):  # and not for the grace
            await joining
    assert (await handle.task()).state is TaskState.PENDING


async def test_code_that_ignores_being_stopped_is_left_behind(still: Holdfast, clock: ManualClock) -> None:
    go = asyncio.Event()

    @still.task
    async def work(ctx: Context) -> str:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        return "stubborn"

    handle = await still.submit(work)
    worker = await still.worker(grace=0.0).__aenter__()
    await reaches(handle, TaskState.RUNNING)
    stopping = asyncio.create_task(worker.stop(grace=0.0))
    await pass_time(clock, hosting.HAND_BACK_TIMEOUT + 0.5)
    await asyncio.wait_for(stopping, PATIENCE)
    task = await handle.task()
    assert (task.state, task.owner) == (TaskState.PENDING, None)
    go.set()
    await settle()
    assert await handle.task() == task


async def test_two_workers_share_the_work(hold: Holdfast) -> None:
    by: dict[str, int] = {}
    both = asyncio.Event()

    @hold.task
    async def work(ctx: Context) -> None:
        by[ctx.task.owner or ""] = by.get(ctx.task.owner or "", 0) + 1
        if len(by) == 2:
            both.set()
        await both.wait()  # the first to claim has only two slots, and leaves the rest to the other one

    handles = await hold.submit_many(work, [()] * 40)
    async with hold.worker(concurrency=2), hold.worker(concurrency=2):
        for handle in handles:
            await handle.result(timeout=60)
    assert sum(by.values()) == 40
    assert len(by) == 2


async def test_the_worker_goes_on_when_the_store_comes_back(quick: Holdfast) -> None:
    store = quick.services.store
    sweep, failures = store.sweep, 0

    async def fail(limit: int = 100) -> Any:  # noqa: ANN401
        nonlocal failures
        if failures < 1:
            failures += 1
            raise StoreUnavailable("no answer")
        return await sweep(limit)

    store.sweep = fail  # type: ignore[method-assign]

    @quick.task
    async def work(ctx: Context) -> str:
        return "done"

    handle = await quick.submit(work)
    async with quick.worker():
        assert await handle.result(timeout=60) == "done"
    assert failures == 1


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"concurrency": 1.5}, {"label": ""}, {"lease": 0}])
async def test_a_worker_that_makes_no_sense_is_refused(quick: Holdfast, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        await quick.worker(**options).__aenter__()


async def test_leases_on_every_store(hold: Holdfast) -> None:
    runs = 0

    @hold.task
    async def work(ctx: Context) -> str:
        nonlocal runs
        await ctx.step("one", int)
        runs += 1
        if runs == 1:
            await asyncio.sleep(60)
        return "done"

    handle = await hold.submit(work)
    first = await hold.worker(lease=3).__aenter__()
    await until(lambda: runs == 1)
    await vanish(first)
    async with hold.worker():
        # Longer than the lease: within it after the server's start, which may be recent, no worker is declared dead.
        assert await ended(handle) == "done"
    assert (await handle.task()).deaths == 1
    assert (await steps_of(hold, handle))["one"].attempts == 1


async def test_a_loop_that_stands_still_is_reported_and_a_pause_is_not(
    still: Holdfast, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    go = asyncio.Event()

    @still.task
    async def work(ctx: Context) -> None:
        await go.wait()

    def warnings() -> list[str]:
        return [record.message for record in caplog.records if "was blocked" in record.message]

    handle = await still.submit(work)
    async with still.worker(label="slow", grace=0.0, lease=3 * hosting.BEATS_PER_LEASE):
        await reaches(handle, TaskState.RUNNING)
        await pass_time(clock, 9)
        assert warnings() == []
        clock.advance(3 + hosting.BLOCKED_AFTER + 0.5)
        await until(warnings)
        go.set()
        await ended(handle)
    [words] = warnings()
    assert re.match(r"the event loop of worker slow was blocked for \d\.\d s \(tasks on it: 1\) by blocking", words)


@pytest.mark.parametrize("at_once", [True, False])
async def test_idle_workers_share_what_comes(url: str, at_once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where one of them hears of it first, and has room for all of it."""
    monkeypatch.setattr(working, "YIELD_TO_OTHERS", 0.5)  # a hint may come late on a busy machine
    gate = asyncio.Event()

    def work_on(hold: Holdfast) -> None:
        @hold.task
        async def work(ctx: Context) -> None:
            await gate.wait()

    holds = [Holdfast(url)]
    if not url.startswith(("memory", "json")):  # of which only one process at a time has the file
        holds.append(Holdfast(url))
    async with AsyncExitStack() as opened:
        for hold in holds:
            work_on(await opened.enter_async_context(hold))
        workers = [await opened.enter_async_context(hold.worker(concurrency=10, lease=600)) for hold in (holds * 2)[:2]]
        # A worker that thinks that it is alone looks again within seconds, however long its lease is.
        await until(lambda: all(worker._others == 1 for worker in workers))
        if at_once:
            await holds[0].submit_many("work", [()] * 10)
            await until(lambda: sum(worker.running for worker in workers) == 10)
        else:
            for number in range(1, 11):
                await holds[0].submit("work")
                await until(lambda number=number: sum(worker.running for worker in workers) == number)  # type: ignore[misc]
        taken = [worker.running for worker in workers]
        gate.set()
        assert min(taken) >= 1, taken


async def test_a_lone_worker_does_not_wait_for_others(still: Holdfast) -> None:
    """Nor one beside workers that could not claim what it can: its time stands still here, and it takes all at once."""
    gate = asyncio.Event()

    @still.task
    async def work(ctx: Context) -> None:
        await gate.wait()

    @still.task(queue="elsewhere")
    async def other(ctx: Context) -> None: ...

    async with (
        still.worker(concurrency=10, queues=["default"]) as lone,
        still.worker(concurrency=10, queues=["elsewhere"]) as stranger,
    ):
        for count in (3, 10):
            await still.submit_many(work, [()] * (count - lone.running))
            await until(lambda count=count: lone.running == count)  # type: ignore[misc]
        assert (lone._others, stranger._others) == (0, 0)
        gate.set()
