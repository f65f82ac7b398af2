"""commit: one Commit after the other, each of them all or nothing."""

from __future__ import annotations

from datetime import datetime

from holdfast.model.approval import ApprovalState
from holdfast.model.commit import Commit, Held, Refusal, Verdict, judge
from holdfast.model.errors import BudgetExceeded, NoPlace, QueueFull
from holdfast.model.operations import (
    Move,
    Release,
    RequestCancel,
    SubmitChild,
    UntilChildren,
    UntilDecided,
    UntilEvent,
    UntilTime,
    UntilWoken,
    Wait,
)
from holdfast.model.task import Submitted
from holdfast.model.transitions import TaskState
from tests.store.stateful.oracle.changes import Cause, end, let_go, mark_readiness, move, touch, wake
from tests.store.stateful.oracle.operations import Refused, apply
from tests.store.stateful.oracle.submitting import holder_of
from tests.store.stateful.oracle.tables import NOT_READY, Tables


def commit_one(tables: Tables, commit: Commit, now: datetime) -> tuple[Tables, Verdict]:
    """Return how everything stands after the Commit, and what became of it."""
    row = tables.tasks.get(commit.task_id)
    if _is_duplicate(tables, commit):
        return tables, _verdict(tables, commit, duplicate=True, children=_children_of(tables, commit))
    refused = judge(row.task if row else None, commit)
    if refused is not None:
        return tables, _verdict(tables, commit, refusal=refused[0], detail=refused[1])
    changed = tables.copy()
    children: list[Submitted] = []
    try:
        for operation in commit.operations:
            if not isinstance(operation, Move | Release):
                child = apply(changed, commit, operation, now, rested=row is not None and row.task.resting)
                children += [child] if child else []
    except Refused as refusal:
        return tables, _verdict(
            tables,
            commit,
            refusal=refusal.refusal,
            detail=refusal.detail,
            budget=refusal.budget,
            full=refusal.full,
            no_place=refusal.no_place,
        )
    _finish(changed, commit, now)
    return changed, _verdict(changed, commit, children=tuple(children))


def _children_of(tables: Tables, commit: Commit) -> tuple[Submitted, ...]:
    wanted = [operation.task for operation in commit.operations if isinstance(operation, SubmitChild)]
    holders = [holder_of(tables, task) for task in wanted]
    return tuple(Submitted(task_id=holder.task.id, created=False) for holder in holders if holder is not None)


def _is_duplicate(tables: Tables, commit: Commit) -> bool:
    if commit.task_id not in tables.tasks:
        return False
    if isinstance(commit.guard, Held):
        task = tables.task(commit.task_id)
        return task.fence == commit.guard.fence and commit.guard.sequence <= task.sequence
    return (commit.task_id, commit.guard.request) in tables.requests


def _finish(tables: Tables, commit: Commit, now: datetime) -> None:
    """Move, give the lease back, wake the task where what it waits for is already true, and count the Commit."""
    task_id = commit.task_id
    if commit.move is not None:
        _apply_move(tables, commit, commit.move, now)
    if any(isinstance(operation, Release) for operation in commit.operations):
        let_go(tables, task_id)
        mark_readiness(tables, task_id, now)
    if any(isinstance(operation, RequestCancel) for operation in commit.operations):
        _hasten(tables, task_id, now)
    reason = _reason_to_wake(tables, task_id, now)
    is_waiting = commit.move is not None and commit.move.to is TaskState.WAITING
    is_unwanted = tables.task(task_id).cancel_requested is not None and not tables.tasks[task_id].undoing
    if is_waiting and is_unwanted:
        reason = "cancel requested"
    if reason is not None:
        wake(tables, task_id, Cause(reason, commit.actor, now))
    if isinstance(commit.guard, Held):
        tables.change_task(task_id, sequence=commit.guard.sequence)
    else:
        tables.requests[task_id, commit.guard.request] = None
    touch(tables, task_id, now)


def _hasten(tables: Tables, task_id: str, now: datetime) -> None:
    task = tables.task(task_id)
    assert task.available_at is not None
    if task.state is TaskState.PENDING and task.cancel_requested is not None and task.available_at > now:
        tables.change_task(task_id, available_at=now)
        mark_readiness(tables, task_id, now)


def _apply_move(tables: Tables, commit: Commit, asked: Move, now: datetime) -> None:
    task_id = commit.task_id
    task = tables.task(task_id)
    if isinstance(commit.guard, Held) and asked.to not in {TaskState.RUNNING, TaskState.REVIEW}:
        let_go(tables, task_id)
    move(tables, task_id, asked.to, Cause(asked.reason, commit.actor, now))
    if asked.counts_attempt:
        tables.change_task(task_id, attempts=task.attempts + 1)
    if asked.new_round:
        tables.change_task(task_id, round=task.round + 1, deaths=0, lone_deaths=0)
    if asked.feedback is not None:
        tables.change_task(task_id, feedback=asked.feedback)
    if asked.to is TaskState.PENDING:
        if task.state is TaskState.FAILED:
            tables.change_task(task_id, finished_at=None, result=None, error=None, cancel_requested=None)
            tables.change_row(task_id, undoing=False)
        is_cancelled = tables.task(task_id).cancel_requested is not None
        available_at = now if is_cancelled else asked.available_at or now
        tables.change_task(task_id, available_at=available_at, deadline=asked.deadline or task.deadline)
    elif asked.to is TaskState.REVIEW:
        tables.change_task(task_id, result=asked.result, error=asked.error)
    elif asked.to is TaskState.WAITING:
        _wait(tables, task_id, asked.waits)
    mark_readiness(tables, task_id, now)
    if asked.to.is_terminal:
        end(tables, task_id, commit.actor, now, result=asked.result, error=asked.error)


def _wait(tables: Tables, task_id: str, waits: tuple[Wait, ...]) -> None:
    tables.waits[task_id] = waits
    tables.change_row(task_id, ready=NOT_READY)
    for wait in waits:
        if isinstance(wait, UntilChildren):
            open_children = (
                child for child in wait.children if child in tables.tasks and not _has_ended(tables, child)
            )
            tables.joins[task_id, wait.key] = frozenset(open_children)


def _has_ended(tables: Tables, task_id: str) -> bool:
    return tables.task(task_id).state.is_terminal


def _reason_to_wake(tables: Tables, task_id: str, now: datetime) -> str | None:
    """Name the first of the task's waits that holds, in the order in which causes are reported."""
    if tables.task(task_id).state is not TaskState.WAITING:
        return None
    reasons = {_reason_if_true(tables, task_id, wait, now) for wait in tables.waits.get(task_id, ())}
    return next((reason for reason in ("time came", "event", "children ended", "decided") if reason in reasons), None)


def _reason_if_true(tables: Tables, task_id: str, wait: Wait, now: datetime) -> str | None:
    match wait:
        case UntilTime(at=at):
            return "time came" if at <= now else None
        case UntilEvent(channel=channel, after=after):
            return "event" if any(event.number > after for event in tables.events.get(channel, ())) else None
        case UntilChildren(key=key):
            return None if tables.joins[task_id, key] else "children ended"
        case UntilDecided(approval_id=approval_id):
            approval = tables.approvals.get(approval_id)
            return "decided" if approval is not None and approval.state is not ApprovalState.OPEN else None
        case UntilWoken():
            return None


def _verdict(
    tables: Tables,
    commit: Commit,
    *,
    refusal: Refusal | None = None,
    detail: str = "",
    duplicate: bool = False,
    children: tuple[Submitted, ...] = (),
    budget: BudgetExceeded | None = None,
    full: QueueFull | None = None,
    no_place: NoPlace | None = None,
) -> Verdict:
    if commit.task_id not in tables.tasks:
        return Verdict(task_id=commit.task_id, refusal=refusal, detail=detail)
    task = tables.task(commit.task_id)
    return Verdict(
        task_id=task.id,
        refusal=refusal,
        detail=detail,
        duplicate=duplicate,
        state=task.state,
        fence=task.fence,
        sequence=task.sequence,
        revision=task.revision,
        version=task.version,
        owner=task.owner,
        cancel_requested=task.cancel_requested,
        paused=task.id in tables.pauses,
        children=children,
        budget=budget,
        full=full,
        no_place=no_place,
    )
