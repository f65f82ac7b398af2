"""sweep: timers, delays, deadlines and expiries, in bounded batches."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.clock import ManualClock
from holdfast.model.operations import (
    OpenApproval,
    RequireUndo,
    Reserve,
    UntilChildren,
    UntilDecided,
    UntilTime,
    UntilWoken,
)
from holdfast.model.records import Account
from holdfast.model.transitions import TaskState, Transition
from holdfast.model.worker import Swept
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    apply_outside,
    claimed_ids,
    enter,
    last_move,
    move,
    running_task,
    stored,
    submit_one,
)
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.snapshot import snapshot


async def waiting_until(store: StateStore, task_id: str, at: datetime) -> None:
    """Leave a task waiting for a timer."""
    attempt = await running_task(store, task_id, f"worker of {task_id}")
    await attempt.apply(move(TaskState.WAITING, waits=(UntilTime(key="timer", at=at),)))


class SweepOfTimeContract(ContractBase):
    """Timers, delays, deadlines and expiries."""

    async def test_nothing_to_do(self, store: StateStore) -> None:
        """An empty store sweeps to nothing."""
        assert await store.sweep() == Swept()

    async def test_a_timer_wakes_its_task(self, store: StateStore, clock: ManualClock) -> None:
        """Back to the queue, under the same fence."""
        due = clock.now() + timedelta(seconds=10)
        await waiting_until(store, "task", due)
        before = await stored(store)
        assert await store.sweep() == Swept(next_due=due)
        clock.advance(10)
        assert await store.sweep() == Swept(woken=("task",))
        assert await stored(store) == replace(
            before, state=TaskState.PENDING, revision=4, available_at=due, updated_at=due
        )
        assert await last_move(store) == Transition(
            task_id="task",
            number=4,
            from_state=TaskState.WAITING,
            to_state=TaskState.PENDING,
            reason="time came",
            actor="sweep",
            fence=1,
            at=due,
        )

    async def test_timers_wake_in_order_and_in_batches(self, store: StateStore, clock: ManualClock) -> None:
        """The earliest first."""
        now = clock.now()
        await waiting_until(store, "a", now + timedelta(seconds=3))
        await waiting_until(store, "b", now + timedelta(seconds=1))
        await waiting_until(store, "c", now + timedelta(seconds=2))
        clock.advance(5)
        first = await store.sweep(limit=2)
        assert (first.woken, first.more, first.next_due) == (("b", "c"), True, now + timedelta(seconds=3))
        second = await store.sweep(limit=2)
        assert (second.woken, second.more, second.next_due) == (("a",), False, None)

    async def test_delayed_tasks_become_ready_in_batches(self, store: StateStore, clock: ManualClock) -> None:
        """The task that was due first comes first."""
        now = clock.now()
        for task_id, seconds in (("a", 3), ("b", 1), ("c", 2)):
            await submit_one(store, task_id, available_at=now + timedelta(seconds=seconds))
        assert (await store.sweep()).next_due == now + timedelta(seconds=1)
        clock.advance(5)
        first = await store.sweep(limit=2)
        assert (first.due, first.more, first.next_due) == (2, True, now + timedelta(seconds=3))
        await enter(store)
        assert await claimed_ids(store) == ["b", "c"]
        second = await store.sweep(limit=2)
        assert (second.due, second.more, second.next_due) == (1, False, None)

    @pytest.mark.parametrize("state", [TaskState.PENDING, TaskState.WAITING, TaskState.REVIEW], ids=str)
    async def test_a_passed_deadline_fails_a_task_without_a_holder(
        self, store: StateStore, clock: ManualClock, state: TaskState
    ) -> None:
        """In every state but running."""
        deadline = clock.now() + timedelta(seconds=10)
        before = await submit_one(store, state=state, deadline=deadline)
        assert (await store.sweep()).next_due == deadline
        clock.advance(11.2345)
        assert await store.sweep() == Swept(failed=("task",))
        assert await stored(store) == replace(
            before,
            state=TaskState.FAILED,
            error={
                "type": "holdfast.DeadlineExceeded",
                "message": f"the deadline of task task ({deadline.isoformat()}) passed 1.234 s ago, "
                "while nobody worked on it",
            },
            revision=2,
            updated_at=clock.now(),
            finished_at=clock.now(),
        )
        assert await last_move(store) == Transition(
            task_id="task",
            number=2,
            from_state=state,
            to_state=TaskState.FAILED,
            reason="deadline passed",
            actor="sweep",
            fence=0,
            at=clock.now(),
        )

    async def test_a_deadline_leaves_a_held_task_to_its_worker(self, store: StateStore, clock: ManualClock) -> None:
        """The worker knows the deadline too, and can undo."""
        deadline = clock.now() + timedelta(seconds=10)
        attempt = await running_task(store, deadline=deadline)
        clock.advance(10)
        assert await store.sweep() == Swept()
        assert await stored(store) == attempt.task

    async def test_a_deadline_leaves_a_task_run_by_hand_alone(self, store: StateStore, clock: ManualClock) -> None:
        """Running without a lease: only a person moves it, and its deadline does nothing."""
        await submit_one(store, state=TaskState.RUNNING, deadline=clock.now() + timedelta(seconds=10))
        clock.advance(10)
        assert await store.sweep() == Swept()

    async def test_deadlines_pass_in_order_and_in_batches(self, store: StateStore, clock: ManualClock) -> None:
        """The earliest first."""
        now = clock.now()
        for task_id, seconds in (("a", 3), ("b", 1), ("c", 2)):
            await submit_one(store, task_id, deadline=now + timedelta(seconds=seconds))
        clock.advance(5)
        first = await store.sweep(limit=2)
        assert (first.failed, first.more, first.next_due) == (("b", "c"), True, now + timedelta(seconds=3))
        assert (await store.sweep(limit=2)).failed == ("a",)

    async def test_a_waiting_task_that_must_undo_is_woken_instead(self, store: StateStore, clock: ManualClock) -> None:
        """So that a worker compensates what it did."""
        deadline = clock.now() + timedelta(seconds=10)
        attempt = await running_task(store, deadline=deadline)
        await attempt.apply(RequireUndo(required=True), move(TaskState.WAITING, waits=(UntilWoken(key="w"),)))
        clock.advance(10)
        assert await store.sweep() == Swept(woken=("task",))
        assert (await stored(store)).state is TaskState.PENDING
        assert (await last_move(store)).reason == "deadline passed"

    @pytest.mark.parametrize("state", [TaskState.PENDING, TaskState.REVIEW], ids=str)
    async def test_a_ready_task_that_must_undo_is_left_to_the_claim(
        self, store: StateStore, clock: ManualClock, state: TaskState
    ) -> None:
        """And the sweep does not return it again and again."""
        await submit_one(store, state=state, deadline=clock.now() + timedelta(seconds=10))
        await apply_outside(store, "task", RequireUndo(required=True))
        before = await snapshot(store)
        clock.advance(10)
        assert await store.sweep(limit=1) == Swept()
        assert await snapshot(store) == before

    async def test_an_approval_expires(self, store: StateStore, clock: ManualClock) -> None:
        """And wakes the task that waits for it."""
        expires = clock.now() + timedelta(seconds=10)
        approval = Approval(task_id="task", question="Go?", step_key="ask", id="ask", expires_at=expires)
        attempt = await running_task(store)
        await attempt.apply(
            OpenApproval(approval), move(TaskState.WAITING, waits=(UntilDecided(key="ask", approval_id="ask"),))
        )
        assert (await store.sweep()).next_due == expires
        opened_at = clock.now()
        clock.advance(10)
        assert await store.sweep() == Swept(expired=("ask",))
        assert await store.approval("ask") == replace(
            approval, state=ApprovalState.EXPIRED, created_at=opened_at, decided_at=expires
        )
        assert (await stored(store)).state is TaskState.PENDING
        woken = await last_move(store)
        assert (woken.reason, woken.actor) == ("decided", "sweep")

    async def test_approvals_expire_in_order_and_in_batches(self, store: StateStore, clock: ManualClock) -> None:
        """The earliest first; also if the task waits for none of them."""
        now = clock.now()
        attempt = await running_task(store)
        for name, seconds in (("a", 3), ("b", 1), ("c", 2)):
            expires = now + timedelta(seconds=seconds)
            approval = Approval(task_id="task", question="Go?", step_key=name, id=name, expires_at=expires)
            await attempt.apply(OpenApproval(approval))
        before = await stored(store)
        clock.advance(5)
        first = await store.sweep(limit=2)
        assert (first.expired, first.more, first.next_due) == (("b", "c"), True, now + timedelta(seconds=3))
        assert (await store.sweep(limit=2)).expired == ("a",)
        assert await stored(store) == before

    async def test_an_expiry_without_a_waiter_wakes_nothing(self, store: StateStore, clock: ManualClock) -> None:
        """A task whose timer ran out at the same moment is woken by the timer, and listed as woken."""
        due = clock.now() + timedelta(seconds=10)
        attempt = await running_task(store)
        await attempt.apply(
            OpenApproval(Approval(task_id="task", question="Go?", step_key="ask", id="ask", expires_at=due)),
            move(TaskState.WAITING, waits=(UntilTime(key="timer", at=due),)),
        )
        clock.advance(10)
        assert await store.sweep() == Swept(expired=("ask",), woken=("task",))
        assert (await last_move(store)).reason == "time came"

    async def test_an_awaited_expiry_is_the_reason_to_wake(self, store: StateStore, clock: ManualClock) -> None:
        """Approvals are checked before timers."""
        due = clock.now() + timedelta(seconds=10)
        attempt = await running_task(store)
        await attempt.apply(
            OpenApproval(Approval(task_id="task", question="Go?", step_key="ask", id="ask", expires_at=due)),
            move(
                TaskState.WAITING,
                waits=(UntilTime(key="timer", at=due), UntilDecided(key="ask", approval_id="ask")),
            ),
        )
        clock.advance(10)
        assert await store.sweep() == Swept(expired=("ask",))
        assert (await last_move(store)).reason == "decided"

    @pytest.mark.parametrize("must_undo", [False, True])
    async def test_a_parent_and_its_child_are_late_together(
        self, store: StateStore, clock: ManualClock, *, must_undo: bool
    ) -> None:
        """The parent moves once, by its own deadline, not first by the end of its child."""
        now = clock.now()
        await submit_one(store, "child", deadline=now + timedelta(seconds=1))
        attempt = await running_task(store, "parent", deadline=now + timedelta(seconds=2))
        join = move(TaskState.WAITING, waits=(UntilChildren(key="join", children=("child",)),))
        await attempt.apply(RequireUndo(required=must_undo), join)
        before = await store.history("parent")
        clock.advance(5)
        expected = Swept(failed=("child",), woken=("parent",)) if must_undo else Swept(failed=("child", "parent"))
        assert await store.sweep() == expected
        [moved] = (await store.history("parent"))[len(before) :]
        assert (moved.from_state, moved.reason) == (TaskState.WAITING, "deadline passed")

    async def test_a_task_failed_by_its_deadline_settles_its_affairs(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """Like any task that ends: approvals are closed and reservations count as spent."""
        attempt = await running_task(store, deadline=clock.now() + timedelta(seconds=10), budget={"tokens": 10})
        await attempt.apply(
            OpenApproval(Approval(task_id="task", question="Go?", step_key="ask", id="ask")),
            Reserve(account="task", step_key="ask", amounts={"tokens": 4}),
            move(TaskState.WAITING, waits=(UntilDecided(key="ask", approval_id="ask"),)),
        )
        clock.advance(10)
        assert (await store.sweep()).failed == ("task",)
        approval = await store.approval("ask")
        assert approval is not None
        assert approval.state is ApprovalState.CLOSED
        assert await store.accounts("task") == [Account(account="task", meter="tokens", limit=10, spent=4, reserved=0)]

    async def test_next_due_is_the_earliest_of_everything(self, store: StateStore, clock: ManualClock) -> None:
        """A worker sleeps until then, or until a hint comes."""
        now = clock.now()
        await submit_one(store, "delayed", available_at=now + timedelta(seconds=40))
        assert (await store.sweep()).next_due == now + timedelta(seconds=40)
        await waiting_until(store, "timed", now + timedelta(seconds=20))
        assert (await store.sweep()).next_due == now + timedelta(seconds=20)
        await submit_one(store, "hurried", deadline=now + timedelta(seconds=10))
        assert (await store.sweep()).next_due == now + timedelta(seconds=10)

    async def test_a_sweep_that_finds_nothing_changes_nothing(self, store: StateStore, clock: ManualClock) -> None:
        """It can be called at any time."""
        await running_task(store)
        await submit_one(store, "delayed", available_at=clock.now() + timedelta(seconds=40))
        before = await snapshot(store)
        clock.advance(1)
        await store.sweep()
        assert await snapshot(store) == before
