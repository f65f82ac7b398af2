"""The simple interface: save, get, list_by_state, execute_step."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.errors import Conflict, IllegalMove, InvalidValue, LeaseHeld, NotFound
from holdfast.model.task import MANUAL, Task
from holdfast.model.transitions import MOVES, OPEN, TaskState
from holdfast.store.simple import SimpleInterface
from holdfast.testing.contract._support import claim, enter, row, running_task, stored
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.snapshot import snapshot


def by_hand(task_id: str = "task", state: TaskState = TaskState.PENDING, **options: Any) -> Task:  # noqa: ANN401 - the fields of Task
    """Describe a task driven by hand."""
    return Task(id=task_id, state=state, **options)


class SaveContract(ContractBase):
    """save and list_by_state. The store mixes in ``SimpleInterface``."""

    @pytest.mark.parametrize("state", list(TaskState))
    async def test_a_new_task_is_stored_in_its_state(
        self, store: SimpleInterface, clock: ManualClock, state: TaskState
    ) -> None:
        """With everything it carries."""
        task = by_hand(state=state, agent_id="devops", user_input={"a": 1}, result="r", error="e", priority=3)
        saved = await store.save(task)
        now = clock.now()
        assert saved == replace(
            task,
            name=MANUAL,
            created_at=now,
            updated_at=now,
            available_at=now,
            finished_at=now if state.is_terminal else None,
            revision=1,
        )
        assert await store.get("task") == saved

    async def test_saving_what_is_stored_changes_only_the_revision(self, store: SimpleInterface) -> None:
        """A save whose answer was lost can be sent again."""
        first = await store.save(by_hand(user_input="hello"))
        again = await store.save(by_hand(user_input="hello"))
        assert replace(again, revision=first.revision) == first

    async def test_a_legal_change_of_state_is_stored(self, store: SimpleInterface, clock: ManualClock) -> None:
        """And recorded like every move."""
        task = await store.save(by_hand())
        clock.advance(1)
        running = await store.save(replace(task, state=TaskState.RUNNING))
        assert (running.state, running.updated_at) == (TaskState.RUNNING, clock.now())
        done = await store.save(replace(running, state=TaskState.COMPLETED, result=42))
        assert (done.state, done.result, done.finished_at) == (TaskState.COMPLETED, 42, clock.now())
        moves = [transition.to_state for transition in await store.history("task")]
        assert moves == [TaskState.PENDING, TaskState.RUNNING, TaskState.COMPLETED]

    async def test_an_illegal_change_of_state_is_refused(self, store: SimpleInterface) -> None:
        """The same table as everywhere."""
        tasks = {source: await store.save(by_hand(f"{source}", state=source)) for source in TaskState}
        before = await snapshot(store)
        for source, task in tasks.items():
            for target in set(TaskState) - set(MOVES[source]) - {source}:
                with row(source, target), pytest.raises(IllegalMove):
                    await store.save(replace(task, state=target))
            with row(source):
                assert await snapshot(store) == before

    async def test_result_and_error_are_replaced_without_a_move(self, store: SimpleInterface) -> None:
        """That adds no line to the history."""
        task = await store.save(by_hand(state=TaskState.RUNNING, result="half"))
        saved = await store.save(replace(task, result=None, error={"type": "Oops"}))
        assert (saved.state, saved.result, saved.error) == (TaskState.RUNNING, None, {"type": "Oops"})
        assert len(await store.history("task")) == 1

    @pytest.mark.parametrize(
        "change",
        [
            {"agent_id": "other"},
            {"user_input": "other"},
            {"name": "other"},
            {"queue": "other"},
            {"priority": 9},
            {"key": "other"},
            {"deadline": timedelta(hours=1)},
            {"parent_id": "other"},
        ],
        ids=lambda change: next(iter(change)),
    )
    async def test_other_fields_are_fixed(
        self, store: SimpleInterface, clock: ManualClock, change: dict[str, Any]
    ) -> None:
        """It is rejected, not silently ignored."""
        task = await store.save(by_hand())
        before = await snapshot(store)
        if "deadline" in change:
            change = {"deadline": clock.now() + change["deadline"]}
        with pytest.raises(InvalidValue):
            await store.save(replace(task, **change))
        assert await snapshot(store) == before

    async def test_no_field_is_dropped_silently(self, store: SimpleInterface, clock: ManualClock) -> None:
        """A changed field that only the store may set is rejected."""
        own: dict[str, Any] = {
            "created_at": clock.now() + timedelta(hours=1),
            "updated_at": clock.now() + timedelta(hours=1),
            "started_at": clock.now(),
            "finished_at": clock.now(),
            "available_at": clock.now() + timedelta(hours=1),
            "round": 2,
            "attempts": 1,
            "deaths": 1,
            "lone_deaths": 1,
            "feedback": "better",
            "cancel_requested": "stop",
            "must_undo": True,
            "owner": "me",
            "fence": 7,
            "sequence": 7,
            "revision": 7,
            "version": 7,
            "key_form": 2,
            "resting": True,
        }
        task = await store.save(by_hand())
        for name, value in own.items():
            with pytest.raises(InvalidValue, match=name):
                await store.save(replace(task, **{name: value}))
            if name != "revision":
                with pytest.raises(InvalidValue, match=name):
                    await store.save(by_hand(**{name: value}))
            if name != "available_at":  # the caller may set this field of a new task
                with pytest.raises(InvalidValue, match=name):
                    await store.save(by_hand("new", **{name: value}))
        with pytest.raises(InvalidValue, match="attempts"):
            await store.execute_step("task", lambda leased: replace(leased, attempts=1))
        assert (await stored(store)).attempts == 0
        assert await store.get("new") is None

    async def test_attempts_and_feedback_are_stored_with_a_move(self, store: SimpleInterface) -> None:
        """A loop that verifies by hand counts its rejections, one at a time."""
        task = await store.save(by_hand(state=TaskState.REVIEW, result=1))
        again = await store.save(replace(task, state=TaskState.PENDING, attempts=1, feedback="too short"))
        assert (again.state, again.attempts, again.feedback) == (TaskState.PENDING, 1, "too short")
        with pytest.raises(InvalidValue, match="grows by one"):
            await store.save(replace(again, state=TaskState.RUNNING, attempts=3))
        with pytest.raises(InvalidValue, match="never becomes less"):
            await store.save(replace(again, state=TaskState.RUNNING, attempts=0))
        running = await store.save(replace(again, state=TaskState.RUNNING))
        assert (running.attempts, running.feedback) == (1, "too short")

    async def test_an_old_copy_changes_nothing_that_is_not_its_own(
        self, store: SimpleInterface, clock: ManualClock
    ) -> None:
        """The last save sets state, result and error; other fields of an old copy are ignored."""
        first = await store.save(by_hand(state=TaskState.RUNNING))
        clock.advance(1)
        await store.save(replace(first, state=TaskState.PENDING, attempts=1, feedback="why"))
        clock.advance(1)
        saved = await store.save(replace(first, state=TaskState.RUNNING, result="half"))
        assert (saved.state, saved.result, saved.attempts, saved.feedback) == (TaskState.RUNNING, "half", 1, "why")
        assert (saved.created_at, saved.updated_at) == (first.created_at, clock.now())

    async def test_a_leased_task_is_not_moved(self, store: SimpleInterface) -> None:
        """A worker holds it."""
        attempt = await running_task(store)
        before = await snapshot(store)
        with pytest.raises(LeaseHeld):
            await store.save(replace(attempt.task, state=TaskState.COMPLETED))
        assert await snapshot(store) == before

    async def test_a_key_taken_by_another_task_is_a_conflict(self, store: SimpleInterface) -> None:
        """Two tasks never share a key."""
        await store.save(by_hand("first", key="k"))
        with pytest.raises(Conflict):
            await store.save(by_hand("second", key="k"))

    async def test_tasks_driven_by_hand_are_not_claimed(self, store: SimpleInterface) -> None:
        """No worker registers their name."""
        await store.save(by_hand())
        await enter(store)
        assert await claim(store) == []

    async def test_tasks_are_listed_by_state(self, store: SimpleInterface, clock: ManualClock) -> None:
        """Oldest first."""
        for task_id in ("c", "a", "b"):
            await store.save(by_hand(task_id))
            clock.advance(1)
        await store.save(by_hand("done", TaskState.COMPLETED))
        assert [task.id for task in await store.list_by_state(TaskState.PENDING)] == ["c", "a", "b"]
        assert await store.list_by_state(TaskState.COMPLETED) == [await stored(store, "done")]
        assert await store.list_by_state(TaskState.REVIEW) == []


class ExecuteStepContract(ContractBase):
    """execute_step: one change of a task that no other caller can disturb."""

    async def test_what_the_step_returns_is_stored(self, store: SimpleInterface) -> None:
        """A plain function or a coroutine."""
        await store.save(by_hand())

        async def complete(task: Task) -> Task:
            await asyncio.sleep(0)
            return replace(task, state=TaskState.COMPLETED, result=[1])

        running = await store.execute_step("task", lambda task: replace(task, state=TaskState.RUNNING))
        assert (running.state, running.owner) == (TaskState.RUNNING, None)
        done = await store.execute_step("task", complete)
        assert (done.state, done.result, done.owner) == (TaskState.COMPLETED, [1], None)
        assert await store.get("task") == done

    @pytest.mark.parametrize("state", sorted(OPEN))
    async def test_a_step_that_raises_leaves_the_task_as_it_was(self, store: SimpleInterface, state: TaskState) -> None:
        """And not leased."""
        before = await store.save(by_hand(state=state, result="half"))

        def fail(task: Task) -> Task:
            raise RuntimeError(f"no luck with {task.id}")

        with pytest.raises(RuntimeError, match="no luck with task"):
            await store.execute_step("task", fail)
        after = await stored(store)
        assert (after.state, after.result, after.owner) == (before.state, before.result, None)
        assert [transition.to_state for transition in await store.history("task")] == [state]
        await store.execute_step("task", lambda task: replace(task, result="whole"))

    async def test_an_illegal_move_leaves_the_task_as_it_was(self, store: SimpleInterface) -> None:
        """All or nothing: the result is not stored either."""
        await store.save(by_hand())
        with pytest.raises(IllegalMove):
            await store.execute_step("task", lambda task: replace(task, state=TaskState.COMPLETED, result=1))
        after = await stored(store)
        assert (after.state, after.result, after.owner) == (TaskState.PENDING, None, None)

    async def test_a_fixed_field_is_refused(self, store: SimpleInterface) -> None:
        """Like in save."""
        await store.save(by_hand())
        with pytest.raises(InvalidValue):
            await store.execute_step("task", lambda task: replace(task, user_input="other"))
        assert (await stored(store)).owner is None

    async def test_no_other_caller_disturbs_a_step(self, store: SimpleInterface) -> None:
        """While it runs, no other caller claims, saves or steps the task."""
        await store.save(by_hand(name="job"))
        await enter(store)
        begun, finish = asyncio.Event(), asyncio.Event()

        async def slow(task: Task) -> Task:
            begun.set()
            await finish.wait()
            return replace(task, state=TaskState.CANCELLED)

        stepping = asyncio.create_task(store.execute_step("task", slow))
        await begun.wait()
        assert await claim(store) == []
        with pytest.raises(LeaseHeld):
            await store.save(replace(await stored(store), state=TaskState.FAILED))
        with pytest.raises(LeaseHeld):
            await store.execute_step("task", lambda task: replace(task, state=TaskState.FAILED))
        finish.set()
        assert (await stepping).state is TaskState.CANCELLED

    async def test_a_task_that_cannot_be_stepped(self, store: SimpleInterface) -> None:
        """It does not exist, or has ended, or a worker holds it."""
        await store.save(by_hand("ended", TaskState.COMPLETED))
        await running_task(store, "held")
        with pytest.raises(NotFound):
            await store.execute_step("missing", lambda task: task)
        with pytest.raises(Conflict):
            await store.execute_step("ended", lambda task: task)
        with pytest.raises(LeaseHeld):
            await store.execute_step("held", lambda task: task)

    async def test_concurrent_steps_never_lose_a_change(self, store: SimpleInterface) -> None:
        """Each either counts or gets an error because another step came first."""
        await store.save(by_hand(state=TaskState.RUNNING, result=0))

        async def count(task: Task) -> Task:
            await asyncio.sleep(0)
            return replace(task, result=task.result + 1)

        answers = await asyncio.gather(*(store.execute_step("task", count) for _ in range(8)), return_exceptions=True)
        counted = [answer for answer in answers if isinstance(answer, Task)]
        refused = [answer for answer in answers if isinstance(answer, LeaseHeld)]
        assert len(counted) + len(refused) == 8
        assert (await stored(store)).result == len(counted) > 0
