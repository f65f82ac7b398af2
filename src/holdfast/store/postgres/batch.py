"""How Commits and new tasks travel: structure as one JSON document, payloads as an array of bytes beside it.

JSON inside PostgreSQL could not carry every payload (NUL, duplicate keys, the exact bytes), so that the document only
says where in the array each payload stands, counted from 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from holdfast.model.approval import Approval
from holdfast.model.canonical import canonical, digest
from holdfast.model.commit import Commit, Expect, Held
from holdfast.model.effect import Effect
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
    UntilChildren,
    UntilDecided,
    UntilEvent,
    UntilTime,
    UntilWoken,
    Wait,
    WriteEffect,
    WriteOutcome,
    WriteStep,
)
from holdfast.model.records import Checkpoint
from holdfast.model.step import Step
from holdfast.model.task import JsonValue, NewTask, search_text
from holdfast.model.transitions import KEEPS_LEASE, TaskState
from holdfast.store.postgres import plan
from holdfast.store.postgres.parameters import ByteaArray, TextArray

Document = dict[str, Any]

_REFUSABLE = WriteEffect | Reserve | OpenApproval | Decide | ConsumeApproval | SubmitChild | ReopenChild | RequireQuiet
_to_json = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Payloads:
    """The bytes that travel beside a document."""

    items: ByteaArray = field(default_factory=ByteaArray)

    def add(self, body: bytes | None) -> int | None:
        """Take the bytes along and return their place; None for none."""
        if body is None:
            return None
        self.items.append(body)
        return len(self.items)

    def add_value(self, value: JsonValue, name: str = "value") -> int | None:
        """Take a JSON value along; None counts as absent."""
        return None if value is None else self.add(canonical(value, name=name))


class TaskNames(NamedTuple):
    """What a task is found by besides its input. None of it ever changes."""

    name: str
    agent_id: str
    key: str | None


def given_other_input(commits: Iterable[Commit]) -> list[str]:
    """Return the children whose input the Commits replace: their TaskNames are needed to encode that."""
    operations = (op for commit in commits for op in commit.operations)
    return [op.child_id for op in operations if isinstance(op, ReopenChild) and op.user_input is not SAME_INPUT]


def encode_batch(commits: Sequence[Commit], stored: Mapping[str, TaskNames] | None = None) -> tuple[str, ByteaArray]:
    """Return the document and payloads that commit_batch() takes; ``stored`` has the TaskNames of given_other_input."""
    payloads = Payloads()
    names = {**_names_submitted(commits), **stored} if stored is not None else {}
    records = [_commit(position, commit, payloads, names) for position, commit in enumerate(commits)]
    locks = plan.locks(commits)
    document = {
        "runs": [_run([records[position] for position in run]) for run in plan.runs(commits)],
        "refusable": any(record["refusable"] for record in records),
        "locks": {
            "tasks": sorted(locks.tasks),
            "ending": sorted(locks.ending),
            "emits": sorted(locks.emits),
            "listens": sorted(locks.listens),
            "accounts": sorted(locks.accounts),
            "keys": locks.keys,
            "wakes": sorted(locks.wakes),
        },
    }
    return _to_json(document).decode(), payloads.items


def _names_submitted(commits: Iterable[Commit]) -> dict[str, TaskNames]:
    submitted = (op.task for commit in commits for op in commit.operations if isinstance(op, SubmitChild))
    return {task.id: _names(task) for task in submitted}


def encode_tasks(tasks: Sequence[NewTask]) -> tuple[str, ByteaArray]:
    """Return the document and payloads that submit() takes."""
    payloads = Payloads()
    documents = [{"n": position, **_new_task(task, payloads)} for position, task in enumerate(tasks)]
    return _to_json(documents).decode(), payloads.items


def lone_task(task: NewTask) -> tuple[object, ...] | None:
    """Return what the query submit_one takes behind the time; None for a task that needs more than that."""
    if task.budget or task.state is not TaskState.PENDING or not (task.result is task.error is None) or task.round > 1:
        return None
    body = canonical(task.user_input, name="user_input")
    return (
        task.id,
        task.name,
        task.agent_id,
        task.queue,
        task.priority,
        task.available_at,
        task.deadline,
        task.schedule,
        task.parent_id,
        body,
        digest(body),
        _search(_names(task), task.user_input, body),
        task.actor,
        task.key,
        _to_json(dict(task.labels)).decode() if task.labels else None,
        TextArray(task.limits) if task.limits else None,
    )


def _run(records: list[Document]) -> Document:
    """Say which parts any of the Commits has, so that the database runs no statement for nothing."""
    parts: set[str] = {
        name for record in records for name in ("steps", "patches", "links", "ordered") if name in record
    }
    for record in records:
        moves = record["lets_go"] or "to_state" in record
        parts.add("moves" if moves else "stays")
        if "request" in record:
            parts.add("requests")
        if "cancel" in record:
            parts.add("cancels")
        # A task that goes from failed to pending loses its outcome; only the database knows where it comes from.
        if record["writes_outcome"] or record.get("to_state") is TaskState.PENDING:
            parts.add("outcomes")
    return {"parts": sorted(parts), "commits": records}


def _commit(position: int, commit: Commit, payloads: Payloads, names: Mapping[str, TaskNames]) -> Document:
    record: Document = {
        "n": position,
        "task_id": commit.task_id,
        "actor": commit.actor,
        "refusable": any(map(_is_refusable, commit.operations)),
        "lets_go": any(isinstance(op, Release) for op in commit.operations),
        "writes_outcome": False,
        "counts_attempt": False,
        "new_round": False,
    }
    match commit.guard:
        case Held(owner, fence, sequence):
            record.update(owner=owner, fence=fence, sequence=sequence)
        case Expect(states=states, revision=revision, version=version, request=request):
            expected = None if states is None else sorted(states)
            record.update(request=request, states=expected, revision=revision, version=version)
    _fold(record, commit.operations, payloads, names)
    if commit.move is not None:
        _move(record, commit.move, payloads, fenced=isinstance(commit.guard, Held))
    return record


def _is_refusable(op: Operation) -> bool:
    return isinstance(op, _REFUSABLE) or (isinstance(op, Rest) and not op.resting)


def _fold(
    record: Document, operations: Sequence[Operation], payloads: Payloads, names: Mapping[str, TaskNames]
) -> None:
    """Bring together what may be written at once; the rest stays in order."""
    steps: dict[tuple[int, str], Document] = {}
    links: dict[str, Document] = {}
    patches: list[Document] = []
    ordered: list[Document] = []
    for op in operations:
        match op:
            case WriteStep(step):
                steps[step.round, step.key] = _step(step, payloads)
            case ApplyPatch(body=body):
                patches.append({"body_at": payloads.add(body), **_fields(op, "body")})
            case LinkArtifact(link):
                links[link.artifact_id] = _fields(link)
            case RequestCancel(reason=reason):
                record.setdefault("cancel", reason)
            case RequireUndo(required, begun):
                record.update(undo=required, undoing=begun)
            case WriteOutcome(result=result, error=error):
                _outcome(record, result, error, payloads)
            case Release() | Move():
                pass  # they have fields of their own in the record
            case ReopenChild():
                ordered.append(_reopening(op, payloads, names))
            case _:
                ordered.append(_ordered(op, payloads))
    parts = {"steps": list(steps.values()), "links": list(links.values()), "patches": patches, "ordered": ordered}
    record.update({name: part for name, part in parts.items() if part})


def _outcome(record: Document, result: JsonValue, error: JsonValue, payloads: Payloads) -> None:
    record.update(
        writes_outcome=True, result=payloads.add_value(result, "result"), error=payloads.add_value(error, "error")
    )


def _move(record: Document, move: Move, payloads: Payloads, *, fenced: bool) -> None:
    record.update(
        to_state=move.to,
        reason=move.reason,
        available_at=move.available_at,
        deadline=move.deadline,
        counts_attempt=move.counts_attempt,
        new_round=move.new_round,
        feedback=move.feedback,
    )
    if fenced and move.to not in KEEPS_LEASE:
        record["lets_go"] = True
    if move.to.is_terminal or move.to is TaskState.REVIEW:
        _outcome(record, move.result, move.error, payloads)
    if move.to is TaskState.WAITING:
        record["waits"] = [_wait(wait) for wait in move.waits]
        record["wake_at"] = min((wait.at for wait in move.waits if isinstance(wait, UntilTime)), default=None)


def _wait(wait: Wait) -> Document:
    match wait:
        case UntilTime(key=key, at=at):
            return {"key": key, "kind": "time", "at": at}
        case UntilEvent(key=key, channel=channel, after=after):
            return {"key": key, "kind": "event", "channel": channel, "after": after}
        case UntilChildren(key=key, children=children):
            return {"key": key, "kind": "children", "children": children}
        case UntilDecided(key=key, approval_id=approval_id):
            return {"key": key, "kind": "decided", "approval_id": approval_id}
        case UntilWoken(key=key):
            return {"key": key, "kind": "woken"}


def _ordered(op: Operation, payloads: Payloads) -> Document:  # noqa: C901, PLR0911, PLR0912 - one case an operation
    match op:
        case WriteEffect(effect):
            return {"op": "write_effect", **_effect(effect, payloads)}
        case SaveCheckpoint(checkpoint):
            return {"op": "save_checkpoint", **_checkpoint(checkpoint, payloads)}
        case RotateCheckpoints(keep=keep, before=before):
            return {"op": "rotate_checkpoints", "keep": keep, "before": before}
        case SetAsideCheckpoint(number=number, why=why):
            return {"op": "set_aside_checkpoint", "number": number, "why": why}
        case SetLimits(account=account, limits=limits):
            return {"op": "set_limits", "account": account, "limits": dict(limits)}
        case Reserve(account=account, step_key=step_key, amounts=amounts):
            return {"op": "reserve", "account": account, "step_key": step_key, "amounts": dict(amounts)}
        case Settle(account=account, step_key=step_key, amounts=amounts):
            return {"op": "settle", "account": account, "step_key": step_key, "amounts": dict(amounts)}
        case SettleStale():
            return {"op": "settle_stale"}
        case OpenApproval(approval):
            return {"op": "open_approval", **_approval(approval, payloads)}
        case Decide(approval_id=approval_id, state=state, by=by, note=note, answer=answer):
            answer_at = payloads.add_value(answer, "answer")
            decision = {"approval_id": approval_id, "state": state, "by": by, "note": note, "answer_at": answer_at}
            return {"op": "decide", **decision}
        case ConsumeApproval():
            return {"op": "consume_approval", **_fields(op)}
        case SubmitChild(task):
            return {"op": "submit_child", **_new_task(task, payloads)}
        case Emit(channel=channel, payload=payload, key=key):
            payload_at = payloads.add(canonical(payload, name="payload"))
            return {"op": "emit", "channel": channel, "key": key, "payload_at": payload_at}
        case InheritKeys(key_form=key_form):
            return {"op": "inherit_keys", "key_form": key_form}
        case Rest(resting):
            return {"op": "rest", "resting": resting}
        case ShareWorker(acquitted):
            return {"op": "share_worker", "acquitted": acquitted}
        case RequireQuiet():
            return {"op": "require_quiet", **_fields(op)}
    raise TypeError(f"{type(op).__name__} is not an operation of a Commit")


def _reopening(op: ReopenChild, payloads: Payloads, names: Mapping[str, TaskNames]) -> Document:
    document = {"op": "reopen_child", **_fields(op, "user_input", "lines")}
    if op.user_input is not SAME_INPUT:
        body = canonical(op.user_input, name="user_input")
        # Without names there is no such child, and the operation is refused.
        found_by = _search(names[op.child_id], op.user_input, body) if op.child_id in names else ""
        document.update(input=payloads.add(body), input_digest=digest(body), search=found_by)
    lines = {(line.round, line.key): line for line in op.lines}  # of two under one key, the last one counts
    document["lines"] = [_step(line, payloads) for line in lines.values()]
    return document


def _fields(record: object, *left_out: str) -> Document:
    return {name: getattr(record, name) for name in type(record).__dataclass_fields__ if name not in left_out}  # type: ignore[attr-defined]


def _step(step: Step, payloads: Payloads) -> Document:
    document = _fields(step)
    document.update(output=payloads.add(step.output), error=payloads.add(step.error))
    return document


def _effect(effect: Effect, payloads: Payloads) -> Document:
    document = _fields(effect, "arguments", "result", "task_id", "updated_at")
    document.update(arguments_at=payloads.add(effect.arguments), result_at=payloads.add(effect.result))
    return document


def _checkpoint(checkpoint: Checkpoint, payloads: Payloads) -> Document:
    document = _fields(checkpoint, "body")
    document.update(body_at=payloads.add(checkpoint.body))
    return document


def _approval(approval: Approval, payloads: Payloads) -> Document:
    document = _fields(approval, "arguments", "answer", "default", "task_id")
    document.update(
        fallback=approval.default,
        arguments_at=payloads.add(approval.arguments_bytes),
        answer_at=payloads.add_value(approval.answer, "answer"),
    )
    return document


def _new_task(task: NewTask, payloads: Payloads) -> Document:
    body = canonical(task.user_input, name="user_input")
    document = _fields(task, "user_input", "result", "error", "budget")
    document.update(
        budget=dict(task.budget) or None,
        labels=dict(task.labels) or None,
        limits=task.limits or None,
        input=payloads.add(body),
        input_digest=digest(body),
        search=_search(_names(task), task.user_input, body),
        result=payloads.add_value(task.result, "result"),
        error=payloads.add_value(task.error, "error"),
    )
    return document


def _names(task: NewTask) -> TaskNames:
    return TaskNames(task.name, task.agent_id, task.key)


def _search(names: TaskNames, user_input: JsonValue, body: bytes) -> str:
    text = user_input if isinstance(user_input, str) else body.decode()
    return search_text(name=names.name, agent_id=names.agent_id, key=names.key, user_input=text)
