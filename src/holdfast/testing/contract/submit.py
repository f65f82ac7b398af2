"""submit: a task is stored once, even if it is sent many times."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.errors import InvalidValue
from holdfast.model.records import Account
from holdfast.model.task import Submitted, Task
from holdfast.model.transitions import TaskState, Transition
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    apply_outside,
    claimed_ids,
    enter,
    move,
    new_task,
    row,
    stored,
    submit_one,
)
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.snapshot import all_tasks, snapshot


class SubmitContract(ContractBase):
    """Submitting tasks."""

    async def test_a_task_is_stored_as_it_was_given(self, store: StateStore, clock: ManualClock) -> None:
        """Every field that the submitter sets, and every field that the store sets."""
        now = clock.now()
        new = new_task(
            name="deploy",
            user_input={"service": "billing"},
            agent_id="devops",
            queue="deploys",
            priority=7,
            key="deploy-42",
            deadline=now + timedelta(hours=1),
            schedule="nightly",
            parent_id="parent",
        )
        assert await store.submit([new]) == [Submitted(task_id="task", created=True)]
        assert await store.get("task") == Task(
            id="task",
            name="deploy",
            user_input={"service": "billing"},
            agent_id="devops",
            queue="deploys",
            priority=7,
            key="deploy-42",
            deadline=now + timedelta(hours=1),
            schedule="nightly",
            parent_id="parent",
            state=TaskState.PENDING,
            created_at=now,
            updated_at=now,
            available_at=now,
            revision=1,
        )

    async def test_the_first_transition_names_who_submitted(self, store: StateStore, clock: ManualClock) -> None:
        """A task's history begins with its submission."""
        await submit_one(store, actor="alice")
        assert await store.history("task") == [
            Transition(
                task_id="task",
                number=1,
                from_state=None,
                to_state=TaskState.PENDING,
                reason="submitted",
                actor="alice",
                fence=0,
                at=clock.now(),
            )
        ]

    async def test_many_tasks_are_answered_in_order(self, store: StateStore) -> None:
        """One answer per task, in the order of the call."""
        ids = [f"task-{number:02}" for number in range(50)]
        answers = await store.submit([new_task(task_id) for task_id in reversed(ids)])
        assert answers == [Submitted(task_id=task_id, created=True) for task_id in reversed(ids)]
        assert sorted(task.id for task in await all_tasks(store)) == ids

    async def test_no_tasks_are_fine(self, store: StateStore) -> None:
        """An empty call does nothing."""
        assert await store.submit([]) == []

    async def test_the_same_id_again_stores_nothing(self, store: StateStore, clock: ManualClock) -> None:
        """A submission whose answer was lost can be sent again."""
        await submit_one(store, user_input="hello")
        before = await snapshot(store)
        clock.advance(1)
        assert await store.submit([new_task(user_input="hello")]) == [Submitted(task_id="task", created=False)]
        assert await snapshot(store) == before

    @pytest.mark.parametrize("other", [{"user_input": "bye"}, {"name": "other-job"}])
    async def test_the_same_id_for_other_work_conflicts(self, store: StateStore, other: dict[str, str]) -> None:
        """An id is never reused for another input or another definition."""
        await submit_one(store, user_input="hello")
        before = await snapshot(store)
        answers = await store.submit([new_task(**{"user_input": "hello"} | other)])
        assert answers == [Submitted(task_id="task", created=False, conflict=True)]
        assert await snapshot(store) == before

    async def test_the_same_key_and_input_is_the_same_task(self, store: StateStore) -> None:
        """Options such as priority are not compared."""
        await submit_one(store, "first", key="k", user_input=[1])
        again = new_task("second", key="k", user_input=[1], priority=9, queue="elsewhere")
        assert await store.submit([again]) == [Submitted(task_id="first", created=False)]
        assert await store.get("second") is None

    async def test_the_same_key_with_other_input_conflicts(self, store: StateStore) -> None:
        """The answer names the task that holds the key."""
        await submit_one(store, "first", key="k", user_input=[1])
        other = new_task("second", key="k", user_input=[2])
        assert await store.submit([other]) == [Submitted(task_id="first", created=False, conflict=True)]
        assert await store.get("second") is None

    async def test_a_key_belongs_to_a_name(self, store: StateStore) -> None:
        """Two definitions may use the same key."""
        await submit_one(store, "first", key="k")
        await submit_one(store, "second", key="k", name="other-job")

    async def test_tasks_without_a_key_are_never_the_same(self, store: StateStore) -> None:
        """Equal input alone means nothing."""
        await submit_one(store, "first", user_input="hello")
        await submit_one(store, "second", user_input="hello")

    async def test_the_id_is_looked_at_before_the_key(self, store: StateStore) -> None:
        """If id and key name different tasks, the id counts."""
        await submit_one(store, "by-id")
        await submit_one(store, "by-key", key="k")
        assert await store.submit([new_task("by-id", key="k")]) == [Submitted(task_id="by-id", created=False)]

    async def test_of_equal_keys_in_one_call_the_first_wins(self, store: StateStore) -> None:
        """A batch behaves as if its tasks came one after the other."""
        answers = await store.submit(
            [
                new_task("a", key="k", user_input=1),
                new_task("b", key="k", user_input=1),
                new_task("c", key="k", user_input=2),
                new_task("a", key="k", user_input=1),
                new_task("d"),
            ]
        )
        assert answers == [
            Submitted(task_id="a", created=True),
            Submitted(task_id="a", created=False),
            Submitted(task_id="a", created=False, conflict=True),
            Submitted(task_id="a", created=False),
            Submitted(task_id="d", created=True),
        ]
        assert [task.id for task in await all_tasks(store)] == ["a", "d"]

    async def test_true_and_one_are_different_input(self, store: StateStore) -> None:
        """Input is compared as JSON, not by Python's ``==``."""
        await submit_one(store, "first", key="k", user_input=1)
        [answer] = await store.submit([new_task("second", key="k", user_input=True)])
        assert answer.conflict

    async def test_the_order_of_members_is_no_difference(self, store: StateStore) -> None:
        """Two equal JSON objects are the same input."""
        await submit_one(store, "first", key="k", user_input={"a": 1, "b": 2})
        [answer] = await store.submit([new_task("second", key="k", user_input={"b": 2, "a": 1})])
        assert answer == Submitted(task_id="first", created=False)

    async def test_a_budget_opens_an_account_under_the_task(self, store: StateStore) -> None:
        """One meter for each limit."""
        await submit_one(store, budget={"tokens": 100, "steps": 5})
        assert await store.accounts("task") == [
            Account(account="task", meter="steps", limit=5, spent=0, reserved=0),
            Account(account="task", meter="tokens", limit=100, spent=0, reserved=0),
        ]

    async def test_a_resubmission_does_not_touch_the_budget(self, store: StateStore) -> None:
        """A task that exists already keeps its account."""
        await submit_one(store, budget={"steps": 5})
        await store.submit([new_task(budget={"steps": 500, "tokens": 1})])
        assert await store.accounts("task") == [Account(account="task", meter="steps", limit=5, spent=0, reserved=0)]

    async def test_a_delayed_task_is_not_claimed_before_its_time(self, store: StateStore, clock: ManualClock) -> None:
        """It becomes claimable by the first sweep after it is due."""
        await submit_one(store, available_at=clock.now() + timedelta(seconds=10))
        await enter(store)
        assert await claimed_ids(store, number=1) == []
        clock.advance(10)
        await store.sweep()
        assert await claimed_ids(store, number=2) == ["task"]

    async def test_becoming_due_changes_nothing_in_the_record(self, store: StateStore, clock: ManualClock) -> None:
        """Readiness is internal to the store."""
        before = await submit_one(store, available_at=clock.now() + timedelta(seconds=10))
        clock.advance(10)
        swept = await store.sweep()
        assert swept.due == 1
        assert await stored(store) == before

    async def test_a_time_in_the_past_is_now(self, store: StateStore, clock: ManualClock) -> None:
        """A task whose moment has passed is claimable at once."""
        await submit_one(store, available_at=clock.now() - timedelta(hours=1))
        await enter(store)
        assert await claimed_ids(store) == ["task"]

    async def test_a_task_may_begin_in_any_state(self, store: StateStore, clock: ManualClock) -> None:
        """A task recorded by hand begins in the state that its user gives."""
        for state in TaskState:
            with row(state):
                task = await submit_one(store, state, state=state, result="r", error="e")
                assert (task.state, task.result, task.error) == (state, "r", "e")
                assert task.finished_at == (clock.now() if state.is_terminal else None)
                assert [t.to_state for t in await store.history(state)] == [state]

    async def test_names_no_store_could_hold_are_refused(self) -> None:
        """Before they reach any store."""
        for field in ("task_id", "name", "agent_id", "queue", "key"):
            for bad in ("", "a\x00b", "a\nb", "\ud800", "x" * 201):
                with row(field, repr(bad)), pytest.raises(InvalidValue):
                    new_task(**{field: bad})

    async def test_a_payload_that_is_not_json_is_refused(self, store: StateStore) -> None:
        """Nothing of the call is stored."""
        with pytest.raises(InvalidValue):
            await store.submit([new_task("good"), new_task("bad", user_input=object())])
        assert await all_tasks(store) == []

    async def test_a_task_may_begin_in_a_later_round(self, store: StateStore) -> None:
        """A fork shares the earlier rounds; the next round counts on from there."""
        await store.submit([new_task("a", round=4, state=TaskState.WAITING), new_task("b"), new_task("c", round=2)])
        assert [(await stored(store, task_id)).round for task_id in "abc"] == [4, 1, 2]
        await store.submit([new_task("d", round=7)])
        assert (await stored(store, "d")).round == 7
        await apply_outside(store, "a", move(TaskState.PENDING, new_round=True))
        assert (await stored(store, "a")).round == 5
        for bad in (0, -1, True, 1 << 21):
            with pytest.raises(InvalidValue):
                new_task("e", round=bad)
