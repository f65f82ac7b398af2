"""Workers and leases: who may claim, what they get, and what they give back."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import NamedTuple

from holdfast.model.canonical import canonical
from holdfast.model.errors import Conflict, LeaseHeld, NotFound, WorkerDead
from holdfast.model.pause import paused_message
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim, Claimed, Heartbeat, Lease, NewWorker, Worker, WorkerState, newer_keys_message
from holdfast.store.records import Row
from holdfast.store.sqlite import flow, lifecycle
from holdfast.store.sqlite.database import Database
from holdfast.store.sqlite.reader import Reader
from holdfast.store.sqlite.records import RECORDS
from holdfast.store.sqlite.rows import TaskRow
from holdfast.store.sqlite.write_transaction import WriteTransaction

SUBMITTED_ONLY = 1
"""The revision of a task nothing was done to but its submission."""

HAND_BACK = 5
"""How much more a task costs that is handed back than one that is written."""


class _WorkerLease(NamedTuple):
    """A row of the query ``worker_lease``. The times are microseconds on the boot clock."""

    state: str
    claims: int
    boot_id: str
    expires: int
    lease: int
    any_paused: int
    """Whether any queue or name is paused."""


def register(tx: WriteTransaction, worker: NewWorker) -> Worker:
    """Enter a fresh incarnation, or answer one that is there."""
    existing = tx.first("worker", worker.id)
    if existing is None:
        lease = round(worker.lease * 1_000_000)
        details = canonical(dict(worker.details), name="worker details")
        tx.run("insert_worker", worker.id, worker.label, lease, details, tx.now, tx.boot_id, tx.boot + lease)
        existing = tx.first("worker", worker.id)
    record = RECORDS.worker(*(existing or ()))
    if record.state is WorkerState.DEAD:
        raise WorkerDead(worker.id)
    return record


def heartbeat(tx: WriteTransaction, worker_id: str) -> Heartbeat:
    """Renew the lease. One that ran out unnoticed may be renewed: no task was taken from it yet."""
    worker = _living(tx, worker_id)
    tx.run("renew_worker", worker_id, tx.now, tx.boot_id, tx.boot + worker.lease)
    ((suspects,),) = tx.all("any_suspect")
    cancelled, paused = set[str](), set[str]()
    for task_id, is_cancelled in tx.all("owned_to_stop", worker_id):
        (cancelled if is_cancelled else paused).add(task_id)
    return Heartbeat(cancel_requested=frozenset(cancelled), suspects=bool(suspects), paused=frozenset(paused))


def has_suspect(reader: Reader, claim: Claim) -> bool:
    """See WorkVerbs."""
    queues, names = (json.dumps(list(given)) for given in (claim.queues, claim.names))
    return bool(reader.number("any_suspect_of", queues, names, claim.key_form))


def owned(reader: Reader, worker_id: str) -> list[Lease]:
    """See WorkVerbs."""
    return reader.all(RECORDS.lease, "owned", worker_id)


def drain(tx: WriteTransaction, worker_id: str) -> None:
    """Let it claim no more."""
    _living(tx, worker_id)
    tx.run("set_worker_state", worker_id, WorkerState.DRAINING)


async def retire_worker(db: Database, worker_id: str) -> list[str]:
    """See WorkVerbs. How much there is to hand back is looked at first."""
    held = await db.read(lambda reader: len(owned(reader, worker_id)))
    return await db.write(lambda tx: retire(tx, worker_id), items=max(held * HAND_BACK, 1))


def retire(tx: WriteTransaction, worker_id: str) -> list[str]:
    """End the incarnation and hand its tasks back."""
    found = tx.first("worker_lease", worker_id)
    if found is None or _WorkerLease(*found).state == WorkerState.DEAD:
        return []  # what a dead one held is taken back by the sweep, which counts its death
    tx.run("set_worker_state", worker_id, WorkerState.DEAD)
    held = [RECORDS.lease(*row).task_id for row in tx.all("owned", worker_id)]
    for task_id in held:
        _hand_back(tx, _existing(tx, task_id), worker_id)
    return held


def _hand_back(tx: WriteTransaction, row: TaskRow, worker_id: str) -> None:
    with lifecycle.changing(tx, row):
        row.fence, row.sequence = row.fence + 1, 0
        lifecycle.give_back(tx, row)
        if row.state is TaskState.RUNNING:
            lifecycle.requeue(tx, row, reason="handed back", actor=worker_id)


def claim(tx: WriteTransaction, claim: Claim) -> list[Claimed]:
    """Lease the next ready tasks."""
    worker = _living(tx, claim.worker_id)
    if claim.number <= worker.claims:
        rows = tx.all("claimed_records", claim.worker_id, claim.number)
        return [Claimed(task=RECORDS.task(*task), fresh=False, alone=bool(alone)) for alone, *task in rows]
    if worker.state != WorkerState.LIVE or is_expired(tx, worker.boot_id, worker.expires, worker.lease):
        return []
    ready = _next_ready(tx, claim, any_paused=bool(worker.any_paused))
    if not ready:
        return []  # nothing is written, so nothing has to reach the disk: idle workers look often
    tx.run("set_worker_claims", claim.worker_id, claim.number)
    lease = (claim.worker_id, claim.number, int(claim.alone), tx.now, claim.key_form)
    tx.run_many("lease_task", [(task_id, *lease) for _, task_id in ready])
    tx.hints.update([f"task:{task_id}" for _, task_id in ready])
    rows = tx.all_many("just_claimed", [(task_id,) for _, task_id in ready])
    claimed = [(moves, RECORDS.task(*task)) for moves, *task in rows]
    if claimed:
        tx.last_task = claimed[-1][1].id, claimed[-1][1].revision
    tx.run_many(
        "insert_transition",  # one in review stays there, and has none
        [
            (task.id, moves, "pending", "running", "claimed", claim.worker_id, task.fence, tx.now)
            for moves, task in claimed
            if task.state is TaskState.RUNNING
        ],
    )
    return [Claimed(task=task, fresh=task.revision == SUBMITTED_ONLY + 1, alone=claim.alone) for _, task in claimed]


def _next_ready(tx: WriteTransaction, request: Claim, *, any_paused: bool) -> list[Row]:
    """Find what to lease, in two statements whatever the number of queues and names; one where nothing is ready.

    One more where any queue or name is paused.
    """
    kind = "suspect" if request.alone else "ready"
    limit = min(request.limit, 1) if request.alone else request.limit
    if limit <= 0:
        return []
    queues, names = set(request.queues), set(request.names)
    if any_paused:
        queues, names = flow.without_paused(tx, queues, names)
    if len(queues) == len(names) == 1:
        lines = [(queues.pop(), names.pop())]
    else:
        lines = [line for line in tx.all(f"{kind}_lines", _to_json(queues)) if line[1] in names]
    if len(lines) > 1:
        return tx.all(f"merged_{kind}_tasks", _to_json(lines), tx.now, limit, request.key_form)
    return [row for line in lines for row in tx.all(f"{kind}_tasks", *line, tx.now, limit, request.key_form)]


def _to_json(items: Collection[object]) -> str:
    return json.dumps(list(items))


def acquire(tx: WriteTransaction, task_id: str, worker_id: str, key_form: int) -> Claimed:
    """Lease one named task as it stands."""
    worker = _living(tx, worker_id)
    if is_expired(tx, worker.boot_id, worker.expires, worker.lease):
        raise WorkerDead(worker_id)
    row = tx.task(task_id)
    if row is None:
        raise NotFound("task", task_id)
    if row.owner == worker_id:
        return Claimed(task=_record(tx, task_id), fresh=False, alone=bool(row.alone))
    if row.owner is not None:
        raise LeaseHeld(task_id, row.owner)
    if row.state.is_terminal:
        raise Conflict(f"task {task_id} is {row.state}; resume or retry it before working on it")
    if (paused := flow.why_paused(tx, row, any_by_kind=bool(worker.any_paused))) is not None:
        raise Conflict(paused_message(task_id, paused))
    if row.key_form > key_form:
        raise Conflict(newer_keys_message(task_id, key_form=row.key_form, spoken=key_form))
    fresh = row.revision == SUBMITTED_ONLY
    with lifecycle.changing(tx, row):
        lifecycle.take(tx, row, worker_id, key_form=key_form)
    return Claimed(task=_record(tx, task_id), fresh=fresh)


def is_expired(tx: WriteTransaction, boot_id: str, expires: int, lease: int) -> bool:
    """Say whether a lease has run out; one counted on another boot has, for its process is gone.

    Where the system does not name its boots, a lease that has more than its whole length left was counted on another.
    """
    return boot_id != tx.boot_id or expires <= tx.boot or expires > tx.boot + lease


def _living(tx: WriteTransaction, worker_id: str) -> _WorkerLease:
    found = tx.first("worker_lease", worker_id)
    if found is None or (worker := _WorkerLease(*found)).state == WorkerState.DEAD:
        raise WorkerDead(worker_id)
    return worker


def _existing(tx: WriteTransaction, task_id: str) -> TaskRow:
    row = tx.task(task_id)
    if row is None:
        raise NotFound("task", task_id)
    return row


def _record(tx: WriteTransaction, task_id: str) -> Task:
    row = tx.first("task_record", task_id)
    if row is None:
        raise NotFound("task", task_id)
    return RECORDS.task(*row)
