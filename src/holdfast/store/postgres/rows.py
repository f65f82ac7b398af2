"""From rows to records. Times arrive as UTC datetimes; payloads are canonical bytes."""

from __future__ import annotations

from typing import Any

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
from holdfast.model.task import JsonValue, Task
from holdfast.model.transitions import TaskState, Transition
from holdfast.model.worker import Claimed, Lease, Worker, WorkerState
from holdfast.store.postgres.connections import Row

TASK_COLUMNS = 30
"""How many columns the view ``task_records`` has."""


def payload_or_none(value: JsonValue) -> bytes | None:
    """Return canonical bytes, or None for a value that is absent."""
    return None if value is None else canonical(value)


def value_or_none(body: bytes | None) -> JsonValue:
    """Return the value of stored bytes, or None where there are none."""
    return None if body is None else parse(body)


def task_record(row: Row) -> Task:
    """Make a Task of a row of the view ``task_records``."""
    (id_, name, agent_id, user_input, state, result, error, *rest) = row[:TASK_COLUMNS]
    return Task(
        id=id_,
        name=name,
        agent_id=agent_id,
        user_input=parse(user_input),
        state=TaskState(state),
        result=value_or_none(result),
        error=value_or_none(error),
        **dict(zip(_REST_OF_TASK, rest, strict=True)),
    )


_REST_OF_TASK = (
    *("created_at", "updated_at", "started_at", "finished_at", "queue", "priority", "key", "available_at", "deadline"),
    *("schedule", "parent_id", "round", "attempts", "deaths", "lone_deaths", "feedback", "cancel_requested"),
    *("must_undo", "owner", "fence", "sequence", "revision", "version"),
)


def claimed_record(row: Row) -> Claimed:
    """Make a Claimed of a row of ``claim()`` or ``acquire()``."""
    return Claimed(task=task_record(row), fresh=row[TASK_COLUMNS], alone=row[TASK_COLUMNS + 1])


def transition_record(row: Row) -> Transition:
    """Make a Transition of a row of ``transitions``."""
    task_id, number, from_state, to_state, reason, actor, fence, at = row
    return Transition(
        task_id=task_id,
        number=number,
        from_state=None if from_state is None else TaskState(from_state),
        to_state=TaskState(to_state),
        reason=reason,
        actor=actor,
        fence=fence,
        at=at,
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
        started_at=row[12],
        finished_at=row[13],
        retry_at=row[14],
        undone_at=row[15],
    )


def step_values(step: Step) -> tuple[Any, ...]:
    """Return a step as a row of ``steps``, behind the task's id."""
    return (
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
        step.started_at,
        step.finished_at,
        step.retry_at,
        step.undone_at,
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
        dispatch_by=row[11],
        settle_at=row[12],
        result=row[13],
        note=row[14],
        updated_at=row[15],
    )


def evidence_record(row: Row) -> Evidence:
    """Make an Evidence of (task_id, effect_id, fence, body, at)."""
    return Evidence(task_id=row[0], effect_id=row[1], fence=row[2], body=row[3], at=row[4])


def approval_record(row: Row) -> Approval:
    """Make an Approval of a row of ``approvals``."""
    return Approval(
        id=row[0],
        task_id=row[1],
        question=row[2],
        step_key=row[3],
        kind=row[4],
        risk=row[5],
        arguments=row[6],
        arguments_hash=row[7],
        policy=row[8],
        requested_by=row[9],
        deciders=tuple(row[10]),
        expires_at=row[11],
        default=ApprovalState(row[12]),
        state=ApprovalState(row[13]),
        answer=value_or_none(row[14]),
        decided_by=row[15],
        note=row[16],
        consumed_by=row[17],
        created_at=row[18],
        decided_at=row[19],
    )


def patch_record(row: Row) -> PatchRecord:
    """Make a PatchRecord of (version, body, author, reason, at)."""
    return PatchRecord(version=row[0], body=row[1], author=row[2], reason=row[3], at=row[4])


def checkpoint_record(row: Row) -> Checkpoint:
    """Make a Checkpoint of (number, position, version, body, checksum, schema, created_at, damaged)."""
    number, position, version, body, checksum, schema, created_at, damaged = row
    return Checkpoint(
        number=number,
        position=position,
        version=version,
        body=body,
        checksum=checksum,
        schema=schema,
        created_at=created_at,
        damaged=damaged,
    )


def account_record(row: Row) -> Account:
    """Make an Account of a row of ``accounts``."""
    return Account(account=row[0], meter=row[1], limit=row[2], spent=row[3], reserved=row[4])


def reservation_record(row: Row) -> Reservation:
    """Make a Reservation of (account, meter, step_key, fence, amount)."""
    return Reservation(account=row[0], meter=row[1], step_key=row[2], fence=row[3], amount=row[4])


def worker_record(row: Row) -> Worker:
    """Make a Worker of (id, label, lease, state, claims, details, started_at, seen_at)."""
    id_, label, lease, state, claims, details, started_at, seen_at = row
    return Worker(
        id=id_,
        label=label,
        lease=lease,
        state=WorkerState(state),
        claims=claims,
        details=parse(details),
        started_at=started_at,
        seen_at=seen_at,
    )


def lease_record(row: Row) -> Lease:
    """Make a Lease of (task_id, owner, fence, claim)."""
    return Lease(task_id=row[0], owner=row[1], fence=row[2], claim=row[3])


def event_record(row: Row) -> Event:
    """Make an Event of a row of ``events``."""
    return Event(channel=row[0], number=row[1], payload=parse(row[2]), actor=row[3], key=row[4], at=row[5])


def artifact_record(row: Row) -> Artifact:
    """Make an Artifact of (id, size, media_type, created_at)."""
    return Artifact(id=row[0], size=row[1], media_type=row[2], created_at=row[3])


def link_record(row: Row) -> ArtifactLink:
    """Make an ArtifactLink of (artifact_id, name, type, summary, bytes, step, created_at)."""
    return ArtifactLink(
        artifact_id=row[0], name=row[1], type=row[2], summary=row[3], bytes=row[4], step=row[5], created_at=row[6]
    )


def fact_record(row: Row) -> MemoryFact:
    """Make a MemoryFact of a row of ``recall``."""
    return MemoryFact(
        id=row[0],
        entity=row[1],
        attribute=row[2],
        value=parse(row[3]),
        confidence=row[4],
        source=row[5],
        created_at=row[6],
        verified_at=row[7],
        superseded_by=row[8],
    )
