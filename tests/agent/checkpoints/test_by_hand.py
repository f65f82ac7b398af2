"""Tasks that a program drives by hand: state, patches, budget, checkpoints; also on a small store of its own."""

from __future__ import annotations

import inspect
from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast import (
    Budget,
    BudgetExceeded,
    CheckpointExpired,
    CheckpointManager,
    Conflict,
    Context,
    Holdfast,
    InvalidValue,
    KnownFact,
    ManualClock,
    NotFound,
    Retry,
    StatePatch,
    StateStore,
    Task,
    TaskFailed,
    TaskState,
    TaskStore,
)
from holdfast.model.budget import Meter
from holdfast.store.task_store import TaskStep
from tests.engine.support import ended

S = TaskState


class Shelf:
    """A store of a reader's own, in twenty lines."""

    def __init__(self, clock: ManualClock) -> None:
        self.tasks: dict[str, Task] = {}
        self.saves = 0
        self._clock = clock

    async def save(self, task: Task) -> Task:
        self.saves += 1
        self.tasks[task.id] = replace(task, updated_at=self._clock.now())
        return self.tasks[task.id]

    async def get(self, task_id: str) -> Task | None:
        return self.tasks.get(task_id)

    async def list_by_state(self, state: TaskState) -> list[Task]:
        return [task for task in self.tasks.values() if task.state is state]

    async def execute_step(self, task_id: str, step: TaskStep) -> Task:
        changed = step(self.tasks[task_id])
        return await self.save(await changed if inspect.isawaitable(changed) else changed)


class Counting:
    """A store in front of another one."""

    def __init__(self, inner: TaskStore) -> None:
        self.inner = inner
        self.saves = 0

    async def save(self, task: Task) -> Task:
        self.saves += 1
        return await self.inner.save(task)

    async def get(self, task_id: str) -> Task | None:
        return await self.inner.get(task_id)

    async def list_by_state(self, state: TaskState) -> list[Task]:
        return await self.inner.list_by_state(state)

    async def execute_step(self, task_id: str, step: TaskStep) -> Task:
        return await self.inner.execute_step(task_id, step)


async def test_a_task_driven_by_hand_has_a_state_a_budget_and_checkpoints(either: Holdfast) -> None:
    store, manager = either.store, CheckpointManager(either.store, "every_iteration")
    task = await store.save(Task(id="disk", user_input="Fix it.", state=S.RUNNING))
    assert await manager.maybe_save(task, "every_iteration") is None, "there is no AgentState yet; the task is saved"
    state = await either.patch_state("disk", StatePatch(goal="Fix it."), version=0, by="loop")
    found = StatePatch(append_facts=(KnownFact(key="disk", value="full", source="check"),))
    state = await either.patch_state("disk", found, version=1, by="loop")
    assert (state.goal, state.known_facts[0].value) == ("Fix it.", "full")
    await either.extend_budget("disk", Budget(max_steps=2, max_cost=1), by="loop")
    for number in (1, 2, 2):
        await either.charge("disk", steps=1, cost=0.1, by="loop", key=f"iteration {number}")
    with pytest.raises(BudgetExceeded):
        await either.charge("disk", steps=1, by="loop")
    assert (await either.budget("disk")).lines[Meter.STEPS].spent == 2

    saved = await manager.maybe_save(replace(task, result="half"), "every_iteration")
    assert saved is not None
    assert saved.version == 2
    resumed = await manager.validate_and_resume("disk")
    assert (resumed.task.result, resumed.state) == ("half", state)
    assert resumed.checkpoint is not None
    assert resumed.checkpoint.checksum == saved.checksum
    assert await manager.cleanup(resumed.task) == 0


async def test_a_patch_that_begins_a_state_is_made_by_one(either: Holdfast) -> None:
    await either.store.save(Task(id="t"))
    await either.patch_state("t", StatePatch(goal="mine"), version=0, by="ann")
    with pytest.raises(Conflict, match="at version 1"):
        await either.patch_state("t", StatePatch(goal="no, mine"), version=0, by="bob")


@pytest.mark.parametrize("state", [state for state in S if state is not S.CANCELLED])
async def test_validating_says_what_it_does_in_each_state(either: Holdfast, state: TaskState) -> None:
    manager = CheckpointManager(either.store)
    await either.store.save(Task(id="t", state=state, error="deadline exceeded"))
    left = await manager.validate_and_resume("t", requeue=False)
    assert (left.task.state, left.requeued) == (state, False)
    assert str(state) in left.note or state in {S.FAILED, S.WAITING, S.REVIEW}
    resumed = await manager.validate_and_resume("t")
    was_failed = state is S.FAILED
    assert (resumed.task.state, resumed.requeued) == (S.PENDING if was_failed else state, was_failed)
    assert ("back in its queue" in resumed.note) is was_failed


async def test_what_was_cancelled_before_it_began_is_refused_as_cancelled(either: Holdfast) -> None:
    @either.task
    async def plain(ctx: Context) -> None: ...

    handle = await either.submit(plain)
    await either.cancel(handle)
    with pytest.raises(Conflict, match="was cancelled, which is final"):
        await CheckpointManager(either.store).validate_and_resume(handle.id)


async def test_the_age_of_a_task_driven_by_hand_is_that_of_its_last_save(still: Holdfast, clock: ManualClock) -> None:
    manager = CheckpointManager(still.store, max_age=timedelta(hours=1))
    task = await still.store.save(Task(id="t", state=S.RUNNING))
    clock.advance(3000)
    await still.store.save(replace(task, result="half"))
    clock.advance(3000)
    assert (await manager.validate_and_resume("t")).task.result == "half"
    clock.advance(3000)
    with pytest.raises(CheckpointExpired):
        await manager.validate_and_resume("t")


@pytest.fixture(params=["own", "wrapped"])
def small(request: pytest.FixtureRequest, still: Holdfast, clock: ManualClock) -> Shelf | Counting:
    """A store with the four methods and no more."""
    return Shelf(clock) if request.param == "own" else Counting(still.store)


async def test_a_small_store_is_enough_for_a_manager(small: Shelf | Counting, clock: ManualClock) -> None:
    assert isinstance(small, TaskStore)
    assert not isinstance(small, StateStore)
    manager = CheckpointManager(small, "every_step", max_age=timedelta(hours=1), clock=clock)
    task = Task(id="t", user_input="Fix it.", state=S.RUNNING)
    assert await manager.maybe_save(task, "every_iteration") is None
    assert small.saves == 0
    assert await manager.maybe_save(task, "every_step") is None
    assert small.saves == 1
    assert await manager.maybe_save("t", "every_step") is None
    resumed = await manager.validate_and_resume("t")
    assert (resumed.task.state, resumed.task.user_input, resumed.state.goal) == (S.RUNNING, "Fix it.", "")
    await small.execute_step("t", lambda leased: replace(leased, state=S.FAILED, error="no"))
    assert [one.id for one in await small.list_by_state(S.FAILED)] == ["t"]
    assert (await manager.validate_and_resume("t")).task.state is S.FAILED, "there is no queue to put it into"
    clock.advance(3601)
    with pytest.raises(CheckpointExpired):
        await manager.validate_and_resume("t")
    assert (await manager.validate_and_resume("t", accept_stale=True)).requeued is False
    assert await manager.cleanup("t") == 0
    with pytest.raises(NotFound):
        await manager.validate_and_resume("nothing")
    with pytest.raises(NotFound):
        await manager.maybe_save("nothing", "every_step")


async def test_a_store_without_times_gets_an_error(clock: ManualClock) -> None:
    shelf = Shelf(clock)
    shelf.tasks["t"] = Task(id="t", state=S.RUNNING)
    with pytest.raises(InvalidValue, match="updated_at"):
        await CheckpointManager(shelf).validate_and_resume("t")
    assert (await CheckpointManager(shelf, max_age=None).validate_and_resume("t")).task.id == "t"
    shelf.tasks["t"] = Task(id="t", state=S.CANCELLED)
    with pytest.raises(Conflict, match="cancelled"):
        await CheckpointManager(shelf).validate_and_resume("t")


def test_blocking_code_has_the_four_methods_and_a_budget() -> None:
    hold = Holdfast("memory://")
    with hold.sync as h:
        task = h.store.save(Task(id="t", state=S.RUNNING))
        h.extend_budget("t", Budget(max_steps=1), by="loop")
        assert h.charge("t", steps=1, by="loop").lines[Meter.STEPS].spent == 1
        assert h.store.get("t") is not None
        assert h.store.execute_step("t", lambda leased: replace(leased, state=S.COMPLETED)).state is S.COMPLETED
        assert [one.id for one in h.store.list_by_state(S.COMPLETED)] == [task.id]


async def test_a_failed_task_runs_again_if_asked_to_and_says_how(either: Holdfast) -> None:
    """The chapter's executeTask: completed is not done again, failed is."""
    calls: list[int] = []

    @either.task(retry=Retry(max_attempts=1))
    async def flaky(ctx: Context) -> str:
        await ctx.step("before", calls.append, 1)
        if len(calls) == 1:
            calls.append(2)
            raise ConnectionError("service down")
        return "done"

    handle = await either.submit(flaky)
    with pytest.raises(TaskFailed) as failed:
        await either.run(handle)
    assert not hasattr(failed.value, "__notes__"), "it was run"
    with pytest.raises(TaskFailed) as failed:
        await either.run(handle)
    assert "resume=True" in failed.value.__notes__[0]
    assert await either.run(handle, resume=True) == "done"
    assert await either.run(handle, resume=True) == "done", "a completed one is left as it is"
    assert calls == [1, 2]
    assert await ended(handle) == "done"
