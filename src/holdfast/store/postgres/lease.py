"""Workers and leases: who may claim, what they get, and what they give back."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import psycopg

from holdfast.model.canonical import canonical
from holdfast.model.errors import RowDamaged, SchemaMismatch, StoreError, WorkerDead
from holdfast.model.task import Task
from holdfast.model.worker import Claim, Claimed, Heartbeat, Lease, NewWorker, Worker, WorkerState
from holdfast.redaction import make_logger
from holdfast.store.postgres.database import Database
from holdfast.store.postgres.errors import lease_refused
from holdfast.store.postgres.limits import give_turns, promote
from holdfast.store.postgres.migration import newest_version
from holdfast.store.postgres.parameters import TextArray
from holdfast.store.postgres.records import RECORDS
from holdfast.store.records import Row

_MOST_LOOKS = 3
"""How often one claim that finds nothing has the lines of limits looked at."""

_log = make_logger(__name__)


async def register(db: Database, worker: NewWorker) -> Worker:
    """See WorkVerbs."""
    details = canonical(dict(worker.details), name="worker details")
    [row] = await db.fetch("register", worker.id, worker.label, worker.lease, details, db.at())
    record = RECORDS.worker(*row)
    if record.state is WorkerState.DEAD:
        raise WorkerDead(worker.id)
    [(oldest, newest)] = await db.fetch("versions")
    _note_versions(db, oldest, newest)
    return record


async def heartbeat(db: Database, worker_id: str) -> Heartbeat:
    """See WorkVerbs."""
    [(cancel_requested, suspects, paused, oldest, newest)] = await db.fetch("heartbeat", worker_id, db.at())
    _note_versions(db, oldest, newest)
    return Heartbeat(
        cancel_requested=frozenset(cancel_requested),
        suspects=suspects,
        paused=frozenset(paused).difference(cancel_requested),
    )


def _note_versions(db: Database, oldest: int, newest: int) -> None:
    """Notice that a newer program has migrated the schema, and whether workers of this one may still claim."""
    known = newest_version()
    if newest <= max(known, db.newest_seen):
        return
    db.newest_seen = newest
    migrated = f"a newer version of Holdfast has migrated {db.where} to schema {newest}; this one knows {known}"
    if oldest <= known:
        _log.warning("%s, and may go on beside it; restart it with the newer version soon", migrated)
        return
    db.outdated = f"{migrated}. It claims no more tasks: restart it with the newer version"
    _log.error("%s", db.outdated)


async def drain(db: Database, worker_id: str) -> None:
    """See WorkVerbs."""
    await db.fetch("drain", worker_id)


async def retire(db: Database, worker_id: str) -> list[str]:
    """See WorkVerbs."""
    [(handed_back, hints)] = await db.fetch("retire", worker_id, db.at())
    db.publish(hints)
    return list(handed_back)


async def claim(db: Database, claim: Claim) -> list[Claimed]:
    """See WorkVerbs. Raises SchemaMismatch once a newer program has migrated, unless this one may go on.

    What is held already can be finished: every write passes through the functions of the newer schema.
    """
    if db.outdated is not None:
        raise SchemaMismatch(db.outdated)
    found = await _claim(db, claim, promoted=False)
    for _ in range(_MOST_LOOKS):
        if not found or found[0][0] is not None:
            break
        # Tasks of a fair queue have to get their turns first, or a line of tasks that wait for a limit has to be looked
        # at. The claim may hold again what that let out: then another line has to be looked at.
        _, lacks_turns, has_line = found[0]
        if lacks_turns:
            has_line = await give_turns(db, claim.queues)
        if has_line:
            await promote(db)
        found = await _claim(db, claim, promoted=True) or await _claim(db, claim, promoted=False)
    else:
        found = await _claim(db, claim, promoted=True)
    return await _read_claimed(db, found, claim.worker_id)


async def _claim(db: Database, claim: Claim, *, promoted: bool) -> list[Row]:
    wanted = (claim.worker_id, claim.number, claim.limit, list(claim.queues), list(claim.names), claim.alone)
    return await db.fetch("claim", *wanted, db.at(), claim.key_form, promoted)


async def has_suspect(db: Database, claim: Claim) -> bool:
    """See WorkVerbs."""
    [(found,)] = await db.fetch("has_suspect", list(claim.queues), list(claim.names), claim.key_form)
    return bool(found)


async def acquire(db: Database, task_id: str, worker_id: str, key_form: int) -> Claimed:
    """See WorkVerbs."""
    try:
        [row] = await db.fetch("acquire", worker_id, task_id, db.at(), key_form)
    except StoreError as error:
        cause = error.__cause__
        if isinstance(cause, psycopg.Error) and (refused := lease_refused(cause, task_id, key_form)):
            raise refused from None
        raise
    claimed = _as_claimed([row], await db.all(RECORDS.task, "held_tasks", TextArray((task_id,)), worker_id))
    if not claimed:  # taken back between the two statements
        raise WorkerDead(worker_id)
    return claimed[0]


async def _read_claimed(db: Database, leased: list[Row], worker_id: str) -> list[Claimed]:
    """Read the tasks that were just leased, apart from the statement that leased them: claim() says why."""
    if not leased:
        return []
    task_ids = [task_id for task_id, _, _ in leased]
    try:
        tasks = await db.all(RECORDS.task, "held_tasks", TextArray(task_ids), worker_id)
    except RowDamaged:
        tasks = await _read_one_by_one(db, task_ids, worker_id)
    return _as_claimed(leased, tasks)


def _as_claimed(leased: list[Row], tasks: list[Task]) -> list[Claimed]:
    how = {task_id: (fresh, alone) for task_id, fresh, alone in leased}
    return [Claimed(task=task, fresh=how[task.id][0], alone=how[task.id][1]) for task in tasks]


async def _read_one_by_one(db: Database, task_ids: Iterable[str], worker_id: str) -> list[Task]:
    """Read the tasks that can be read. The worker finds the others among those that it holds and does not know."""
    tasks: list[Task] = []
    for task_id in task_ids:
        with suppress(RowDamaged):
            tasks += await db.all(RECORDS.task, "held_tasks", TextArray((task_id,)), worker_id)
    return tasks


async def owned(db: Database, worker_id: str) -> list[Lease]:
    """See WorkVerbs."""
    return await db.all(RECORDS.lease, "owned", worker_id)
