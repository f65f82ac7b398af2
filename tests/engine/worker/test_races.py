"""Two things at the wrong moment: interleavings that once lost a step, a cancel, a child or a whole task."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random

import pytest

from holdfast import (
    Context,
    Holdfast,
    InvalidValue,
    ManualClock,
    Retry,
    SchemaMismatch,
    StepState,
    StoreUnavailable,
    TaskCancelled,
    TaskFailed,
    TaskFilter,
    TaskState,
)
from holdfast.model.checks import MAX_NAME_LENGTH
from holdfast.model.commit import Commit, Verdict
from holdfast.model.operations import Move, SubmitChild, WriteStep
from holdfast.model.queries import Loaded
from holdfast.model.worker import Swept, WorkerState
from tests.engine.support import count_moves, ended, moves_of, pass_time, reaches, settle, steps_of, until

Send = Callable[[Sequence[Commit]], Awaitable[list[Verdict]]]

CALLERS = 5
"""More than one caller: what is sent in the same turn of the loop goes out in the same batch."""


def stand_between(hold: Holdfast, around: Callable[[Sequence[Commit], Send], Awaitable[list[Verdict]]]) -> None:
    """Have ``around`` called in place of the store whenever an attempt commits."""
    send = hold.services.committer._send

    async def send_around(commits: Sequence[Commit]) -> list[Verdict]:
        return await around(commits, send)

    hold.services.committer._send = send_around


def moves_to(commits: Sequence[Commit], state: TaskState) -> bool:
    """Say whether one of them moves its task into this state."""
    operations = [operation for commit in commits for operation in commit.operations]
    return any(isinstance(operation, Move) and operation.to is state for operation in operations)


def steps_in(commits: Sequence[Commit]) -> list[str]:
    """Return the keys of the steps that they write."""
    operations = [operation for commit in commits for operation in commit.operations]
    return [operation.step.key for operation in operations if isinstance(operation, WriteStep)]


async def send_what_no_store_takes(ctx: Context) -> str:
    """Send something that is refused by the store, with the whole batch it is in."""
    with pytest.raises(InvalidValue):
        await ctx.progress(1, float("nan"))  # type: ignore[arg-type]
    return "refused"


# Commits behind one that was refused


async def test_what_waits_behind_a_refused_commit_is_not_taken_for_a_repetition(quick: Holdfast) -> None:
    """``b`` is sent again behind ``e``, which has an old number; ``f`` comes while both are on their way back."""
    gates = {name: asyncio.Event() for name in ("bad", "b", "e", "f")}
    batches: list[list[str]] = []

    async def gated(name: str) -> str:
        await gates[name].wait()
        return name

    @quick.task
    async def work(ctx: Context) -> list[str]:
        async def bad() -> str:
            await gates["bad"].wait()
            return await send_what_no_store_takes(ctx)

        return await asyncio.gather(bad(), *(ctx.step(name, gated, name) for name in "bef"))

    async def around(commits: Sequence[Commit], send: Send) -> list[Verdict]:
        verdicts = await send(commits)
        batches.append(steps_in(commits))
        if batches[-1] == ["b"]:
            gates["e"].set()
        elif batches[-1] == ["e", "b"]:
            gates["f"].set()
            await settle()
        return verdicts

    stand_between(quick, around)
    quick.services.committer.callers = CALLERS
    handle = await quick.submit(work)
    async with quick.worker():
        await reaches(handle, TaskState.RUNNING)
        await settle()
        gates["bad"].set()
        gates["b"].set()
        assert await handle.result(timeout=60) == ["refused", "b", "e", "f"]
    assert batches[:2] == [["b"], ["e", "b"]]
    assert set("bef") <= (await steps_of(quick, handle)).keys()


async def test_no_acknowledged_step_is_lost_however_refusals_and_answers_fall(seeds: Sequence[int]) -> None:
    """Steps and refused commits end in any order, while every answer takes its own time."""
    for seed in seeds:
        await end_steps_at_random(seed)


async def end_steps_at_random(seed: int, *, tasks: int = 20) -> None:
    random = Random(seed)
    hold = Holdfast("memory://")
    steps, refusals = [f"step {number}" for number in range(8)], [f"refusal {number}" for number in range(3)]
    gates: dict[str, asyncio.Event] = {}

    async def gated(name: str) -> str:
        await gates[name].wait()
        return name

    @hold.task
    async def work(ctx: Context) -> list[str]:
        async def refused(name: str) -> str:
            await gates[name].wait()
            return await send_what_no_store_takes(ctx)

        return await asyncio.gather(*(ctx.step(name, gated, name) for name in steps), *map(refused, refusals))

    async def around(commits: Sequence[Commit], send: Send) -> list[Verdict]:
        await settle(random.randrange(4))
        verdicts = await send(commits)
        await settle(random.randrange(4))
        return verdicts

    async with hold:
        stand_between(hold, around)
        hold.services.committer.callers = CALLERS
        async with hold.worker():
            for _ in range(tasks):
                order = random.sample([*steps, *refusals], len(steps) + len(refusals))
                gates.update({name: asyncio.Event() for name in order})
                handle = await hold.submit(work)
                await reaches(handle, TaskState.RUNNING)
                for name in order:
                    gates[name].set()
                    await settle(random.randrange(5))
                assert await handle.result(timeout=60) == [*steps, *["refused"] * len(refusals)], f"seed {seed}"
                journal = await steps_of(hold, handle)
                assert set(steps) <= {key for key, step in journal.items() if step.state is StepState.COMPLETED}, (
                    f"seed {seed}"
                )


async def test_the_note_of_a_running_step_never_overwrites_its_result(still: Holdfast, clock: ManualClock) -> None:
    """The note is refused because of the commit before it; the step ends before the note would be sent again."""
    first, bad, long = asyncio.Event(), asyncio.Event(), asyncio.Event()
    written: list[list[StepState]] = []

    async def wait_for(gate: str) -> None:
        await {"first": first, "long": long}[gate].wait()

    @still.task
    async def work(ctx: Context) -> None:
        async def refused() -> str:
            await bad.wait()
            return await send_what_no_store_takes(ctx)

        await asyncio.gather(ctx.step("first", wait_for, "first"), refused(), ctx.step("long", wait_for, "long"))

    async def around(commits: Sequence[Commit], send: Send) -> list[Verdict]:
        if steps_in(commits) == ["first"]:  # under way until the refused one and the note are queued behind it
            bad.set()
            await settle()
            await pass_time(clock, 2.5)
        verdicts = await send(commits)
        if steps_in(commits) == ["long"]:
            long.set()
            await settle()
        operations = [operation for commit in commits for operation in commit.operations]
        written.append([one.step.state for one in operations if isinstance(one, WriteStep) and one.step.key == "long"])
        return verdicts

    stand_between(still, around)
    still.services.committer.callers = CALLERS
    handle = await still.submit(work)
    async with still.worker(grace=0.0, lease=60):
        await reaches(handle, TaskState.RUNNING)
        await settle()
        first.set()
        await ended(handle)
    assert [states for states in written if states] == [
        [StepState.RUNNING],
        [StepState.COMPLETED],
    ]
    assert (await steps_of(still, handle))["long"].state is StepState.COMPLETED


# Branches of a suspended task


async def test_gathered_pipelines_wake_their_task_one_by_one(quick: Holdfast) -> None:
    """What one branch does after its child has ended is what the other branch's child waits for."""

    async def tell() -> None:
        await quick.emit("second", "two")

    @quick.task
    async def listener(ctx: Context, channel: str) -> str:
        heard: str = await ctx.wait_event(channel)
        return heard

    @quick.task
    async def parent(ctx: Context) -> list[str]:
        one, two = await ctx.submit(listener, "first"), await ctx.submit(listener, "second")

        async def pipeline() -> str:
            heard = await one.result()
            await ctx.step("tell", tell)
            return heard

        async def rest() -> str:
            return await two.result()

        return list(await asyncio.gather(pipeline(), rest()))

    handle = await quick.submit(parent)
    async with quick.worker():
        await reaches(handle, TaskState.WAITING)
        await quick.emit("first", "one")
        assert await handle.result(timeout=60) == ["one", "two"]


async def test_a_branch_beside_a_gather_is_not_joined_with_it(quick: Holdfast) -> None:
    """The child that the background branch waits for ends only after the gathered ones."""

    async def tell() -> None:
        await quick.emit("last", "three")

    @quick.task
    async def listener(ctx: Context, channel: str) -> str:
        heard: str = await ctx.wait_event(channel)
        return heard

    @quick.task
    async def parent(ctx: Context) -> str:
        one, two, last = [await ctx.submit(listener, channel) for channel in ("one", "two", "last")]
        beside = asyncio.create_task(last.result())
        await asyncio.gather(one.result(), two.result())
        await ctx.step("tell", tell)
        return await beside

    handle = await quick.submit(parent)
    async with quick.worker():
        await reaches(handle, TaskState.WAITING)
        await quick.emit("one")
        await quick.emit("two")
        assert await handle.result(timeout=60) == "three"


async def test_a_step_in_the_background_is_not_suspended_under_its_feet(still: Holdfast, clock: ManualClock) -> None:
    """The root sleeps for long while a branch that is not awaited is doing a step."""
    runs = 0
    go = asyncio.Event()

    async def slow() -> str:
        nonlocal runs
        runs += 1
        await go.wait()
        return "done"

    @still.task
    async def parent(ctx: Context) -> str:
        background = asyncio.create_task(ctx.step("slow", slow))
        await ctx.sleep(60)
        return await background

    handle = await still.submit(parent)
    async with still.worker(grace=0.0, lease=600):
        await reaches(handle, TaskState.RUNNING)
        await settle()
        assert (await handle.task()).state is TaskState.RUNNING
        go.set()
        await reaches(handle, TaskState.WAITING)  # nothing is under way any more
        await pass_time(clock, 61, by=5)
        assert await ended(handle) == "done"
    assert runs == 1


async def test_a_wait_with_the_longest_key_and_a_timeout_gives_its_slot_back(still: Holdfast) -> None:
    """Its timer is stored beside it, under a key of its own that has to fit too."""

    @still.task
    async def work(ctx: Context) -> None:
        await ctx.wait_event("news", timeout=3600, key="k" * MAX_NAME_LENGTH)

    handle = await still.submit(work)
    async with still.worker(grace=0.0) as worker:
        await reaches(handle, TaskState.WAITING)
        await until(lambda: worker.running == 0)


# Cancels that come between


async def test_a_cancel_just_before_the_suspension_survives_a_store_that_fails_right_after(
    quick: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is durable before the Commit that suspends, and the next call of the store fails."""
    store, fails = quick.services.store, False

    @quick.task
    async def work(ctx: Context) -> None:
        await ctx.wait_event("never")

    handle = await quick.submit(work)
    commit = store.commit

    async def commit_if_up(commits: Sequence[Commit]) -> list[Verdict]:
        nonlocal fails
        if fails:
            fails = False
            raise StoreUnavailable("the server restarts")
        return await commit(commits)

    async def around(commits: Sequence[Commit], send: Send) -> list[Verdict]:
        nonlocal fails
        if not moves_to(commits, TaskState.WAITING):
            return await commit_if_up(commits)
        assert await quick.cancel(handle, "stop it") is TaskState.RUNNING
        verdicts = await send(commits)
        fails = True
        return verdicts

    monkeypatch.setattr(store, "commit", commit_if_up)
    stand_between(quick, around)
    async with quick.worker():
        with pytest.raises(TaskCancelled, match="stop it"):
            await handle.result(timeout=60)


async def test_a_cancel_just_before_the_suspension_survives_the_end_of_its_worker(tmp_path: Path) -> None:
    """The worker and its Holdfast are gone before they could follow the request up."""
    hold = Holdfast(f"sqlite:///{tmp_path}/hold.db")

    @hold.task
    async def work(ctx: Context) -> None:
        await ctx.wait_event("never")

    async with hold:
        suspended, store = asyncio.Event(), hold.services.store

        async def around(commits: Sequence[Commit], send: Send) -> list[Verdict]:
            if not moves_to(commits, TaskState.WAITING):
                return await send(commits)
            assert await hold.cancel(handle, "stop it") is TaskState.RUNNING
            verdicts = await send(commits)
            store.commit = too_late  # type: ignore[method-assign]
            suspended.set()
            return verdicts

        async def too_late(commits: Sequence[Commit]) -> list[Verdict]:
            await asyncio.sleep(60)
            raise AssertionError

        stand_between(hold, around)
        handle = await hold.submit(work)
        async with hold.worker(grace=0.0):
            await suspended.wait()
    async with hold:
        assert (await hold.handle(handle.id).task()).state is not TaskState.WAITING
        async with hold.worker():
            with pytest.raises(TaskCancelled, match="stop it"):
                await hold.handle(handle.id).result(timeout=60)


async def test_a_cancelled_run_by_name_leaves_the_task_to_others(quick: Holdfast) -> None:
    """``hold.run`` is cancelled while the Commit that moves its task to running is under way."""
    under_way, go = asyncio.Event(), asyncio.Event()

    @quick.task
    async def work(ctx: Context) -> str:
        return "done"

    async def around(commits: Sequence[Commit], send: Send) -> list[Verdict]:
        if moves_to(commits, TaskState.RUNNING):
            under_way.set()
            await go.wait()
        return await send(commits)

    stand_between(quick, around)
    handle = await quick.submit(work)
    running = asyncio.create_task(quick.run(handle))
    await under_way.wait()
    running.cancel()
    await settle()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    task = await handle.task()
    assert (task.state, task.owner) == (TaskState.PENDING, None)
    async with quick.worker():
        assert await handle.result(timeout=60) == "done"


async def test_a_child_that_is_born_during_the_cancel_of_its_parent_is_cancelled_too(
    still: Holdfast, clock: ManualClock
) -> None:
    """The heartbeat reports the cancel while the Commit that submits the child is under way."""
    under_way, go = asyncio.Event(), asyncio.Event()

    @still.task(queue="nowhere")
    async def child(ctx: Context) -> None: ...

    @still.task
    async def parent(ctx: Context) -> None:
        await (await ctx.submit(child)).result()

    async def around(commits: Sequence[Commit], send: Send) -> list[Verdict]:
        if any(isinstance(operation, SubmitChild) for commit in commits for operation in commit.operations):
            under_way.set()
            await go.wait()
        return await send(commits)

    stand_between(still, around)
    handle = await still.submit(parent)
    async with still.worker(queues=["default"], lease=30, grace=0.0) as worker:
        await under_way.wait()
        attempt = worker._host.attempts[handle.id]
        await handle.cancel("stop it")
        await pass_time(clock, 2)
        await until(lambda: attempt.stopping is not None)
        await settle()
        go.set()
        with pytest.raises(TaskCancelled):
            await ended(handle)
    children = await still.store.find(TaskFilter(parent_id=handle.id))
    assert [one.state for one in children.items] == [TaskState.CANCELLED]


async def test_a_cancel_during_the_last_step_does_not_wait_for_the_retry(still: Holdfast) -> None:
    """The attempt fails before it hears of the cancel, and is to be tried again in an hour."""
    began, go = asyncio.Event(), asyncio.Event()

    class Busy(Exception):
        retry_after = 3600

    @still.task
    async def work(ctx: Context) -> None:
        began.set()
        await go.wait()
        raise Busy

    handle = await still.submit(work)
    async with still.worker(grace=0.0):
        await began.wait()
        assert await handle.cancel("stop it") is TaskState.RUNNING
        go.set()
        await reaches(handle, TaskState.CANCELLED)  # though no time passes
    assert ("running", "pending") in await moves_of(still, handle)


# Callers and workers


async def test_of_two_resumes_at_once_the_slower_one_changes_nothing(quick: Holdfast) -> None:
    """The other one resumes the task, and a worker claims it, behind the look that found it failed."""
    runs = 0
    go = asyncio.Event()

    @quick.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise ConnectionError
        await go.wait()
        return "done"

    handle = await quick.submit(work)
    load = quick.services.store.load

    async def be_slow(task_id: str) -> Loaded:
        loaded = await load(task_id)
        quick.services.store.load = load  # type: ignore[method-assign]
        await quick.resume(handle)
        await reaches(handle, TaskState.RUNNING)
        return loaded

    async with quick.worker():
        with pytest.raises(TaskFailed):
            await handle.result(timeout=60)
        quick.services.store.load = be_slow  # type: ignore[assignment, method-assign]
        await quick.resume(handle)
        go.set()
        assert await handle.result(timeout=60) == "done"
    assert await count_moves(quick, handle, TaskState.RUNNING) == 2


async def test_a_worker_that_fails_logs_it_and_raises(quick: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    """Its loop ends while its caller still believes that it works."""

    async def sweep() -> Swept:
        raise SchemaMismatch("the store was migrated")

    @quick.task
    async def work(ctx: Context) -> None: ...

    quick.services.store.sweep = sweep  # type: ignore[assignment, method-assign]
    worker = quick.worker()
    with pytest.raises(SchemaMismatch, match="the store was migrated"):
        async with worker:
            await asyncio.Event().wait()  # for ever, unless the worker ends it
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "has stopped and claims no more tasks" in record.message
    assert record.exc_info is not None
    assert not asyncio.current_task().cancelling()  # type: ignore[union-attr]
    assert [one.state for one in await quick.store.workers()] == [WorkerState.DEAD]


async def test_a_stopped_worker_retires_also_inside_its_block(quick: Holdfast) -> None:
    """As in blocking code, where nothing can be cancelled: the list of workers shows that it does not work."""

    async def sweep() -> Swept:
        raise SchemaMismatch("the store was migrated")

    @quick.task
    async def work(ctx: Context) -> None: ...

    quick.services.store.sweep = sweep  # type: ignore[assignment, method-assign]
    worker = quick.worker()
    await asyncio.create_task(worker.__aenter__())

    async def is_retired() -> bool:
        return [one.state for one in await quick.store.workers()] == [WorkerState.DEAD]

    await until(is_retired)
    with pytest.raises(SchemaMismatch):
        await worker.__aexit__(None, None, None)


async def test_join_raises_what_ended_the_work(quick: Holdfast) -> None:
    async def sweep() -> Swept:
        raise SchemaMismatch("the store was migrated")

    @quick.task
    async def work(ctx: Context) -> None: ...

    quick.services.store.sweep = sweep  # type: ignore[assignment, method-assign]
    joined = False
    with pytest.raises(SchemaMismatch):  # noqa: PT012 - twice
        async with quick.worker() as worker:
            with pytest.raises(SchemaMismatch):
                await worker.join()
            joined = True
            raise SchemaMismatch
    assert joined


async def test_a_users_cancel_counts_beside_that_of_a_stopped_worker(quick: Holdfast) -> None:
    inside, go = asyncio.Event(), asyncio.Event()

    async def sweep() -> Swept:
        await go.wait()
        raise SchemaMismatch("the store was migrated")

    @quick.task
    async def work(ctx: Context) -> None: ...

    async def run() -> None:
        async with quick.worker():
            inside.set()
            await asyncio.Event().wait()

    quick.services.store.sweep = sweep  # type: ignore[assignment, method-assign]
    running = asyncio.create_task(run())
    await inside.wait()
    go.set()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_store_that_cannot_be_used_any_more_fails_no_task(quick: Holdfast) -> None:
    """The Commit of a result meets another schema. No attempt is counted, and nothing is undone."""
    undone: list[int] = []
    committer, broken, met = quick.services.committer, [True], asyncio.Event()
    commit = committer._send

    async def commit_unless_broken(commits: Sequence[Commit]) -> list[Verdict]:
        if broken and any(isinstance(one, WriteStep) and one.step.key == "second" for one in commits[0].operations):
            met.set()
            raise SchemaMismatch("the store was migrated")
        return await commit(commits)

    async def do(number: int) -> int:
        return number

    async def undo(result: int, number: int) -> None:
        undone.append(result + number)

    @quick.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> int:
        return await ctx.step("first", do, 1, compensate=undo) + await ctx.step("second", do, 2)

    committer._send = commit_unless_broken
    handle = await quick.submit(work)
    async with quick.worker(lease=1.0) as worker:
        await met.wait()
        await until(lambda: not worker.running)
        broken.clear()
    async with quick.worker():
        assert await handle.result(timeout=60) == 3
    assert (undone, (await handle.task()).attempts) == ([], 0)


async def test_a_reborn_worker_keeps_to_its_concurrency(quick: Holdfast) -> None:
    """Its lease runs out while attempts wait for their last Commit, and so take no slot."""
    go, over = asyncio.Event(), asyncio.Event()
    at_once = most = 0

    @quick.task
    async def short(ctx: Context) -> None: ...

    @quick.task
    async def long(ctx: Context) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await over.wait()
        at_once -= 1

    async def around(commits: Sequence[Commit], send: Send) -> list[Verdict]:
        await go.wait()
        return await send(commits)

    stand_between(quick, around)
    async with quick.worker(concurrency=4) as worker:
        host = worker._host
        leaving = await quick.submit_many(short, [()] * 4)
        await until(lambda: (len(host.attempts), host.slots.busy) == (4, 0))
        await quick.store.retire(worker.id)
        await host.register_again(worker.id)
        await until(lambda: host.slots.busy == 0)  # it may have claimed them again, and they leave again
        many = await quick.submit_many(long, [()] * 12)
        await until(lambda: at_once == 4)
        await settle()
        assert (most, host.slots.busy) == (4, 4)
        go.set()  # those of the dead incarnation find out, and end
        for handle in leaving:
            await reaches(handle, TaskState.PENDING, TaskState.COMPLETED)
        await settle()
        assert (most, host.slots.busy) == (4, 4)
        over.set()
        for handle in [*leaving, *many]:
            await handle.result(timeout=60)
    assert most == 4
