"""Tasks that only wait on their worker: they have no slot, no death counts for them, and too many are put off."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Ask, Context, Handle, Holdfast, ManualClock, StepState, SyncContext, TaskState, Worker
from holdfast.engine.attempt.residence import LEAST_REST
from holdfast.engine.steps import approval as approving
from holdfast.engine.steps.suspension import SPILLED_FOR, SPILLED_KEY
from holdfast.engine.worker import host as hosting
from holdfast.engine.worker import slots as slotting
from holdfast.engine.worker import worker as working
from holdfast.model.commit import Commit, Held
from holdfast.model.operations import Rest
from holdfast.model.worker import POISON_AFTER, QUIET_FOR, Claim, Claimed, NewWorker
from tests.engine.support import count_moves, ended, pass_time, settle, until, vanish

LONG = 300.0
"""Seconds of a lease that no machine is slow enough to miss."""


async def through_a_queue(wait: Callable[[], Any]) -> Any:  # noqa: ANN401
    """Wait as frameworks of agents do: in an asyncio task beside others, whose answer comes through a queue."""
    answers: asyncio.Queue[Any] = asyncio.Queue()

    async def tool() -> None:
        await answers.put(await wait())

    job = asyncio.create_task(tool())
    try:
        return await answers.get()
    finally:
        job.cancel()


async def rested(handle: Handle[Any], clock: ManualClock, *, seconds: float = 0.0) -> None:
    """Let time pass until the store knows that the task rests, and has heard of its worker so long after that."""

    async def is_resting() -> bool:
        clock.advance(0.1 if seconds == 0 else 1.0)
        await settle()
        task = await handle.task()
        if not task.resting or task.updated_at is None:
            return False
        [seen_at] = [one.seen_at for one in await handle._services.store.workers() if one.id == task.owner]
        return seen_at - task.updated_at >= timedelta(seconds=seconds)

    await until(is_resting)


@asynccontextmanager
async def killed_worker(hold: Holdfast, clock: ManualClock, **options: Any) -> AsyncIterator[Worker]:  # noqa: ANN401
    """A worker that dies at the end of the block, and is known to be dead."""
    worker = await hold.worker(**{"lease": LONG, "grace": 0.0} | options).__aenter__()
    yield worker
    await vanish(worker)
    clock.advance(LONG)
    await hold.store.sweep()


async def test_tasks_that_wait_for_people_leave_their_slots_to_others(hold: Holdfast) -> None:
    runs = 0

    @hold.task
    async def ask(ctx: Context, number: int) -> str:
        nonlocal runs
        runs += 1
        await through_a_queue(lambda: ctx.approval("ok?", details=number, key="ok"))
        return await ctx.step("act", lambda: f"acted {number}")

    @hold.task
    async def quick(ctx: Context) -> str:
        return "quick"

    asking = await hold.submit_many(ask, [(number,) for number in range(5)])
    async with hold.worker(concurrency=2) as worker:

        async def all_asked() -> bool:
            return len(await hold.approvals()) == 5

        await until(all_asked)
        assert await ended(await hold.submit(quick)) == "quick"
        await until(lambda: worker.running == 5)
        for approval in await hold.approvals():
            await hold.approve(approval.id, by="ann")
        assert [await ended(handle) for handle in asking] == [f"acted {number}" for number in range(5)]
    assert runs == 5  # each was answered where it waited
    assert [await count_moves(hold, handle, TaskState.WAITING) for handle in asking] == [0] * 5


async def test_no_death_counts_for_a_task_that_rests(timed: Holdfast, clock: ManualClock) -> None:
    inside: list[bool] = []

    @timed.task
    async def ask(ctx: Context) -> str:
        await ctx.step("before", lambda: 1)
        await through_a_queue(lambda: ctx.wait_event("answer"))

        async def act() -> str:
            inside.append((await handle.task()).resting)
            return "acted"

        return await ctx.step("act", act)

    handle = await timed.submit(ask)
    for _ in range(3):
        async with killed_worker(timed, clock):
            await rested(handle, clock, seconds=QUIET_FOR)
            steps = {step.key: step.state for step in await timed.store.steps(handle.id)}
            assert steps["event:answer"] is StepState.PENDING  # people see what it waits for
        task = await handle.task()
        assert (task.state, task.deaths, task.resting) == (TaskState.PENDING, 0, False)
    async with timed.worker(lease=LONG, grace=0.0):
        await rested(handle, clock)
        await timed.emit("answer", "yes")
        assert await ended(handle) == "acted"
    assert inside == [False]  # the store knew that it works again, before it did


async def test_a_task_that_works_again_may_die(still: Holdfast, clock: ManualClock) -> None:
    @still.task
    async def ask(ctx: Context) -> None:
        await through_a_queue(lambda: ctx.wait_event("answer"))
        await ctx.step("endless", lambda: asyncio.sleep(10_000))

    handle = await still.submit(ask)
    async with killed_worker(still, clock):
        await rested(handle, clock)
        await still.emit("answer", "yes")
        await pass_time(clock, 2.0)
        assert not (await handle.task()).resting
    assert (await handle.task()).deaths == 1


async def test_branches_that_wake_together_all_wait_for_the_note(still: Holdfast, clock: ManualClock) -> None:
    """Whichever comes first writes it; none of them begins before it is written."""
    inside: list[bool] = []

    @still.task
    async def ask(ctx: Context) -> str:
        async def branch(number: int) -> None:
            await ctx.wait_event(f"answer {number}", key=f"wait {number}")

            async def act() -> None:
                inside.append((await handle.task()).resting)

            await ctx.step(f"act {number}", act)

        async def all_of_them() -> str:
            await asyncio.gather(*(branch(number) for number in range(3)))
            return "done"

        return str(await through_a_queue(all_of_them))

    handle = await still.submit(ask)
    async with still.worker(lease=30, grace=0.0):
        await rested(handle, clock)
        for number in range(3):
            await still.emit(f"answer {number}", "yes")
        assert await ended(handle) == "done"
    assert inside == [False] * 3


async def test_too_many_residents_are_put_off_the_longest_first(still: Holdfast, clock: ManualClock) -> None:
    runs: list[int] = []

    @still.task
    async def ask(ctx: Context, number: int) -> str:
        runs.append(number)
        await through_a_queue(lambda: ctx.wait_event(f"answer {number}"))
        return f"answered {number}"

    async with still.worker(lease=30, grace=0.0, residents=1) as worker:
        handles = []
        for number in range(3):
            handles.append(await still.submit(ask, number))
            await pass_time(clock, 0.3, by=0.1)
        await pass_time(clock, LEAST_REST + 3.0)
        assert [(await handle.task()).state for handle in handles] == ["waiting", "waiting", "running"]
        assert worker.running == 1
        for number in range(3):
            await still.emit(f"answer {number}", "yes")
        assert [await ended(handle) for handle in handles] == [f"answered {number}" for number in range(3)]
    assert sorted(runs) == [0, 0, 1, 1, 2]


async def test_what_was_put_off_comes_back_by_itself_less_and_less_often(still: Holdfast, clock: ManualClock) -> None:
    """What it waits for besides is not known; so it has to look now and then."""
    runs = 0

    @still.task
    async def ask(ctx: Context) -> str:
        nonlocal runs
        runs += 1
        for turn in ("first", "second"):
            await through_a_queue(lambda turn=turn: ctx.wait_event(turn))  # type: ignore[misc]
        return "done"

    handle = await still.submit(ask)
    async with still.worker(lease=30, grace=0.0, residents=0):
        for expected in (1, 2, 4):
            for _ in range(int(LEAST_REST * expected) + 5):
                await pass_time(clock, 1.0)
                if (await handle.task()).state is TaskState.WAITING:
                    break
            assert await seconds_away(still, handle, clock) == pytest.approx(SPILLED_FOR * expected, abs=10)
            clock.advance(SPILLED_FOR * expected)
        await pass_time(clock, 4.0)
        await still.emit("first", "yes")  # it gets ahead: the next time counts from the beginning
        await pass_time(clock, LEAST_REST + 3.0)
        assert await seconds_away(still, handle, clock) == pytest.approx(SPILLED_FOR, abs=10)
        await still.emit("second", "yes")
        assert await ended(handle) == "done"
    assert runs == 5


async def seconds_away(hold: Holdfast, handle: Handle[Any], clock: ManualClock) -> float:
    """Return in how many seconds a task comes back that was put off."""
    assert (await handle.task()).state is TaskState.WAITING
    swept = await hold.store.sweep()
    assert swept.next_due is not None
    lines = {step.key: step for step in await hold.store.steps(handle.id)}
    assert lines[SPILLED_KEY].kind == "spilled"
    return (swept.next_due - clock.now()) / timedelta(seconds=1)


async def test_a_resident_is_handed_back_at_once_when_its_worker_stops(quick: Holdfast) -> None:
    @quick.task
    async def ask(ctx: Context) -> None:
        await through_a_queue(lambda: ctx.wait_event("never"))

    handle = await quick.submit(ask)
    async with quick.worker(grace=3600) as worker:
        await until(worker._host.slots.resting)
    assert (await handle.task()).state is TaskState.PENDING


@pytest.mark.parametrize("how", ["cancel", "deadline"])
async def test_a_cancel_and_a_deadline_reach_a_resident(still: Holdfast, clock: ManualClock, how: str) -> None:
    @still.task
    async def ask(ctx: Context) -> None:
        await through_a_queue(lambda: ctx.wait_event("never"))

    handle = await still.submit(ask, deadline=clock.now() + timedelta(seconds=20))
    async with still.worker(lease=30, grace=0.0):
        await rested(handle, clock)
        if how == "cancel":
            await handle.cancel("enough")
        await pass_time(clock, 20.0)
        expected = TaskState.CANCELLED if how == "cancel" else TaskState.FAILED
        assert (await handle.task()).state is expected


async def test_a_resident_that_gets_no_slot_goes_back_into_the_queue(still: Holdfast, clock: ManualClock) -> None:
    @still.task
    async def ask(ctx: Context) -> str:
        await through_a_queue(lambda: ctx.wait_event("answer"))
        return "answered"

    @still.task
    async def long(ctx: Context) -> None:
        await ctx.step("long", lambda: asyncio.sleep(10_000))

    handle = await still.submit(ask)
    async with still.worker(lease=30, grace=0.0, concurrency=1):
        await rested(handle, clock)
        await still.submit(long)
        await pass_time(clock, 2.0)
        await still.emit("answer", "yes")
        await pass_time(clock, slotting.PATIENCE + 1.0)
        task = await handle.task()
        assert (task.state, task.owner) == (TaskState.PENDING, None)
        async with still.worker(lease=30, grace=0.0, concurrency=1):
            assert await ended(handle) == "answered"


async def test_a_full_worker_says_who_has_its_slots(
    still: Holdfast, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    @still.task
    async def long(ctx: Context) -> None:
        await ctx.step("upload", lambda: asyncio.sleep(10_000))

    async with still.worker(lease=30, grace=0.0, concurrency=2, label="busy"):
        await still.submit_many(long, [(), ()])
        with caplog.at_level(logging.WARNING, "holdfast"):
            await pass_time(clock, hosting.FULL_AFTER + 5)
            assert "no free slot" not in caplog.text  # it waits for no slot
            await still.submit(long)
            await pass_time(clock, hosting.FULL_AFTER + 5)
        [said] = [one.getMessage() for one in caplog.records if "no free slot" in one.getMessage()]
    assert "worker busy" in said
    assert "1 of its tasks are ready; its 2 slots are held by long: 2, such as" in said
    assert "in 'upload'" in said


async def test_a_once_call_is_never_made_by_a_task_that_rests(
    timed: Holdfast, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two branches ask for an approval, and one of them gets it: between approval and call the other one looks."""
    inside: list[tuple[bool, int]] = []
    go = asyncio.Event()

    @timed.task
    async def pay_both(ctx: Context) -> list[str]:
        async def pay(number: int) -> str:
            inside.append(((await handle.task()).resting, len(worker._host.slots.resting())))
            await go.wait()
            return f"paid {number}"

        def branch(number: int) -> Any:  # noqa: ANN401
            return ctx.step(f"pay {number}", pay, number, effect="once", approval=Ask(f"pay {number}?"))

        return list(await asyncio.gather(branch(1), branch(2)))

    obtain = approving.obtain

    async def obtain_and_dawdle(*args: Any) -> Any:  # noqa: ANN401
        got = await obtain(*args)
        await settle(20)
        return got

    monkeypatch.setattr(approving, "obtain", obtain_and_dawdle)
    handle = await timed.submit(pay_both)
    async with timed.worker(lease=LONG, grace=LONG, concurrency=1, residents=0) as worker:

        async def is_asked() -> bool:
            return len(await timed.approvals()) == 2

        await until(is_asked)
        for approval in await timed.approvals():
            if approval.question == "pay 1?":
                await timed.approve(approval.id, by="ann")
        await until(lambda: inside)
        for _ in range(20):
            clock.advance(1.0)
            await settle()
        assert inside == [(False, 0)]
        assert worker._host.slots.resting() == []
        go.set()
        for approval in await timed.approvals():
            await timed.approve(approval.id, by="ann")
        assert await ended(handle) == ["paid 1", "paid 2"]
    assert inside == [(False, 0)] * 2


async def test_a_verifier_is_work_whatever_the_work_has_left_waiting(still: Holdfast, clock: ManualClock) -> None:
    seen: list[tuple[bool, int]] = []

    async def verify(ctx: Context, result: str) -> bool:
        seen.append(((await handle.task()).resting, len(worker._host.slots.working)))
        await ctx.step("look", lambda: asyncio.sleep(0))
        return True

    @still.task
    async def work(ctx: Context) -> str:
        left = asyncio.create_task(ctx.wait_event("never"))
        await over.wait()
        assert not left.done()
        return "done"

    work.verify(verify)
    over = asyncio.Event()
    handle = await still.submit(work)
    async with still.worker(lease=LONG, grace=0.0) as worker:
        await rested(handle, clock)
        over.set()
        assert await ended(handle) == "done"
    assert seen == [(False, 1)]
    assert await count_moves(still, handle, TaskState.WAITING) == 0


async def test_a_slot_that_is_being_claimed_for_is_taken(quick: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resident that wakes while a claim is under way must not take the place of what is claimed."""
    at_once, most = 0, 0
    claiming, go = asyncio.Event(), asyncio.Event()

    async def act() -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.01)
        at_once -= 1

    @quick.task
    async def ask(ctx: Context) -> None:
        await through_a_queue(lambda: ctx.wait_event("answer"))
        await ctx.step("act", act)

    @quick.task
    async def plain(ctx: Context) -> None:
        await ctx.step("act", act)

    claim = quick.store.claim

    async def claim_slowly(asked: Claim) -> list[Claimed]:
        found = await claim(asked)
        if found and found[0].task.name == "plain":
            claiming.set()
            await go.wait()
        return found

    asking = await quick.submit(ask)
    async with quick.worker(concurrency=1) as worker:
        await until(worker._host.slots.resting)
        monkeypatch.setattr(quick.services.store, "claim", claim_slowly)
        working_too = await quick.submit(plain)
        await claiming.wait()
        await quick.emit("answer", "yes")
        await settle()
        go.set()
        await ended(asking)
        await ended(working_too)
    assert most == 1


async def test_a_spill_keeps_the_waits_of_branches_that_just_look(
    still: Holdfast, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise what they wait for would wake the task only with the timer."""
    looking = asyncio.Event()

    @still.task
    async def ask(ctx: Context) -> str:
        return str(await through_a_queue(lambda: ctx.wait_event("answer")))

    events = still.services.store.events

    async def look_long(channel: str, **options: Any) -> Any:  # noqa: ANN401
        found = await events(channel, **options)
        if looking.is_set():
            await asyncio.sleep(0.05)
        return found

    monkeypatch.setattr(still.services.store, "events", look_long)
    handle = await still.submit(ask)
    async with still.worker(lease=LONG, grace=0.0) as worker:
        await rested(handle, clock)
        [attempt] = worker._host.slots.resting()
        assert attempt.residence.branches is not None
        looking.set()
        clock.advance(1.0)
        await until(lambda: attempt.residence.branches is not None and not attempt.residence.branches._parked)
        attempt.residence.spill()
        await until(lambda: worker.running == 0)
        looking.clear()
        assert (await handle.task()).state is TaskState.WAITING
        await still.emit("answer", "yes")
        assert await ended(handle) == "yes"


async def test_what_comes_to_rest_on_a_worker_that_stops_is_handed_back(quick: Holdfast) -> None:
    go = asyncio.Event()

    @quick.task
    async def ask(ctx: Context) -> None:
        await ctx.step("first", go.wait)
        await through_a_queue(lambda: ctx.wait_event("never"))

    handle = await quick.submit(ask)
    async with quick.worker(grace=3600) as worker:
        await until(lambda: any(attempt.under_way.keys for attempt in worker._host.attempts.values()))
        stopping = asyncio.create_task(worker.stop(grace=3600))
        await until(lambda: worker._host.slots.is_closing)
        go.set()
        await stopping
    assert (await handle.task()).state is TaskState.PENDING


async def test_a_blocking_task_whose_own_thread_works_is_not_suspended(quick: Holdfast) -> None:
    """The thread may be what brings the awaited thing."""
    runs = 0
    slow = threading.Event()

    @quick.task
    def job(ctx: SyncContext) -> object:
        nonlocal runs
        runs += 1

        def helper() -> None:
            slow.wait(60)
            ctx.progress(1)

        with ThreadPoolExecutor(1) as pool:
            helping = pool.submit(ctx.branch(helper))
            got = ctx.wait_event("go")
            helping.result()
        return got

    handle = await quick.submit(job)
    async with quick.worker() as worker:
        await until(worker._host.slots.resting)
        slow.set()
        await quick.emit("go", 42)
        assert await ended(handle) == 42
    assert runs == 1


async def test_a_note_that_outlived_its_attempt_is_set_right(still: Holdfast, clock: ManualClock) -> None:
    inside: list[bool] = []

    @still.task
    async def work(ctx: Context) -> str:
        inside.append((await handle.task()).resting)
        return "done"

    handle = await still.submit(work)
    async with still.worker(lease=LONG, grace=0.0, queues=["none"]) as worker:
        claimed = await still.store.acquire(handle.id, worker.id)
        guard = Held(worker.id, claimed.fence, 1)
        await still.store.commit(
            [Commit(task_id=handle.id, guard=guard, operations=(Rest(resting=True),), actor=worker.id)]
        )
        worker._host.begin(await still.store.acquire(handle.id, worker.id))
        assert await ended(handle) == "done"
    assert inside == [False]


# Suspects


async def suspect(hold: Holdfast, clock: ManualClock, handle: Handle[Any], *, queue: str = "default") -> None:
    """Let two workers die with the task."""
    name = (await handle.task()).name
    for number in range(2):
        dying = NewWorker(lease=3)
        await hold.store.register(dying)
        claim = Claim(worker_id=dying.id, number=number + 1, limit=1, queues=(queue,), names=(name,))
        assert await hold.store.claim(claim)
        clock.advance(4)
        await hold.store.sweep()
    assert (await handle.task()).deaths == 2


async def test_a_suspect_runs_beside_a_task_that_does_not_end(still: Holdfast, clock: ManualClock) -> None:
    """After a lease of making room; and a death is then no longer its alone."""
    ran: list[str] = []

    @still.task
    async def long(ctx: Context) -> None:
        await ctx.step("long", lambda: asyncio.sleep(100_000))

    @still.task
    async def short(ctx: Context, name: str) -> str:
        ran.append(name)
        if name == "suspect" and ran.count(name) == 1:
            await asyncio.sleep(100_000)
        return name

    victim = await still.submit(short, "suspect")
    await suspect(still, clock, victim)
    async with killed_worker(still, clock, lease=3):
        pass  # it looks for suspects before it claims anything else
    assert ran == []
    worker = await still.worker(lease=3, grace=0.0, queues=["other", "default"]).__aenter__()
    worker._host.suspects = False  # as if the suspect came after the long task
    await still.submit(long)
    await pass_time(clock, 0.5)
    assert worker.running == 1
    others = [await still.submit(short, f"other {number}") for number in range(2)]
    await pass_time(clock, 3.0 * working.LEASES_FOR_ROOM + 3.0)
    assert "suspect" in ran
    assert worker.running >= 2
    await vanish(worker)
    clock.advance(4)
    await still.store.sweep()
    task = await victim.task()
    assert (task.state, task.deaths, task.lone_deaths) == (TaskState.PENDING, 3, 0)
    async with still.worker(lease=3, grace=0.0):
        for _ in range(100):
            if all([(await one.task()).state is TaskState.COMPLETED for one in (victim, *others)]):
                break
            await pass_time(clock, 1.0)
        assert [await ended(one) for one in (victim, *others)] == ["suspect", "other 0", "other 1"]


async def test_after_a_while_others_run_beside_a_suspect(still: Holdfast, clock: ManualClock) -> None:
    @still.task
    async def long(ctx: Context) -> None:
        await ctx.step("long", lambda: asyncio.sleep(100_000))

    @still.task
    async def short(ctx: Context) -> str:
        return "short"

    victim = await still.submit(long)
    await suspect(still, clock, victim)
    async with killed_worker(still, clock, lease=3) as worker:
        await pass_time(clock, 1.0)
        assert worker.running == 1
        other = await still.submit(short)
        await pass_time(clock, 3.0)
        assert (await other.task()).state is TaskState.PENDING  # a death now would be the suspect's own
        await pass_time(clock, 3.0 * working.LEASES_ALONE)
        assert await ended(other) == "short"
    assert ((await victim.task()).deaths, (await victim.task()).lone_deaths) == (1, 0)  # the earlier ones are forgotten


async def test_a_killer_beside_a_long_task_is_condemned(still: Holdfast, clock: ManualClock) -> None:
    """The long one is acquitted when it has run alone for a while; then the killer has to run alone, too."""

    @still.task
    async def long(ctx: Context) -> None:
        await ctx.step("long", lambda: asyncio.sleep(100_000))

    @still.task
    async def kill(ctx: Context) -> None:
        killing.set()
        await asyncio.sleep(100_000)

    killing = asyncio.Event()
    innocent = await still.submit(long, priority=1)
    killer = await still.submit(kill)
    deaths = 0
    while (await killer.task()).state is not TaskState.FAILED:
        deaths += 1
        assert deaths < 20
        killing.clear()
        async with killed_worker(still, clock, lease=3):
            for _ in range(60):
                await pass_time(clock, 1.0)
                if killing.is_set():
                    break
            else:
                break
    assert (await killer.task()).lone_deaths == POISON_AFTER
    assert (await innocent.task()).lone_deaths == 0


async def test_a_suspect_that_waits_and_works_gets_somewhere(still: Holdfast, clock: ManualClock) -> None:
    """Nothing is claimed beside it, so it is not left to rest for long; but it is left for a while."""

    @still.task
    async def ask(ctx: Context) -> str:
        left = asyncio.create_task(ctx.wait_event("abort"))
        for _ in range(200):
            await asyncio.sleep(0)
        left.cancel()
        return await ctx.step("act", lambda: "acted")

    victim = await still.submit(ask)
    await suspect(still, clock, victim)
    async with still.worker(lease=3, grace=0.0):
        assert await ended(victim) == "acted"
    assert await count_moves(still, victim, TaskState.WAITING) == 0


async def test_a_worker_makes_no_room_for_a_suspect_it_cannot_claim(still: Holdfast, clock: ManualClock) -> None:
    @still.task
    async def long(ctx: Context) -> None:
        await ctx.step("long", lambda: asyncio.sleep(100_000))

    @still.task(queue="elsewhere")
    async def foreign(ctx: Context) -> None:
        pass

    await suspect(still, clock, await still.submit(foreign), queue="elsewhere")
    async with still.worker(lease=3, grace=0.0, queues=["default"]) as worker:
        await still.submit(long)
        await pass_time(clock, 4.0)
        for running in (2, 3):
            await still.submit(long)
            await settle()
            await pass_time(clock, 1.5)  # within the time that it would make room
            assert worker.running == running
