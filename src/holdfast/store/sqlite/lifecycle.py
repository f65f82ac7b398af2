"""What happens to a task row: moving, waking, ending, giving back a lease. Used by commits, claims and sweeps alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from holdfast.model.operations import UntilChildren, UntilDecided, UntilEvent, UntilTime, UntilWoken, Wait
from holdfast.model.task import JsonValue
from holdfast.model.transitions import TaskState
from holdfast.model.worker import ALONE_AFTER
from holdfast.store.records import payload_or_none
from holdfast.store.sqlite.rows import TaskRow, micros, stored_rank
from holdfast.store.sqlite.write_transaction import WriteTransaction

NO_FENCE_BOUND = 1 << 62
CANCEL_REQUESTED = "cancel requested"
TIME_CAME, EVENT, CHILDREN_ENDED, DECIDED = "time came", "event", "children ended", "decided"
_WAKE_REASONS = {1: TIME_CAME, 2: EVENT, 3: CHILDREN_ENDED, 4: DECIDED}
"""By the numbers that the query wait_that_holds gives them."""


@contextmanager
def changing(tx: WriteTransaction, row: TaskRow) -> Iterator[TaskRow]:
    """Let the block change the row, count one revision, and write what changed."""
    yield row
    row.revision += 1
    row.updated_at = tx.now
    tx.save(row)


def readiness(row: TaskRow, now: int) -> int:
    """Decide who may claim it: 0 no worker, 1 any worker, 2 only a worker that runs nothing else."""
    if row.owner is not None or row.state not in {TaskState.PENDING, TaskState.REVIEW}:
        return 0
    if row.state is TaskState.PENDING and row.available_at > now:
        return 0
    return 2 if row.deaths >= ALONE_AFTER else 1


def take(tx: WriteTransaction, row: TaskRow, owner: str, *, key_form: int) -> None:
    """Lease the task to a worker: a new fence, under which Commits count from 1. The query lease_task does the same."""
    row.owner = owner
    row.fence, row.sequence = row.fence + 1, 0
    row.ready = 0
    row.key_form = row.key_form or key_form
    if row.started_at is None:
        row.started_at = tx.now


def give_back(tx: WriteTransaction, row: TaskRow) -> None:
    """End the lease.

    The fence stays, so that the Commit that did this is recognised when it is sent again; without an owner no other
    Commit passes under it, and the next claim raises it.
    """
    row.owner, row.claim, row.alone = None, 0, 0
    row.ready = readiness(row, tx.now)


def move(tx: WriteTransaction, row: TaskRow, to: TaskState, *, reason: str, actor: str) -> None:
    """Change the state and log it. Legality was checked; the CHECK constraint is the net below."""
    row.moves += 1
    tx.run("insert_transition", row.id, row.moves, row.state, to, reason, actor, row.fence, tx.now)
    if row.state is TaskState.WAITING:
        stop_waiting(tx, row)
    if row.state.is_terminal:  # it begins again
        tx.run("delete_outcome", row.id)
    row.state = to
    row.finished_at = tx.now if to.is_terminal else None
    row.ready = readiness(row, tx.now)


def requeue(tx: WriteTransaction, row: TaskRow, *, reason: str, actor: str, available_at: int | None = None) -> None:
    """Move to pending, claimable from ``available_at`` on."""
    row.available_at = tx.now if available_at is None else available_at
    row.rank = stored_rank(row.available_at, row.priority)
    move(tx, row, TaskState.PENDING, reason=reason, actor=actor)


def make_due(tx: WriteTransaction, row: TaskRow) -> None:
    """Make a pending task due whose cancel is requested: a worker may have to see to it, and need not wait for it."""
    if row.state is TaskState.PENDING and row.cancel_requested is not None and row.available_at > tx.now:
        row.available_at = tx.now
        row.rank = stored_rank(row.available_at, row.priority)
        row.ready = readiness(row, tx.now)


def end(tx: WriteTransaction, row: TaskRow, to: TaskState, *, reason: str, actor: str) -> bool:
    """Move to a terminal state and finish what the task left open; return whether another task waits for its end."""
    move(tx, row, to, reason=reason, actor=actor)
    ((open_approvals, reservations, joins),) = tx.all("unfinished", row.id)
    if open_approvals:
        tx.run("close_approvals", row.id, tx.now)
    if reservations:
        count_as_spent(tx, row.id, below_fence=NO_FENCE_BOUND)
    return bool(joins)


def notify_parents(tx: WriteTransaction, task_id: str, *, actor: str) -> None:
    """Strike an ended task off every join that counts on it, and wake the tasks that waited only for that."""
    for parent_id, key in tx.all("leave_joins", task_id):
        # No row: another wait of the same parent for this child has woken it, and all its waits are gone.
        if tx.first("lower_join", parent_id, key) == (0,):
            wake(tx, parent_id, reason=CHILDREN_ENDED, actor=actor)


def write_outcome(tx: WriteTransaction, task_id: str, result: JsonValue, error: JsonValue) -> None:
    """Replace result and error."""
    if result is None and error is None:
        tx.run("delete_outcome", task_id)
    else:
        tx.run("put_outcome", task_id, payload_or_none(result), payload_or_none(error))


def count_as_spent(tx: WriteTransaction, task_id: str, *, below_fence: int) -> None:
    """Turn reservations that will not be settled any more into spending."""
    for account, meter, amount in tx.all("take_reservations_below_fence", task_id, below_fence):
        tx.run("adjust_meter", account, meter, amount, -amount)


def start_waiting(tx: WriteTransaction, row: TaskRow, waits: Sequence[Wait]) -> None:
    """Store what the task waits for."""
    for wait in waits:
        match wait:
            case UntilTime(key=key, at=at):
                tx.run("insert_wait", row.id, key, "time", micros(at), None, None, None, None)
            case UntilEvent(key=key, channel=channel, after=after):
                tx.run("insert_wait", row.id, key, "event", None, channel, after, None, None)
            case UntilDecided(key=key, approval_id=approval_id):
                tx.run("insert_wait", row.id, key, "decided", None, None, None, None, approval_id)
            case UntilWoken(key=key):
                tx.run("insert_wait", row.id, key, "woken", None, None, None, None, None)
            case UntilChildren(key=key, children=children):
                tx.run("insert_wait", row.id, key, "children", None, None, None, 0, None)
                tx.run_many("insert_join", [(row.id, key, child) for child in children])
                tx.run("count_joins", row.id, key)
    row.wake_at = min((micros(wait.at) for wait in waits if isinstance(wait, UntilTime)), default=None)


def stop_waiting(tx: WriteTransaction, row: TaskRow) -> None:
    """Forget what the task waited for; a replay that still has to wait says so again."""
    tx.run("delete_waits", row.id)
    tx.run("delete_joins", row.id)
    row.wake_at = None


def go_on_if_due(tx: WriteTransaction, row: TaskRow, *, actor: str) -> bool:
    """Move a waiting task to pending if anything it waits for is true; say whether it moved."""
    if row.state is not TaskState.WAITING:
        return False
    found = tx.first("wait_that_holds", row.id, tx.now)
    if found is None or found[0] is None:
        return False
    requeue(tx, row, reason=_WAKE_REASONS[found[0]], actor=actor)
    return True


def wake(tx: WriteTransaction, task_id: str, *, reason: str, actor: str) -> bool:
    """Move another task to pending if it is still waiting; say whether it was."""
    row = tx.task(task_id)
    if row is None or row.state is not TaskState.WAITING:
        return False
    with changing(tx, row):
        requeue(tx, row, reason=reason, actor=actor)
    return True
