"""commit: fenced, numbered, all or nothing, each alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.clock import ManualClock
from holdfast.model.commit import (
    ApplyPatch,
    Commit,
    ConsumeApproval,
    Decide,
    Emit,
    Expect,
    Held,
    LinkArtifact,
    OpenApproval,
    Operation,
    Refusal,
    Release,
    RequestCancel,
    RequireUndo,
    Reserve,
    SaveCheckpoint,
    SetLimits,
    SubmitChild,
    Verdict,
    WriteEffect,
    WriteOutcome,
    WriteStep,
)
from holdfast.model.effect import Effect, EffectClass, EffectState
from holdfast.model.errors import InvalidValue
from holdfast.model.records import ArtifactLink, Checkpoint
from holdfast.model.transitions import TaskState, Transition
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    CANCEL,
    COMPLETE,
    LEASE,
    apply_outside,
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
from holdfast.testing.snapshot import snapshot


class FencedCommitContract(ContractBase):
    """Commits of a worker, under its lease."""

    async def test_an_applied_commit_counts_once(self, store: StateStore, clock: ManualClock) -> None:
        """One revision, one number, one moment."""
        attempt = await running_task(store)
        clock.advance(1)
        verdict = await attempt.send(WriteStep(step()), WriteStep(step("apply", 2)))
        assert verdict == Verdict(
            task_id="task", state=TaskState.RUNNING, fence=1, sequence=1, revision=3, owner="worker"
        )
        assert await stored(store) == replace(attempt.task, sequence=1, revision=3, updated_at=clock.now())
        assert await store.steps("task") == [step(), step("apply", 2)]

    async def test_a_commit_of_nothing_is_applied(self, store: StateStore) -> None:
        """It still takes its number."""
        attempt = await running_task(store)
        assert (await attempt.apply()).sequence == 1

    async def test_a_stale_fence_is_superseded(self, store: StateStore, clock: ManualClock) -> None:
        """A worker that slept through its lease can change nothing, and is told who holds the task."""
        sleeper = await running_task(store, queue="default")
        clock.advance(LEASE)
        await store.sweep()
        await enter(store, "next")
        await claimed_by(store, "next")
        before = await snapshot(store)
        verdict = await sleeper.send(WriteStep(step()), COMPLETE)
        assert _without_detail(verdict) == Verdict(
            task_id="task",
            refusal=Refusal.SUPERSEDED,
            state=TaskState.RUNNING,
            fence=3,
            revision=4,
            owner="next",
        )
        assert await snapshot(store) == before

    async def test_the_wrong_owner_is_superseded(self, store: StateStore) -> None:
        """The right fence is not enough."""
        attempt = await running_task(store)
        thief = replace(attempt.commit(COMPLETE), guard=replace(attempt.guard(1), owner="thief"))
        assert (await send(store, thief)).refusal is Refusal.SUPERSEDED

    async def test_a_fence_of_the_future_is_superseded(self, store: StateStore) -> None:
        """Only the fence that stands on the row counts."""
        attempt = await running_task(store)
        forged = replace(attempt.commit(COMPLETE), guard=replace(attempt.guard(1), fence=2))
        assert (await send(store, forged)).refusal is Refusal.SUPERSEDED

    async def test_a_missing_number_is_out_of_order(self, store: StateStore) -> None:
        """Commits of one fence are applied in order, without gaps."""
        attempt = await running_task(store)
        before = await snapshot(store)
        early = replace(attempt.commit(WriteStep(step())), guard=attempt.guard(2))
        assert (await send(store, early)).refusal is Refusal.OUT_OF_ORDER
        assert await snapshot(store) == before

    async def test_a_task_that_is_not_there(self, store: StateStore) -> None:
        """The verdict has nothing to say about it."""
        from_worker = Commit(task_id="missing", guard=Held(owner="w", fence=1, sequence=1), operations=(COMPLETE,))
        for commit in (outside("missing", CANCEL), outside("missing", revision=1), from_worker):
            verdict = await send(store, commit)
            assert _without_detail(verdict) == Verdict(task_id="missing", refusal=Refusal.NOT_FOUND)

    async def test_a_resent_commit_is_a_duplicate(self, store: StateStore, clock: ManualClock) -> None:
        """It is answered with how the task stands, and nothing is applied twice."""
        attempt = await running_task(store)
        first = attempt.commit(WriteStep(step()), ApplyPatch(body=b"{}", author="a"))
        verdict = await send(store, first)
        before = await snapshot(store)
        clock.advance(1)
        assert await send(store, first) == replace(verdict, duplicate=True)
        assert await snapshot(store) == before

    async def test_an_earlier_number_is_a_duplicate_too(self, store: StateStore) -> None:
        """However many came after it."""
        attempt = await running_task(store)
        first = attempt.commit(WriteStep(step()))
        await send(store, first)
        latest = await attempt.apply(WriteStep(step("apply", 2)))
        assert await send(store, first) == replace(latest, duplicate=True)

    @pytest.mark.parametrize(
        "ending",
        [
            COMPLETE,
            move(TaskState.FAILED, error="no"),
            CANCEL,
            move(TaskState.WAITING),
            move(TaskState.PENDING),
            Release(),
        ],
        ids=["completed", "failed", "cancelled", "waiting", "pending", "released"],
    )
    async def test_a_resent_last_commit_is_a_duplicate(self, store: StateStore, ending: Operation) -> None:
        """It gave the lease back, so duplicates are recognised before owner and state are looked at."""
        attempt = await running_task(store)
        last = attempt.commit(WriteStep(step()), ending)
        verdict = await send(store, last)
        assert verdict.applied
        assert verdict.owner is None
        assert await send(store, last) == replace(verdict, duplicate=True)

    async def test_after_giving_the_lease_back_nothing_more_is_applied(self, store: StateStore) -> None:
        """A Commit that was never sent before finds no lease."""
        attempt = await running_task(store)
        await attempt.apply(COMPLETE)
        assert (await attempt.send(WriteStep(step()))).refusal is Refusal.SUPERSEDED

    async def test_a_resent_commit_of_an_older_fence_is_superseded(self, store: StateStore) -> None:
        """The numbers of an older fence are no longer known; what it did is in the journal."""
        attempt = await running_task(store, queue="default")
        first = attempt.commit(move(TaskState.PENDING))
        await send(store, first)
        await claimed_by(store, "worker", 2)
        assert (await send(store, first)).refusal is Refusal.SUPERSEDED

    async def test_an_illegal_move_is_refused_alone(self, store: StateStore) -> None:
        """Its number is free for the next try."""
        attempt = await running_task(store)
        before = await snapshot(store)
        refused = await send(store, replace(attempt.commit(), operations=(WriteStep(step()), move(TaskState.RUNNING))))
        assert refused.refusal is Refusal.ILLEGAL_MOVE
        assert "running" in refused.detail
        assert await snapshot(store) == before
        attempt.sequence = 0
        await attempt.apply(WriteStep(step()))

    async def test_releasing_keeps_the_state(self, store: StateStore, clock: ManualClock) -> None:
        """A task that runs without a lease is moved only by a person."""
        attempt = await running_task(store)
        clock.advance(1)
        verdict = await attempt.apply(Release())
        assert verdict == Verdict(task_id="task", state=TaskState.RUNNING, fence=1, sequence=1, revision=3)
        assert await stored(store) == replace(attempt.task, owner=None, sequence=1, revision=3, updated_at=clock.now())
        assert await store.owned("worker") == []

    async def test_a_released_review_is_claimable(self, store: StateStore) -> None:
        """Done and handed over in one Commit."""
        attempt = await running_task(store, queue="default")
        await attempt.apply(Release(), move(TaskState.REVIEW))
        await enter(store, "verifier")
        assert await claimed_ids(store, "verifier") == ["task"]


class ExpectedCommitContract(ContractBase):
    """Commits from outside: what they expect must still be true."""

    async def test_a_commit_that_expects_nothing_is_applied(self, store: StateStore, clock: ManualClock) -> None:
        """It touches no sequence."""
        before = await submit_one(store)
        clock.advance(1)
        verdict = await send(store, outside("task", RequestCancel(reason="enough")))
        assert verdict == Verdict(task_id="task", state=TaskState.PENDING, revision=2, cancel_requested="enough")
        assert await stored(store) == replace(before, revision=2, updated_at=clock.now(), cancel_requested="enough")

    @pytest.mark.parametrize(
        "expected",
        [
            {"states": frozenset({TaskState.PENDING, TaskState.WAITING})},
            {"revision": 1},
            {"version": 0},
            {"states": frozenset({TaskState.PENDING}), "revision": 1, "version": 0},
        ],
        ids=["states", "revision", "version", "all"],
    )
    async def test_what_is_still_true_is_applied(self, store: StateStore, expected: dict[str, Any]) -> None:
        """Each part, and all of them together."""
        await submit_one(store)
        assert (await send(store, outside("task", CANCEL, **expected))).applied

    @pytest.mark.parametrize(
        "expected",
        [
            {"states": frozenset({TaskState.RUNNING})},
            {"states": frozenset()},
            {"revision": 2},
            {"version": 1},
            {"states": frozenset({TaskState.PENDING}), "revision": 1, "version": 7},
        ],
        ids=["states", "no states", "revision", "version", "one of all"],
    )
    async def test_what_is_no_longer_true_is_a_conflict(self, store: StateStore, expected: dict[str, Any]) -> None:
        """Nothing changes."""
        await submit_one(store)
        before = await snapshot(store)
        verdict = await send(store, outside("task", WriteStep(step()), CANCEL, **expected))
        assert _without_detail(verdict) == Verdict(
            task_id="task", refusal=Refusal.CONFLICT, state=TaskState.PENDING, revision=1
        )
        assert await snapshot(store) == before

    async def test_a_leased_task_is_not_moved_from_outside(self, store: StateStore) -> None:
        """The verdict names who holds it."""
        await running_task(store)
        before = await snapshot(store)
        verdict = await send(store, outside("task", CANCEL))
        assert (verdict.refusal, verdict.owner) == (Refusal.LEASED, "worker")
        assert await snapshot(store) == before

    async def test_a_leased_task_is_written_to_from_outside(self, store: StateStore) -> None:
        """Everything but a Move: a cancel request, a patch, an answer."""
        attempt = await running_task(store)
        await apply_outside(store, "task", RequestCancel(reason="enough"), ApplyPatch(body=b"{}", author="alice"))
        verdict = await attempt.apply(WriteStep(step()))
        assert (verdict.cancel_requested, verdict.version, verdict.sequence) == ("enough", 1, 1)

    async def test_a_resent_request_is_a_duplicate(self, store: StateStore) -> None:
        """Even where what it expected is no longer true, because it was itself applied."""
        await submit_one(store)
        commit = outside("task", CANCEL, states=frozenset({TaskState.PENDING}), revision=1)
        verdict = await send(store, commit)
        before = await snapshot(store)
        assert await send(store, commit) == replace(verdict, duplicate=True)
        assert await snapshot(store) == before

    async def test_a_refused_request_can_be_sent_again(self, store: StateStore) -> None:
        """Only what was applied is remembered."""
        attempt = await running_task(store)
        commit = outside("task", CANCEL)
        assert (await send(store, commit)).refusal is Refusal.LEASED
        await attempt.apply(Release())
        verdict = await send(store, commit)
        assert verdict.applied
        assert not verdict.duplicate

    async def test_a_request_belongs_to_its_task(self, store: StateStore) -> None:
        """The same request for another task is another request."""
        await submit_one(store, "a")
        await submit_one(store, "b")
        for task_id in ("a", "b"):
            verdict = await send(store, outside(task_id, CANCEL, request="same"))
            assert not verdict.duplicate

    async def test_a_cancel_request_is_not_replaced(self, store: StateStore) -> None:
        """The first reason stands."""
        await submit_one(store)
        await apply_outside(store, "task", RequestCancel(reason="first"))
        await apply_outside(store, "task", RequestCancel(reason="second"))
        assert (await stored(store)).cancel_requested == "first"

    async def test_an_outcome_is_written_without_a_move(self, store: StateStore) -> None:
        """Both parts are replaced; None is none."""
        await submit_one(store)
        await apply_outside(store, "task", WriteOutcome(result={"half": "done"}))
        assert (await stored(store)).result == {"half": "done"}
        await apply_outside(store, "task", WriteOutcome(error="broken"))
        task = await stored(store)
        assert (task.result, task.error, task.state) == (None, "broken", TaskState.PENDING)

    async def test_undo_is_required_and_waived(self, store: StateStore) -> None:
        """The flag follows the last word."""
        await submit_one(store)
        for required in (True, False):
            await apply_outside(store, "task", RequireUndo(required))
            assert (await stored(store)).must_undo is required

    async def test_a_retry_by_hand_clears_the_old_outcome(self, store: StateStore, clock: ManualClock) -> None:
        """From failed back to the queue, as if it had not ended."""
        attempt = await running_task(store, queue="default")
        await attempt.apply(move(TaskState.FAILED, error="no luck"))
        clock.advance(1)
        await apply_outside(store, "task", move(TaskState.PENDING, new_round=True, feedback="try harder"))
        assert await stored(store) == replace(
            attempt.task,
            state=TaskState.PENDING,
            owner=None,
            sequence=1,
            revision=4,
            round=2,
            feedback="try harder",
            available_at=clock.now(),
            updated_at=clock.now(),
        )
        assert await claimed_ids(store, number=2) == ["task"]


class CommitBatchContract(ContractBase):
    """Many Commits in one call: as if they came one after the other."""

    async def test_no_commits_are_fine(self, store: StateStore) -> None:
        """An empty call does nothing."""
        assert await store.commit([]) == []

    async def test_verdicts_come_in_order(self, store: StateStore) -> None:
        """One for each Commit, whatever the order of their tasks."""
        attempts = [await running_task(store, task_id, f"worker of {task_id}") for task_id in ("c", "a", "b")]
        verdicts = await store.commit([attempt.commit(COMPLETE) for attempt in attempts])
        assert [(verdict.task_id, verdict.applied) for verdict in verdicts] == [("c", True), ("a", True), ("b", True)]

    async def test_a_stale_commit_spoils_no_neighbour(self, store: StateStore) -> None:
        """It is refused alone, in the middle of the batch."""
        first, stale, last = [await running_task(store, name, f"worker of {name}") for name in ("a", "b", "c")]
        await store.retire(stale.worker_id)
        verdicts = await store.commit([attempt.commit(WriteStep(step())) for attempt in (first, stale, last)])
        assert [verdict.refusal for verdict in verdicts] == [None, Refusal.SUPERSEDED, None]
        assert [len(await store.steps(name)) for name in ("a", "b", "c")] == [1, 0, 1]

    async def test_several_commits_of_one_task(self, store: StateStore) -> None:
        """Each finds the task as the one before left it."""
        attempt = await running_task(store)
        verdicts = await store.commit(
            [
                attempt.commit(WriteStep(step("a", 1))),
                attempt.commit(ApplyPatch(body=b"{}", author="a")),
                attempt.commit(WriteStep(step("b", 2)), COMPLETE),
            ]
        )
        assert [(v.sequence, v.revision, v.version, v.state, v.owner) for v in verdicts] == [
            (1, 3, 0, TaskState.RUNNING, "worker"),
            (2, 4, 1, TaskState.RUNNING, "worker"),
            (3, 5, 1, TaskState.COMPLETED, None),
        ]
        assert [found.key for found in await store.steps("task")] == ["a", "b"]

    async def test_after_a_refusal_the_later_ones_are_refused(self, store: StateStore) -> None:
        """A gap in the numbers cannot be closed by what came after it."""
        attempt = await running_task(store, budget={"tokens": 1})
        verdicts = await store.commit(
            [
                attempt.commit(WriteStep(step("a", 1))),
                attempt.commit(Reserve(account="task", step_key="b", amounts={"tokens": 2})),
                attempt.commit(WriteStep(step("c", 3))),
                attempt.commit(COMPLETE),
            ]
        )
        assert [v.refusal for v in verdicts] == [None, Refusal.BUDGET, Refusal.OUT_OF_ORDER, Refusal.OUT_OF_ORDER]
        assert [found.key for found in await store.steps("task")] == ["a"]

    async def test_the_same_commit_twice_in_one_batch(self, store: StateStore) -> None:
        """The second is a duplicate of the first."""
        attempt = await running_task(store)
        await submit_one(store, "other")
        numbered, requested = attempt.commit(WriteStep(step())), outside("other", CANCEL)
        verdicts = await store.commit([numbered, requested, numbered, requested])
        assert [verdict.duplicate for verdict in verdicts] == [False, False, True, True]
        assert all(verdict.applied for verdict in verdicts)

    async def test_a_resent_batch_goes_on_where_it_was_cut(self, store: StateStore) -> None:
        """What was applied is a duplicate, the rest is applied now."""
        attempt = await running_task(store)
        commits = [attempt.commit(WriteStep(step(f"step-{number}", number))) for number in (1, 2, 3)]
        await store.commit(commits[:2])
        verdicts = await store.commit(commits)
        assert [(v.applied, v.duplicate) for v in verdicts] == [(True, True), (True, True), (True, False)]
        assert len(await store.steps("task")) == 3

    async def test_expectations_are_looked_at_one_after_the_other(self, store: StateStore) -> None:
        """Each Commit finds the state that the one before left."""
        await submit_one(store, "a", state=TaskState.WAITING)
        verdicts = await store.commit(
            [
                outside("a", move(TaskState.PENDING), states=frozenset({TaskState.WAITING})),
                outside("a", CANCEL, states=frozenset({TaskState.WAITING})),
                outside("a", CANCEL, states=frozenset({TaskState.PENDING})),
            ]
        )
        assert [verdict.refusal for verdict in verdicts] == [None, Refusal.CONFLICT, None]

    @pytest.mark.parametrize("size", [1, 2, 17, 200])
    async def test_batches_of_any_size(self, store: StateStore, size: int) -> None:
        """Many tasks, one transaction."""
        ids = [f"task-{number:03}" for number in range(size)]
        await store.submit([new_task(task_id) for task_id in ids])
        verdicts = await store.commit([outside(task_id, WriteStep(step()), CANCEL) for task_id in ids])
        assert [(v.task_id, v.applied, v.revision) for v in verdicts] == [(task_id, True, 2) for task_id in ids]
        assert await store.count() == {TaskState.CANCELLED: size}


class AtomicCommitContract(ContractBase):
    """All of a Commit or nothing of it."""

    @pytest.mark.parametrize(
        ("refusing", "refusal"),
        [
            (move(TaskState.RUNNING), Refusal.ILLEGAL_MOVE),
            (Reserve(account="task", step_key="s", amounts={"tokens": 11}), Refusal.BUDGET),
            (Decide(approval_id="missing", state=ApprovalState.APPROVED, by="bob"), Refusal.APPROVAL),
            (ConsumeApproval(approval_id="missing", effect_id="e", arguments_hash=""), Refusal.APPROVAL),
            (OpenApproval(Approval(task_id="task", question="?", step_key="s", id="ask", arguments_hash="x")),
             Refusal.APPROVAL),
            (WriteEffect(Effect(effect_id="e", step_key="s", effect_class=EffectClass.ONCE, state=EffectState.DONE)),
             Refusal.EFFECT),
            (SubmitChild(new_task("child", key="taken", user_input="other")), Refusal.KEY),
        ],
        ids=["move", "reserve", "decide", "consume", "open approval", "effect", "child"],
    )  # fmt: skip
    async def test_a_refused_commit_leaves_nothing(
        self, store: StateStore, refusing: Operation, refusal: Refusal
    ) -> None:
        """Whatever stands before and behind the operation that refuses."""
        attempt = await running_task(store, budget={"tokens": 10})
        await submit_one(store, "holder", key="taken")
        await attempt.apply(OpenApproval(Approval(task_id="task", question="?", step_key="s", id="ask")))
        before = await _everything(store)
        verdict = await attempt.send(*_one_of_each(), refusing, WriteStep(step("behind", 9)))
        assert verdict.refusal is refusal
        assert verdict.children == ()
        assert verdict.sequence == 1
        assert await _everything(store) == before

    async def test_the_same_commit_without_a_refusal_leaves_all_of_it(self, store: StateStore) -> None:
        """So that the test above proves something."""
        attempt = await running_task(store, budget={"tokens": 10})
        verdict = await attempt.apply(*_one_of_each())
        assert [child.task_id for child in verdict.children] == ["new-child"]
        loaded = await store.load("task")
        assert len(loaded.steps) == len(loaded.effects) == len(loaded.patches) == len(loaded.reservations) == 1
        assert loaded.checkpoint is not None
        assert [approval.id for approval in loaded.approvals] == ["new-ask"]
        assert await store.events("news") != []
        assert await store.artifact_links("task") != []
        assert (loaded.task.must_undo, loaded.task.cancel_requested, loaded.task.result) == (True, "enough", "half")

    async def test_an_operation_sees_what_came_before_it(self, store: StateStore) -> None:
        """Opened, decided and used in one Commit; raised and reserved in one Commit."""
        attempt = await running_task(store, budget={"tokens": 1})
        await attempt.apply(
            OpenApproval(Approval(task_id="task", question="?", step_key="s", id="ask", arguments_hash="h")),
            Decide(approval_id="ask", state=ApprovalState.APPROVED, by="policy"),
            ConsumeApproval(approval_id="ask", effect_id="e", arguments_hash="h"),
            SetLimits(account="task", limits={"tokens": 100}),
            Reserve(account="task", step_key="s", amounts={"tokens": 100}),
        )

    async def test_an_operation_does_not_see_what_comes_behind_it(self, store: StateStore) -> None:
        """Order counts."""
        attempt = await running_task(store, budget={"tokens": 1})
        verdict = await attempt.send(
            Reserve(account="task", step_key="s", amounts={"tokens": 100}),
            SetLimits(account="task", limits={"tokens": 100}),
        )
        assert verdict.refusal is Refusal.BUDGET

    async def test_the_move_is_applied_last(self, store: StateStore) -> None:
        """Wherever it stands: what follows it still belongs to the attempt."""
        attempt = await running_task(store)
        await attempt.apply(COMPLETE, WriteStep(step()), OpenApproval(_approval("ask")))
        assert await store.steps("task") == [step()]
        approval = await store.approval("ask")
        assert approval is not None
        assert approval.state is ApprovalState.CLOSED

    async def test_what_cannot_mean_anything_is_refused_at_the_door(self, store: StateStore) -> None:
        """The whole call, before anything is written."""
        attempt = await running_task(store)
        before = await snapshot(store)
        nonsense = [
            attempt.commit(move(TaskState.REVIEW), COMPLETE),
            outside("task", Release()),
            attempt.commit(OpenApproval(_approval("ask", task_id="another"))),
            attempt.commit(Decide(approval_id="ask", state=ApprovalState.EXPIRED, by="bob")),
            attempt.commit(Emit(channel="", payload=None)),
        ]
        for commit in nonsense:
            good = Commit(task_id="task", guard=Expect(), operations=(WriteStep(step()),))
            with pytest.raises(InvalidValue):
                await store.commit([good, commit])
        assert await snapshot(store) == before

    async def test_the_history_names_the_actor_of_the_commit(self, store: StateStore, clock: ManualClock) -> None:
        """And the fence under which it was made."""
        attempt = await running_task(store)
        await attempt.apply(move(TaskState.REVIEW, reason="work done"))
        assert (await store.history("task"))[-1] == Transition(
            task_id="task",
            number=3,
            from_state=TaskState.RUNNING,
            to_state=TaskState.REVIEW,
            reason="work done",
            actor="worker",
            fence=1,
            at=clock.now(),
        )


def _without_detail(verdict: Verdict) -> Verdict:
    """Drop the words, which are for people and may differ between stores."""
    return replace(verdict, detail="")


def _approval(approval_id: str, task_id: str = "task") -> Approval:
    return Approval(task_id=task_id, question="Go on?", step_key="ask", id=approval_id)


def _one_of_each() -> tuple[Operation, ...]:
    """Return one of each operation that writes something."""
    checkpoint = Checkpoint(number=1, position=1, version=0, body=b"{}", checksum="c")
    link = ArtifactLink(artifact_id="a", name="log.txt", type="text", summary="", bytes=1)
    effect = Effect(effect_id="new", step_key="s", effect_class=EffectClass.ONCE, state=EffectState.ARMED)
    return (
        WriteStep(step()),
        WriteEffect(effect),
        ApplyPatch(body=b"{}", author="a"),
        SaveCheckpoint(checkpoint),
        SetLimits(account="shared", limits={"tokens": 3}),
        Reserve(account="task", step_key="s", amounts={"tokens": 10}),
        OpenApproval(_approval("new-ask")),
        SubmitChild(new_task("new-child")),
        Emit(channel="news", payload=1),
        LinkArtifact(link),
        RequestCancel(reason="enough"),
        RequireUndo(required=True),
        WriteOutcome(result="half"),
    )


async def _everything(store: StateStore) -> dict[str, object]:
    return await snapshot(store, accounts=("shared", "task"), channels=("news",))
