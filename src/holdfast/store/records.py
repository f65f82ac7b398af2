"""From rows to records, for every SQL store: the same columns in the same order, whatever the database calls a time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeAlias

from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.canonical import Unreadable, canonical, parse
from holdfast.model.effect import Effect, EffectClass, EffectState, Evidence
from holdfast.model.errors import CodecError
from holdfast.model.queries import QueueCounts
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
from holdfast.model.worker import Lease, Worker, WorkerState

Row: TypeAlias = tuple[Any, ...]

_TASK_STATES = {state.value: state for state in TaskState}
"""Looked up ten times as fast as the enum's constructor finds them."""
_STEP_STATES = {state.value: state for state in StepState}


def payload_or_none(value: JsonValue) -> bytes | None:
    """Return canonical bytes, or None for a value that is absent."""
    return None if value is None else canonical(value)


def value_or_none(body: bytes | None) -> JsonValue:
    """Return the value of stored bytes, or None where there are none."""
    return None if body is None else parse(body)


def value_or_trouble(body: bytes | None, name: str) -> JsonValue:
    """Return the value of stored bytes; words that say so if they cannot be read.

    One such row must not keep anybody from the rows beside it: a claim, or a list, has many of them.
    """
    try:
        return None if body is None else parse(body, name=name)
    except CodecError as error:
        return Unreadable(f"cannot be read: {error}")


class Records:
    """Makes records of rows. Each method's row has the columns of the record, in the order they are read here."""

    def __init__(self, moment: Callable[[Any], Any]) -> None:
        """``moment`` turns a stored time into a datetime in UTC, and None into None."""
        self._moment = moment

    def queue(self, row: Row) -> QueueCounts:
        """Make QueueCounts of a row of the query ``queues``."""
        name, ready, delayed, running, waiting, review, oldest_ready_at = row
        return QueueCounts(
            name=name,
            ready=ready,
            delayed=delayed,
            running=running,
            waiting=waiting,
            review=review,
            oldest_ready_at=self._moment(oldest_ready_at),
        )

    def task(self, row: Row) -> Task:
        """Make a Task of the first columns of the view ``shown_tasks``."""
        moment = self._moment
        return Task(
            id=row[0],
            name=row[1],
            agent_id=row[2],
            user_input=value_or_trouble(row[3], "input"),
            state=_TASK_STATES[row[4]],
            result=value_or_trouble(row[5], "result"),
            error=value_or_trouble(row[6], "error"),
            created_at=moment(row[7]),
            updated_at=moment(row[8]),
            started_at=moment(row[9]),
            finished_at=moment(row[10]),
            queue=row[11],
            priority=row[12],
            key=row[13],
            available_at=moment(row[14]),
            deadline=moment(row[15]),
            schedule=row[16],
            parent_id=row[17],
            round=row[18],
            attempts=row[19],
            deaths=row[20],
            lone_deaths=row[21],
            feedback=row[22],
            cancel_requested=row[23],
            must_undo=bool(row[24]),
            owner=row[25],
            fence=row[26],
            sequence=row[27],
            revision=row[28],
            version=row[29],
            key_form=row[30],
            resting=bool(row[31]),
        )

    def transition(self, row: Row) -> Transition:
        """Make a Transition of a row of ``transitions``."""
        return Transition(
            task_id=row[0],
            number=row[1],
            from_state=None if row[2] is None else _TASK_STATES[row[2]],
            to_state=_TASK_STATES[row[3]],
            reason=row[4],
            actor=row[5],
            fence=row[6],
            at=self._moment(row[7]),
        )

    def step(self, row: Row) -> Step:
        """Make a Step of a row of ``steps``."""
        moment = self._moment
        return Step(
            round=row[1],
            key=row[2],
            kind=row[3],
            position=row[4],
            state=_STEP_STATES[row[5]],
            attempts=row[6],
            fence=row[7],
            digest=row[8],
            output=row[9],
            error=row[10],
            effect_id=row[11],
            started_at=moment(row[12]),
            finished_at=moment(row[13]),
            retry_at=moment(row[14]),
            undone_at=moment(row[15]),
        )

    def effect(self, row: Row) -> Effect:
        """Make an Effect of a row of ``effects``."""
        moment = self._moment
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
            dispatch_by=moment(row[11]),
            settle_at=moment(row[12]),
            result=row[13],
            note=row[14],
            compensable=bool(row[15]),
            thread_of=row[16],
            updated_at=moment(row[17]),
        )

    def evidence(self, row: Row) -> Evidence:
        """Make Evidence of (task_id, effect_id, fence, body, at)."""
        return Evidence(task_id=row[0], effect_id=row[1], fence=row[2], body=row[3], at=self._moment(row[4]))

    def approval(self, row: Row) -> Approval:
        """Make an Approval of a row of ``approvals``."""
        moment = self._moment
        return Approval(
            task_id=row[0],
            id=row[1],
            kind=row[2],
            step_key=row[3],
            question=row[4],
            risk=row[5],
            arguments_bytes=row[6],
            arguments_hash=row[7],
            policy=row[8],
            requested_by=row[9],
            # An array where the database has arrays, JSON where it has none.
            deciders=tuple(parse(row[10]) if isinstance(row[10], bytes) else row[10]),
            expires_at=moment(row[11]),
            default=ApprovalState(row[12]),
            state=ApprovalState(row[13]),
            answer=value_or_none(row[14]),
            decided_by=row[15],
            note=row[16],
            consumed_by=row[17],
            created_at=moment(row[18]),
            decided_at=moment(row[19]),
        )

    def patch(self, row: Row) -> PatchRecord:
        """Make a PatchRecord of (version, body, author, reason, at, step_key, round)."""
        return PatchRecord(
            version=row[0],
            body=row[1],
            author=row[2],
            reason=row[3],
            at=self._moment(row[4]),
            step_key=row[5],
            round=row[6],
        )

    def checkpoint(self, row: Row) -> Checkpoint:
        """Make a Checkpoint of (number, position, version, body, checksum, schema, created_at, damaged)."""
        return Checkpoint(
            number=row[0],
            position=row[1],
            version=row[2],
            body=row[3],
            checksum=row[4],
            schema=row[5],
            created_at=self._moment(row[6]),
            damaged=row[7],
        )

    def account(self, row: Row) -> Account:
        """Make an Account of (account, meter, ceiling, spent, reserved)."""
        return Account(account=row[0], meter=row[1], limit=row[2], spent=row[3], reserved=row[4])

    def reservation(self, row: Row) -> Reservation:
        """Make a Reservation of (account, meter, step_key, fence, amount)."""
        return Reservation(account=row[0], meter=row[1], step_key=row[2], fence=row[3], amount=row[4])

    def worker(self, row: Row) -> Worker:
        """Make a Worker of (id, label, lease in seconds, state, claims, details, started_at, seen_at)."""
        return Worker(
            id=row[0],
            label=row[1],
            lease=row[2],
            state=WorkerState(row[3]),
            claims=row[4],
            details=parse(row[5]),
            started_at=self._moment(row[6]),
            seen_at=self._moment(row[7]),
        )

    def lease(self, row: Row) -> Lease:
        """Make a Lease of (task id, owner, fence, claim)."""
        return Lease(task_id=row[0], owner=row[1], fence=row[2], claim=row[3])

    def event(self, row: Row) -> Event:
        """Make an Event of (channel, number, payload, actor, key, at)."""
        return Event(
            channel=row[0], number=row[1], payload=parse(row[2]), actor=row[3], key=row[4], at=self._moment(row[5])
        )

    def artifact(self, row: Row) -> Artifact:
        """Make an Artifact of (id, size, media_type, created_at)."""
        return Artifact(id=row[0], size=row[1], media_type=row[2], created_at=self._moment(row[3]))

    def link(self, row: Row) -> ArtifactLink:
        """Make an ArtifactLink of (artifact_id, name, type, summary, bytes, step, created_at)."""
        return ArtifactLink(
            artifact_id=row[0],
            name=row[1],
            type=row[2],
            summary=row[3],
            bytes=row[4],
            step=row[5],
            created_at=self._moment(row[6]),
        )

    def fact(self, row: Row) -> MemoryFact:
        """Make a MemoryFact of the first columns of the view ``fact_records``."""
        return MemoryFact(
            entity=row[0],
            id=row[1],
            attribute=row[2],
            value=parse(row[3]),
            confidence=row[4],
            source=row[5],
            created_at=self._moment(row[6]),
            verified_at=self._moment(row[7]),
            superseded_by=row[8],
            half_life=None if row[9] is None else timedelta(microseconds=row[9]),
            verified_by=row[10],
            relation=row[11] != "",
        )
