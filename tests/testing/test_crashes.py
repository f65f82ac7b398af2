"""Crashes in a sandbox: they strike where they were asked to, as SIGKILL would, and a fresh worker takes over."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast import Context, Holdfast, HoldfastError, InvalidValue, SyncContext, TaskDefinition, TaskFailed, TaskState
from holdfast.model.commit import Commit, Held, Refusal
from holdfast.model.operations import Release
from holdfast.model.worker import NewWorker
from holdfast.testing import CrashDidNotHappen, sandbox
from holdfast.testing.killable import KillableCommitter, Stage
from tests.engine.support import until

hold = Holdfast("memory://")
done: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    done.clear()


async def do(what: str) -> str:
    done.append(what)
    return what


def do_blocking(what: str) -> str:
    done.append(what)
    return what


@hold.task
async def pay(ctx: Context) -> str:
    await ctx.step("reserve", do, "reserve")
    await ctx.step("charge", do, "charge")
    return await ctx.step("ship", do_blocking, "ship")


@hold.task
def pay_blocking(ctx: SyncContext) -> str:
    ctx.step("reserve", do_blocking, "reserve")
    ctx.step("charge", do_blocking, "charge")
    return ctx.step("ship", do_blocking, "ship")


@hold.task
async def pay_without_a_journal(ctx: Context) -> str:
    for what in ("reserve", "charge"):
        await do(what)
    return await ctx.step("ship", do, "ship")


@pytest.mark.parametrize("task", [pay, pay_blocking], ids=["async", "blocking"])
@pytest.mark.parametrize(
    ("when", "runs", "replays"),
    [
        ("before_effect", {"reserve": 1, "charge": 1, "ship": 1}, {"reserve": 1}),
        ("after_effect", {"reserve": 1, "charge": 2, "ship": 1}, {"reserve": 1}),
        ("after_commit", {"reserve": 1, "charge": 1, "ship": 1}, {"reserve": 1, "charge": 1}),
    ],
)
async def test_a_crash_costs_exactly_what_was_not_recorded(
    task: TaskDefinition[[], str], when: str, runs: dict[str, int], replays: dict[str, int]
) -> None:
    async with sandbox(hold) as box:
        crash = box.crash("charge", when=when)  # type: ignore[arg-type]
        handle = await hold.submit(task)
        assert await handle.result() == "ship"
        trace = await box.trace(handle)
    assert crash.happened == 1
    assert trace.runs == runs
    assert {step: done.count(step) for step in runs} == runs
    assert trace.replays == replays
    assert trace.deaths == 1
    assert trace.took == timedelta(seconds=30)  # the lease had to run out
    assert trace.reasons == ("submitted", "claimed", "its worker died", "claimed", "work done")


async def test_what_is_not_journaled_is_done_again() -> None:
    """The journal makes the difference: without it the same crash does the same thing twice."""
    async with sandbox(hold) as box:
        box.crash("ship", when="before_effect")
        await (await hold.submit(pay_without_a_journal)).result()
    assert done == ["reserve", "charge", "reserve", "charge", "ship"]


@pytest.mark.parametrize(("durable", "charges"), [(False, 2), (True, 1)])
async def test_a_crash_at_the_second_commit(durable: bool, charges: int) -> None:
    async with sandbox(hold) as box:
        box.crash_at_commit(2, durable=durable)
        await (await hold.submit(pay)).result()
    assert done.count("charge") == charges


async def test_a_lease_of_another_length_runs_out_at_its_own_time() -> None:
    async with sandbox(hold, lease=300) as box:
        box.crash("charge")
        await (await hold.submit(pay)).result()
        assert box.elapsed == timedelta(minutes=5)


async def test_a_crash_that_never_happens_fails_the_test() -> None:
    async def test() -> None:
        async with sandbox(hold) as box:
            box.crash("chrage")
            await (await hold.submit(pay)).result()

    with pytest.raises(CrashDidNotHappen, match=r"after effect of step 'chrage'.*'reserve', 'charge', 'ship'"):
        await test()


async def test_a_crash_that_happens_too_seldom_fails_the_test() -> None:
    async def test() -> None:
        async with sandbox(hold) as box:
            box.crash("charge", when="after_commit", times=2)
            await (await hold.submit(pay)).result()

    with pytest.raises(CrashDidNotHappen, match="1 of 2 times"):
        await test()


async def test_the_error_of_the_test_itself_is_the_one_that_is_seen() -> None:
    async def test() -> None:
        async with sandbox(hold) as box:
            box.crash("charge")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await test()


async def test_a_task_that_kills_every_worker_is_poison() -> None:
    async with sandbox(hold) as box:
        crash = box.crash("charge", when="before_effect", times=5)
        handle = await hold.submit(pay)
        with pytest.raises(TaskFailed, match="died"):
            await handle.result()
        trace = await box.trace(handle)
    assert crash.happened == trace.deaths == 5
    assert done == ["reserve"]


async def test_a_crash_now_hits_whatever_runs_and_nothing_is_handed_back() -> None:
    app = Holdfast("memory://")
    may_go_on = asyncio.Event()
    begun: list[str] = []
    seen: list[str] = []

    async def wait() -> None:
        begun.append("wait")
        try:
            await may_go_on.wait()
        except asyncio.CancelledError:
            seen.append("stopped")
            raise

    @app.task
    async def long(ctx: Context) -> None:
        await ctx.step("wait", wait)

    async with sandbox(app, patience=5) as box:
        handles = await app.submit_many(long, [() for _ in range(3)])
        await until(lambda: len(begun) == 3)
        box.crash_now()
        with pytest.raises(HoldfastError, match="no worker"):
            box.crash_now()
        may_go_on.set()
        await asyncio.gather(*(handle.result() for handle in handles))
        for handle in handles:
            trace = await box.trace(handle)
            assert trace.reasons == ("submitted", "claimed", "its worker died", "claimed", "work done")
            assert trace.runs == {"wait": 2}
    assert seen == ["stopped"] * 3


async def test_nothing_a_dead_worker_still_tries_is_written() -> None:
    app = Holdfast("memory://")
    tried: list[str] = []

    @app.task
    async def tidy(ctx: Context) -> str:
        try:
            await ctx.step("first", do, "first")
            await ctx.step("second", do, "second")
        finally:
            tried.append("cleaning")
            await ctx.step("clean", do, "clean")
        return "done"

    async with sandbox(app) as box:
        box.crash("second", when="before_effect")
        with box.frozen():
            handle = await app.submit(tidy)
            await box.idle()
            assert tried == ["cleaning"]
            assert [step.key for step in await app.store.steps(handle.id)] == ["first"]
            assert (await handle.task()).state is TaskState.RUNNING  # it was not given back
        assert await handle.result() == "done"
    assert done == ["first", "second", "clean"]


async def test_a_dead_worker_claims_nothing() -> None:
    async with sandbox(hold) as box:
        with box.frozen():
            await box.idle()
            box.crash_now()
            handle = await hold.submit(pay)
            await box.idle()
            assert (await handle.task()).state is TaskState.COMPLETED  # by the fresh one, and at once
            assert (await box.trace(handle)).deaths == 0


async def test_what_a_dead_worker_had_not_sent_never_arrives() -> None:
    async with hold:
        owners = [await hold.store.register(NewWorker(label=label)) for label in ("alive", "dead")]
        handles = await hold.submit_many(pay, [(), ()])
        commits = []
        for handle, owner in zip(handles, owners, strict=True):
            claimed = await hold.store.acquire(handle.id, owner.id)
            guard = Held(owner.id, claimed.fence, 1)
            commits.append(Commit(task_id=handle.id, guard=guard, operations=(Release(),)))
        committer = KillableCommitter(hold.store, Stage(dead={owners[1].id}))
        verdicts = await asyncio.gather(*map(committer.put, commits))
        assert [verdict.refusal for verdict in verdicts] == [None, Refusal.SUPERSEDED]
        assert [(await handle.task()).owner for handle in handles] == [None, owners[1].id]


async def test_commits_that_were_queued_die_with_their_worker() -> None:
    """A crash among many tasks whose Commits travel in batches: each step runs once more at most, for its one death."""
    async with sandbox(hold, concurrency=50) as box:
        crash = box.crash_at_commit(75, durable=False)
        handles = await hold.submit_many(pay, [() for _ in range(50)])
        results = await asyncio.gather(*(handle.result() for handle in handles))
        traces = [await box.trace(handle) for handle in handles]
    assert crash.happened == 1
    assert results == ["ship"] * 50
    assert any(trace.deaths for trace in traces)
    assert all(trace.runs[step] <= 1 + trace.deaths for trace in traces for step in trace.runs)
    assert sum(trace.runs.total() for trace in traces) == len(done)


async def test_a_crash_in_one_of_several_branches() -> None:
    app = Holdfast("memory://")

    @app.task
    async def fan(ctx: Context) -> list[str]:
        async with asyncio.TaskGroup() as group:
            branches = [group.create_task(ctx.step("part", do, name, key=name)) for name in ("a", "b", "c")]
        await asyncio.gather(ctx.sleep(3600, key="long"), ctx.step("rest", do, "rest"))
        return [branch.result() for branch in branches]

    async with sandbox(app) as box:
        crashes = [box.crash("b"), box.crash("rest", when="after_commit"), box.crash("long", when="after_commit")]
        handle = await app.submit(fan)
        assert await handle.result() == ["a", "b", "c"]
        assert [crash.happened for crash in crashes] == [1, 1, 1]
        assert (await box.trace(handle)).runs["rest"] == 1


async def test_a_crash_while_the_task_is_being_suspended() -> None:
    app = Holdfast("memory://")

    @app.task
    async def nap(ctx: Context) -> str:
        await ctx.step("first", do, "first")
        await ctx.sleep(timedelta(days=2))
        return await ctx.step("last", do, "last")

    for durable in (False, True):
        done.clear()
        async with sandbox(app) as box:
            box.crash_at_commit(2, durable=durable)  # the one that moves it to waiting
            handle = await app.submit(nap)
            assert await handle.result() == "last"
            took = (await box.trace(handle)).took
        assert done == ["first", "last"]
        assert took == timedelta(days=2) + (timedelta() if durable else timedelta(seconds=30))


async def test_only_steps_are_counted_as_replayed_not_waits() -> None:
    app = Holdfast("memory://")

    @app.task
    async def nap(ctx: Context) -> None:
        await ctx.step("first", do, "first")
        await ctx.sleep(timedelta(days=2))
        await ctx.step("last", do, "last")

    async with sandbox(app) as box:
        box.crash("last")
        handle = await app.submit(nap)
        await handle.result()
        assert (await box.trace(handle)).replays == {"first": 2}  # after the sleep, and after the crash


async def test_a_child_survives_its_parents_worker() -> None:
    app = Holdfast("memory://")

    @app.task
    async def child(ctx: Context) -> str:
        await ctx.sleep(timedelta(hours=1))
        return await ctx.step("work", do, "work")

    @app.task
    async def parent(ctx: Context) -> str:
        handle = await ctx.submit(child)
        return await handle.result()

    async with sandbox(app) as box:
        box.crash("submit:child", when="after_commit")
        assert await (await app.submit(parent)).result() == "work"
        assert box.commits
    assert done == ["work"]


async def test_a_verifier_is_crashed_too() -> None:
    app = Holdfast("memory://")

    @app.task
    async def make(ctx: Context) -> str:
        return await ctx.step("make", do, "make")

    @make.verify
    async def check(ctx: Context, result: str) -> bool:
        return await ctx.step("check", do, result) == "make"

    async with sandbox(app) as box:
        box.crash("verify/check")
        handle = await app.submit(make)
        assert await handle.result() == "make"
        assert (await box.trace(handle)).runs == {"make": 1, "verify/check": 2}


async def test_code_that_refuses_to_be_stopped_does_not_keep_the_next_worker_away() -> None:
    app = Holdfast("memory://")
    begun, stubborn = asyncio.Event(), asyncio.Event()

    async def refuse() -> None:
        begun.set()
        while not stubborn.is_set():
            try:
                await stubborn.wait()
            except asyncio.CancelledError:
                continue

    @app.task
    async def stay(ctx: Context) -> None:
        await ctx.step("stay", refuse)

    async with sandbox(app, patience=0.05) as box:
        handle = await app.submit(stay)
        await until(begun.is_set)
        box.crash_now()

        async def is_missed() -> bool:
            return (await handle.task()).deaths > 0

        await until(is_missed, patience=60.0)
        stubborn.set()
        await handle.result()


@pytest.mark.parametrize("when", ["before", "", "after"])
async def test_a_moment_that_does_not_exist_is_refused(when: str) -> None:
    async with sandbox(hold) as box:
        with pytest.raises(InvalidValue, match="before_effect"):
            box.crash("charge", when=when)  # type: ignore[arg-type]
        with pytest.raises(InvalidValue):
            box.crash("charge", times=0)
        with pytest.raises(InvalidValue):
            box.crash_at_commit(0, durable=True)
