"""Children: a parent restarts its ended children; and a task keeps its form of keys over all its rounds."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.commit import Refusal, Verdict
from holdfast.model.errors import Conflict, InvalidValue
from holdfast.model.operations import (
    InheritKeys,
    Move,
    ReopenChild,
    RequestCancel,
    RequireUndo,
    SubmitChild,
    UntilChildren,
    WriteStep,
)
from holdfast.model.queries import TaskFilter
from holdfast.model.step import StepState
from holdfast.model.task import FLAT_KEYS, SCOPED_KEYS, Task
from holdfast.model.transitions import TERMINAL, TaskState, Transition
from holdfast.model.worker import ALONE_AFTER, Claim
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    CANCEL,
    COMPLETE,
    Attempt,
    acquired_by,
    apply_outside,
    claim,
    claimed_by,
    claimed_ids,
    enter,
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
from holdfast.testing.contract.hints import hints_of
from holdfast.testing.snapshot import snapshot


def again(child: Task, **options: Any) -> ReopenChild:  # noqa: ANN401 - the fields of a ReopenChild
    """Restart this child at its current revision."""
    given: dict[str, Any] = {"reason": "a new round", "revision": child.revision} | options
    return ReopenChild(child_id=child.id, **given)


async def family(store: StateStore, end: Move = COMPLETE, **options: Any) -> tuple[Attempt, Task]:  # noqa: ANN401 - of the child
    """Return a parent that a worker holds, and a child of it that worked for a while and ended."""
    parent = await running_task(store, "parent", "mother")
    await parent.apply(SubmitChild(new_task("child", queue="nursery", **options)))
    await enter(store, "nurse")
    child = await claimed_by(store, "nurse", queues=("nursery",))
    await child.apply(WriteStep(step("lesson", state=StepState.FAILED, error=b"1")), RequireUndo(True, begun=True))  # noqa: FBT003 - as everywhere
    await child.apply(end)
    return parent, await stored(store, "child")


class ChildrenContract(ContractBase):
    """ReopenChild: when it applies, what it changes, and what it keeps."""

    @pytest.mark.parametrize("state", sorted(TERMINAL), ids=str)
    async def test_an_ended_child_goes_on_in_its_round(
        self, store: StateStore, clock: ManualClock, state: TaskState
    ) -> None:
        """From every end. Its fence, its key and ``must_undo`` stay."""
        parent, child = await family(store, move(state, result="r", error="e", counts_attempt=True), key="k")
        clock.advance(1)
        before = await stored(store, "parent")
        verdict = await parent.apply(again(child, feedback="ignored"))
        now = clock.now()
        assert await stored(store, "child") == replace(
            child,
            state=TaskState.PENDING,
            result=None,
            error=None,
            attempts=0,
            finished_at=None,
            available_at=now,
            updated_at=now,
            revision=child.revision + 1,
        )
        assert (child.fence, child.sequence, child.must_undo, child.key) == (1, 2, True, "k")
        assert (await store.history("child"))[-1] == Transition(
            task_id="child",
            number=4,
            from_state=state,
            to_state=TaskState.PENDING,
            reason="a new round",
            actor="mother",
            fence=1,
            at=now,
        )
        assert verdict == Verdict(
            task_id="parent", state=TaskState.RUNNING, fence=1, sequence=2, revision=before.revision + 1, owner="mother"
        )
        assert (await stored(store, "parent")).revision == before.revision + 1
        [answer] = await store.submit([new_task("other", key="k", user_input=None)])
        assert (answer.task_id, answer.created) == ("child", False)

    async def test_it_is_claimed_and_ends_like_any_task(self, store: StateStore) -> None:
        """Also a second time, and a third."""
        parent, child = await family(store)
        for number in (2, 3):
            await parent.apply(again(child))
            attempt = await claimed_by(store, "nurse", number, queues=("nursery",))
            assert (attempt.task.fence, attempt.claimed.fresh) == (number, False)
            await attempt.apply(move(TaskState.COMPLETED, result=number))
            child = await stored(store, "child")
            assert (child.state, child.result, child.round) == (TaskState.COMPLETED, number, 1)

    async def test_a_new_round_has_its_feedback_and_input(self, store: StateStore, clock: ManualClock) -> None:
        """Feedback is replaced, even by None; the input stays unless a new one is given, which may be None."""
        parent, child = await family(store, user_input="old words", agent_id="Writer")
        await parent.apply(again(child, new_round=True, feedback="better"))
        child = await stored(store, "child")
        assert (child.round, child.feedback, child.user_input) == (2, "better", "old words")
        assert [task.id for task in (await store.find(TaskFilter(text="writer  old"))).items] == ["child"]
        later = clock.now() + timedelta(hours=1)
        for number, given in ((3, {"New": "words"}), (4, "Straße"), (5, None)):
            await apply_outside(store, "child", CANCEL)
            child = await stored(store, "child")
            await parent.apply(again(child, new_round=True, user_input=given, deadline=later))
            child = await stored(store, "child")
            assert (child.round, child.feedback, child.user_input, child.deadline) == (number, None, given, later)
            # As if it had been submitted with this input: a search finds it, and its digest is the same.
            await store.submit([new_task(f"twin {number}", user_input=given, agent_id="Writer")])
            text = {3: '"new":"words"', 4: "STRASSE", 5: "writer  null"}[number]
            found = await store.find(TaskFilter(text=text), newest_first=False)
            assert [task.id for task in found.items] == ["child", f"twin {number}"], number
            [same, other] = await store.submit(
                [new_task("child", user_input=given), new_task("child", user_input="some other")]
            )
            assert (same.conflict, other.conflict) == (False, True)
        assert (await store.find(TaskFilter(text="old words"))).items == ()

    async def test_it_may_be_delayed_and_have_a_deadline(self, store: StateStore, clock: ManualClock) -> None:
        """Both as given, also in the same round; without a deadline it has none."""
        soon, late = clock.now() + timedelta(minutes=1), clock.now() + timedelta(hours=1)
        parent, child = await family(store, deadline=late, priority=3)
        elsewhere = soon.astimezone(UTC)
        await parent.apply(again(child, available_at=elsewhere))
        child = await stored(store, "child")
        assert (child.available_at, child.deadline) == (soon, None)
        assert (await store.sweep()).next_due == soon
        clock.advance(60)
        assert (await store.sweep()).due == 1
        await enter(store, "night nurse")
        await claimed_by(store, "night nurse", queues=("nursery",))

    async def test_its_deaths_and_its_cancel_are_forgotten(self, store: StateStore, clock: ManualClock) -> None:
        """A suspect starts without deaths, and an earlier cancel request does not stop it."""
        parent = await running_task(store, "parent", "mother", queue="parents")
        await submit_one(store, "child", parent_id="parent")
        for number in range(2):
            await enter(store, f"nurse {number}", lease=1)
            await claimed_by(store, f"nurse {number}")
            clock.advance(2)
            await store.sweep()
        await apply_outside(store, "child", RequestCancel(reason="enough"), CANCEL)
        child = await stored(store, "child")
        assert (child.deaths, child.cancel_requested) == (2, "enough")
        await parent.apply(again(child))
        child = await stored(store, "child")
        assert (child.deaths, child.lone_deaths, child.cancel_requested) == (0, 0, None)
        await enter(store, "nurse")
        await claimed_by(store, "nurse")

    async def test_the_undoing_is_over(self, store: StateStore, clock: ManualClock) -> None:
        """Its deadline wakes it again, to undo: it must undo, but it is no longer undoing."""
        parent, child = await family(store)
        await parent.apply(again(child, deadline=clock.now() + timedelta(minutes=1)))
        attempt = await claimed_by(store, "nurse", 2, queues=("nursery",))
        await attempt.apply(move(TaskState.WAITING))
        clock.advance(120)
        assert (await store.sweep()).woken == ("child",)

    async def test_lines_go_into_the_journal_of_the_child(self, store: StateStore) -> None:
        """They replace the line under their key; of two lines with one key, the last counts."""
        parent, child = await family(store)
        first, last = step("lesson", state=StepState.PENDING, attempts=2), step("lesson", state=StepState.RUNNING)
        added = step("exam", 2, output=b'"A"', started_at=datetime(2026, 1, 1, tzinfo=UTC))
        await parent.apply(WriteStep(step("own")), again(child, lines=(first, added, last)))
        assert await store.steps("child") == [last, added]
        assert [line.key for line in await store.steps("parent")] == ["own"]

    @pytest.mark.parametrize("what", ["stranger", "unknown", "open", "changed", "itself", "twice"])
    async def test_what_cannot_be_begun_again_refuses_the_whole_commit(self, store: StateStore, what: str) -> None:
        """Not a child of this task, not ended, or changed since it was read."""
        parent, child = await family(store)
        await submit_one(store, "stranger", state=TaskState.COMPLETED)
        await submit_one(store, "open", parent_id="parent")
        wrong = {
            "stranger": [ReopenChild(child_id="stranger", revision=1, reason="")],
            "unknown": [ReopenChild(child_id="unknown", revision=1, reason="", new_round=True, user_input=1)],
            "open": [ReopenChild(child_id="open", revision=1, reason="")],
            "changed": [again(child, revision=child.revision - 1)],
            "itself": [ReopenChild(child_id="parent", revision=3, reason="")],
            "twice": [again(child), again(child)],
        }[what]
        before = await snapshot(store)
        verdict = await parent.send(WriteStep(step()), *wrong, COMPLETE)
        assert (verdict.refusal, verdict.state) == (Refusal.CONFLICT, TaskState.RUNNING)
        words = {
            "stranger": "task stranger is not a child of task parent",
            "unknown": "task unknown is not a child of task parent",
            "open": "child open is pending; only a child that has ended",
            "changed": f"child child is at revision {child.revision}, expected {child.revision - 1}",
            "itself": "task parent is not a child of task parent",
            "twice": "child child is pending; only a child that has ended",
        }
        if verdict.detail:  # the model store has no detail texts
            assert words[what] in verdict.detail
        assert await snapshot(store) == before

    async def test_only_the_holder_of_the_parent_can(self, store: StateStore) -> None:
        """No other caller: not from outside, and not under an old fence."""
        parent, child = await family(store)
        with pytest.raises(InvalidValue, match="only the worker that holds the parent"):
            await send(store, outside("parent", again(child)))
        before = await snapshot(store)
        other = replace(parent.commit(again(child)), guard=replace(parent.guard(2), owner="thief"))
        assert (await send(store, other)).refusal is Refusal.SUPERSEDED
        assert await snapshot(store) == before

    @pytest.mark.parametrize("state", [TaskState.COMPLETED, TaskState.CANCELLED], ids=str)
    async def test_no_ordinary_move_leaves_those_ends(self, store: StateStore, state: TaskState) -> None:
        """Neither for a child nor for any other task."""
        await family(store, move(state))
        verdict = await send(store, outside("child", move(TaskState.PENDING)))
        assert (verdict.refusal, verdict.state) == (Refusal.ILLEGAL_MOVE, state)
        assert "nothing: that state is final" in verdict.detail

    async def test_a_commit_sent_again_begins_nothing_again(self, store: StateStore) -> None:
        """Even if the child has ended a second time by then."""
        parent, child = await family(store)
        commit = parent.commit(again(child, new_round=True), WriteStep(step()))
        assert (await send(store, commit)).applied
        attempt = await claimed_by(store, "nurse", 2, queues=("nursery",))
        await attempt.apply(COMPLETE)
        before = await snapshot(store)
        verdict = await send(store, commit)
        assert (verdict.applied, verdict.duplicate) == (True, True)
        assert await snapshot(store) == before

    async def test_the_same_commit_may_wait_for_it(self, store: StateStore) -> None:
        """The join counts it as open, and its next end wakes the parent."""
        parent, child = await family(store)
        join = move(TaskState.WAITING, waits=(UntilChildren(key="join", children=("child",)),))
        verdict = await parent.apply(join, again(child))
        assert verdict.state is TaskState.WAITING
        attempt = await claimed_by(store, "nurse", 2, queues=("nursery",))
        await attempt.apply(COMPLETE)
        assert (await stored(store, "parent")).state is TaskState.PENDING

    async def test_it_stands_in_its_place_in_a_batch(self, store: StateStore) -> None:
        """Before the child's end it is refused, after it, it applies."""
        parent = await running_task(store, "parent", "mother")
        await submit_one(store, "child", parent_id="parent", state=TaskState.RUNNING)
        child = await acquired_by(store, "child", "mother")
        reopen = ReopenChild(child_id="child", revision=3, reason="")
        verdicts = await store.commit([parent.commit(reopen), child.commit(COMPLETE)])
        assert [verdict.refusal for verdict in verdicts] == [Refusal.CONFLICT, None]
        assert (await stored(store, "child")).state is TaskState.COMPLETED
        await submit_one(store, "second", parent_id="parent", state=TaskState.RUNNING)
        second = await acquired_by(store, "second", "mother")
        parent.sequence = 0
        verdicts = await store.commit([second.commit(COMPLETE), parent.commit(replace(reopen, child_id="second"))])
        assert [verdict.state for verdict in verdicts] == [TaskState.COMPLETED, TaskState.RUNNING]
        assert (await stored(store, "second")).state is TaskState.PENDING

    async def test_it_is_hinted_to_its_queue(self, store: StateStore) -> None:
        """And to the listeners of the task."""
        parent, child = await family(store)
        await hints_of(store, parent.apply(again(child)), "queue:nursery", "task:child")


class KeyFormContract(ContractBase):
    """The form of keys belongs to the task: its first claim sets it, and it never changes."""

    async def test_the_first_claim_sets_it_and_no_later_one_does(self, store: StateStore, clock: ManualClock) -> None:
        """Neither a retry nor a new round nor a restart by its parent."""
        parent = await running_task(store, "parent", "mother", queue="parents")
        assert (await stored(store, "parent")).key_form == SCOPED_KEYS
        await submit_one(store, "child", parent_id="parent")
        assert (await stored(store, "child")).key_form == 0
        await enter(store, "nurse")
        attempt = await claimed_by(store, "nurse", key_form=FLAT_KEYS)
        assert attempt.task.key_form == FLAT_KEYS
        await attempt.apply(move(TaskState.PENDING, counts_attempt=True))
        attempt = await claimed_by(store, "nurse", 2)
        await attempt.apply(move(TaskState.FAILED))
        await apply_outside(store, "child", move(TaskState.PENDING, new_round=True))
        attempt = await claimed_by(store, "nurse", 3)
        await attempt.apply(COMPLETE)
        await parent.apply(again(await stored(store, "child"), new_round=True))
        clock.advance(1)
        attempt = await claimed_by(store, "nurse", 4)
        assert attempt.task.key_form == FLAT_KEYS == (await store.load("child")).task.key_form
        [found] = (await store.find(TaskFilter(parent_id="parent"))).items
        assert found.key_form == FLAT_KEYS

    async def test_a_worker_gets_no_task_whose_keys_it_does_not_speak(self, store: StateStore) -> None:
        """It gets the others, in their order, and as many as it asked for; a newer worker gets all."""
        await enter(store, "new")
        await enter(store, "old")
        await store.submit([new_task(f"scoped {number}", priority=1) for number in range(30)])
        for claimed in await claim(store, "new", limit=30):
            await Attempt(store, claimed).apply(move(TaskState.PENDING))
        await store.submit([new_task("fresh"), new_task("later")])
        assert await claimed_ids(store, "old", limit=1, key_form=FLAT_KEYS) == ["fresh"]
        assert await claimed_ids(store, "old", 2, key_form=FLAT_KEYS) == ["later"]
        assert await claimed_ids(store, "old", 3, key_form=FLAT_KEYS) == []
        assert len(await claimed_ids(store, "new", 2, limit=40)) == 30

    async def test_no_suspect_either(self, store: StateStore, clock: ManualClock) -> None:
        """A worker that runs alone has to be able to read the journal too."""
        await submit_one(store)
        for number in range(ALONE_AFTER):
            await enter(store, f"dying {number}", lease=1)
            await claimed_by(store, f"dying {number}")
            clock.advance(2)
            await store.sweep()
        await enter(store)
        assert await claimed_ids(store, alone=True, key_form=FLAT_KEYS) == []
        assert await claimed_ids(store, alone=True) == ["task"]

    async def test_acquiring_a_newer_form_is_refused_with_advice(self, store: StateStore) -> None:
        """A newer form is refused with advice; a task without a form gets the worker's; a held task is returned."""
        attempt = await running_task(store)
        await attempt.apply(move(TaskState.WAITING))
        before = await snapshot(store)
        with pytest.raises(Conflict, match="upgrade this worker"):
            await store.acquire("task", "worker", key_form=FLAT_KEYS)
        assert await snapshot(store) == before
        held = await store.acquire("task", "worker")
        assert await store.acquire("task", "worker", key_form=FLAT_KEYS) == held
        await submit_one(store, "other")
        assert (await store.acquire("other", "worker", key_form=FLAT_KEYS)).task.key_form == FLAT_KEYS
        assert (await stored(store, "other")).key_form == FLAT_KEYS

    async def test_a_form_counts_from_one(self) -> None:
        """0 is the form of a task before its first claim; no worker has it."""
        with pytest.raises(InvalidValue, match="form of keys"):
            Claim(worker_id="w", number=1, limit=1, key_form=0)

    async def test_a_fork_inherits_it_before_its_first_claim(self, store: StateStore) -> None:
        """Only then: the form of keys that were written never changes."""
        await submit_one(store, "fork")
        await enter(store, "worker")
        [verdict] = await store.commit([outside("fork", InheritKeys(key_form=FLAT_KEYS))])
        assert verdict.applied
        attempt = await claimed_by(store, "worker")
        assert attempt.task.key_form == FLAT_KEYS
        await attempt.apply(InheritKeys(key_form=SCOPED_KEYS))
        assert (await stored(store, "fork")).key_form == FLAT_KEYS
        with pytest.raises(InvalidValue):
            InheritKeys(key_form=0)
