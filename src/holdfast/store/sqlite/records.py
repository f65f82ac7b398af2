"""From records to rows. The way back is holdfast.store.records, shared with every SQL store."""

from __future__ import annotations

from holdfast.model.approval import Approval
from holdfast.model.canonical import canonical
from holdfast.model.effect import Effect
from holdfast.model.step import Step
from holdfast.store.records import Records, Row, payload_or_none
from holdfast.store.sqlite.rows import micros, micros_or_none, moment_or_none

RECORDS = Records(moment_or_none)


def step_values(task_id: str, step: Step) -> Row:
    """Return a step as a row of ``steps``."""
    return (
        task_id,
        step.round,
        step.key,
        step.kind,
        step.position,
        step.state,
        step.attempts,
        step.fence,
        step.digest,
        step.output,
        step.error,
        step.effect_id,
        step.started_at and micros(step.started_at),
        step.finished_at and micros(step.finished_at),
        step.retry_at and micros(step.retry_at),
        step.undone_at and micros(step.undone_at),
    )


def effect_values(task_id: str, effect: Effect, now: int) -> Row:
    """Return an effect as a row of ``effects``."""
    return (
        task_id,
        effect.effect_id,
        effect.step_key,
        effect.effect_class.value,
        effect.state.value,
        effect.round,
        effect.fence,
        effect.attempt,
        effect.arguments,
        effect.arguments_hash,
        effect.approval_id,
        micros_or_none(effect.dispatch_by),
        micros_or_none(effect.settle_at),
        effect.result,
        effect.note,
        int(effect.compensable),
        effect.thread_of,
        now,
    )


def approval_values(approval: Approval, now: int) -> Row:
    """Return an approval as a row of ``approvals``."""
    return (
        approval.task_id,
        approval.id,
        approval.kind,
        approval.step_key,
        approval.question,
        approval.risk,
        approval.arguments_bytes,
        approval.arguments_hash,
        approval.policy,
        approval.requested_by,
        canonical(list(approval.deciders)),
        micros_or_none(approval.expires_at),
        approval.default.value,
        approval.state.value,
        payload_or_none(approval.answer),
        approval.decided_by,
        approval.note,
        approval.consumed_by,
        now if approval.created_at is None else micros(approval.created_at),
        micros_or_none(approval.decided_at),
    )
