"""Questions to a PostgreSQL store: nothing here changes anything."""

from __future__ import annotations

from collections.abc import Collection

import psycopg

from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.effect import Effect, EffectState, Evidence
from holdfast.model.errors import NotFound
from holdfast.model.queries import Noun, Page, QueueCounts, Summary, TaskFilter, Vitals
from holdfast.model.records import Account, Checkpoint, Event, PatchRecord
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState, Transition
from holdfast.model.worker import Worker
from holdfast.store.cursor import from_queue_cursor, page_of, queue_page_of
from holdfast.store.idparts import about
from holdfast.store.postgres.database import Database
from holdfast.store.postgres.errors import translate
from holdfast.store.postgres.listings import approvals_query, count_query, effects_query, page_query
from holdfast.store.postgres.records import RECORDS
from holdfast.store.records import Row


async def get(db: Database, task_id: str) -> Task | None:
    """See ReadVerbs."""
    return await db.first(RECORDS.task, "task", task_id)


async def standing(db: Database, task_id: str) -> Task | None:
    """See ReadVerbs."""
    return await db.first(RECORDS.task, "task_standing", task_id)


async def revisions(db: Database, task_ids: Collection[str]) -> dict[str, int]:
    """See ReadVerbs."""
    return dict(await db.fetch("revisions", list(task_ids)))


async def find(db: Database, where: TaskFilter, limit: int, after: str | None, *, newest_first: bool) -> Page[Task]:
    """See ReadVerbs."""
    listing = page_query(where, after=after, newest_first=newest_first, limit=limit)
    return page_of(await db.select(RECORDS.task, listing), limit)


async def count(db: Database, where: TaskFilter) -> dict[TaskState, int]:
    """See ReadVerbs."""
    return dict(await db.select(lambda state, tasks: (TaskState(state), tasks), count_query(where)))


async def summary(db: Database) -> Summary:
    """See ReadVerbs."""
    [(workers, open_approvals, doubts)] = await db.fetch("summary")
    tasks = await count(db, TaskFilter())
    return Summary(tasks=tasks, workers=workers, open_approvals=open_approvals, doubts=doubts)


async def queues(db: Database) -> list[QueueCounts]:
    """See ReadVerbs."""
    return await db.all(RECORDS.queue, "queues", db.at())


async def queued(db: Database, queue: str | None, limit: int, after: str | None) -> Page[Task]:
    """See ReadVerbs."""
    begin = from_queue_cursor(after)
    values = (begin.as_of or db.at(), queue, *begin.due_after, *begin.delayed_after, limit + 1)
    rows = await db.fetch("queued", *values)
    if not rows:
        return Page(items=(), next=None)
    as_of, *_ = rows[0]
    found = [(RECORDS.task(*task), delayed, place) for _, delayed, place, *task in rows]
    return queue_page_of(found, limit, as_of)


async def ids(db: Database, noun: Noun, part: str, limit: int) -> list[str]:
    """See ReadVerbs."""
    for query in ("ids_that_begin", "ids_that_end"):
        if found := await db.select(str, (about(noun, db.queries[query]), [part, limit])):
            return found
    return []


async def history(db: Database, task_id: str) -> list[Transition]:
    """See ReadVerbs."""
    return await db.all(RECORDS.transition, "history", task_id)


async def effects(
    db: Database, task_id: str | None, effect_id: str | None, states: Collection[EffectState] | None, limit: int
) -> list[Effect]:
    """See ReadVerbs."""
    listing = effects_query(task_id=task_id, effect_id=effect_id, states=states, limit=limit)
    return await db.select(RECORDS.effect, listing)


async def evidence(db: Database, task_id: str, effect_id: str) -> list[Evidence]:
    """See ReadVerbs."""
    return await db.all(RECORDS.evidence, "evidence", task_id, effect_id)


async def patches(db: Database, task_id: str, after: int) -> list[PatchRecord]:
    """See ReadVerbs."""
    return await db.all(RECORDS.patch, "patches", task_id, after)


async def checkpoints(db: Database, task_id: str) -> list[Checkpoint]:
    """See ReadVerbs."""
    return await db.all(RECORDS.checkpoint, "checkpoints", task_id)


async def approvals(
    db: Database, task_id: str | None, states: Collection[ApprovalState] | None, limit: int
) -> list[Approval]:
    """See ReadVerbs."""
    return await db.select(RECORDS.approval, approvals_query(task_id=task_id, states=states, limit=limit))


async def approval(db: Database, approval_id: str) -> Approval | None:
    """See ReadVerbs."""
    return await db.first(RECORDS.approval, "approval", approval_id)


async def accounts(db: Database, account: str) -> list[Account]:
    """See ReadVerbs."""
    return await db.all(RECORDS.account, "accounts", account)


async def workers(db: Database) -> list[Worker]:
    """See ReadVerbs."""
    return await db.all(RECORDS.worker, "workers")


async def events(db: Database, channel: str, after: int, limit: int) -> list[Event]:
    """See ReadVerbs."""
    return await db.all(RECORDS.event, "events", channel, after, limit)


async def position(db: Database, channel: str, before_task: str | None) -> int:
    """See ReadVerbs."""
    if before_task is None:
        [(number,)] = await db.fetch("position", channel)
        return int(number)
    found = await db.first(int, "position_at_submission", channel, before_task)
    if found is None:
        raise NotFound("task", before_task)
    return found


async def vitals(db: Database, *, thorough: bool) -> Vitals:
    """See ReadVerbs. Damage is the server's to find, however thorough the question is."""
    del thorough
    [(version, schema, size)] = await db.fetch("vitals")
    snapshots = await _if_allowed(db, "oldest_snapshot")
    return Vitals(
        backend="PostgreSQL",
        version=version.split()[0],  # behind it stands who packaged it
        schema=schema,
        bytes=size,
        rows=dict(await db.fetch("estimate_rows")),
        exact_rows=False,
        settings=dict(await _if_allowed(db, "settings")),
        oldest_snapshot_seconds=snapshots[0][0] if snapshots else None,
    )


async def _if_allowed(db: Database, query: str) -> list[Row]:
    """Run a query on views that an administrator may have closed to this role; no rows where that is so."""
    try:
        return await db.open_connections().fetch(db.queries[query])
    except psycopg.errors.InsufficientPrivilege:
        return []
    except psycopg.Error as error:
        raise translate(error, db.where) from error
