"""What time alone makes true: dead workers, timers, deadlines, delays, expiries. One bounded batch at a time."""

from __future__ import annotations

from contextlib import suppress

from holdfast.model.transitions import TaskState
from holdfast.model.worker import QUIET_FOR, Swept, WorkerState, after_death
from holdfast.store.sqlite import lifecycle, limits, lines, permits, turns
from holdfast.store.sqlite.feed import prune_feed
from holdfast.store.sqlite.lease import is_expired
from holdfast.store.sqlite.limit_keys import Keys
from holdfast.store.sqlite.retention import prune_kept
from holdfast.store.sqlite.rows import TaskRow, moment, moment_or_none
from holdfast.store.sqlite.write_transaction import WriteTransaction

ACTOR = "sweep"


def sweep(tx: WriteTransaction, limit: int) -> Swept:
    """Sweep each kind once. Deadlines come after timers: a task that could go on in time was woken first."""
    _declare_dead(tx, tx.stalled_until)
    recovered, poisoned = _take_back(tx, limit)
    expired = _expire_approvals(tx, limit)
    woken = _wake_timers(tx, limit)
    failed, woken_to_undo = _fail_late(tx, limit)
    due = _make_ready(tx, limit)
    settled = permits.sweep_permits(tx, limit)
    with suppress(turns.TooMany):  # a claim does it
        turns.give_turns(tx, most=turns.MOST_HERE)
    lines.follow_clock(tx)
    tx.hints.update(f"queue:{queue}" for queue in lines.let_out(tx, Keys(tx)).values())
    limits.sweep_keys(tx)
    pruned = prune_kept(tx, limit)
    prune_feed(tx)
    counts = (len(recovered) + len(poisoned), len(expired), len(woken), len(failed) + len(woken_to_undo), due, settled)
    ((next_due, next_tick),) = tx.all("next_due")
    return Swept(
        recovered=tuple(recovered),
        poisoned=tuple(poisoned),
        woken=(*woken, *woken_to_undo),
        due=due,
        failed=tuple(failed),
        expired=tuple(expired),
        pruned=pruned,
        more=limit in counts or lines.has_more(tx),
        next_due=moment_or_none(next_due),
        next_tick=moment_or_none(next_tick),
    )


_QUIET_FOR = round(QUIET_FOR * 1_000_000)


def _declare_dead(tx: WriteTransaction, stalled_until: int | None) -> None:
    for worker_id, boot_id, expires, lease in tx.all("workers_not_dead"):
        # After a stall every lease may have lapsed at once, though no worker died: each gets one more lease to show up.
        spared = stalled_until is not None and boot_id == tx.boot_id and tx.boot < stalled_until + lease
        if is_expired(tx, boot_id, expires, lease) and not spared:
            tx.run("set_worker_state", worker_id, WorkerState.DEAD)


def _take_back(tx: WriteTransaction, limit: int) -> tuple[list[str], list[str]]:
    recovered, poisoned, awaited = [], [], []
    held = tx.all("held_by_the_dead", limit)
    if len(held) < limit:
        tx.run("clear_the_dead")
    for task_id, seen_at in held:
        row = _row(tx, task_id)
        rested = seen_at - row.updated_at if row.resting == row.fence else 0
        with lifecycle.changing(tx, row):
            state, row.deaths, row.lone_deaths = after_death(
                row.state,
                deaths=row.deaths,
                lone_deaths=row.lone_deaths,
                alone=bool(row.alone),
                resting=rested >= _QUIET_FOR,
            )
            row.fence, row.sequence = row.fence + 1, 0
            lifecycle.give_back(tx, row)
            if state is TaskState.FAILED:
                message = f"{row.lone_deaths} workers died while running only this task"
                if _fail(tx, row, "poison", "Poison", message):
                    awaited.append(task_id)
                poisoned.append(task_id)
                continue
            if state is not row.state:
                lifecycle.requeue(tx, row, reason="its worker died", actor=ACTOR)
            recovered.append(task_id)
    for task_id in awaited:
        lifecycle.notify_parents(tx, task_id, actor=ACTOR)
    return recovered, poisoned


def _expire_approvals(tx: WriteTransaction, limit: int) -> list[str]:
    expired = []
    for task_id, approval_id in tx.all("due_approvals", tx.now, limit):
        tx.run("expire_approval", task_id, approval_id, tx.now)
        tx.hints.add(f"task:{task_id}")
        if tx.first("waits_for_approval", task_id, approval_id) is not None:
            lifecycle.wake(tx, task_id, reason=lifecycle.DECIDED, actor=ACTOR)
        expired.append(approval_id)
    return expired


def _wake_timers(tx: WriteTransaction, limit: int) -> list[str]:
    due = [task_id for (task_id,) in tx.all("due_timers", tx.now, limit)]
    for task_id in due:
        lifecycle.wake(tx, task_id, reason=lifecycle.TIME_CAME, actor=ACTOR)
    return due


def _fail_late(tx: WriteTransaction, limit: int) -> tuple[list[str], list[str]]:
    """Fail those whose deadline passed, and wake those that must undo.

    All of them at once, before any waiting task is woken. A parent and its child may be late together, and the end of
    the child must not wake a parent that is failing too.
    """
    late = [_row(tx, task_id) for (task_id,) in tx.all("passed_deadlines", tx.now, limit)]
    failed, woken, awaited = [], [], []
    for row in late:
        if row.must_undo:
            with lifecycle.changing(tx, row):
                lifecycle.requeue(tx, row, reason="deadline passed", actor=ACTOR)
            woken.append(row.id)
        else:
            deadline = row.deadline or 0
            late_by = (tx.now - deadline) // 1000
            message = (
                f"the deadline of task {row.id} ({moment(deadline).isoformat()}) passed "
                f"{late_by // 1000}.{late_by % 1000:03} s ago, while nobody worked on it"
            )
            with lifecycle.changing(tx, row):
                if _fail(tx, row, "deadline passed", "holdfast.DeadlineExceeded", message):
                    awaited.append(row.id)
            failed.append(row.id)
    for task_id in awaited:
        lifecycle.notify_parents(tx, task_id, actor=ACTOR)
    return failed, woken


def _fail(tx: WriteTransaction, row: TaskRow, reason: str, error_type: str, message: str) -> bool:
    awaited = lifecycle.end(tx, row, TaskState.FAILED, reason=reason, actor=ACTOR)
    lifecycle.write_outcome(tx, row.id, None, {"type": error_type, "message": message})
    return awaited


def _make_ready(tx: WriteTransaction, limit: int) -> int:
    due = [task_id for task_id, _ in tx.all("due_delayed", tx.now, limit)]
    for task_id in due:
        row = _row(tx, task_id)
        row.ready = lifecycle.readiness(row, tx.now)
        tx.save(row)
    return len(due)


def _row(tx: WriteTransaction, task_id: str) -> TaskRow:
    row = tx.task(task_id)
    if row is None:  # it was found by a query of this very transaction
        raise LookupError(task_id)
    return row
