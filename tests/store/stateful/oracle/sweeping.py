"""sweep: what time alone made true, in five parts, each of them bounded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.model.approval import ApprovalState
from holdfast.model.operations import UntilDecided
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState
from holdfast.model.worker import QUIET_FOR, Swept, WorkerState, after_death
from tests.store.stateful.oracle.changes import (
    Cause,
    end,
    end_in_joins,
    mark_readiness,
    move,
    settle_affairs,
    take_away,
    touch,
    wake,
)
from tests.store.stateful.oracle.feeding import prune_feed
from tests.store.stateful.oracle.keeping import prune_kept
from tests.store.stateful.oracle.limiting import forget_idle_keys, next_looks, stand_in_lines, sweep_permits
from tests.store.stateful.oracle.scheduling import next_ticks
from tests.store.stateful.oracle.tables import NOT_READY, Tables, TaskRow
from tests.store.stateful.oracle.turning import give_turns

ACTOR = "sweep"


def sweep(tables: Tables, limit: int, now: datetime, boot: timedelta) -> Swept:
    recovered, poisoned = _take_back(tables, limit, now, boot)
    expired = _expire_approvals(tables, limit, now)
    timed = _wake_timers(tables, limit, now)
    failed, undoing = _end_by_deadline(tables, limit, now)
    due = _make_due(tables, limit, now)
    settled = sweep_permits(tables, limit, now)
    give_turns(tables, tables.queues)
    stand_in_lines(tables, now)
    forget_idle_keys(tables, now)
    pruned = prune_kept(tables, limit, now)
    prune_feed(tables, now)
    parts = (len(recovered) + len(poisoned), len(expired), len(timed), len(failed) + len(undoing), due, settled)
    return Swept(
        recovered=tuple(recovered),
        poisoned=tuple(poisoned),
        woken=(*timed, *undoing),
        due=due,
        failed=tuple(failed),
        expired=tuple(expired),
        pruned=pruned,
        more=limit in parts,
        next_due=min([*_due_times(tables), *next_looks(tables, now)], default=None),
        next_tick=min(next_ticks(tables), default=None),
    )


def _take_back(tables: Tables, limit: int, now: datetime, boot: timedelta) -> tuple[list[str], list[str]]:
    for worker_id, row in list(tables.workers.items()):
        if row.worker.state is not WorkerState.DEAD and row.expires <= boot:
            tables.workers[worker_id] = replace(row, worker=replace(row.worker, state=WorkerState.DEAD))
    dead = {row.worker.id for row in tables.workers.values() if row.worker.state is WorkerState.DEAD}
    lost = sorted(row.task.id for row in tables.tasks.values() if row.task.owner in dead)[:limit]
    poisoned = [task_id for task_id in lost if _take_one_back(tables, task_id, now)]
    return [task_id for task_id in lost if task_id not in poisoned], poisoned


def _take_one_back(tables: Tables, task_id: str, now: datetime) -> bool:
    """Take the task from its dead worker; say whether it is poison."""
    row = tables.tasks[task_id]
    take_away(tables, task_id)
    state, deaths, lone_deaths = after_death(
        row.task.state,
        deaths=row.task.deaths,
        lone_deaths=row.task.lone_deaths,
        alone=row.alone,
        resting=row.task.resting and _quiet_for(tables, row.task) >= timedelta(seconds=QUIET_FOR),
    )
    tables.change_task(task_id, deaths=deaths, lone_deaths=lone_deaths)
    if state is TaskState.FAILED:
        move(tables, task_id, state, Cause("poison", ACTOR, now))
        message = f"{lone_deaths} workers died while running only this task"
        end(tables, task_id, ACTOR, now, result=None, error={"type": "Poison", "message": message})
    elif state is not row.task.state:
        move(tables, task_id, state, Cause("its worker died", ACTOR, now))
        tables.change_task(task_id, available_at=now)
    mark_readiness(tables, task_id, now)
    touch(tables, task_id, now)
    return state is TaskState.FAILED


def _quiet_for(tables: Tables, task: Task) -> timedelta:
    assert task.owner is not None
    assert task.updated_at is not None
    return tables.workers[task.owner].worker.seen_at - task.updated_at


def _expire_approvals(tables: Tables, limit: int, now: datetime) -> list[str]:
    overdue = sorted(
        (approval.expires_at, approval.id)
        for approval in tables.approvals.values()
        if approval.state is ApprovalState.OPEN and approval.expires_at is not None and approval.expires_at <= now
    )[:limit]
    for _, approval_id in overdue:
        approval = replace(tables.approvals[approval_id], state=ApprovalState.EXPIRED, decided_at=now)
        tables.approvals[approval_id] = approval
        waits = tables.waits.get(approval.task_id, ())
        if any(isinstance(wait, UntilDecided) and wait.approval_id == approval_id for wait in waits):
            wake(tables, approval.task_id, Cause("decided", ACTOR, now))
            touch(tables, approval.task_id, now)
    return [approval_id for _, approval_id in overdue]


def _wake_timers(tables: Tables, limit: int, now: datetime) -> list[str]:
    timers = [(tables.wake_at(task_id), task_id) for task_id in tables.waits]
    due = sorted((at, task_id) for at, task_id in timers if at is not None and at <= now)[:limit]
    for _, task_id in due:
        wake(tables, task_id, Cause("time came", ACTOR, now))
        touch(tables, task_id, now)
    return [task_id for _, task_id in due]


def _end_by_deadline(tables: Tables, limit: int, now: datetime) -> tuple[list[str], list[str]]:
    """Fail what is late and not held; wake instead what must undo first. Returns (failed, woken).

    All of them at once: a parent that is late itself is not woken by the end of its child before it ends as well.
    """
    late = sorted(
        (row.task.deadline, row.task.id)
        for row in tables.tasks.values()
        if row.task.deadline is not None and row.task.deadline <= now and _has_running_deadline(row)
    )[:limit]
    woken = [task_id for _, task_id in late if tables.task(task_id).must_undo]
    failed = [task_id for _, task_id in late if task_id not in woken]
    cause = Cause("deadline passed", ACTOR, now)
    for task_id in woken:
        wake(tables, task_id, cause)
        touch(tables, task_id, now)
    for task_id in failed:
        deadline = tables.task(task_id).deadline
        assert deadline is not None
        late_by = (now - deadline) // timedelta(milliseconds=1)
        message = (
            f"the deadline of task {task_id} ({deadline.isoformat()}) passed "
            f"{late_by // 1000}.{late_by % 1000:03} s ago, while nobody worked on it"
        )
        move(tables, task_id, TaskState.FAILED, cause)
        settle_affairs(
            tables, task_id, now, result=None, error={"type": "holdfast.DeadlineExceeded", "message": message}
        )
        touch(tables, task_id, now)
    for task_id in failed:
        end_in_joins(tables, task_id, ACTOR, now)
    return failed, woken


def _has_running_deadline(row: TaskRow) -> bool:
    task = row.task
    if task.owner is not None or row.undoing:
        return False
    if task.must_undo:
        return task.state is TaskState.WAITING
    return task.state in {TaskState.PENDING, TaskState.WAITING, TaskState.REVIEW}


def _make_due(tables: Tables, limit: int, now: datetime) -> int:
    due = sorted((at, task_id) for at, task_id in _delayed(tables) if at <= now)[:limit]
    for _, task_id in due:
        mark_readiness(tables, task_id, now)
    return len(due)


def _delayed(tables: Tables) -> Iterator[tuple[datetime, str]]:
    for row in tables.tasks.values():
        if row.task.state is TaskState.PENDING and row.ready == NOT_READY and row.task.owner is None:
            assert row.task.available_at is not None
            yield row.task.available_at, row.task.id


def _due_times(tables: Tables) -> Iterator[datetime]:
    """Yield every moment at which a sweep will have something to do, apart from dead workers."""
    yield from (at for at, _ in _delayed(tables))
    yield from (at for at in map(tables.wake_at, tables.waits) if at is not None)
    for row in tables.tasks.values():
        if row.task.deadline is not None and _has_running_deadline(row):
            yield row.task.deadline
    for approval in tables.approvals.values():
        if approval.state is ApprovalState.OPEN and approval.expires_at is not None:
            yield approval.expires_at
