"""What each operation of a Commit writes, and when it refuses."""

from __future__ import annotations

from dataclasses import replace

from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.commit import Commit, Held, Refusal, effect_move_refused, not_quiet_message, reopening_refused
from holdfast.model.effect import EffectState
from holdfast.model.errors import BudgetExceeded, InvalidValue, NoPlace, NotFound, QueueFull
from holdfast.model.operations import (
    SAME_INPUT,
    ApplyPatch,
    ConsumeApproval,
    Decide,
    Emit,
    InheritKeys,
    LinkArtifact,
    Move,
    OpenApproval,
    Operation,
    Release,
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
from holdfast.model.task import NewTask, Submitted
from holdfast.store.records import payload_or_none
from holdfast.store.sqlite import lifecycle, limit_keys, places, submission
from holdfast.store.sqlite.records import RECORDS, approval_values, effect_values, step_values
from holdfast.store.sqlite.rows import TaskRow, had_slot, micros, micros_or_none
from holdfast.store.sqlite.write_transaction import WriteTransaction


class Refused(Exception):
    """One operation does not apply, so nothing of its Commit may stay. A signal, not an error for a caller."""

    def __init__(
        self,
        refusal: Refusal,
        detail: str,
        budget: BudgetExceeded | None = None,
        *,
        full: QueueFull | None = None,
        no_place: NoPlace | None = None,
    ) -> None:
        """Carry what the verdict will say."""
        super().__init__(detail)
        self.refusal, self.detail, self.budget, self.full, self.no_place = refusal, detail, budget, full, no_place


def apply_operation(  # noqa: C901, PLR0912, PLR0915 - one case an operation
    tx: WriteTransaction, commit: Commit, row: TaskRow, op: Operation
) -> Submitted | None:
    """Apply one operation to the row or the tables; return the child it submitted, if it did. Raises Refused."""
    match op:
        case WriteStep(step):
            tx.run("put_step", *step_values(row.id, step))
        case WriteEffect():
            _write_effect(tx, commit, row, op)
        case ApplyPatch(body=body, author=author, reason=reason, step_key=step_key, round=round_):
            row.version += 1
            carried_in = row.round if round_ is None else round_
            tx.run("insert_patch", row.id, row.version, body, author, reason, tx.now, step_key, carried_in)
        case SaveCheckpoint(c):
            created_at = tx.now if c.created_at is None else micros(c.created_at)
            tx.run(
                "put_checkpoint",
                *(row.id, c.number, c.position, c.version, c.body, c.checksum, c.schema, created_at, c.damaged),
            )
        case RotateCheckpoints(keep=keep, before=before):
            tx.run("rotate_checkpoints", row.id, keep, micros(before))
        case SetAsideCheckpoint(number=number, why=why):
            tx.run("set_aside_checkpoint", row.id, number, why)
        case SetLimits(account=account, limits=limits):
            for meter, limit in limits.items():
                tx.run("set_limit", account, meter, limit)
        case Reserve():
            _reserve(tx, row, op)
        case Settle():
            _settle(tx, row, op)
        case SettleStale():
            lifecycle.count_as_spent(tx, row.id, below_fence=row.fence)
        case OpenApproval(approval):
            _open_approval(tx, row, approval)
        case Decide():
            _decide(tx, row, op)
        case ConsumeApproval():
            _consume_approval(tx, row, op)
        case SubmitChild(task):
            return _submit_child(tx, commit, replace(task, parent_id=row.id, actor=commit.actor))
        case ReopenChild():
            _reopen_child(tx, commit, op)
        case Emit(channel=channel, payload=payload, key=key):
            submission.emit(tx, channel, payload, key=key, actor=commit.actor, besides=row.id)
        case InheritKeys(key_form=key_form):
            row.key_form = row.key_form or key_form
        case Rest(resting):
            _rest(tx, row, resting=resting)
        case ShareWorker(acquitted):
            row.alone = 0
            row.deaths = 0 if acquitted else row.deaths
        case RequireQuiet():
            _require_quiet(tx, op)
        case LinkArtifact(link):
            created_at = tx.now if link.created_at is None else micros(link.created_at)
            tx.run(
                "put_artifact_link",
                *(row.id, link.artifact_id, link.name, link.type, link.summary, link.bytes, link.step, created_at),
            )
            tx.hints.add(f"task:{row.id}")
        case RequestCancel(reason=reason):
            row.cancel_requested = row.cancel_requested or reason
        case RequireUndo(required, begun):
            row.must_undo, row.undoing = int(required), int(begun)
        case WriteOutcome(result=result, error=error):
            lifecycle.write_outcome(tx, row.id, result, error)
            tx.hints.add(f"task:{row.id}")
        case Release() | Move():
            pass  # applied after everything else
    return None


def _rest(tx: WriteTransaction, row: TaskRow, *, resting: bool) -> None:
    """Begin or end a rest. A task that works again takes a place of its queue and of each of its limits, or none."""
    if not resting and row.resting == row.fence:
        no_place = places.refusal(tx, row)
        if no_place is None and not had_slot(row) and (full := limit_keys.take_places(tx, row.limits)) is not None:
            no_place = NoPlace(row.id, key=full)
        if no_place is not None:
            raise Refused(Refusal.NO_PLACE, str(no_place), no_place=no_place)
    row.resting = row.fence if resting else 0


def _write_effect(tx: WriteTransaction, commit: Commit, row: TaskRow, op: WriteEffect) -> None:
    found = tx.first("effect_state", row.id, op.effect.effect_id)
    before = None if found is None else EffectState(found[0])
    if effect_move_refused(before, op.effect.state, fenced=isinstance(commit.guard, Held)):
        raise Refused(Refusal.EFFECT, f"effect {op.effect.effect_id} is {before}, it cannot become {op.effect.state}")
    tx.run("put_effect", *effect_values(row.id, op.effect, tx.now))
    tx.hints.add(f"task:{row.id}")


def _reserve(tx: WriteTransaction, row: TaskRow, op: Reserve) -> None:
    for meter, amount in sorted(op.amounts.items()):
        tx.run("open_meter", op.account, meter)
        ((limit, spent, reserved),) = tx.all("meter", op.account, meter)
        if limit is not None and spent + reserved + amount > limit:
            exceeded = BudgetExceeded(meter=meter, limit=limit, spent=spent, reserved=reserved, asked=amount)
            raise Refused(Refusal.BUDGET, str(exceeded), exceeded)
        tx.run("adjust_meter", op.account, meter, 0, amount)
        tx.run("add_reservation", row.id, op.account, meter, op.step_key, row.fence, amount)


def _settle(tx: WriteTransaction, row: TaskRow, op: Settle) -> None:
    for account, meter, amount in tx.all("take_step_reservations", row.id, op.account, op.step_key, row.fence):
        tx.run("adjust_meter", account, meter, 0, -amount)
    for meter, amount in op.amounts.items():
        tx.run("open_meter", op.account, meter)
        tx.run("adjust_meter", op.account, meter, amount, 0)


def _open_approval(tx: WriteTransaction, row: TaskRow, approval: Approval) -> None:
    existing = tx.first("approval_by_id", approval.id)
    if existing is None:
        tx.run("insert_approval", *approval_values(approval, tx.now))
        tx.hints.add(f"task:{row.id}")
        return
    stored = RECORDS.approval(*existing)
    if (stored.task_id, stored.arguments_hash) != (approval.task_id, approval.arguments_hash):
        raise Refused(Refusal.APPROVAL, f"approval {approval.id} was opened before, with other arguments")


def _decide(tx: WriteTransaction, row: TaskRow, op: Decide) -> None:
    approval = _approval_of(tx, row, op.approval_id)
    if approval.state is not ApprovalState.OPEN:
        raise Refused(Refusal.APPROVAL, f"approval {approval.id} is {approval.state} already, by {approval.decided_by}")
    if approval.expires_at is not None and micros(approval.expires_at) <= tx.now:
        raise Refused(Refusal.APPROVAL, f"approval {approval.id} expired at {approval.expires_at}")
    is_taken_back = op.state is ApprovalState.VOID  # by the task that asked, not by its deciders
    if approval.deciders and op.by not in approval.deciders and not is_taken_back:
        allowed = ", ".join(approval.deciders)
        raise Refused(Refusal.APPROVAL, f"{op.by} may not decide approval {approval.id}; it is for {allowed}")
    tx.run("decide_approval", row.id, approval.id, op.state, op.by, op.note, payload_or_none(op.answer), tx.now)
    tx.hints.add(f"task:{row.id}")


def _consume_approval(tx: WriteTransaction, row: TaskRow, op: ConsumeApproval) -> None:
    approval = _approval_of(tx, row, op.approval_id)
    outcome = approval.default if approval.state is ApprovalState.EXPIRED else approval.state
    if outcome is not ApprovalState.APPROVED:
        raise Refused(Refusal.APPROVAL, f"approval {approval.id} is {approval.state}, not approved")
    if approval.arguments_hash != op.arguments_hash:
        raise Refused(Refusal.APPROVAL, f"approval {approval.id} was given for other arguments")
    if approval.consumed_by not in {None, op.effect_id}:
        raise Refused(Refusal.APPROVAL, f"approval {approval.id} was used for effect {approval.consumed_by}")
    tx.run("consume_approval", row.id, approval.id, op.effect_id)


def _approval_of(tx: WriteTransaction, row: TaskRow, approval_id: str) -> Approval:
    found = tx.first("approval_by_id", approval_id)
    if found is None or (approval := RECORDS.approval(*found)).task_id != row.id:
        raise Refused(Refusal.APPROVAL, f"task {row.id} has no approval {approval_id}")
    return approval


def _require_quiet(tx: WriteTransaction, op: RequireQuiet) -> None:
    ((last,),) = tx.all("position", op.channel)
    if last > op.after:
        raise Refused(Refusal.CONFLICT, not_quiet_message(op.channel, after=op.after, last=last))


def _submit_child(tx: WriteTransaction, commit: Commit, task: NewTask) -> Submitted:
    try:
        submitted = submission.submit(tx, task)
    except QueueFull as full:
        raise Refused(Refusal.FULL, str(full), full=full) from None
    except (NotFound, InvalidValue) as error:  # the key of no limit
        raise Refused(Refusal.CONFLICT, str(error)) from None
    if submitted.conflict:
        raise Refused(Refusal.KEY, f"a child of {commit.task_id} needs key {task.key!r}, taken by {submitted.task_id}")
    return submitted


def _reopen_child(tx: WriteTransaction, commit: Commit, op: ReopenChild) -> None:
    child = tx.task(op.child_id)
    why = reopening_refused(commit.task_id, op, child)
    if why is not None or child is None:
        raise Refused(Refusal.CONFLICT, why or "")
    with lifecycle.changing(tx, child):
        child.attempts = child.deaths = child.lone_deaths = child.undoing = 0
        child.cancel_requested = None
        child.deadline = micros_or_none(op.deadline)
        if op.new_round:
            child.round, child.feedback = child.round + 1, op.feedback
        lifecycle.requeue(tx, child, reason=op.reason, actor=commit.actor, available_at=micros_or_none(op.available_at))
    if op.user_input is not SAME_INPUT:
        submission.replace_input(tx, child.id, op.user_input)
    tx.run_many("put_step", [step_values(child.id, line) for line in op.lines])
