"""The changes that several verbs share: becoming ready, moving, waking, ending, losing a lease."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from holdfast.model.approval import ApprovalState
from holdfast.model.records import Account
from holdfast.model.task import JsonValue
from holdfast.model.transitions import TaskState, Transition, check_move
from holdfast.model.worker import ALONE_AFTER
from tests.store.stateful.oracle.tables import NOT_READY, READY, READY_ALONE, ReservationKey, Tables


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a task moves, who moves it, and when."""

    reason: str
    actor: str
    at: datetime


def touch(tables: Tables, task_id: str, now: datetime) -> None:
    """Count one change of the task's record."""
    tables.change_task(task_id, revision=tables.task(task_id).revision + 1, updated_at=now)


def mark_readiness(tables: Tables, task_id: str, now: datetime) -> None:
    """Decide again whether the task can be claimed, and whether only alone."""
    task = tables.task(task_id)
    assert task.available_at is not None
    claimable = task.state is TaskState.REVIEW or (task.state is TaskState.PENDING and task.available_at <= now)
    if not claimable or task.owner is not None:
        ready = NOT_READY
    else:
        ready = READY_ALONE if task.deaths >= ALONE_AFTER else READY
    if tables.tasks[task_id].ready == NOT_READY:
        tables.change_row(task_id, turn=None)
    tables.change_row(task_id, ready=ready)
    if task.limits and task.owner is None and not task.state.is_terminal and ready:
        tables.change_task(task_id, waits_for=task.limits[0])


def move(tables: Tables, task_id: str, to: TaskState, cause: Cause, *, by_parent: bool = False) -> None:
    """Change the state and log it."""
    task = tables.task(task_id)
    check_move(task_id, task.state, to, by_parent=by_parent)
    tables.change_task(task_id, state=to)
    log_transition(tables, task_id, task.state, cause)
    if task.state is TaskState.WAITING:
        stop_waiting(tables, task_id)


def log_transition(tables: Tables, task_id: str, source: TaskState | None, cause: Cause) -> None:
    """Append a Transition to the state the task has now."""
    task = tables.task(task_id)
    earlier = tables.transitions.get(task_id, ())
    transition = Transition(
        task_id=task_id,
        number=len(earlier) + 1,
        from_state=source,
        to_state=task.state,
        reason=cause.reason,
        actor=cause.actor,
        fence=task.fence,
        at=cause.at,
    )
    tables.transitions[task_id] = (*earlier, transition)


def wake(tables: Tables, task_id: str, cause: Cause) -> None:
    """Move a waiting task on to pending. The caller counts the change."""
    move(tables, task_id, TaskState.PENDING, cause)
    tables.change_task(task_id, available_at=cause.at)
    mark_readiness(tables, task_id, cause.at)


def stop_waiting(tables: Tables, task_id: str) -> None:
    """Forget what the task waits for."""
    tables.waits.pop(task_id, None)
    for parent_id, key in list(tables.joins):
        if parent_id == task_id:
            del tables.joins[parent_id, key]


def let_go(tables: Tables, task_id: str) -> None:
    """End the lease under its fence: a re-sent Commit must still find its number."""
    tables.change_task(task_id, owner=None, resting=False)
    tables.change_row(task_id, alone=False, claim=0)


def take_away(tables: Tables, task_id: str) -> None:
    """End the lease and its fence: nothing the owner still sends is written."""
    let_go(tables, task_id)
    tables.change_task(task_id, fence=tables.task(task_id).fence + 1, sequence=0)


def end(tables: Tables, task_id: str, actor: str, now: datetime, *, result: JsonValue, error: JsonValue) -> None:
    """Do what belongs to the end of a task that has just moved to a terminal state."""
    settle_affairs(tables, task_id, now, result=result, error=error)
    end_in_joins(tables, task_id, actor, now)


def settle_affairs(tables: Tables, task_id: str, now: datetime, *, result: JsonValue, error: JsonValue) -> None:
    """Do that part of an ending which concerns no other task: the outcome, open questions, reservations."""
    tables.change_task(task_id, finished_at=now, result=result, error=error)
    tables.change_row(task_id, ready=NOT_READY)
    for approval in list(tables.approvals.values()):
        if approval.task_id == task_id and approval.state is ApprovalState.OPEN:
            tables.approvals[approval.id] = replace(approval, state=ApprovalState.CLOSED, decided_at=now)
    count_as_spent(tables, [key for key in tables.reservations if key[0] == task_id])


def count_as_spent(tables: Tables, keys: list[ReservationKey]) -> None:
    """Turn these reservations into spending: the real use is unknown."""
    for key in keys:
        _, account, meter, _, _ = key
        amount = tables.reservations.pop(key)
        before = tables.accounts[account, meter]
        tables.accounts[account, meter] = replace(
            before, reserved=before.reserved - amount, spent=before.spent + amount
        )


def end_in_joins(tables: Tables, child_id: str, actor: str, now: datetime) -> None:
    """Take the child out of every join; wake each parent whose join is thereby complete."""
    for parent_id, key in list(tables.joins):
        children = tables.joins.get((parent_id, key), frozenset())
        if child_id not in children:
            continue
        tables.joins[parent_id, key] = children - {child_id}
        if not children - {child_id}:
            wake(tables, parent_id, Cause("children ended", actor, now))
            touch(tables, parent_id, now)


def account_of(tables: Tables, account: str, meter: str) -> Account:
    """Return the meter, opened without a limit if it is new."""
    unlimited = Account(account=account, meter=meter, limit=None, spent=0, reserved=0)
    return tables.accounts.setdefault((account, meter), unlimited)
