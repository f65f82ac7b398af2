"""Workers and leases: who may claim, what they get, and what they give back."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import NamedTuple

from holdfast.model.canonical import canonical
from holdfast.model.errors import Conflict, LeaseHeld, NoPlace, NotFound, WorkerDead
from holdfast.model.pause import paused_message
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim, Claimed, Heartbeat, Lease, NewWorker, Worker, WorkerState, newer_keys_message
from holdfast.store.records import Row, keys_of
from holdfast.store.sqlite import flow, lifecycle, limit_keys, lines, places, turns
from holdfast.store.sqlite.database import MANY, Database
from holdfast.store.sqlite.reader import Reader
from holdfast.store.sqlite.records import RECORDS
from holdfast.store.sqlite.rows import TaskRow
from holdfast.store.sqlite.write_transaction import WriteTransaction

SUBMITTED_ONLY = 1
"""The revision of a task nothing was done to but its submission."""

_MOST_LOOKS = 10
"""How often one claim looks for tasks, while it meets candidates of which a limit is full."""

_MORE = 50
"""So many more tasks each look reads than the one before."""

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
    any_limited: int
    """Whether any queue limits how many of its tasks are at work."""
    any_fair: int
    """Whether the tasks of any queue take turns."""
    any_without_turn: int
    """Whether any task of such a queue has to get its turn first."""
    look_at: int | None
    """When a line of tasks that wait for a limit has to be looked at."""


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


async def claim_ready(db: Database, claim: Claim) -> list[Claimed]:
    """See WorkVerbs. Where very many tasks of a fair queue have no turn yet, not on the event loop."""
    try:
        return await db.write(lambda tx: claim_within(tx, claim, most_turns=turns.MOST_HERE), items=claim.limit)
    except turns.TooMany:
        return await db.write(lambda tx: claim_within(tx, claim), items=MANY)


def claim_within(tx: WriteTransaction, claim: Claim, *, most_turns: int | None = None) -> list[Claimed]:
    """Lease the next ready tasks. Raises TooMany, and does nothing, if more than so many have to get turns first."""
    worker = _living(tx, claim.worker_id)
    if claim.number <= worker.claims:
        rows = tx.all("claimed_records", claim.worker_id, claim.number)
        return [Claimed(task=RECORDS.task(*task), fresh=False, alone=bool(alone)) for alone, *task in rows]
    if worker.state != WorkerState.LIVE or is_expired(tx, worker.boot_id, worker.expires, worker.lease):
        return []
    if worker.any_without_turn and claim.limit > 0:
        turns.give_turns(tx, claim.queues, most=most_turns)
    leased = _lease_next(tx, claim, worker)
    if not leased:
        return []  # mostly nothing is written, so nothing has to reach the disk: idle workers look often
    tx.run("set_worker_claims", claim.worker_id, claim.number)
    tx.hints.update([f"task:{task_id}" for task_id in leased])
    rows = tx.all_many("just_claimed", [(task_id,) for task_id in leased])
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


def _lease_next(tx: WriteTransaction, request: Claim, worker: _WorkerLease) -> list[str]:
    """Lease the next tasks; those with limits only if their keys have room for them."""
    limit = min(request.limit, 1) if request.alone else request.limit
    if limit <= 0:
        return []
    keys, let_out, fair = limit_keys.Keys(tx), dict[str, str](), dict[str, str]()
    if worker.any_without_turn or (worker.look_at is not None and worker.look_at <= tx.now):
        let_out = lines.let_out(tx, keys)
    leased: list[Row] = []
    for number in range(_MOST_LOOKS):
        wanted = limit - len(leased)
        ready = _next_ready(tx, request, max(wanted, number * _MORE), worker, fair)
        taken, any_full = _take_fitting(tx, keys, ready, wanted, strictly=number < _MOST_LOOKS // 2)
        lease = (request.worker_id, request.number, int(request.alone), tx.now, request.key_form)
        tx.run_many("lease_task", [(task_id, *lease) for _, task_id, _ in taken])
        leased += taken
        if not any_full:
            break
        let_out |= lines.let_out(tx, keys)
        if len(leased) == limit:
            break
    if fair and not request.alone:
        turns.go_on(tx, leased, fair)
    task_ids = [task_id for _, task_id, _ in sorted(leased)]
    tx.hints.update(f"queue:{let_out[task_id]}" for task_id in let_out.keys() - set(task_ids))
    return task_ids


def _take_fitting(
    tx: WriteTransaction, keys: limit_keys.Keys, ready: list[Row], wanted: int, *, strictly: bool
) -> tuple[list[Row], bool]:
    """Choose, in order, what can begin. A candidate that finds a key full goes back into the line of that key.

    Return whether any did. With ``strictly``, nothing is chosen behind one that may have left the line of another
    key: another task may come out of that.
    """
    if all(limits is None for _, _, limits in ready):
        return ready[:wanted], False
    taken, any_full, is_displaced = list[Row](), False, False
    of_rows = [keys_of(limits) for _, _, limits in ready]
    keys.load(name for names in of_rows for name in names)
    for row, names in zip(ready, of_rows, strict=True):
        if len(taken) == wanted:
            break
        if (full := keys.first_full(names)) is not None:
            tx.run("hold_candidate", row[1], full)
            any_full = True
            is_displaced = is_displaced or len(names) > 1
        elif is_displaced and strictly:
            break
        else:
            keys.begin(names)
            taken.append(row)
    keys.write()
    return taken, any_full


def _next_ready(
    tx: WriteTransaction, request: Claim, limit: int, worker: _WorkerLease, fair: dict[str, str]
) -> list[Row]:
    """Find the next tasks: up to ``limit``, and no more of a queue than may be at work.

    Those of a fair queue come by their turns; ``fair`` gets their queues, by id. Turns are numbers of their own in each
    queue, so each fair queue is asked alone.
    """
    queues, names = set(request.queues), set(request.names)
    if worker.any_paused:
        queues, names = flow.without_paused(tx, queues, names)
    if not worker.any_limited and not worker.any_fair:
        return _first_ready(tx, request, queues, names, limit)
    free = places.free_places(tx, queues) if worker.any_limited else {}
    with_turns = {str(name) for (name,) in tx.all("fair_among", _to_json(queues))} if worker.any_fair else set[str]()
    rows = _first_ready(tx, request, queues - free.keys() - with_turns, names, limit)
    for queue in free.keys() - with_turns:
        rows += _first_ready(tx, request, {queue}, names, min(limit, free[queue]))
    placed = [(row[0], row) for row in rows]
    for queue in with_turns:
        count = min(limit, free.get(queue, limit))
        rows = _first_ready(tx, request, {queue}, names, count and count + turns.LOOKED_AT - 1)
        fair.update((row[1], queue) for row in rows)
        placed += turns.in_order_of_ranks(tx, rows)[:count]
    return [row for _, row in sorted(placed)[: max(limit, 0)]]


def _first_ready(tx: WriteTransaction, request: Claim, queues: set[str], names: set[str], limit: int) -> list[Row]:
    """Find the first tasks, in two statements whatever the number of queues and names; one where nothing is ready."""
    kind = "suspect" if request.alone else "ready"
    if limit <= 0 or not queues:
        return []
    if len(queues) == len(names) == 1:
        pairs: list[Row] = [(*queues, *names)]
    else:
        pairs = [pair for pair in tx.all(f"{kind}_lines", _to_json(queues)) if pair[1] in names]
    if len(pairs) > 1:
        return tx.all(f"merged_{kind}_tasks", _to_json(pairs), tx.now, limit, request.key_form)
    return [row for pair in pairs for row in tx.all(f"{kind}_tasks", *pair, tx.now, limit, request.key_form)]


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
    if worker.any_limited and (no_place := places.refusal(tx, row)) is not None:
        raise no_place
    if (full := limit_keys.take_places(tx, row.limits)) is not None:
        raise NoPlace(task_id, key=full)
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
