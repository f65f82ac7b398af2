"""All of a Commit is applied, or nothing of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.clock import ManualClock
from holdfast.model.commit import Commit, Expect, Refusal
from holdfast.model.effect import Effect, EffectClass, EffectState
from holdfast.model.errors import InvalidValue
from holdfast.model.operations import (
    ApplyPatch,
    ConsumeApproval,
    Decide,
    Emit,
    LinkArtifact,
    OpenApproval,
    Operation,
    Release,
    RequestCancel,
    RequireUndo,
    Reserve,
    SaveCheckpoint,
    SetLimits,
    SubmitChild,
    WriteEffect,
    WriteOutcome,
    WriteStep,
)
from holdfast.model.records import ArtifactLink, Checkpoint
from holdfast.model.transitions import TaskState, Transition
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    COMPLETE,
    move,
    new_task,
    outside,
    running_task,
    step,
    submit_one,
)
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.snapshot import snapshot


class AtomicCommitContract(ContractBase):
    """All of a Commit is applied, or nothing of it."""

    @pytest.mark.parametrize(
        ("refusing", "refusal"),
        [
            (move(TaskState.RUNNING), Refusal.ILLEGAL_MOVE),
            (Reserve(account="task", step_key="s", amounts={"tokens": 11}), Refusal.BUDGET),
            (Decide(approval_id="missing", state=ApprovalState.APPROVED, by="bob"), Refusal.APPROVAL),
            (ConsumeApproval(approval_id="missing", effect_id="e", arguments_hash=""), Refusal.APPROVAL),
            (OpenApproval(Approval(task_id="task", question="?", step_key="s", id="ask", arguments_hash="x")),
             Refusal.APPROVAL),
            (WriteEffect(Effect(effect_id="e", step_key="s", effect_class=EffectClass.ONCE, state=EffectState.FAILED)),
             Refusal.EFFECT),
            (SubmitChild(new_task("child", key="taken", user_input="other")), Refusal.KEY),
        ],
        ids=["move", "reserve", "decide", "consume", "open approval", "effect", "child"],
    )  # fmt: skip
    async def test_a_refused_commit_leaves_nothing(
        self, store: StateStore, refusing: Operation, refusal: Refusal
    ) -> None:
        """With any operations before and after the one that refuses."""
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
        """This shows that the test above proves something."""
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
        """The order matters."""
        attempt = await running_task(store, budget={"tokens": 1})
        verdict = await attempt.send(
            Reserve(account="task", step_key="s", amounts={"tokens": 100}),
            SetLimits(account="task", limits={"tokens": 100}),
        )
        assert verdict.refusal is Refusal.BUDGET

    async def test_the_move_is_applied_last(self, store: StateStore) -> None:
        """In any position: operations after it still belong to the attempt."""
        attempt = await running_task(store)
        await attempt.apply(COMPLETE, WriteStep(step()), OpenApproval(_approval("ask")))
        assert await store.steps("task") == [step()]
        approval = await store.approval("ask")
        assert approval is not None
        assert approval.state is ApprovalState.CLOSED

    async def test_what_cannot_mean_anything_is_refused_at_the_door(self, store: StateStore) -> None:
        """The whole call is rejected before anything is written."""
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

    @pytest.mark.parametrize("text", ["a\x00b", "\ud800"], ids=["NUL", "lone surrogate"])
    async def test_text_that_some_database_could_not_hold_is_refused(self, store: StateStore, text: str) -> None:
        """In every text of people that has its own column."""
        await submit_one(store)
        before = await snapshot(store)
        effect = Effect(effect_id="e", step_key="s", effect_class=EffectClass.ONCE, state=EffectState.ARMED, note=text)
        link = ArtifactLink(artifact_id="a", name=text, type="text", summary="", bytes=0)
        commits = [
            outside("task", actor=text),
            outside("task", move(TaskState.CANCELLED, reason=text)),
            outside("task", move(TaskState.CANCELLED, feedback=text)),
            outside("task", RequestCancel(reason=text)),
            outside("task", ApplyPatch(body=b"{}", author=text)),
            outside("task", ApplyPatch(body=b"{}", author="a", step_key=text)),
            outside("task", OpenApproval(replace(_approval("ask"), question=text))),
            outside("task", Decide(approval_id="ask", state=ApprovalState.APPROVED, by="bob", note=text)),
            outside("task", WriteEffect(effect)),
            outside("task", LinkArtifact(link)),
        ]
        for commit in commits:
            with pytest.raises(InvalidValue):
                await store.commit([commit])
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
