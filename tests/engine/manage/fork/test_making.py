"""How a fork comes about: inert until its past is there, once for each key, and it says where it came from."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import (
    Conflict,
    Context,
    Handle,
    Holdfast,
    InvalidValue,
    KeyConflict,
    NotFound,
    Retry,
    StoreUnavailable,
    SyncContext,
    TaskFailed,
    TaskState,
)
from holdfast.engine.manage.fork.ancestry import Origin
from holdfast.model.commit import Commit
from holdfast.model.operations import LinkArtifact, Reserve, SetLimits, Settle
from holdfast.model.records import ArtifactLink
from holdfast.model.task import FLAT_KEYS, NewTask, Task
from holdfast.model.worker import Claim, NewWorker
from tests.engine.manage.fork.support import Ran, finish
from tests.engine.manage.state.support import write
from tests.engine.support import moves_of, reaches, settle, steps_of, until


async def worked(hold: Holdfast, ran: Ran) -> Handle[str]:
    """A task of three steps that has ended."""

    @hold.task
    async def work(ctx: Context, name: str = "x") -> str:
        for key in ("a", "b", "c"):
            await ctx.step(key, ran.note, ctx, key)
        return name

    origin = await hold.submit(work)
    await finish(hold, origin)
    return origin


async def test_it_says_where_it_came_from(hold: Holdfast) -> None:
    origin = await worked(hold, Ran())
    fork = await hold.fork(origin, at="b", by="alice")
    found = await hold.forked_from(fork)
    line = (await steps_of(hold, fork))["holdfast:fork"]
    assert found == Origin(task_id=origin.id, step="b", position=2, version=0, at=line.finished_at)
    first, second = await hold.store.history(fork.id)
    assert (first.from_state, first.to_state, first.actor) == (None, TaskState.WAITING, f"fork of {origin.id}")
    assert (second.to_state, second.actor) == (TaskState.PENDING, "alice")
    assert second.reason == f"forked from {origin.id} after 'b'"
    assert await hold.forked_from(origin) is None
    with pytest.raises(NotFound):
        await hold.forked_from("missing")


async def test_the_budget_has_the_same_limits_and_nothing_spent(hold: Holdfast) -> None:
    await hold.store.submit([NewTask(id="rich", name="job", queue="unserved", budget={"tokens": 100, "steps": 5})])
    await write(
        hold,
        "rich",
        Reserve(account="rich", step_key="s", amounts={"tokens": 30}),
        Settle(account="rich", step_key="s", amounts={"tokens": 30, "cost": 7}),
        SetLimits(account="rich", limits={"tokens": 200}),
    )
    fork: Handle[Any] = await hold.fork("rich")
    accounts = {one.meter: (one.limit, one.spent, one.reserved) for one in await hold.store.accounts(fork.id)}
    assert accounts == {"tokens": (200, 0, 0), "steps": (5, 0, 0)}
    assert {one.meter: one.spent for one in await hold.store.accounts("rich")} == {"tokens": 30, "steps": 0, "cost": 7}


async def test_its_artifacts_are_kept_as_long_as_it_is(quick: Holdfast) -> None:
    await quick.store.submit([NewTask(id="task", name="job", queue="unserved")])
    link = ArtifactLink(artifact_id="a" * 64, name="log", type="text", summary="", bytes=3)
    await write(quick, "task", LinkArtifact(link))
    fork: Handle[Any] = await quick.fork("task")
    assert await quick.store.artifact_links(fork.id) == await quick.store.artifact_links("task")


async def test_the_same_fork_under_the_same_key_is_the_same_task(hold: Holdfast) -> None:
    ran = Ran()
    origin = await worked(hold, ran)
    first = await hold.fork(origin, at="a", key="k")
    assert (await hold.fork(origin, at="a", key="k")).id == first.id
    await finish(hold, first)
    assert (await hold.fork(origin, at="a", key="k")).id == first.id
    assert ran[first] == ["b", "c"]
    assert (await hold.fork(origin, at="a")).id != first.id


async def test_another_fork_under_the_same_key_is_refused(quick: Holdfast) -> None:
    origin = await worked(quick, Ran())
    await quick.fork(origin, at="a", key="k")
    await quick.submit("work", "x", key="plain")
    for options in ({"at": "b", "key": "k"}, {"at": "a", "key": "k", "user_input": ("y",)}, {"key": "plain"}):
        with pytest.raises(KeyConflict):
            await quick.fork(origin, **options)
    with pytest.raises(KeyConflict):
        await quick.fork(origin, key="plain", user_input=("x",))
    with pytest.raises(InvalidValue):
        await quick.fork(origin, by="")


async def test_a_crash_before_its_past_leaves_it_inert_and_the_same_call_completes_it(
    hold: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = Ran()
    origin = await worked(hold, ran)

    async def crash(commits: Sequence[Commit]) -> None:
        raise StoreUnavailable(f"the process died before {len(commits)} Commit")

    with monkeypatch.context() as broken:
        broken.setattr(hold.store, "commit", crash)
        with pytest.raises(StoreUnavailable):
            await hold.fork(origin, at="a", key="k")
    page = await hold.store.find(limit=5)
    [inert] = [task for task in page.items if task.id != origin.id]
    async with hold.worker():
        await settle()
        handle = hold.handle(inert.id)
        assert (await handle.task()).state is TaskState.WAITING
        assert await steps_of(hold, handle) == {}
        fork = await hold.fork(origin, at="a", key="k")
        assert fork.id == inert.id
        await fork.result(timeout=60)
    assert ran[fork] == ["b", "c"]
    assert [to for _, to in await moves_of(hold, fork)] == ["waiting", "pending", "running", "completed"]


async def test_an_answer_that_was_lost(hold: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Commit was applied, the fork has run, and waits: the same call does not touch it again."""

    @hold.task
    async def work(ctx: Context) -> None:
        await ctx.step("a", str)
        await ctx.wait_event("go")

    origin, commit = await hold.submit(work), hold.store.commit

    async def lose_the_answer(commits: Sequence[Commit]) -> None:
        await commit(commits)
        raise StoreUnavailable("the connection was lost")

    async with hold.worker():
        await reaches(origin, TaskState.WAITING)
        with monkeypatch.context() as broken:
            broken.setattr(hold.store, "commit", lose_the_answer)
            with pytest.raises(StoreUnavailable):
                await hold.fork(origin, key="k")
        fork = await hold.fork(origin, key="k")
        await reaches(fork, TaskState.WAITING)
        before = await fork.task()
        assert (await hold.fork(origin, key="k")).id == fork.id
        assert await fork.task() == before
        for handle in (origin, fork):
            await handle.cancel()


async def test_one_that_comes_late_does_not_touch_a_fork_that_has_begun(
    hold: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saw the task waiting for its past. When it brings that, the task has run, and waits for something else."""

    @hold.task
    async def work(ctx: Context) -> None:
        await ctx.step("a", str)
        await ctx.wait_event("go")

    origin, commit = await hold.submit(work), hold.store.commit
    seen: list[Task] = []

    async def overtaken(commits: Sequence[Commit]) -> object:
        monkeypatch.undo()
        first = await hold.fork(origin, at="a", key="k")

        async def has_run_and_waits() -> bool:
            task = await first.task()
            return task.fence > 0 and task.state is TaskState.WAITING

        await until(has_run_and_waits)
        seen.append(await first.task())
        return await commit(commits)

    async with hold.worker():
        await reaches(origin, TaskState.WAITING)
        monkeypatch.setattr(hold.store, "commit", overtaken)
        fork = await hold.fork(origin, at="a", key="k")
        assert seen == [await fork.task()]
        for handle in (origin, fork):
            await handle.cancel()


async def test_many_at_once_under_one_key_are_one(hold: Holdfast) -> None:
    ran = Ran()
    origin = await worked(hold, ran)
    forks = await asyncio.gather(*(hold.fork(origin, at="a", key="k") for _ in range(6)))
    assert len({fork.id for fork in forks}) == 1
    await finish(hold, forks[0])
    assert ran[forks[0]] == ["b", "c"]
    assert len(await moves_of(hold, forks[0])) == 4


async def test_one_that_was_cancelled_before_its_past_came(quick: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    origin, commit = await worked(quick, Ran()), quick.store.commit

    async def cancelled_first(commits: Sequence[Commit]) -> object:
        monkeypatch.undo()
        await quick.cancel(commits[0].task_id)
        return await commit(commits)

    monkeypatch.setattr(quick.store, "commit", cancelled_first)
    with pytest.raises(Conflict, match="cancelled"):
        await quick.fork(origin, at="a")


async def test_from_blocking_code(url: str) -> None:
    def script() -> None:
        hold = Holdfast(url)

        @hold.task
        def work(_: SyncContext) -> str:
            return "done"

        with hold.sync as h, h.worker():
            origin = h.submit(work)
            assert origin.result(timeout=60) == "done"
            fork = h.fork(origin, by="alice")
            assert fork.result(timeout=60) == "done"
            found = h.forked_from(fork)
            assert found is not None
            assert found.task_id == origin.id

    await asyncio.to_thread(script)


async def test_a_fork_has_keys_of_the_form_that_its_origin_has(hold: Holdfast) -> None:
    """A journal that was begun before steps had scopes stays flat, in its forks as well."""
    paid = []

    async def pay() -> str:
        paid.append("book")
        return "receipt"

    @hold.task(retry=Retry(max_attempts=1))
    async def buy(ctx: Context) -> str:
        async def checkout() -> str:
            return await ctx.step("pay", pay, effect="once")

        await ctx.step("checkout", checkout)
        if ctx.task.round == 1:
            raise RuntimeError("no paper")
        return "done"

    handle = await hold.submit(buy)
    await hold.store.register(NewWorker(label="of the version before", lease=30, id="old"))
    await hold.store.claim(Claim(worker_id="old", number=1, limit=1, names=["buy"], key_form=FLAT_KEYS))
    await hold.store.retire("old")
    async with hold.worker():
        with pytest.raises(TaskFailed):
            await handle.result(timeout=60)
        fork = await hold.fork(handle)
        with pytest.raises(TaskFailed):
            await fork.result(timeout=60)
        await hold.retry(fork)
        assert await fork.result(timeout=60) == "done"
    assert paid == ["book"]
    for task in (handle, fork):
        assert {"checkout", "pay"} <= {step.key for step in await hold.store.steps(task.id)}
