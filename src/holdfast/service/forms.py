"""The JSON of every record, as ``--json`` prints it and as other front ends send it. Names and meanings are stable.

Moments are ISO 8601 in UTC. Values that a task stored are plain JSON. docs/json.md describes each form, and a test
keeps the two equal.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from holdfast.engine.manage.state import AppliedPatch
from holdfast.model.approval import Approval
from holdfast.model.budget import Ledger, Meter, from_micros
from holdfast.model.canonical import parse
from holdfast.model.doubt import Doubt
from holdfast.model.effect import Effect
from holdfast.model.flow_limit import Limit, LimitUse
from holdfast.model.pause import Pause, pause_of, pause_of_limit
from holdfast.model.payload import plain
from holdfast.model.queries import Pruned, QueueCounts
from holdfast.model.queue_settings import QueueSettings
from holdfast.model.records import ArtifactLink, Event, MemoryFact
from holdfast.model.schedule import Schedule
from holdfast.model.step import Step
from holdfast.model.task import JsonValue, Task
from holdfast.model.transitions import TaskState, Transition
from holdfast.model.worker import Worker

Form = dict[str, JsonValue]


def task_form(task: Task) -> Form:
    """Return a task."""
    return {
        "id": task.id,
        "name": task.name,
        "agent_id": task.agent_id,
        "state": str(task.state),
        "queue": task.queue,
        "priority": task.priority,
        "key": task.key,
        "labels": dict(task.labels),
        "limits": list(task.limits),
        "waits_for": limit_waited_for(task),
        "user_input": plain_input(task.user_input),
        "result": plain(task.result),
        "error": task.error,
        "created_at": moment(task.created_at),
        "updated_at": moment(task.updated_at),
        "started_at": moment(task.started_at),
        "finished_at": moment(task.finished_at),
        "available_at": moment(task.available_at),
        "deadline": moment(task.deadline),
        "parent_id": task.parent_id,
        "round": task.round,
        "attempts": task.attempts,
        "deaths": task.deaths,
        "feedback": task.feedback,
        "cancel_requested": task.cancel_requested,
        "owner": task.owner,
        "resting": task.resting,
        "fence": task.fence,
        "version": task.version,
    }


def step_form(step: Step) -> Form:
    """Return one line of a journal."""
    return {
        "position": step.position,
        "round": step.round,
        "key": step.key,
        "kind": step.kind,
        "state": str(step.state),
        "attempts": step.attempts,
        "fence": step.fence,
        "effect_id": step.effect_id,
        "started_at": moment(step.started_at),
        "finished_at": moment(step.finished_at),
        "retry_at": moment(step.retry_at),
        "undone_at": moment(step.undone_at),
        "output": stored(step.output),
        "error": None if step.error is None else parse(step.error),
    }


def transition_form(move: Transition) -> Form:
    """Return one move of a task."""
    return {
        "number": move.number,
        "from": None if move.from_state is None else str(move.from_state),
        "to": str(move.to_state),
        "reason": move.reason,
        "actor": move.actor,
        "fence": move.fence,
        "at": moment(move.at),
    }


def patch_form(applied: AppliedPatch) -> Form:
    """Return one change of an agent's state."""
    return {
        "version": applied.version,
        "author": applied.author,
        "reason": applied.reason,
        "step_key": applied.step_key,
        "at": moment(applied.at),
        "patch": applied.patch.to_json(),
    }


def approval_form(approval: Approval) -> Form:
    """Return a request for a decision."""
    return {
        "id": approval.id,
        "task_id": approval.task_id,
        "kind": approval.kind,
        "state": str(approval.state),
        "question": approval.question,
        "risk": approval.risk,
        "arguments": approval.arguments,
        "step_key": approval.step_key,
        "requested_by": approval.requested_by,
        "deciders": list(approval.deciders),
        "expires_at": moment(approval.expires_at),
        "default": str(approval.default),
        "answer": plain(approval.answer),
        "decided_by": approval.decided_by,
        "decided_at": moment(approval.decided_at),
        "note": approval.note,
        "created_at": moment(approval.created_at),
    }


def effect_form(effect: Effect) -> Form:
    """Return an effect."""
    return {
        "effect_id": effect.effect_id,
        "task_id": effect.task_id,
        "step_key": effect.step_key,
        "class": str(effect.effect_class),
        "state": str(effect.state),
        "round": effect.round,
        "attempt": effect.attempt,
        "arguments": stored(effect.arguments),
        "approval_id": effect.approval_id,
        "dispatch_by": moment(effect.dispatch_by),
        "settle_at": moment(effect.settle_at),
        "result": stored(effect.result),
        "note": effect.note,
        "updated_at": moment(effect.updated_at),
    }


def doubt_form(doubt: Doubt) -> Form:
    """Return an effect in doubt (its outcome is unknown), with what can be decided."""
    return effect_form(doubt.effect) | {
        "arguments": doubt.arguments,
        "task_name": doubt.task_name,
        "question": doubt.question,
        "decisions": [str(decision) for decision in doubt.decisions],
        "early": [str(decision) for decision in doubt.early],
        "evidence": [{"fence": one.fence, "at": moment(one.at), "body": parse(one.body)} for one in doubt.evidence],
    }


def worker_form(worker: Worker) -> Form:
    """Return a worker."""
    return {
        "id": worker.id,
        "label": worker.label,
        "state": str(worker.state),
        "lease": worker.lease,
        "details": dict(worker.details),
        "started_at": moment(worker.started_at),
        "seen_at": moment(worker.seen_at),
    }


def pause_form(pause: Pause) -> Form:
    """Return what is paused, since when, and who did it."""
    return {"subject": pause.subject, "at": moment(pause.at), "by": pause.by, "reason": pause.reason}


def pause_of_task(task: Task, pauses: Collection[Pause]) -> Form | None:
    """Return the pause that keeps a task from being claimed, if one of these does."""
    found = pause_of(pauses, task_id=task.id, name=task.name, queue=task.queue)
    return None if found is None else pause_form(found)


def queue_settings_form(settings: QueueSettings) -> Form:
    """Return the settings of a queue, and how full it is."""
    return {
        "name": settings.name,
        "max_pending": settings.max_pending,
        "pending": settings.pending,
        "concurrency": settings.concurrency,
        "working": settings.working,
        "retention": settings.retention
        and {state: kept_for.total_seconds() for state, kept_for in settings.retention.items()},
        "fair_by": settings.fair_by,
    }


def queue_form(queue: QueueCounts) -> Form:
    """Return what a queue holds."""
    return {
        "name": queue.name,
        "ready": queue.ready,
        "delayed": queue.delayed,
        "running": queue.running,
        "waiting": queue.waiting,
        "review": queue.review,
        "oldest_ready_at": moment(queue.oldest_ready_at),
    }


def limit_waited_for(task: Task) -> str | None:
    """Return the key of a limit in whose line a pending task stands; None if it waits for none."""
    return task.waits_for if task.state is TaskState.PENDING else None


def limit_form(limit: Limit) -> Form:
    """Return a limit; its time is in seconds."""
    return {
        "name": limit.name,
        "concurrency": limit.concurrency,
        "rate": limit.rate,
        "tokens": limit.tokens,
        "per": None if limit.per is None else limit.per.total_seconds(),
        "burst": limit.burst,
        "each": limit.each,
    }


def limit_use_form(use: LimitUse, pauses: Collection[Pause]) -> Form:
    """Return how a key of a limit stands, with the pause that holds it."""
    pause = pause_of_limit(pauses, use.key)
    return {
        "key": use.key,
        "limit": limit_form(use.limit),
        "taken": use.taken,
        "waiting": use.waiting,
        "calls": use.calls,
        "tokens": use.tokens,
        "closed_until": moment(use.closed_until),
        "paused": None if pause is None else pause_form(pause),
    }


def schedule_form(schedule: Schedule) -> Form:
    """Return a schedule; durations are in seconds."""
    return {
        "name": schedule.name,
        "task": schedule.task,
        "cron": schedule.cron,
        "every": None if schedule.every is None else schedule.every.total_seconds(),
        "timezone": schedule.timezone,
        "jitter": schedule.jitter.total_seconds(),
        "overlap": str(schedule.overlap),
        "catch_up": str(schedule.catch_up),
        "queue": schedule.queue,
        "priority": schedule.priority,
        "next": [moment(at) for at in schedule.next],
        "declared": schedule.declared,
        "declared_by": list(schedule.declared_by),
        "paused_at": moment(schedule.paused_at),
        "last_tick_at": moment(schedule.last_tick_at),
        "last_task_id": schedule.last_task_id,
        "last_state": None if schedule.last_state is None else str(schedule.last_state),
        "fired_at": moment(schedule.fired_at),
        "skipped_at": moment(schedule.skipped_at),
        "created_at": moment(schedule.created_at),
        "trouble": schedule.trouble,
    }


def event_form(event: Event) -> Form:
    """Return an event."""
    return {
        "channel": event.channel,
        "number": event.number,
        "payload": event.payload,
        "actor": event.actor,
        "at": moment(event.at),
    }


def fact_form(fact: MemoryFact) -> Form:
    """Return a remembered fact."""
    return {
        "id": fact.id,
        "entity": fact.entity,
        "attribute": fact.attribute,
        "value": fact.value,
        "relation": fact.relation,
        "confidence": fact.confidence,
        "source": fact.source,
        "half_life_seconds": None if fact.half_life is None else fact.half_life.total_seconds(),
        "superseded_by": fact.superseded_by,
        "verified_by": fact.verified_by,
        "verified_at": moment(fact.verified_at),
        "created_at": moment(fact.created_at),
    }


def artifact_form(link: ArtifactLink) -> Form:
    """Return a task's use of an artifact."""
    return {
        "artifact_id": link.artifact_id,
        "name": link.name,
        "type": link.type,
        "summary": link.summary,
        "bytes": link.bytes,
        "step": link.step,
        "created_at": moment(link.created_at),
    }


def budget_form(ledger: Ledger) -> Form:
    """Return what a task may use and has used, by meter; money in whatever currency the prices are in."""
    return {
        "cost" if meter is Meter.COST_MICROS else str(meter): {
            "limit": _amount(meter, line.limit),
            "spent": _amount(meter, line.spent),
            "reserved": _amount(meter, line.reserved),
        }
        for meter, line in ledger.lines.items()
    }


def pruned_form(pruned: Pruned) -> Form:
    """Return what was deleted."""
    return {"tasks": pruned.tasks, "events": pruned.events, "artifacts": pruned.artifacts}


def moment(at: datetime | None) -> str | None:
    """Return a moment as text, in UTC."""
    return None if at is None else at.astimezone(UTC).isoformat()


def plain_input(given: JsonValue) -> JsonValue:
    """Return a task's arguments as plain data: a list, or positional and named ones."""
    match given:
        case list():
            return [plain(one) for one in given]
        case {"args": list() as args, "kwargs": dict() as named, **rest} if not rest:
            return {"args": [plain(one) for one in args], "kwargs": {name: plain(one) for name, one in named.items()}}
    return plain(given)


def stored(body: bytes | None) -> JsonValue:
    """Return the plain data of stored bytes."""
    return None if body is None else plain(parse(body))


def listed(name: str, items: list[Form], **more: Any) -> Mapping[str, JsonValue]:  # noqa: ANN401
    """Return a listing: an object, so that more keys can be added later."""
    return {name: items, **more}


def _amount(meter: Meter, amount: int | None) -> JsonValue:
    if amount is None or meter is not Meter.COST_MICROS:
        return amount
    return float(from_micros(amount))
