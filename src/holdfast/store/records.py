"""From rows to records, for every SQL store.

A method of Records makes one kind of record, and its parameters are the columns that it reads. The queries name them by
the method: in a .sql file ``{step}`` stands for the parameters of ``step``, and ``{s.step}`` for the same of the table
``s``. So a row always has the columns that are read, by name and in this order.
"""

# ruff: noqa: A002, ANN401, PLR0917 - parameters are columns, with the names and in the number that the tables have

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import lru_cache
from inspect import signature
from typing import Any, TypeAlias

from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.canonical import Unreadable, canonical, parse
from holdfast.model.effect import Effect, EffectClass, EffectState, Evidence
from holdfast.model.errors import CodecError
from holdfast.model.flow_limit import Limit, LimitUse
from holdfast.model.pause import Pause
from holdfast.model.queries import QueueCounts
from holdfast.model.queue_settings import QueueSettings, read_retention
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
from holdfast.model.schedule import StoredSchedule
from holdfast.model.step import Step, StepState
from holdfast.model.task import JsonValue, Task
from holdfast.model.transitions import TaskState, Transition
from holdfast.model.worker import Lease, Worker, WorkerState

Row: TypeAlias = tuple[Any, ...]
Time: TypeAlias = Any
"""A time as a database gives it: microseconds, or a datetime."""

_PLACE = re.compile(r"\{(?:(\w+)\.)?(\w+)\}")

_TASK_STATES = {state.value: state for state in TaskState}
"""Looked up ten times as fast as the enum's constructor finds them."""
_STEP_STATES = {state.value: state for state in StepState}


def payload_or_none(value: JsonValue) -> bytes | None:
    """Return canonical bytes, or None for a value that is absent."""
    return None if value is None else canonical(value)


def value_or_trouble(body: bytes | None, name: str) -> JsonValue:
    """Return the value of stored bytes; words that say so if they cannot be read.

    One such row must not prevent the rows beside it from being read: a claim, or a list, has many of them.
    """
    try:
        return None if body is None else parse(body, name=name)
    except CodecError as error:
        return Unreadable(f"cannot be read: {error}")


UNKNOWN_DECIDERS = ("(cannot be read)",)
"""The deciders of an approval whose deciders cannot be read. An empty tuple would allow every name."""


def deciders_of(stored: Any) -> tuple[str, ...]:
    """Return the deciders of an approval: an array where the database has arrays, JSON where it has none."""
    if isinstance(stored, bytes):
        stored = value_or_trouble(stored, "deciders")
    return UNKNOWN_DECIDERS if isinstance(stored, Unreadable) else tuple(stored)


def details_of(stored: bytes) -> dict[str, Any]:
    """Return the details of a worker; none if they cannot be read."""
    details = value_or_trouble(stored, "worker details")
    return details if isinstance(details, dict) else {}


def keys_of(stored: Any) -> tuple[str, ...]:
    """Return the keys of a task's limits: an array where the database has arrays, JSON where it has none."""
    if stored is None:
        return ()
    return _parsed_keys(stored) if isinstance(stored, bytes) else tuple(stored)


@lru_cache(maxsize=1024)
def _parsed_keys(stored: bytes) -> tuple[str, ...]:
    """Parse keys once for a claim, for its record and for the end of its task."""
    keys: Any = parse(stored)
    return tuple(keys)


class Records:
    """Makes records of rows."""

    def __init__(self, moment: Callable[[Any], Any]) -> None:
        """``moment`` turns a stored time into a datetime in UTC, and None into None."""
        self._moment = moment

    def queue(
        self, name: str, ready: int, delayed: int, running: int, waiting: int, review: int, oldest_ready_at: Time
    ) -> QueueCounts:
        """Make QueueCounts, of what the query ``queues`` counts."""
        moment = self._moment
        return QueueCounts(
            name=name,
            ready=ready,
            delayed=delayed,
            running=running,
            waiting=waiting,
            review=review,
            oldest_ready_at=moment(oldest_ready_at),
        )

    def pause(self, subject: str, at: Time, by: str, reason: str | None) -> Pause:
        """Make a Pause, of a row of ``pauses``."""
        return Pause(subject=subject, at=self._moment(at), by=by, reason=reason)

    def queue_settings(
        self,
        name: str,
        max_pending: int | None,
        pending: int,
        concurrency: int | None,
        working: int | None,
        retention: str | None,
        fair_by: str | None,
    ) -> QueueSettings:
        """Make QueueSettings, of a row of ``queues``."""
        return QueueSettings(
            name=name,
            max_pending=max_pending,
            pending=pending,
            concurrency=concurrency,
            working=working or 0 if concurrency is not None else 0,
            retention=None if retention is None else read_retention(json.loads(retention)),
            fair_by=fair_by,
        )

    def limit(
        self,
        name: str,
        concurrency: int | None,
        rate: int | None,
        tokens: int | None,
        per: Any,
        burst: int,
        each: int,
    ) -> Limit:
        """Make a Limit, of a row of ``limits``."""
        return Limit(
            name=name,
            concurrency=concurrency,
            rate=rate,
            tokens=tokens,
            per=timedelta(microseconds=per) if isinstance(per, int) else per,
            burst=burst,
            each=bool(each),
        )

    def limit_use(
        self, key: str, taken: int, waiting: int, calls: int, tokens: int, closed_until: Time, *limit: Any
    ) -> LimitUse:
        """Make a LimitUse, of what the query ``limit_uses`` counts and a row of ``limits``."""
        return LimitUse(
            key=key,
            limit=self.limit(*limit),
            taken=taken,
            waiting=waiting,
            calls=calls,
            tokens=tokens,
            closed_until=self._moment(closed_until),
        )

    def task(
        self,
        id: str,
        name: str,
        agent_id: str,
        user_input: bytes,
        state: str,
        result: bytes | None,
        error: bytes | None,
        created_at: Time,
        updated_at: Time,
        started_at: Time,
        finished_at: Time,
        queue: str,
        priority: int,
        key: str | None,
        available_at: Time,
        deadline: Time,
        schedule: str | None,
        parent_id: str | None,
        round: int,
        attempts: int,
        deaths: int,
        lone_deaths: int,
        feedback: str | None,
        cancel_requested: str | None,
        must_undo: int,
        owner: str | None,
        fence: int,
        sequence: int,
        revision: int,
        version: int,
        key_form: int,
        resting: int,
        labels: Any,
        limits: Any,
        waits_for: str | None,
    ) -> Task:
        """Make a Task, of the view ``shown_tasks``."""
        moment = self._moment
        return Task(
            id=id,
            name=name,
            agent_id=agent_id,
            user_input=value_or_trouble(user_input, "input"),
            state=_TASK_STATES[state],
            result=value_or_trouble(result, "result"),
            error=value_or_trouble(error, "error"),
            created_at=moment(created_at),
            updated_at=moment(updated_at),
            started_at=moment(started_at),
            finished_at=moment(finished_at),
            queue=queue,
            priority=priority,
            key=key,
            available_at=moment(available_at),
            deadline=moment(deadline),
            schedule=schedule,
            parent_id=parent_id,
            round=round,
            attempts=attempts,
            deaths=deaths,
            lone_deaths=lone_deaths,
            feedback=feedback,
            cancel_requested=cancel_requested,
            must_undo=bool(must_undo),
            owner=owner,
            fence=fence,
            sequence=sequence,
            revision=revision,
            version=version,
            key_form=key_form,
            resting=bool(resting),
            # An object where the database has JSON, bytes where it has none, and nothing without labels.
            labels={} if labels is None else parse(labels) if isinstance(labels, bytes) else dict(labels),
            limits=keys_of(limits),
            waits_for=waits_for,
        )

    def transition(
        self,
        task_id: str,
        number: int,
        from_state: str | None,
        to_state: str,
        reason: str,
        actor: str,
        fence: int,
        at: Time,
    ) -> Transition:
        """Make a Transition."""
        moment = self._moment
        return Transition(
            task_id=task_id,
            number=number,
            from_state=None if from_state is None else _TASK_STATES[from_state],
            to_state=_TASK_STATES[to_state],
            reason=reason,
            actor=actor,
            fence=fence,
            at=moment(at),
        )

    def step(
        self,
        round: int,
        key: str,
        kind: str,
        position: int,
        state: str,
        attempts: int,
        fence: int,
        digest: str,
        output: bytes | None,
        error: bytes | None,
        effect_id: str | None,
        started_at: Time,
        finished_at: Time,
        retry_at: Time,
        undone_at: Time,
    ) -> Step:
        """Make a Step."""
        moment = self._moment
        return Step(
            round=round,
            key=key,
            kind=kind,
            position=position,
            state=_STEP_STATES[state],
            attempts=attempts,
            fence=fence,
            digest=digest,
            output=output,
            error=error,
            effect_id=effect_id,
            started_at=moment(started_at),
            finished_at=moment(finished_at),
            retry_at=moment(retry_at),
            undone_at=moment(undone_at),
        )

    def effect(
        self,
        task_id: str,
        effect_id: str,
        step_key: str,
        effect_class: str,
        state: str,
        round: int,
        fence: int,
        attempt: int,
        arguments: bytes,
        arguments_hash: str,
        approval_id: str | None,
        dispatch_by: Time,
        settle_at: Time,
        result: bytes | None,
        note: str | None,
        compensable: int,
        thread_of: str | None,
        updated_at: Time,
    ) -> Effect:
        """Make an Effect."""
        moment = self._moment
        return Effect(
            task_id=task_id,
            effect_id=effect_id,
            step_key=step_key,
            effect_class=EffectClass(effect_class),
            state=EffectState(state),
            round=round,
            fence=fence,
            attempt=attempt,
            arguments=arguments,
            arguments_hash=arguments_hash,
            approval_id=approval_id,
            dispatch_by=moment(dispatch_by),
            settle_at=moment(settle_at),
            result=result,
            note=note,
            compensable=bool(compensable),
            thread_of=thread_of,
            updated_at=moment(updated_at),
        )

    def evidence(self, task_id: str, effect_id: str, fence: int, body: bytes, at: Time) -> Evidence:
        """Make Evidence."""
        moment = self._moment
        return Evidence(task_id=task_id, effect_id=effect_id, fence=fence, body=body, at=moment(at))

    def approval(
        self,
        task_id: str,
        id: str,
        kind: str,
        step_key: str,
        question: str,
        risk: str,
        arguments: bytes,
        arguments_hash: str,
        policy: str,
        requested_by: str,
        deciders: Any,
        expires_at: Time,
        fallback: str,
        state: str,
        answer: bytes | None,
        decided_by: str | None,
        note: str | None,
        consumed_by: str | None,
        created_at: Time,
        decided_at: Time,
    ) -> Approval:
        """Make an Approval."""
        moment = self._moment
        return Approval(
            task_id=task_id,
            id=id,
            kind=kind,
            step_key=step_key,
            question=question,
            risk=risk,
            arguments_bytes=arguments,
            arguments_hash=arguments_hash,
            policy=policy,
            requested_by=requested_by,
            deciders=deciders_of(deciders),
            expires_at=moment(expires_at),
            default=ApprovalState(fallback),
            state=ApprovalState(state),
            answer=value_or_trouble(answer, "answer"),
            decided_by=decided_by,
            note=note,
            consumed_by=consumed_by,
            created_at=moment(created_at),
            decided_at=moment(decided_at),
        )

    def patch(
        self, version: int, body: bytes, author: str, reason: str, at: Time, step_key: str | None, round: int
    ) -> PatchRecord:
        """Make a PatchRecord."""
        moment = self._moment
        return PatchRecord(
            version=version, body=body, author=author, reason=reason, at=moment(at), step_key=step_key, round=round
        )

    def checkpoint(
        self,
        number: int,
        position: int,
        version: int,
        body: bytes,
        checksum: str,
        schema: int,
        created_at: Time,
        damaged: str | None,
    ) -> Checkpoint:
        """Make a Checkpoint."""
        moment = self._moment
        return Checkpoint(
            number=number,
            position=position,
            version=version,
            body=body,
            checksum=checksum,
            schema=schema,
            created_at=moment(created_at),
            damaged=damaged,
        )

    def account(self, account: str, meter: str, ceiling: int | None, spent: int, reserved: int) -> Account:
        """Make an Account, of one meter."""
        return Account(account=account, meter=meter, limit=ceiling, spent=spent, reserved=reserved)

    def reservation(self, account: str, meter: str, step_key: str, fence: int, amount: int) -> Reservation:
        """Make a Reservation."""
        return Reservation(account=account, meter=meter, step_key=step_key, fence=fence, amount=amount)

    def worker(
        self,
        id: str,
        label: str,
        lease: float,
        state: str,
        claims: int,
        details: bytes,
        started_at: Time,
        seen_at: Time,
    ) -> Worker:
        """Make a Worker; its lease is in seconds."""
        moment = self._moment
        return Worker(
            id=id,
            label=label,
            lease=lease,
            state=WorkerState(state),
            claims=claims,
            details=details_of(details),
            started_at=moment(started_at),
            seen_at=moment(seen_at),
        )

    def schedule(
        self,
        name: str,
        spec: bytes,
        anchored_at: Time,
        tick_at: Time,
        due_at: Time,
        waits_for_last: int,
        declared: int,
        declared_by: str | None,
        paused_at: Time,
        paused_by: str | None,
        pause_reason: str | None,
        last_tick_at: Time,
        last_task_id: str | None,
        fired_at: Time,
        skipped_at: Time,
        created_at: Time,
        revision: int,
        last_state: str | None,
        last_ended_at: Time,
        declarer_lives: int,
    ) -> StoredSchedule:
        """Make a StoredSchedule, of the view ``shown_schedules``."""
        moment = self._moment
        return StoredSchedule(
            name=name,
            spec=value_or_trouble(spec, "spec"),
            anchored_at=moment(anchored_at),
            tick_at=moment(tick_at),
            due_at=moment(due_at),
            waits_for_last=bool(waits_for_last),
            declared=bool(declared),
            declared_by=declared_by,
            paused_at=moment(paused_at),
            paused_by=paused_by,
            pause_reason=pause_reason,
            last_tick_at=moment(last_tick_at),
            last_task_id=last_task_id,
            fired_at=moment(fired_at),
            skipped_at=moment(skipped_at),
            created_at=moment(created_at),
            revision=revision,
            last_state=None if last_state is None else TaskState(last_state),
            last_ended_at=moment(last_ended_at),
            declarer_lives=bool(declarer_lives),
        )

    def lease(self, id: str, owner: str, fence: int, claim: int) -> Lease:
        """Make a Lease, of a row of ``tasks``."""
        return Lease(task_id=id, owner=owner, fence=fence, claim=claim)

    def event(self, channel: str, number: int, payload: bytes, actor: str, key: str | None, at: Time) -> Event:
        """Make an Event."""
        moment = self._moment
        return Event(channel=channel, number=number, payload=parse(payload), actor=actor, key=key, at=moment(at))

    def artifact(self, id: str, size: int, media_type: str, created_at: Time) -> Artifact:
        """Make an Artifact."""
        moment = self._moment
        return Artifact(id=id, size=size, media_type=media_type, created_at=moment(created_at))

    def link(
        self, artifact_id: str, name: str, type: str, summary: str, bytes: int, step: str | None, created_at: Time
    ) -> ArtifactLink:
        """Make an ArtifactLink."""
        moment = self._moment
        return ArtifactLink(
            artifact_id=artifact_id,
            name=name,
            type=type,
            summary=summary,
            bytes=bytes,
            step=step,
            created_at=moment(created_at),
        )

    def fact(
        self,
        entity: str,
        id: str,
        attribute: str,
        value: bytes,
        confidence: float,
        source: str,
        created_at: Time,
        verified_at: Time,
        superseded_by: str | None,
        half_life: int | None,
        verified_by: str | None,
        other: str,
    ) -> MemoryFact:
        """Make a MemoryFact, of the view ``fact_records``."""
        moment = self._moment
        return MemoryFact(
            entity=entity,
            id=id,
            attribute=attribute,
            value=value_or_trouble(value, "value"),
            confidence=confidence,
            source=source,
            created_at=moment(created_at),
            verified_at=moment(verified_at),
            superseded_by=superseded_by,
            half_life=None if half_life is None else timedelta(microseconds=half_life),
            verified_by=verified_by,
            relation=other != "",
        )


COLUMNS: Mapping[str, tuple[str, ...]] = {
    name: tuple(signature(maker).parameters)[1:]
    for name, maker in vars(Records).items()
    if callable(maker) and not name.startswith("_")
}
"""The columns of each kind of record."""


def name_columns(sql: str) -> str:
    """Fill in the columns where a query names a kind of record."""

    def columns(found: re.Match[str]) -> str:
        table, kind = found.groups()
        if kind not in COLUMNS:
            return found[0]
        return ", ".join(f"{table}.{column}" if table else column for column in COLUMNS[kind])

    return _PLACE.sub(columns, sql)
