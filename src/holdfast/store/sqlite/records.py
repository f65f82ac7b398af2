"""Between the rows of all other tables and the records they stand for."""

from __future__ import annotations

from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.canonical import canonical, parse
from holdfast.model.effect import Effect, EffectClass, EffectState, Evidence
from holdfast.model.records import (
    Account,
    Artifact,
    ArtifactLink,
    Checkpoint,
    Event,
    MemoryFact,
    PatchRecord,
    Reservation,
)
from holdfast.model.step import Step, StepState
from holdfast.model.transitions import TaskState, Transition
from holdfast.model.worker import Lease, Worker, WorkerState
from holdfast.store.sqlite.rows import (
    Row,
    micros,
    micros_or_none,
    moment,
    moment_or_none,
    payload_or_none,
    value_or_none,
)


def transition_record(row: Row) -> Transition:
    """Make a Transition of a row of ``transitions``."""
    return Transition(
        task_id=row[0],
        number=row[1],
        from_state=None if row[2] is None else TaskState(row[2]),
        to_state=TaskState(row[3]),
        reason=row[4],
        actor=row[5],
        fence=row[6],
        at=moment(row[7]),
    )


def step_values(task_id: str, step: Step) -> Row:
    """Return a step as a row of ``steps``."""
    return (
        task_id,
        step.round,
        step.key,
        step.kind,
        step.position,
        step.state.value,
        step.attempts,
        step.fence,
        step.digest,
        step.output,
        step.error,
        step.effect_id,
        micros_or_none(step.started_at),
        micros_or_none(step.finished_at),
        micros_or_none(step.retry_at),
        micros_or_none(step.undone_at),
    )


def step_record(row: Row) -> Step:
    """Make a Step of a row of ``steps``."""
    return Step(
        round=row[1],
        key=row[2],
        kind=row[3],
        position=row[4],
        state=StepState(row[5]),
        attempts=row[6],
        fence=row[7],
        digest=row[8],
        output=row[9],
        error=row[10],
        effect_id=row[11],
        started_at=moment_or_none(row[12]),
        finished_at=moment_or_none(row[13]),
        retry_at=moment_or_none(row[14]),
        undone_at=moment_or_none(row[15]),
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
        now,
    )


def effect_record(row: Row) -> Effect:
    """Make an Effect of a row of ``effects``."""
    return Effect(
        task_id=row[0],
        effect_id=row[1],
        step_key=row[2],
        effect_class=EffectClass(row[3]),
        state=EffectState(row[4]),
        round=row[5],
        fence=row[6],
        attempt=row[7],
        arguments=row[8],
        arguments_hash=row[9],
        approval_id=row[10],
        dispatch_by=moment_or_none(row[11]),
        settle_at=moment_or_none(row[12]),
        result=row[13],
        note=row[14],
        updated_at=moment(row[15]),
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
        approval.arguments,
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


def approval_record(row: Row) -> Approval:
    """Make an Approval of a row of ``approvals``."""
    return Approval(
        task_id=row[0],
        id=row[1],
        kind=row[2],
        step_key=row[3],
        question=row[4],
        risk=row[5],
        arguments=row[6],
        arguments_hash=row[7],
        policy=row[8],
        requested_by=row[9],
        deciders=tuple(parse(row[10])),
        expires_at=moment_or_none(row[11]),
        default=ApprovalState(row[12]),
        state=ApprovalState(row[13]),
        answer=value_or_none(row[14]),
        decided_by=row[15],
        note=row[16],
        consumed_by=row[17],
        created_at=moment(row[18]),
        decided_at=moment_or_none(row[19]),
    )


def patch_record(row: Row) -> PatchRecord:
    """Make a PatchRecord of (version, body, author, reason, at)."""
    return PatchRecord(version=row[0], body=row[1], author=row[2], reason=row[3], at=moment(row[4]))


def checkpoint_record(row: Row) -> Checkpoint:
    """Make a Checkpoint of (number, position, version, body, checksum, schema, created_at, damaged)."""
    return Checkpoint(
        number=row[0],
        position=row[1],
        version=row[2],
        body=row[3],
        checksum=row[4],
        schema=row[5],
        created_at=moment(row[6]),
        damaged=row[7],
    )


def account_record(row: Row) -> Account:
    """Make an Account of a row of ``accounts``."""
    return Account(account=row[0], meter=row[1], limit=row[2], spent=row[3], reserved=row[4])


def worker_record(row: Row) -> Worker:
    """Make a Worker of (id, label, lease, state, claims, details, started_at, seen_at)."""
    return Worker(
        id=row[0],
        label=row[1],
        lease=row[2] / 1_000_000,
        state=WorkerState(row[3]),
        claims=row[4],
        details=parse(row[5]),
        started_at=moment(row[6]),
        seen_at=moment(row[7]),
    )


def event_record(row: Row) -> Event:
    """Make an Event of a row of ``events``."""
    return Event(channel=row[0], number=row[1], key=row[2], payload=parse(row[3]), actor=row[4], at=moment(row[5]))


def fact_record(row: Row) -> MemoryFact:
    """Make a MemoryFact of a row of ``facts``."""
    return MemoryFact(
        entity=row[0],
        id=row[1],
        attribute=row[2],
        value=parse(row[3]),
        confidence=row[4],
        source=row[5],
        created_at=moment(row[6]),
        verified_at=moment_or_none(row[7]),
        superseded_by=row[8],
    )


def reservation_record(row: Row) -> Reservation:
    """Make a Reservation of (account, meter, step_key, fence, amount)."""
    return Reservation(account=row[0], meter=row[1], step_key=row[2], fence=row[3], amount=row[4])


def lease_record(row: Row) -> Lease:
    """Make a Lease of (task id, owner, fence, claim)."""
    return Lease(task_id=row[0], owner=row[1], fence=row[2], claim=row[3])


def evidence_record(row: Row) -> Evidence:
    """Make Evidence of (task_id, effect_id, fence, body, at)."""
    return Evidence(task_id=row[0], effect_id=row[1], fence=row[2], body=row[3], at=moment(row[4]))


def artifact_record(row: Row) -> Artifact:
    """Make an Artifact of a row of ``artifacts``."""
    return Artifact(id=row[0], size=row[1], media_type=row[2], created_at=moment(row[3]))


def link_record(row: Row) -> ArtifactLink:
    """Make an ArtifactLink of (artifact_id, name, type, summary, bytes, step, created_at)."""
    return ArtifactLink(
        artifact_id=row[0],
        name=row[1],
        type=row[2],
        summary=row[3],
        bytes=row[4],
        step=row[5],
        created_at=moment(row[6]),
    )
