"""Approvals: bound to exact arguments, decided once, used once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast.model.approval import DECISIONS, Approval, ApprovalState
from holdfast.model.clock import ManualClock
from holdfast.model.commit import Refusal
from holdfast.model.errors import InvalidValue
from holdfast.model.operations import ConsumeApproval, Decide, OpenApproval
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    COMPLETE,
    apply_outside,
    move,
    outside,
    running_task,
    send,
    submit_one,
)
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.snapshot import snapshot


def asked(approval_id: str = "ask", **options: Any) -> Approval:  # noqa: ANN401 - the fields of Approval
    """Describe a request for approval."""
    options = {"task_id": "task", "question": "Deploy?", "step_key": "deploy", "arguments_hash": "hash"} | options
    return Approval(id=approval_id, **options)


def approve(approval_id: str = "ask", by: str = "bob") -> Decide:
    """Approve the request."""
    return Decide(approval_id=approval_id, state=ApprovalState.APPROVED, by=by)


def use(effect_id: str = "effect", arguments_hash: str = "hash") -> ConsumeApproval:
    """Use the approval for an effect."""
    return ConsumeApproval(approval_id="ask", effect_id=effect_id, arguments_hash=arguments_hash)


async def open_approval(store: StateStore, approval: Approval) -> Approval:
    """Submit the task and ask; return what was stored."""
    await submit_one(store, approval.task_id)
    await apply_outside(store, approval.task_id, OpenApproval(approval))
    return await stored_approval(store, approval.id)


async def stored_approval(store: StateStore, approval_id: str = "ask") -> Approval:
    """Return an approval that must exist."""
    approval = await store.approval(approval_id)
    assert approval is not None
    return approval


async def refusal_of(store: StateStore, *operations: Decide | ConsumeApproval | OpenApproval) -> Refusal | None:
    """Send these from outside; a refusal must change nothing."""
    before = await snapshot(store)
    verdict = await send(store, outside("task", *operations))
    if not verdict.applied:
        assert await snapshot(store) == before
    return verdict.refusal


class ApprovalsContract(ContractBase):
    """Asking, deciding, using, expiring."""

    async def test_an_approval_is_stored_as_it_was_asked(self, store: StateStore, clock: ManualClock) -> None:
        """Every field."""
        approval = asked(
            kind="question",
            risk="external_action",
            arguments_bytes=b'{"service":"billing"}',
            policy="v3",
            requested_by="devops",
            deciders=("alice", "bob"),
            expires_at=clock.now() + timedelta(hours=1),
            default=ApprovalState.APPROVED,
        )
        assert await open_approval(store, approval) == replace(approval, created_at=clock.now())
        assert await store.approval("unknown") is None

    async def test_asking_again_is_the_same_question(self, store: StateStore, clock: ManualClock) -> None:
        """The stored approval stays unchanged, decided or not."""
        first = await open_approval(store, asked())
        clock.advance(1)
        assert await refusal_of(store, OpenApproval(asked(question="Really?"))) is None
        assert await stored_approval(store) == first
        await apply_outside(store, "task", approve())
        assert await refusal_of(store, OpenApproval(asked())) is None
        assert (await stored_approval(store)).state is ApprovalState.APPROVED

    async def test_an_id_is_not_reused_for_other_arguments(self, store: StateStore) -> None:
        """Changed arguments need a new question."""
        await open_approval(store, asked())
        assert await refusal_of(store, OpenApproval(asked(arguments_hash="other"))) is Refusal.APPROVAL

    async def test_an_id_is_not_reused_by_another_task(self, store: StateStore) -> None:
        """Ids are unique in the whole store."""
        await open_approval(store, asked(task_id="other"))
        await submit_one(store)
        assert await refusal_of(store, OpenApproval(asked())) is Refusal.APPROVAL

    @pytest.mark.parametrize("decision", sorted(DECISIONS))
    async def test_a_decision_is_recorded(self, store: StateStore, clock: ManualClock, decision: ApprovalState) -> None:
        """Who, when, what, and why."""
        approval = await open_approval(store, asked())
        clock.advance(1)
        await apply_outside(
            store, "task", Decide(approval_id="ask", state=decision, by="bob", note="sure", answer={"n": 1})
        )
        assert await stored_approval(store) == replace(
            approval, state=decision, decided_by="bob", note="sure", answer={"n": 1}, decided_at=clock.now()
        )

    async def test_a_decision_is_made_once(self, store: StateStore) -> None:
        """If two people decide, the second is refused."""
        await open_approval(store, asked())
        await apply_outside(store, "task", approve())
        assert await refusal_of(store, approve(by="alice")) is Refusal.APPROVAL

    async def test_only_a_decider_decides(self, store: StateStore) -> None:
        """If the approval names deciders."""
        await open_approval(store, asked(deciders=("alice", "carol")))
        assert await refusal_of(store, approve(by="bob")) is Refusal.APPROVAL
        assert await refusal_of(store, approve(by="carol")) is None

    async def test_the_asker_withdraws_it(self, store: StateStore) -> None:
        """The asker may withdraw it without being a decider."""
        await open_approval(store, asked(deciders=("alice", "carol")))
        take_back = Decide(approval_id="ask", state=ApprovalState.VOID, by="bob")
        assert await refusal_of(store, take_back) is None
        assert await refusal_of(store, approve(by="carol")) is Refusal.APPROVAL

    async def test_an_unknown_approval_is_not_decided(self, store: StateStore) -> None:
        """An approval of another task is not decided either."""
        await open_approval(store, asked("theirs", task_id="other"))
        await submit_one(store)
        assert await refusal_of(store, approve("unknown")) is Refusal.APPROVAL
        assert await refusal_of(store, approve("theirs")) is Refusal.APPROVAL

    async def test_after_its_expiry_a_decision_is_refused(self, store: StateStore, clock: ManualClock) -> None:
        """Even before a sweep has expired it."""
        await open_approval(store, asked(expires_at=clock.now() + timedelta(seconds=10)))
        clock.advance(10)
        assert await refusal_of(store, approve()) is Refusal.APPROVAL

    async def test_until_its_expiry_a_decision_is_accepted(self, store: StateStore, clock: ManualClock) -> None:
        """Until the last moment before it."""
        await open_approval(store, asked(expires_at=clock.now() + timedelta(seconds=10)))
        clock.advance(9.999)
        assert await refusal_of(store, approve()) is None

    async def test_an_approval_is_used_for_one_effect(self, store: StateStore) -> None:
        """Any number of times for that effect, and for no other effect."""
        await open_approval(store, asked())
        await apply_outside(store, "task", approve())
        assert await refusal_of(store, use("first")) is None
        assert await refusal_of(store, use("first")) is None
        assert await refusal_of(store, use("second")) is Refusal.APPROVAL
        assert (await stored_approval(store)).consumed_by == "first"

    async def test_changed_arguments_void_it(self, store: StateStore) -> None:
        """The approval was given for other arguments."""
        await open_approval(store, asked())
        await apply_outside(store, "task", approve())
        assert await refusal_of(store, use(arguments_hash="changed")) is Refusal.APPROVAL

    @pytest.mark.parametrize("decision", [ApprovalState.REJECTED, ApprovalState.ANSWERED, ApprovalState.VOID], ids=str)
    async def test_only_an_approved_one_is_used(self, store: StateStore, decision: ApprovalState) -> None:
        """Not one that is open, rejected, answered or void."""
        await open_approval(store, asked())
        assert await refusal_of(store, use()) is Refusal.APPROVAL
        await apply_outside(store, "task", Decide(approval_id="ask", state=decision, by="bob"))
        assert await refusal_of(store, use()) is Refusal.APPROVAL

    @pytest.mark.parametrize(
        ("default", "refusal"),
        [(ApprovalState.APPROVED, None), (ApprovalState.REJECTED, Refusal.APPROVAL)],
        ids=["approved", "rejected"],
    )
    async def test_an_expired_one_follows_its_default(
        self, store: StateStore, clock: ManualClock, default: ApprovalState, refusal: Refusal | None
    ) -> None:
        """If no decision comes, the default applies."""
        await open_approval(store, asked(default=default, expires_at=clock.now() + timedelta(seconds=10)))
        clock.advance(10)
        await store.sweep()
        assert await refusal_of(store, use()) is refusal

    async def test_an_unknown_approval_is_not_used(self, store: StateStore) -> None:
        """Nothing was approved."""
        await submit_one(store)
        assert await refusal_of(store, use()) is Refusal.APPROVAL

    async def test_the_approval_of_another_task_is_not_used(self, store: StateStore) -> None:
        """It was given for that task's work."""
        await open_approval(store, asked(task_id="other"))
        await apply_outside(store, "other", approve())
        await submit_one(store)
        assert await refusal_of(store, use()) is Refusal.APPROVAL

    async def test_a_task_that_ends_closes_its_questions(self, store: StateStore, clock: ManualClock) -> None:
        """Those that are still open; the others keep their decision."""
        attempt = await running_task(store)
        await attempt.apply(OpenApproval(asked("open")), OpenApproval(asked("decided")))
        await apply_outside(store, "task", approve("decided"))
        clock.advance(1)
        await attempt.apply(COMPLETE)
        closed = await stored_approval(store, "open")
        assert (closed.state, closed.decided_at, closed.decided_by) == (ApprovalState.CLOSED, clock.now(), None)
        assert (await stored_approval(store, "decided")).state is ApprovalState.APPROVED

    async def test_waiting_leaves_questions_open(self, store: StateStore) -> None:
        """The task waits for their answers."""
        attempt = await running_task(store)
        await attempt.apply(OpenApproval(asked()), move(TaskState.WAITING))
        assert (await stored_approval(store)).state is ApprovalState.OPEN

    async def test_approvals_are_listed_by_id(self, store: StateStore) -> None:
        """Of one task or of all, in some states or in any, up to a limit."""
        await open_approval(store, asked("c"))
        await open_approval(store, asked("a", task_id="other"))
        await apply_outside(store, "task", OpenApproval(asked("b")), approve("b"))
        assert [approval.id for approval in await store.approvals()] == ["a", "b", "c"]
        assert [approval.id for approval in await store.approvals(task_id="task")] == ["b", "c"]
        still_open = await store.approvals(states={ApprovalState.OPEN})
        assert [approval.id for approval in still_open] == ["a", "c"]
        some = await store.approvals(task_id="task", states={ApprovalState.OPEN, ApprovalState.APPROVED}, limit=1)
        assert [approval.id for approval in some] == ["b"]
        assert await store.approvals(states=set()) == []

    async def test_a_default_that_is_not_a_decision_is_refused(self) -> None:
        """Before it reaches any store."""
        with pytest.raises(InvalidValue):
            asked(default=ApprovalState.OPEN)
