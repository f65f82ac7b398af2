"""Undoing: the deadline no longer counts for a task whose steps are being compensated."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.errors import InvalidValue
from holdfast.model.operations import RequestCancel, RequireUndo, UntilTime, UntilWoken
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Swept
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    apply_outside,
    claimed_by,
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

BEGUN = RequireUndo(required=True, begun=True)
UNTIL_WOKEN = move(TaskState.WAITING, waits=(UntilWoken(key="person"),))
SECONDS = 10
"""From now to the deadline of every task here."""


class UndoingContract(ContractBase):
    """What RequireUndo records, beside the task's flag."""

    async def test_a_wait_in_the_middle_of_undoing_is_not_ended_by_the_deadline(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """The deadline wakes the task once, to be undone; after that a person has any amount of time."""
        attempt = await running_task(store, queue="default", deadline=clock.now() + timedelta(seconds=SECONDS))
        await attempt.apply(RequireUndo(required=True), UNTIL_WOKEN)
        clock.advance(SECONDS)
        assert await store.sweep() == Swept(woken=("task",))

        again = await claimed_by(store, "worker", 2)
        await again.apply(BEGUN, UNTIL_WOKEN)
        before = await snapshot(store)
        for _ in range(3):
            assert await store.sweep(limit=1) == Swept()
            clock.advance(1)
        assert await snapshot(store) == before

        await apply_outside(store, "task", move(TaskState.PENDING))
        assert await claimed_ids(store, number=3) == ["task"]

    async def test_it_can_begin_before_the_wait(self, store: StateStore, clock: ManualClock) -> None:
        """Recorded by a separate Commit, while the task is held."""
        attempt = await running_task(store, deadline=clock.now() + timedelta(seconds=SECONDS))
        await attempt.apply(BEGUN)
        await attempt.apply(UNTIL_WOKEN)
        assert await store.sweep() == Swept()
        clock.advance(SECONDS)
        assert await store.sweep() == Swept()

    @pytest.mark.parametrize("state", [TaskState.PENDING, TaskState.WAITING, TaskState.REVIEW], ids=str)
    async def test_no_deadline_is_due_while_it_is_undone(
        self, store: StateStore, clock: ManualClock, state: TaskState
    ) -> None:
        """Neither before nor after it passes, in any state."""
        await submit_one(store, state=state, deadline=clock.now() + timedelta(seconds=SECONDS))
        await apply_outside(store, "task", BEGUN)
        before = await snapshot(store)
        for _ in range(2):
            assert await store.sweep(limit=1) == Swept()
            clock.advance(SECONDS)
        assert await snapshot(store) == before

    async def test_a_cancel_does_not_keep_it_from_waiting(self, store: StateStore) -> None:
        """It undoes its steps because of the cancel: if each wait for a person woke it, it could never wait."""
        attempt = await running_task(store)
        await apply_outside(store, "task", RequestCancel(reason="enough"))
        await attempt.apply(BEGUN, UNTIL_WOKEN)
        assert (await stored(store)).state is TaskState.WAITING

    async def test_a_timer_still_wakes_it(self, store: StateStore, clock: ManualClock) -> None:
        """An undo that failed may be tried again later, also after the deadline."""
        attempt = await running_task(store, deadline=clock.now() + timedelta(seconds=SECONDS))
        later = clock.now() + timedelta(seconds=2 * SECONDS)
        await attempt.apply(BEGUN, move(TaskState.WAITING, waits=(UntilTime(key="again", at=later),)))
        clock.advance(SECONDS)
        assert await store.sweep() == Swept(next_due=later)
        clock.advance(SECONDS)
        assert await store.sweep() == Swept(woken=("task",))

    async def test_the_last_word_counts(self, store: StateStore, clock: ManualClock) -> None:
        """If the undoing is recorded as not begun, the deadline counts again."""
        deadline = clock.now() + timedelta(seconds=SECONDS)
        attempt = await running_task(store, deadline=deadline)
        await attempt.apply(BEGUN)
        await attempt.apply(BEGUN, RequireUndo(required=True), UNTIL_WOKEN)
        assert await store.sweep() == Swept(next_due=deadline)
        clock.advance(SECONDS)
        assert await store.sweep() == Swept(woken=("task",))
        assert (await last_move(store)).reason == "deadline passed"

    async def test_the_end_keeps_what_was_noted(self, store: StateStore) -> None:
        """Only RequireUndo changes whether anything is left to undo, not the Move."""
        attempt = await running_task(store)
        await attempt.apply(BEGUN)
        await attempt.apply(move(TaskState.FAILED))
        assert (await stored(store)).must_undo

    @pytest.mark.parametrize("operations", [(), (BEGUN,)], ids=["alone", "with the flag"])
    async def test_a_revived_task_is_not_being_undone(
        self, store: StateStore, clock: ManualClock, operations: tuple[RequireUndo, ...]
    ) -> None:
        """It starts again, and its deadline counts again; ``must_undo`` stays in case it fails again."""
        deadline = clock.now() + timedelta(seconds=SECONDS)
        attempt = await running_task(store, queue="default", deadline=deadline)
        await attempt.apply(BEGUN)
        await attempt.apply(move(TaskState.FAILED))
        await apply_outside(store, "task", *operations, move(TaskState.PENDING))
        assert (await stored(store)).must_undo
        again = await claimed_by(store, "worker", 2)
        await again.apply(UNTIL_WOKEN)
        assert await store.sweep() == Swept(next_due=deadline)
        clock.advance(SECONDS)
        assert await store.sweep() == Swept(woken=("task",))

    async def test_any_other_way_back_to_the_queue_goes_on_undoing(self, store: StateStore, clock: ManualClock) -> None:
        """After a wake-up, or the loss of its worker, it continues to undo."""
        attempt = await running_task(store, queue="default", deadline=clock.now() + timedelta(seconds=SECONDS))
        await attempt.apply(BEGUN, UNTIL_WOKEN)
        await apply_outside(store, "task", move(TaskState.PENDING))
        await claimed_by(store, "worker", 2)
        clock.advance(60)
        assert (await store.sweep()).recovered == ("task",)
        await enter(store, "heir")
        last = await claimed_by(store, "heir")
        await last.apply(UNTIL_WOKEN)
        assert await store.sweep() == Swept()

    async def test_undoing_is_not_begun_where_it_is_not_required(self, store: StateStore) -> None:
        """After its deadline, no worker could claim such a task and nothing would ever wake it."""
        await submit_one(store)
        with pytest.raises(InvalidValue, match="required"):
            await apply_outside(store, "task", RequireUndo(required=False, begun=True))
