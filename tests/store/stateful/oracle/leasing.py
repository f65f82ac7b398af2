"""register, heartbeat, drain, retire, claim, acquire, owned."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.model.errors import Conflict, LeaseHeld, NoPlace, NotFound, WorkerDead
from holdfast.model.pause import paused_message
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim, Claimed, Heartbeat, Lease, NewWorker, Worker, WorkerState
from tests.store.stateful.oracle.changes import Cause, log_transition, mark_readiness, move, take_away, touch
from tests.store.stateful.oracle.limiting import begin, full_key, stand_in_lines
from tests.store.stateful.oracle.pausing import is_paused, pause_on
from tests.store.stateful.oracle.queueing import no_place
from tests.store.stateful.oracle.tables import NOT_READY, READY, READY_ALONE, Tables, TaskRow, WorkerRow
from tests.store.stateful.oracle.turning import give_turns, go_on, in_order, place, waits_for_turn


def register(tables: Tables, new: NewWorker, now: datetime, boot: timedelta) -> Worker:
    if new.id in tables.workers:
        return _living(tables, new.id).worker
    worker = Worker(
        id=new.id,
        label=new.label,
        lease=new.lease,
        state=WorkerState.LIVE,
        claims=0,
        details=dict(new.details),
        started_at=now,
        seen_at=now,
    )
    tables.workers[new.id] = WorkerRow(worker=worker, expires=boot + timedelta(seconds=new.lease))
    return worker


def heartbeat(tables: Tables, worker_id: str, now: datetime, boot: timedelta) -> Heartbeat:
    row = _living(tables, worker_id)
    worker = replace(row.worker, seen_at=now)
    tables.workers[worker_id] = WorkerRow(worker=worker, expires=boot + timedelta(seconds=worker.lease))
    unwanted = (held.task.id for held in _held_by(tables, worker_id) if held.task.cancel_requested is not None)
    suspects = any(
        task.ready == READY_ALONE and task.task.id not in tables.pauses and not waits_for_turn(tables, task)
        for task in tables.tasks.values()
    )
    cancelled = frozenset(unwanted)
    paused = frozenset(held.task.id for held in _held_by(tables, worker_id)) & tables.pauses.keys()
    return Heartbeat(cancel_requested=cancelled, suspects=suspects, paused=paused - cancelled)


def drain(tables: Tables, worker_id: str) -> None:
    _set_state(tables, _living(tables, worker_id), WorkerState.DRAINING)


def retire(tables: Tables, worker_id: str, now: datetime) -> list[str]:
    row = tables.workers.get(worker_id)
    if row is None or row.worker.state is WorkerState.DEAD:
        return []
    _set_state(tables, row, WorkerState.DEAD)
    handed_back = [held.task.id for held in _held_by(tables, worker_id)]
    for task_id in handed_back:
        take_away(tables, task_id)
        if tables.task(task_id).state is TaskState.RUNNING:
            move(tables, task_id, TaskState.PENDING, Cause("handed back", worker_id, now))
            tables.change_task(task_id, available_at=now)
        mark_readiness(tables, task_id, now)
        touch(tables, task_id, now)
    return sorted(handed_back)


def claim(tables: Tables, asked: Claim, now: datetime, boot: timedelta) -> list[Claimed]:
    row = _living(tables, asked.worker_id)
    if asked.number <= row.worker.claims:
        again = [held for held in _held_by(tables, asked.worker_id) if held.claim == asked.number]
        return [Claimed(task=held.task, fresh=False, alone=held.alone) for held in sorted(again, key=place)]
    if row.worker.state is WorkerState.DRAINING or row.expires <= boot:
        return []
    wanted_readiness, limit = (READY_ALONE, min(asked.limit, 1)) if asked.alone else (READY, asked.limit)
    if limit > 0:
        give_turns(tables, asked.queues)
    candidates = [
        candidate
        for candidate in tables.tasks.values()
        if candidate.ready == wanted_readiness
        and candidate.task.queue in asked.queues
        and candidate.task.name in asked.names
        and (candidate.task.deadline is None or candidate.task.deadline > now or candidate.task.must_undo)
        and candidate.task.key_form <= asked.key_form
        and not is_paused(tables, candidate.task)
    ]
    granted: list[Claimed] = []
    while candidates and len(granted) < limit:
        candidate = in_order(candidates)[0]
        candidates.remove(candidate)
        if _why_not(tables, candidate.task, now) is None:
            _set_key_form(tables, candidate.task, asked.key_form)
            chosen = tables.tasks[candidate.task.id]
            begin(tables, chosen.task, now)
            granted.append(_grant(tables, chosen, asked.worker_id, asked.number, now, alone=asked.alone))
            if not asked.alone:
                go_on(tables, candidate.task.id)
    granted.sort(key=lambda claimed: place(tables.tasks[claimed.task.id]))
    if granted:
        tables.workers[asked.worker_id] = replace(row, worker=replace(row.worker, claims=asked.number))
    stand_in_lines(tables, now)
    return granted


def acquire(tables: Tables, task_id: str, worker_id: str, now: datetime, boot: timedelta, *, key_form: int) -> Claimed:
    if _living(tables, worker_id).expires <= boot:
        raise WorkerDead(worker_id)
    row = tables.tasks.get(task_id)
    if row is None:
        raise NotFound("task", task_id)
    if row.task.owner == worker_id:
        return Claimed(task=row.task, fresh=False, alone=row.alone)
    if row.task.owner is not None:
        raise LeaseHeld(task_id, row.task.owner)
    if row.task.state.is_terminal:
        raise Conflict(f"task {task_id} has ended")
    if (pause := pause_on(tables, row.task)) is not None:
        raise Conflict(paused_message(task_id, pause.subject))
    if row.task.key_form > key_form:
        raise Conflict(f"task {task_id} has newer keys; upgrade this worker")
    if (refused := _why_not(tables, row.task, now)) is not None:
        raise refused
    _set_key_form(tables, row.task, key_form)
    begin(tables, row.task, now)
    return _grant(tables, tables.tasks[task_id], worker_id, 0, now, alone=False, moves=False)


def _why_not(tables: Tables, task: Task, now: datetime) -> NoPlace | None:
    """Return what the task has no place in."""
    if (missing := no_place(tables, task)) is not None:
        return missing
    full = full_key(tables, task.limits, now)
    return None if full is None else NoPlace(task.id, key=full)


def _set_key_form(tables: Tables, task: Task, key_form: int) -> None:
    tables.change_task(task.id, key_form=task.key_form or key_form)


def has_suspect(tables: Tables, asked: Claim) -> bool:
    return any(
        row.ready == READY_ALONE
        and row.task.queue in asked.queues
        and row.task.name in asked.names
        and row.task.key_form <= asked.key_form
        and not is_paused(tables, row.task)
        and no_place(tables, row.task) is None
        and not waits_for_turn(tables, row)
        for row in tables.tasks.values()
    )


def owned(tables: Tables, worker_id: str) -> list[Lease]:
    held = sorted(_held_by(tables, worker_id), key=lambda row: row.task.id)
    return [Lease(task_id=row.task.id, owner=worker_id, fence=row.task.fence, claim=row.claim) for row in held]


def _grant(
    tables: Tables, row: TaskRow, worker_id: str, number: int, now: datetime, *, alone: bool, moves: bool = True
) -> Claimed:
    task = row.task
    fresh = task.revision == 1
    tables.change_row(task.id, ready=NOT_READY, claim=number, alone=alone)
    tables.change_task(task.id, owner=worker_id, fence=task.fence + 1, sequence=0, started_at=task.started_at or now)
    if moves and task.state is TaskState.PENDING:
        tables.change_task(task.id, state=TaskState.RUNNING)
        log_transition(tables, task.id, TaskState.PENDING, Cause("claimed", worker_id, now))
    touch(tables, task.id, now)
    return Claimed(task=tables.task(task.id), fresh=fresh, alone=alone)


def _living(tables: Tables, worker_id: str) -> WorkerRow:
    row = tables.workers.get(worker_id)
    if row is None or row.worker.state is WorkerState.DEAD:
        raise WorkerDead(worker_id)
    return row


def _set_state(tables: Tables, row: WorkerRow, state: WorkerState) -> None:
    tables.workers[row.worker.id] = replace(row, worker=replace(row.worker, state=state))


def _held_by(tables: Tables, worker_id: str) -> list[TaskRow]:
    return [row for row in tables.tasks.values() if row.task.owner == worker_id]
