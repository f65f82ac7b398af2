"""Waiting: a task waits for a stored fact, so it never misses it, in either order."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.clock import ManualClock
from holdfast.model.operations import (
    Decide,
    Emit,
    OpenApproval,
    RequestCancel,
    SubmitChild,
    UntilChildren,
    UntilDecided,
    UntilEvent,
    UntilTime,
    UntilWoken,
    Wait,
    WriteStep,
)
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Swept
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    CANCEL,
    Attempt,
    apply_outside,
    claimed_by,
    claimed_ids,
    enter,
    last_move,
    move,
    new_task,
    outside,
    running_task,
    send,
    step,
    stored,
    submit_one,
)
from holdfast.testing.contract.base import ContractBase

QUEUE = "of those who wait"
EVENT = UntilEvent(key="event", channel="news")
ASKED = Approval(task_id="task", question="Go on?", step_key="ask", id="ask")
DECIDED = UntilDecided(key="ask", approval_id="ask")


async def wait_for(store: StateStore, *waits: Wait) -> Task:
    """Let a task wait for these; return it as it is then."""
    attempt = await running_task(store, queue=QUEUE)
    await attempt.apply(OpenApproval(ASKED), move(TaskState.WAITING, waits=waits))
    return await stored(store)


async def woken_by(store: StateStore, task_id: str = "task") -> tuple[str, str]:
    """Return reason and actor of the move that woke the task, which must be pending."""
    task = await stored(store, task_id)
    assert task.state is TaskState.PENDING
    last = (await store.history(task_id))[-1]
    assert (last.from_state, last.to_state) == (TaskState.WAITING, TaskState.PENDING)
    return last.reason, last.actor


class WaitsContract(ContractBase):
    """Timers, events, children, decisions, and several of them at once."""

    async def test_a_waiting_task_holds_no_worker(self, store: StateStore, clock: ManualClock) -> None:
        """And it cannot be claimed."""
        task = await wait_for(store, EVENT)
        assert (task.state, task.owner, task.fence) == (TaskState.WAITING, None, 1)
        assert await store.owned("worker") == []
        assert await claimed_ids(store, number=2, queues=(QUEUE,)) == []
        assert (await store.sweep()).next_due is None
        assert task.updated_at == clock.now()

    async def test_a_woken_task_is_claimable_at_once(self, store: StateStore, clock: ManualClock) -> None:
        """Available from the moment it was woken, with everything else as it was."""
        waiting = await wait_for(store, EVENT)
        clock.advance(5)
        await store.emit("news", "it rains", actor="weather")
        assert await stored(store) == replace(
            waiting,
            state=TaskState.PENDING,
            available_at=clock.now(),
            updated_at=clock.now(),
            revision=waiting.revision + 1,
        )
        assert await woken_by(store) == ("event", "weather")
        assert await claimed_ids(store, number=2, queues=(QUEUE,)) == ["task"]

    async def test_a_cancel_requested_before_the_wait_is_not_lost(self, store: StateStore) -> None:
        """It was requested while the task was held, so its next holder has to handle it."""
        attempt = await running_task(store, queue=QUEUE)
        await apply_outside(store, "task", RequestCancel(reason="enough"))
        verdict = await attempt.send(move(TaskState.WAITING, waits=(EVENT,)))
        assert (verdict.state, verdict.cancel_requested) == (TaskState.PENDING, "enough")
        assert (await last_move(store)).reason == "cancel requested"
        assert await claimed_ids(store, number=2, queues=(QUEUE,)) == ["task"]

    async def test_a_cancel_requested_before_a_delay_is_not_delayed(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """A cancel must not wait an hour for the delayed retry."""
        attempt = await running_task(store, queue=QUEUE)
        await apply_outside(store, "task", RequestCancel(reason="enough"))
        await attempt.send(move(TaskState.PENDING, available_at=clock.now() + timedelta(hours=1)))
        assert await claimed_ids(store, number=2, queues=(QUEUE,)) == ["task"]

    async def test_a_revived_task_is_not_cancelled_by_an_old_request(self, store: StateStore) -> None:
        """It came too late for the failed attempt, and does not apply to the revived task."""
        attempt = await running_task(store)
        await apply_outside(store, "task", RequestCancel(reason="enough"))
        await attempt.send(move(TaskState.FAILED))
        await apply_outside(store, "task", move(TaskState.PENDING))
        assert (await stored(store)).cancel_requested is None

    async def test_a_timer_that_has_run_out_does_not_wait(self, store: StateStore, clock: ManualClock) -> None:
        """It goes straight to pending, in the same Commit."""
        attempt = await running_task(store)
        verdict = await attempt.apply(move(TaskState.WAITING, waits=(UntilTime(key="timer", at=clock.now()),)))
        assert (verdict.state, verdict.revision, verdict.owner) == (TaskState.PENDING, 3, None)
        assert await woken_by(store) == ("time came", "worker")
        assert [t.to_state for t in await store.history("task")][-2:] == [TaskState.WAITING, TaskState.PENDING]

    async def test_the_earliest_of_several_timers_wakes(self, store: StateStore, clock: ManualClock) -> None:
        """It wakes once, and not a second time."""
        now = clock.now()
        await wait_for(
            store,
            UntilTime(key="late", at=now + timedelta(seconds=20)),
            UntilTime(key="early", at=now + timedelta(seconds=10)),
        )
        assert (await store.sweep()).next_due == now + timedelta(seconds=10)
        clock.advance(10)
        assert await store.sweep() == Swept(woken=("task",))
        clock.advance(10)
        assert await store.sweep() == Swept()

    async def test_an_event_before_the_wait_is_not_lost(self, store: StateStore) -> None:
        """The event exists already, so there is nothing to wait for."""
        await store.emit("news", "early")
        await wait_for(store, EVENT)
        assert await woken_by(store) == ("event", "worker")

    async def test_an_event_that_was_read_already_does_not_count(self, store: StateStore) -> None:
        """Only numbers above ``after``."""
        first = await store.emit("news", "old")
        task = await wait_for(store, replace(EVENT, after=first.number))
        assert task.state is TaskState.WAITING
        await store.emit("news", "new")
        assert await woken_by(store) == ("event", "emit")

    async def test_a_pruned_event_wakes_nothing(self, store: StateStore, clock: ManualClock) -> None:
        """There is nothing to read: a woken task would wait again, and be woken again."""
        await store.emit("news", "old")
        clock.advance(10)
        await store.prune(timedelta(seconds=5))
        assert (await wait_for(store, EVENT)).state is TaskState.WAITING
        await store.emit("news", "new")
        assert await woken_by(store) == ("event", "emit")

    async def test_an_event_on_another_channel_wakes_nothing(self, store: StateStore) -> None:
        """Channel names must match exactly."""
        task = await wait_for(store, EVENT)
        await store.emit("News", "other")
        assert await stored(store) == task

    async def test_one_event_wakes_all_waiting_tasks(self, store: StateStore) -> None:
        """It is a fact for all waiting tasks, not a message for one of them."""
        for name in ("a", "b"):
            attempt = await running_task(store, name, f"worker of {name}")
            await attempt.apply(move(TaskState.WAITING, waits=(EVENT,)))
        await store.emit("news", 1)
        assert [(await stored(store, name)).state for name in ("a", "b")] == [TaskState.PENDING] * 2

    async def test_an_event_sent_again_wakes_nothing(self, store: StateStore) -> None:
        """The same key is the same event."""
        first = await store.emit("news", 1, key="k")
        task = await wait_for(store, replace(EVENT, after=first.number))
        assert await store.emit("news", 1, key="k") == first
        assert await stored(store) == task

    async def test_an_event_is_the_reason_even_after_the_time_came(self, store: StateStore, clock: ManualClock) -> None:
        """The event itself wakes the task, before a sweep has checked the timer."""
        await wait_for(store, UntilTime(key="timer", at=clock.now() + timedelta(seconds=10)), EVENT)
        clock.advance(10)
        await store.emit("news", 1, actor="weather")
        assert await woken_by(store) == ("event", "weather")

    async def test_an_event_in_a_commit_wakes_too(self, store: StateStore) -> None:
        """In the name of that Commit's actor; the woken task changes by one revision."""
        waiting = await wait_for(store, EVENT)
        await submit_one(store, "other")
        await apply_outside(store, "other", Emit(channel="news", payload=1))
        assert await woken_by(store) == ("event", "person")
        assert (await stored(store)).revision == waiting.revision + 1

    async def test_a_task_may_wait_for_what_it_emits(self, store: StateStore) -> None:
        """Emitted and awaited in one Commit: nothing to wait for."""
        attempt = await running_task(store)
        verdict = await attempt.apply(Emit(channel="news", payload=1), move(TaskState.WAITING, waits=(EVENT,)))
        assert (verdict.state, verdict.revision) == (TaskState.PENDING, 3)

    async def test_a_commit_that_emits_to_its_own_waiting_task(self, store: StateStore) -> None:
        """It wakes the task, and still counts as one change."""
        waiting = await wait_for(store, EVENT)
        verdict = await send(store, outside("task", Emit(channel="news", payload=1)))
        assert (verdict.state, verdict.revision) == (TaskState.PENDING, waiting.revision + 1)
        assert await woken_by(store) == ("event", "person")

    async def test_a_commit_that_emits_and_moves_its_own_waiting_task(self, store: StateStore) -> None:
        """The Move counts, not the wake-up."""
        await wait_for(store, EVENT)
        verdict = await send(store, outside("task", Emit(channel="news", payload=1), CANCEL))
        assert verdict.applied
        assert verdict.state is TaskState.CANCELLED

    @pytest.mark.parametrize("children", [1, 2, 20])
    async def test_the_last_child_wakes_the_parent(self, store: StateStore, children: int) -> None:
        """For any kind of end, and only the last of them."""
        ids = [f"child-{number:02}" for number in range(children)]
        attempt = await running_task(store)
        await attempt.apply(
            *(SubmitChild(new_task(child)) for child in ids),
            move(TaskState.WAITING, waits=(UntilChildren(key="join", children=tuple(ids)),)),
        )
        waiting = await stored(store)
        endings = (CANCEL, move(TaskState.FAILED))
        for number, child in enumerate(ids[:-1]):
            await apply_outside(store, child, endings[number % 2])
            assert await stored(store) == waiting
        await apply_outside(store, ids[-1], CANCEL)
        assert await woken_by(store) == ("children ended", "person")
        assert (await stored(store)).revision == waiting.revision + 1

    async def test_a_child_that_ended_before_the_wait(self, store: StateStore) -> None:
        """It is not waited for."""
        await submit_one(store, "early")
        await submit_one(store, "late")
        await apply_outside(store, "early", CANCEL)
        task = await wait_for(store, UntilChildren(key="join", children=("early", "late")))
        assert task.state is TaskState.WAITING
        await apply_outside(store, "late", CANCEL)
        assert await woken_by(store) == ("children ended", "person")

    @pytest.mark.parametrize("children", [(), ("ended",), ("ended", "unknown")], ids=["none", "ended", "unknown"])
    async def test_nothing_left_to_wait_for(self, store: StateStore, children: tuple[str, ...]) -> None:
        """All have ended, or never existed."""
        await submit_one(store, "ended", state=TaskState.COMPLETED)
        await wait_for(store, UntilChildren(key="join", children=children))
        assert await woken_by(store) == ("children ended", "worker")

    async def test_two_joins_are_counted_apart(self, store: StateStore) -> None:
        """The first complete join wakes the task; the other is then dropped."""
        for child in ("a", "b"):
            await submit_one(store, child)
        await wait_for(
            store, UntilChildren(key="both", children=("a", "b")), UntilChildren(key="only b", children=("b",))
        )
        await apply_outside(store, "b", CANCEL)
        woken = await stored(store)
        assert await woken_by(store) == ("children ended", "person")
        await apply_outside(store, "a", CANCEL)
        assert await stored(store) == woken

    async def test_two_joins_for_one_child_wake_once(self, store: StateStore) -> None:
        """The first join wakes the parent, and the second is then dropped: the child ends normally."""
        await submit_one(store, "child")
        joins = [UntilChildren(key=key, children=("child",)) for key in ("first", "second")]
        waiting = await wait_for(store, *joins, EVENT)
        await apply_outside(store, "child", CANCEL)
        assert (await stored(store, "child")).state is TaskState.CANCELLED
        assert await woken_by(store) == ("children ended", "person")
        assert (await stored(store)).revision == waiting.revision + 1

    async def test_one_child_may_wake_several_parents(self, store: StateStore) -> None:
        """Every task that waits for it."""
        await submit_one(store, "child")
        for parent in ("p", "q"):
            attempt = await running_task(store, parent, f"worker of {parent}")
            await attempt.apply(move(TaskState.WAITING, waits=(UntilChildren(key="join", children=("child",)),)))
        await apply_outside(store, "child", CANCEL)
        for parent in ("p", "q"):
            assert await woken_by(store, parent) == ("children ended", "person")

    async def test_a_child_and_its_parent_end_in_one_batch(self, store: StateStore) -> None:
        """The second Commit finds the parent awake."""
        await submit_one(store, "child")
        await wait_for(store, UntilChildren(key="join", children=("child",)))
        verdicts = await store.commit(
            [outside("child", CANCEL), outside("task", CANCEL, states=frozenset({TaskState.PENDING}))]
        )
        assert [verdict.applied for verdict in verdicts] == [True, True]

    async def test_a_child_failed_by_its_deadline_wakes_the_parent(self, store: StateStore, clock: ManualClock) -> None:
        """A child that time ends counts like one that a Commit ends."""
        await submit_one(store, "child", deadline=clock.now() + timedelta(seconds=10))
        await wait_for(store, UntilChildren(key="join", children=("child",)))
        clock.advance(10)
        assert await store.sweep() == Swept(failed=("child",))
        assert await woken_by(store) == ("children ended", "sweep")

    async def test_a_decision_wakes(self, store: StateStore) -> None:
        """For any decision."""
        waiting = await wait_for(store, DECIDED)
        assert waiting.state is TaskState.WAITING
        await apply_outside(store, "task", Decide(approval_id="ask", state=ApprovalState.REJECTED, by="bob"))
        assert await woken_by(store) == ("decided", "person")
        assert (await stored(store)).revision == waiting.revision + 1

    async def test_a_decision_before_the_wait_is_not_lost(self, store: StateStore) -> None:
        """Asked in one Commit, decided, awaited in a later one."""
        attempt = await running_task(store)
        await attempt.apply(OpenApproval(ASKED))
        await apply_outside(store, "task", Decide(approval_id="ask", state=ApprovalState.APPROVED, by="bob"))
        await attempt.apply(move(TaskState.WAITING, waits=(DECIDED,)))
        assert await woken_by(store) == ("decided", "worker")

    async def test_a_decision_without_a_waiter_wakes_nothing(self, store: StateStore) -> None:
        """The task waits for something else."""
        await wait_for(store, EVENT)
        await apply_outside(store, "task", Decide(approval_id="ask", state=ApprovalState.APPROVED, by="bob"))
        assert (await stored(store)).state is TaskState.WAITING

    async def test_the_first_of_several_wakes_once(self, store: StateStore, clock: ManualClock) -> None:
        """The other waits are dropped."""
        await submit_one(store, "child")
        timer = UntilTime(key="timer", at=clock.now() + timedelta(seconds=10))
        await wait_for(store, EVENT, timer, DECIDED, UntilChildren(key="join", children=("child",)))
        await store.emit("news", 1)
        woken = await stored(store)
        clock.advance(10)
        await store.emit("news", 2)
        await apply_outside(store, "child", CANCEL)
        assert await store.sweep() == Swept()
        assert await stored(store) == woken

    async def test_of_several_that_are_true_one_is_named(self, store: StateStore, clock: ManualClock) -> None:
        """Time before event, event before children, children before decision."""
        await store.emit("news", 1)
        timer = UntilTime(key="timer", at=clock.now())
        await wait_for(store, UntilChildren(key="join", children=()), EVENT, timer)
        assert await woken_by(store) == ("time came", "worker")

    async def test_an_event_is_named_before_children(self, store: StateStore) -> None:
        """The same order again, without the timer."""
        await store.emit("news", 1)
        await wait_for(store, UntilChildren(key="join", children=()), EVENT)
        assert await woken_by(store) == ("event", "worker")

    async def test_a_step_of_the_holder_notices_too(self, store: StateStore, clock: ManualClock) -> None:
        """Also on the fast path for Commits with only steps."""
        await wait_for(store, UntilTime(key="timer", at=clock.now() + timedelta(seconds=5)))
        await enter(store, "holder")
        attempt = Attempt(store, await store.acquire("task", "holder"))
        assert (await attempt.apply(WriteStep(step()))).state is TaskState.WAITING
        clock.advance(5)
        assert (await attempt.apply(WriteStep(step("later", 2)))).state is TaskState.PENDING
        assert (await last_move(store)).reason == "time came"

    async def test_any_commit_notices_that_the_time_has_come(self, store: StateStore, clock: ManualClock) -> None:
        """If a Commit leaves its task waiting for something already true, the task moves on."""
        await wait_for(store, UntilTime(key="timer", at=clock.now() + timedelta(seconds=10)))
        clock.advance(10)
        await apply_outside(store, "task", WriteStep(step()))
        assert await woken_by(store) == ("time came", "person")

    async def test_waiting_for_nothing_lasts_until_a_commit_moves_it(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """For example when its budget is raised."""
        task = await wait_for(store, UntilWoken(key="budget"))
        clock.advance(timedelta(days=365))
        await store.emit("news", 1)
        await store.sweep()
        assert await stored(store) == task
        await apply_outside(store, "task", move(TaskState.PENDING, reason="budget raised"))
        assert await woken_by(store) == ("budget raised", "person")

    async def test_a_new_wait_replaces_the_old_one(self, store: StateStore) -> None:
        """A wait of an earlier attempt wakes nothing."""
        await wait_for(store, EVENT)
        await apply_outside(store, "task", move(TaskState.PENDING))
        attempt = await claimed_by(store, "worker", 2, queues=(QUEUE,))
        await attempt.apply(move(TaskState.WAITING, waits=(UntilEvent(key="event", channel="other"),)))
        await store.emit("news", 1)
        assert (await stored(store)).state is TaskState.WAITING
        await store.emit("other", 1)
        assert await woken_by(store) == ("event", "emit")

    async def test_a_cancelled_task_is_not_woken(self, store: StateStore, clock: ManualClock) -> None:
        """A task that has ended stays ended."""
        await wait_for(store, EVENT, UntilTime(key="timer", at=clock.now() + timedelta(seconds=10)))
        await apply_outside(store, "task", CANCEL)
        ended = await stored(store)
        clock.advance(10)
        await store.emit("news", 1)
        assert await store.sweep() == Swept()
        assert await stored(store) == ended

    async def test_a_parent_that_stopped_waiting_is_left_alone(self, store: StateStore) -> None:
        """Its children end without it."""
        await submit_one(store, "child")
        await wait_for(store, UntilChildren(key="join", children=("child",)))
        await apply_outside(store, "task", CANCEL)
        parent = await stored(store)
        await apply_outside(store, "child", CANCEL)
        assert await stored(store) == parent
