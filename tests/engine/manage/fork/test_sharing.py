"""What a fork shares with its origin, and what it does itself."""

import asyncio
from datetime import timedelta

import pytest

from holdfast import (
    Conflict,
    Context,
    Holdfast,
    InvalidValue,
    ManualClock,
    NotFound,
    Rejected,
    Retry,
    StepFailed,
    TaskFailed,
    TaskState,
)
from holdfast.model.task import JsonValue
from tests.engine.manage.fork.support import ONE_TRY, Ran, finish, is_over
from tests.engine.steps.approval.support import question_of
from tests.engine.support import reaches, settle, steps_of, until


async def test_a_fork_shares_the_steps_up_to_one_and_does_the_rest_itself(hold: Holdfast) -> None:
    ran = Ran()

    @hold.task
    async def work(ctx: Context, name: str) -> list[str]:
        return [await ctx.step(key, ran.note, ctx, f"{key} {name}") for key in ("a", "b", "c")]

    origin = await hold.submit(work, "first")
    [result] = await finish(hold, origin)
    fork = await hold.fork(origin, at="b")
    [forked] = await finish(hold, fork)
    assert ran[origin] == ["a first", "b first", "c first"]
    assert ran[fork] == ["c first"]
    assert forked == [*result[:2], f"c first of {fork.id}"]
    assert await origin.result() == result
    assert list(await steps_of(hold, fork)) == ["a", "b", "holdfast:fork", "c"]


async def test_a_fork_at_a_position(quick: Holdfast) -> None:
    ran = Ran()

    @quick.task
    async def work(ctx: Context) -> None:
        for key in ("a", "b", "c"):
            await ctx.step(key, ran.note, ctx, key)

    origin = await quick.submit(work)
    await finish(quick, origin)
    journal = await steps_of(quick, origin)
    fork = await quick.fork(origin, at=journal["a"].position)
    await finish(quick, fork)
    assert ran[fork] == ["b", "c"]


async def test_it_belongs_to_the_same_definition_queue_and_agent(hold: Holdfast) -> None:
    @hold.task(queue="deploys", priority=7, agent_id="devops", deadline=100)
    async def work(ctx: Context, service: str) -> str:
        return await ctx.step("a", lambda: service)

    origin = await hold.submit(work, "billing", key="k", priority=9)
    fork = await hold.fork(origin, key="again")
    there, here = await origin.task(), await fork.task()
    same = ("name", "agent_id", "queue", "priority", "user_input")
    assert [getattr(here, name) for name in same] == [getattr(there, name) for name in same]
    assert (here.id != there.id, here.key, here.parent_id) == (True, "again", None)
    assert there.deadline is not None
    assert here.deadline is not None
    assert there.created_at is not None
    assert here.created_at is not None
    assert abs((here.deadline - here.created_at) - (there.deadline - there.created_at)).total_seconds() < 1


async def test_other_arguments_meet_the_recorded_results(quick: Holdfast) -> None:
    @quick.task
    async def work(ctx: Context, name: str) -> str:
        first = await ctx.step("a", lambda given: f"a {given}", name)
        return f"{first}, {await ctx.step('b', lambda given: f'b {given}', name)}"

    origin = await quick.submit(work, "old")
    assert await finish(quick, origin) == ["a old, b old"]
    assert await finish(quick, await quick.fork(origin, at="a", user_input=("new",))) == ["a old, b new"]
    with pytest.raises(InvalidValue, match="cannot be called like this"):
        await quick.fork(origin, user_input=())
    with pytest.raises(InvalidValue, match="as a tuple"):
        await quick.fork(origin, user_input="new")


async def test_a_fork_of_a_running_task_shares_what_is_over(hold: Holdfast) -> None:
    ran, released = Ran(), asyncio.Event()

    @hold.task
    async def work(ctx: Context) -> list[str]:
        first = await ctx.step("a", ran.note, ctx, "a")
        await ctx.step("wait", released.wait)
        return [first]

    origin = await hold.submit(work)
    async with hold.worker():
        await until(lambda: is_over(hold, origin, "a"))
        fork = await hold.fork(origin)
        released.set()
        assert await origin.result(timeout=60) == await fork.result(timeout=60)
    assert (ran[origin], ran[fork]) == (["a"], [])


async def test_a_fork_at_a_step_that_is_not_over_is_refused(quick: Holdfast) -> None:
    @quick.task
    async def work(ctx: Context) -> None:
        await ctx.sleep(10_000)

    origin = await quick.submit(work)
    async with quick.worker():
        await reaches(origin, TaskState.WAITING)
        with pytest.raises(Conflict, match=r"'sleep' of task .* is pending, so it has no result to share yet"):
            await quick.fork(origin, at="sleep")
        for at in ("slep", 99):
            with pytest.raises(NotFound, match=str(at)):
                await quick.fork(origin, at=at)
        with pytest.raises(NotFound):
            await quick.fork("missing")
        with pytest.raises(InvalidValue, match="at is True"):
            await quick.fork(origin, at=True)
        await origin.cancel()
    assert [task.id for task in (await quick.store.find()).items] == [origin.id]


async def test_the_step_that_ended_a_failed_task_runs_again(hold: Holdfast) -> None:
    ran, broken = Ran(), [True]

    @hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> list[str]:
        def fragile() -> str:
            if broken:
                raise OSError("no disk")
            return ran.note(ctx, "fragile")

        return [await ctx.step("a", ran.note, ctx, "a"), await ctx.step("fragile", fragile)]

    origin = await hold.submit(work)
    with pytest.raises(TaskFailed):
        await finish(hold, origin)
    broken.clear()
    forks = [await hold.fork(origin), await hold.fork(origin, at="fragile")]
    await finish(hold, *forks)
    assert [ran[fork] for fork in forks] == [["fragile"], ["fragile"]]
    assert (await origin.task()).state is TaskState.FAILED


async def test_a_failure_that_was_handled_replays(quick: Holdfast) -> None:
    ran = Ran()

    @quick.task
    async def work(ctx: Context) -> str:
        def fails() -> None:
            ran.note(ctx, "fails")
            raise OSError("no disk")

        try:
            await ctx.step("fails", fails)
        except StepFailed as error:
            return f"{error.message}, {await ctx.step('b', ran.note, ctx, 'b')}"
        return "?"

    origin = await quick.submit(work)
    await finish(quick, origin)
    fork = await quick.fork(origin, at="fails")
    assert await finish(quick, fork) == [f"no disk, b of {fork.id}"]
    assert ran[fork] == ["b"]


async def test_a_given_approval_holds_and_an_open_one_is_asked_again(hold: Holdfast) -> None:
    @hold.task
    async def work(ctx: Context) -> list[str | None]:
        first = await ctx.approval("One?", key="one")
        second = await ctx.approval("Two?", key="two")
        return [first.by, second.by]

    origin = await hold.submit(work)
    async with hold.worker():
        await hold.approve((await question_of(hold, origin)).id, by="alice")
        await until(lambda: is_over(hold, origin, "one"))
        open_one = (await question_of(hold, origin)).id
        fork = await hold.fork(origin)
        await hold.approve((await question_of(hold, fork)).id, by="bob")
        assert await fork.result(timeout=60) == ["alice", "bob"]
        assert [one.id for one in await hold.approvals(origin)] == [open_one]
        await hold.reject(open_one, by="carol")
        with pytest.raises(TaskFailed):
            await origin.result(timeout=60)


async def test_a_rejection_that_was_handled_replays(quick: Holdfast) -> None:
    @quick.task
    async def work(ctx: Context) -> str:
        try:
            await ctx.approval("One?")
        except Rejected as error:
            return f"{error}, {await ctx.step('b', lambda: 'b')}"
        return "?"

    origin = await quick.submit(work)
    async with quick.worker():
        await reaches(origin, TaskState.WAITING)
        [question] = await quick.approvals(origin)
        await quick.reject(question.id, by="alice")
        result = await origin.result(timeout=60)
        fork = await quick.fork(origin, at="approval")
        assert await fork.result(timeout=60) == result == "'One?': rejected by alice, b"
        assert await quick.approvals(fork) == []


async def test_events_that_were_read_are_not_read_again(hold: Holdfast) -> None:
    """A wait of the fork's own takes up where the shared ones ended."""

    @hold.task
    async def work(ctx: Context) -> list[JsonValue]:
        return [await ctx.wait_event("news", key=str(number)) for number in range(3)]

    origin = await hold.submit(work)
    async with hold.worker():
        for news in ("a", "b"):
            await hold.emit("news", news)

        await until(lambda: is_over(hold, origin, "1"))
        later, sooner = await hold.fork(origin), await hold.fork(origin, at="0")
        for fork in (later, sooner):
            await reaches(fork, TaskState.WAITING)
        await hold.emit("news", "c")
        assert await origin.result(timeout=60) == await later.result(timeout=60) == ["a", "b", "c"]
        await hold.emit("news", "d")
        assert (await sooner.result(timeout=60))[0] == "a"


async def test_a_child_that_ended_is_shared_and_an_open_one_is_not(hold: Holdfast) -> None:
    ran = Ran()

    @hold.task
    async def child(ctx: Context, name: str) -> str:
        if name == "slow":
            await ctx.wait_event("go", earlier=True)
        return ran.note(ctx, name)

    @hold.task
    async def parent(ctx: Context) -> list[str]:
        quick_one = await ctx.submit(child, "quick", key="quick")
        slow_one = await ctx.submit(child, "slow", key="slow")
        return [await quick_one.result(), await slow_one.result()]

    origin = await hold.submit(parent)
    async with hold.worker():
        await until(lambda: is_over(hold, origin, "quick:result"))
        fork = await hold.fork(origin)
        await hold.emit("go")
        theirs, ours = await origin.result(timeout=60), await fork.result(timeout=60)
    assert theirs[0] == ours[0]
    assert theirs[1] != ours[1]
    assert sorted(name for names in ran.by_task.values() for name in names) == ["quick", "slow", "slow"]


async def test_a_child_that_ended_after_the_point_is_shared_too(quick: Holdfast) -> None:
    @quick.task
    async def child(ctx: Context) -> str:
        return ctx.task.id

    @quick.task
    async def parent(ctx: Context) -> str:
        submitted = await ctx.submit(child)
        await ctx.step("a", lambda: None)
        return await submitted.result()

    origin = await quick.submit(parent)
    [child_id] = await finish(quick, origin)
    assert await finish(quick, await quick.fork(origin, at="a")) == [child_id]


async def test_a_verifier_looks_at_the_forks_own_result(quick: Holdfast) -> None:
    seen: list[str] = []

    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step("a", lambda: ctx.task.id)

    @work.verify
    async def fine(ctx: Context, result: str) -> bool:
        def look() -> bool:
            seen.append(result)
            return True

        return await ctx.step("look", look)

    origin = await quick.submit(work)
    await finish(quick, origin)
    await finish(quick, await quick.fork(origin))
    assert seen == [origin.id, origin.id]


async def test_sleeps_and_the_time_of_day_are_shared(still: Holdfast, clock: ManualClock) -> None:
    @still.task
    async def work(ctx: Context) -> str:
        began = ctx.now().isoformat()
        await ctx.sleep(1)
        return await ctx.step("a", lambda: began)

    origin = await still.submit(work)
    async with still.worker():
        await settle()
        clock.advance(2)
        began = await origin.result()
        clock.advance(1000)
        fork = await still.fork(origin, at="sleep")
        assert await fork.result() == began


async def test_feedback_of_the_round_comes_along(quick: Holdfast) -> None:
    ran = Ran()

    @quick.task
    async def work(ctx: Context) -> list[str | None]:
        await ctx.step("a", ran.note, ctx, "a")
        return [ctx.feedback, await ctx.step("b", ran.note, ctx, "b")]

    @work.verify
    async def fine(_: Context, result: list[str | None]) -> bool | str:
        return True if result[0] else "too short"

    origin = await quick.submit(work)
    await finish(quick, origin)
    fork = await quick.fork(origin, at="a")
    assert (await finish(quick, fork))[0][0] == "too short"
    assert (ran[origin], ran[fork]) == (["a", "b", "a", "b"], ["b"])
    assert [(step.round, step.key) for step in await quick.store.steps(fork.id)] == [
        *((1, "a"), (1, "b")),
        *((2, "a"), (2, "holdfast:fork"), (2, "b")),
    ]
    assert (await fork.task()).round == 2


async def test_a_fork_can_be_retried_in_a_round_of_its_own(quick: Holdfast) -> None:
    """Then nothing of the shared past replays: that is what a new round is."""
    ran, broken = Ran(), [True]

    @quick.task(retry=ONE_TRY)
    async def work(ctx: Context) -> str:
        await ctx.step("a", ran.note, ctx, "a")
        if broken:
            raise OSError("no disk")
        return await ctx.step("b", ran.note, ctx, "b")

    origin = await quick.submit(work)
    with pytest.raises(TaskFailed):
        await finish(quick, origin)
    fork = await quick.fork(origin)
    with pytest.raises(TaskFailed):
        await finish(quick, fork)
    assert ran[fork] == []
    broken.clear()
    await quick.retry(fork)
    await finish(quick, fork)
    assert ran[fork] == ["a", "b"]
    positions = [step.position for step in await quick.store.steps(fork.id)]
    assert positions == sorted(positions)


async def test_the_tries_of_the_origin_are_not_the_forks(quick: Holdfast) -> None:
    """The origin has failed once and waits for its next try; the fork begins at once, with all of its tries."""
    ran = Ran()

    @quick.task(retry=Retry(max_attempts=2, initial=1000.0, jitter="none"))
    async def work(ctx: Context) -> str:
        await ctx.step("a", ran.note, ctx, "a")
        if ctx.task.id == origin.id:
            raise OSError("no disk")
        return await ctx.step("b", ran.note, ctx, "b")

    async def has_failed_once() -> bool:
        return "holdfast:attempt-1" in await steps_of(quick, origin)

    origin = await quick.submit(work)
    async with quick.worker():
        await until(has_failed_once)
        fork = await quick.fork(origin)
        await fork.result(timeout=60)
        await origin.cancel()
    assert ran[fork] == ["b"]
    assert list(await steps_of(quick, fork)) == ["a", "holdfast:fork", "b"]


async def test_a_step_between_two_tries_is_tried_at_once(quick: Holdfast) -> None:
    ran = Ran()

    @quick.task
    async def work(ctx: Context) -> str:
        def fails_there() -> str:
            if ctx.task.id == origin.id:
                raise OSError("no disk")
            return ran.note(ctx, "b")

        return await ctx.step("b", fails_there, retry=Retry(max_attempts=2, initial=1000.0, jitter="none"))

    origin = await quick.submit(work)
    async with quick.worker():
        await reaches(origin, TaskState.WAITING)
        fork = await quick.fork(origin)
        await fork.result(timeout=60)
        await origin.cancel()
    assert ran[fork] == ["b"]
    assert (await steps_of(quick, fork))["b"].attempts == 1


async def test_a_fork_of_a_task_that_undoes_its_steps_goes_on(hold: Holdfast) -> None:
    """The step that failed for the origin runs again, and nothing in the fork says that it is to be undone."""
    ran, undoing, released = Ran(), asyncio.Event(), asyncio.Event()

    async def undo(_: object) -> None:
        undoing.set()
        await released.wait()

    @hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> str:
        def fails_there() -> str:
            if ctx.task.id == origin.id:
                raise OSError("no disk")
            return ran.note(ctx, "b")

        await ctx.step("a", lambda: ran.note(ctx, "a"), compensate=undo)
        return await ctx.step("b", fails_there)

    origin = await hold.submit(work)
    async with hold.worker():
        await undoing.wait()
        fork = await hold.fork(origin)
        await fork.result(timeout=60)
        released.set()
        with pytest.raises(TaskFailed):
            await origin.result(timeout=60)
    assert ran[fork] == ["b"]
    assert (await fork.task()).state is TaskState.COMPLETED


async def test_a_fork_of_a_task_past_its_deadline_has_a_deadline_of_its_own(
    still: Holdfast, clock: ManualClock
) -> None:
    @still.task
    async def work(ctx: Context) -> None:
        await ctx.step("one", int)

    in_time = await still.submit(work, deadline=10)
    clock.advance(1000)
    assert (await still.store.sweep()).failed == (in_time.id,)
    fork = await still.fork(in_time, key="again")
    assert (await fork.task()).deadline == clock.now() + timedelta(seconds=10)
    for given in (30, timedelta(seconds=30), clock.now() + timedelta(seconds=30)):
        fork = await still.fork(in_time, deadline=given)
        assert (await fork.task()).deadline == clock.now() + timedelta(seconds=30)
        await still.run(fork)

    hopeless = await still.submit(work, deadline=clock.now())
    await still.store.sweep()
    count = (await still.summary()).tasks
    with pytest.raises(Conflict, match=r"a fork would fail at once; .* hold\.fork\('.*', deadline=\.\.\.\)"):
        await still.fork(hopeless)
    for origin in (in_time, hopeless):
        with pytest.raises(InvalidValue, match="give it a deadline in the future"):
            await still.fork(origin, deadline=clock.now())
    assert (await still.summary()).tasks == count
    fork = await still.fork(hopeless, deadline=5)
    assert (await fork.task()).deadline == clock.now() + timedelta(seconds=5)
