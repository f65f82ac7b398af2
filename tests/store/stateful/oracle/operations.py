"""The operations of a Commit, all but Move and Release, which come last."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.commit import Commit, Held, Refusal, effect_move_refused
from holdfast.model.effect import Effect
from holdfast.model.errors import BudgetExceeded, InvalidValue, NoPlace, NotFound, QueueFull
from holdfast.model.operations import (
    SAME_INPUT,
    ApplyPatch,
    ConsumeApproval,
    Decide,
    Emit,
    InheritKeys,
    LinkArtifact,
    OpenApproval,
    Operation,
    ReopenChild,
    RequestCancel,
    RequireQuiet,
    RequireUndo,
    Reserve,
    Rest,
    RotateCheckpoints,
    SaveCheckpoint,
    SetAsideCheckpoint,
    SetLimits,
    Settle,
    SettleStale,
    ShareWorker,
    SubmitChild,
    WriteEffect,
    WriteOutcome,
    WriteStep,
)
from holdfast.model.records import PatchRecord
from holdfast.model.task import NewTask, Submitted
from holdfast.model.transitions import TaskState
from tests.store.stateful.oracle.changes import Cause, account_of, count_as_spent, mark_readiness, move, touch
from tests.store.stateful.oracle.emitting import append_event
from tests.store.stateful.oracle.limiting import begin, full_key
from tests.store.stateful.oracle.queueing import no_place
from tests.store.stateful.oracle.submitting import give_input, submit_one
from tests.store.stateful.oracle.tables import Tables


class Refused(Exception):
    """An operation refuses its whole Commit."""

    def __init__(
        self,
        refusal: Refusal,
        budget: BudgetExceeded | None = None,
        full: QueueFull | None = None,
        no_place: NoPlace | None = None,
        *,
        detail: str = "",
    ) -> None:
        super().__init__(refusal)
        self.detail = detail
        self.full = full
        self.no_place = no_place
        self.refusal = refusal
        self.budget = budget


def apply(  # noqa: C901, PLR0912, PLR0915 - one line an operation
    tables: Tables, commit: Commit, operation: Operation, now: datetime, *, rested: bool
) -> Submitted | None:
    """Apply one operation of a task that rested before its Commit, or not; only SubmitChild has an answer."""
    task_id = commit.task_id
    match operation:
        case WriteStep(step):
            tables.steps[task_id, step.round, step.key] = step
        case WriteEffect(effect):
            _write_effect(tables, commit, effect, now)
        case ApplyPatch():
            _apply_patch(tables, task_id, operation, now)
        case SaveCheckpoint(checkpoint):
            dated = replace(checkpoint, created_at=checkpoint.created_at or now)
            tables.checkpoints[task_id, checkpoint.number] = dated
        case RotateCheckpoints():
            _rotate_checkpoints(tables, task_id, operation)
        case SetAsideCheckpoint(number=number, why=why):
            if (task_id, number) in tables.checkpoints:
                tables.checkpoints[task_id, number] = replace(tables.checkpoints[task_id, number], damaged=why)
        case SetLimits(account=account, limits=limits):
            for meter, limit in limits.items():
                tables.accounts[account, meter] = replace(account_of(tables, account, meter), limit=limit)
        case Reserve():
            _reserve(tables, task_id, operation)
        case Settle():
            _settle(tables, task_id, operation)
        case SettleStale():
            fence = tables.task(task_id).fence
            count_as_spent(tables, [key for key in tables.reservations if key[0] == task_id and key[-1] < fence])
        case OpenApproval(approval):
            _open_approval(tables, approval, now)
        case Decide():
            _decide(tables, task_id, operation, now)
        case ConsumeApproval():
            _consume_approval(tables, task_id, operation)
        case SubmitChild(child):
            return _submit_child(tables, commit, child, now)
        case ReopenChild():
            _reopen_child(tables, commit, operation, now)
        case Emit(channel=channel, payload=payload, key=key):
            append_event(tables, channel, payload, key=key, actor=commit.actor, now=now, apart_from=task_id)
        case InheritKeys(key_form=key_form):
            tables.change_task(task_id, key_form=tables.task(task_id).key_form or key_form)
        case Rest(resting):
            _rest(tables, commit, now, resting=resting, rested=rested)
        case ShareWorker(acquitted):
            tables.change_row(task_id, alone=False)
            tables.change_task(task_id, deaths=0 if acquitted else tables.task(task_id).deaths)
        case RequireQuiet(channel=channel, after=after):
            if tables.event_numbers.get(channel, 0) > after:
                raise Refused(Refusal.CONFLICT)
        case LinkArtifact(link):
            tables.links[task_id, link.artifact_id] = replace(link, created_at=link.created_at or now)
        case RequestCancel(reason=reason):
            tables.change_task(task_id, cancel_requested=tables.task(task_id).cancel_requested or reason)
        case RequireUndo(required, begun):
            tables.change_task(task_id, must_undo=required)
            tables.change_row(task_id, undoing=begun)
        case WriteOutcome(result=result, error=error):
            tables.change_task(task_id, result=result, error=error)
        case _:
            raise AssertionError(f"{operation} is applied last")
    return None


def _rest(tables: Tables, commit: Commit, now: datetime, *, resting: bool, rested: bool) -> None:
    task = tables.task(commit.task_id)
    if rested and task.resting and not resting:
        missing = no_place(tables, task)
        if missing is None and (full := full_key(tables, task.limits, now)) is not None:
            missing = NoPlace(task.id, key=full)
        if missing is not None:
            raise Refused(Refusal.NO_PLACE, no_place=missing)
        begin(tables, task, now)
    tables.change_task(task.id, resting=resting)


def _write_effect(tables: Tables, commit: Commit, effect: Effect, now: datetime) -> None:
    stored = tables.effects.get((commit.task_id, effect.effect_id))
    before = stored.state if stored else None
    if effect_move_refused(before, effect.state, fenced=isinstance(commit.guard, Held)):
        raise Refused(Refusal.EFFECT)
    dated = replace(effect, task_id=commit.task_id, updated_at=now)
    tables.effects[commit.task_id, effect.effect_id] = dated


def _apply_patch(tables: Tables, task_id: str, patch: ApplyPatch, now: datetime) -> None:
    task = tables.task(task_id)
    version = task.version + 1
    record = PatchRecord(
        version=version,
        body=patch.body,
        author=patch.author,
        reason=patch.reason,
        at=now,
        step_key=patch.step_key,
        round=patch.round or task.round,
    )
    tables.patches[task_id] = (*tables.patches.get(task_id, ()), record)
    tables.change_task(task_id, version=version)


def _rotate_checkpoints(tables: Tables, task_id: str, rotate: RotateCheckpoints) -> None:
    numbers = sorted((number for task, number in tables.checkpoints if task == task_id), reverse=True)
    for number in numbers[rotate.keep :]:
        created_at = tables.checkpoints[task_id, number].created_at
        assert created_at is not None
        if created_at < rotate.before:
            del tables.checkpoints[task_id, number]


def _reserve(tables: Tables, task_id: str, asked: Reserve) -> None:
    fence = tables.task(task_id).fence
    for meter, amount in sorted(asked.amounts.items()):
        before = account_of(tables, asked.account, meter)
        if before.limit is not None and before.spent + before.reserved + amount > before.limit:
            budget = BudgetExceeded(
                meter=meter, limit=before.limit, spent=before.spent, reserved=before.reserved, asked=amount
            )
            raise Refused(Refusal.BUDGET, budget)
        tables.accounts[asked.account, meter] = replace(before, reserved=before.reserved + amount)
        key = (task_id, asked.account, meter, asked.step_key, fence)
        tables.reservations[key] = tables.reservations.get(key, 0) + amount


def _settle(tables: Tables, task_id: str, settled: Settle) -> None:
    current = tables.task(task_id).fence
    for key in list(tables.reservations):
        task, account, meter, step_key, fence = key
        if (task, account, step_key) == (task_id, settled.account, settled.step_key) and fence == current:
            before = tables.accounts[account, meter]
            reserved = before.reserved - tables.reservations.pop(key)
            tables.accounts[account, meter] = replace(before, reserved=reserved)
    for meter, amount in settled.amounts.items():
        before = account_of(tables, settled.account, meter)
        tables.accounts[settled.account, meter] = replace(before, spent=before.spent + amount)


def _open_approval(tables: Tables, approval: Approval, now: datetime) -> None:
    stored = tables.approvals.get(approval.id)
    if stored is None:
        tables.approvals[approval.id] = replace(approval, created_at=approval.created_at or now)
    elif (stored.task_id, stored.arguments_hash) != (approval.task_id, approval.arguments_hash):
        raise Refused(Refusal.APPROVAL)


def _decide(tables: Tables, task_id: str, decision: Decide, now: datetime) -> None:
    approval = tables.approvals.get(decision.approval_id)
    if approval is None or approval.task_id != task_id or approval.state is not ApprovalState.OPEN:
        raise Refused(Refusal.APPROVAL)
    if approval.expires_at is not None and approval.expires_at <= now:
        raise Refused(Refusal.APPROVAL)
    is_taken_back = decision.state is ApprovalState.VOID
    if approval.deciders and decision.by not in approval.deciders and not is_taken_back:
        raise Refused(Refusal.APPROVAL)
    tables.approvals[approval.id] = replace(
        approval,
        state=decision.state,
        decided_by=decision.by,
        note=decision.note,
        answer=decision.answer,
        decided_at=now,
    )


def _consume_approval(tables: Tables, task_id: str, use: ConsumeApproval) -> None:
    approval = tables.approvals.get(use.approval_id)
    if approval is None or approval.task_id != task_id:
        raise Refused(Refusal.APPROVAL)
    approved = approval.state is ApprovalState.APPROVED or (
        approval.state is ApprovalState.EXPIRED and approval.default is ApprovalState.APPROVED
    )
    unused = approval.consumed_by in {None, use.effect_id}
    if not approved or not unused or approval.arguments_hash != use.arguments_hash:
        raise Refused(Refusal.APPROVAL)
    tables.approvals[approval.id] = replace(approval, consumed_by=use.effect_id)


def _submit_child(tables: Tables, commit: Commit, child: NewTask, now: datetime) -> Submitted:
    try:
        answer = submit_one(tables, replace(child, parent_id=commit.task_id, actor=commit.actor), now)
    except QueueFull as full:
        raise Refused(Refusal.FULL, full=full) from None
    except (NotFound, InvalidValue) as error:
        raise Refused(Refusal.CONFLICT, detail=str(error)) from None
    if answer.conflict:
        raise Refused(Refusal.KEY)
    return answer


def _reopen_child(tables: Tables, commit: Commit, reopen: ReopenChild, now: datetime) -> None:
    row = tables.tasks.get(reopen.child_id)
    if row is None or row.task.parent_id != commit.task_id or not row.task.state.is_terminal:
        raise Refused(Refusal.CONFLICT)
    if row.task.revision != reopen.revision:
        raise Refused(Refusal.CONFLICT)
    child = row.task
    move(tables, child.id, TaskState.PENDING, Cause(reopen.reason, commit.actor, now), by_parent=True)
    tables.change_row(child.id, undoing=False)
    tables.change_task(
        child.id,
        finished_at=None,
        result=None,
        error=None,
        attempts=0,
        deaths=0,
        lone_deaths=0,
        cancel_requested=None,
        available_at=(reopen.available_at or now).astimezone(UTC),
        deadline=reopen.deadline and reopen.deadline.astimezone(UTC),
    )
    if reopen.new_round:
        tables.change_task(child.id, round=child.round + 1, feedback=reopen.feedback)
    if reopen.user_input is not SAME_INPUT:
        give_input(tables, child.id, reopen.user_input)
    for line in reopen.lines:
        tables.steps[child.id, line.round, line.key] = line
    mark_readiness(tables, child.id, now)
    touch(tables, child.id, now)
