"""Questions to a SQLite store: nothing here changes anything."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import apsw

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
from holdfast.store.sqlite.database import Database
from holdfast.store.sqlite.listings import approvals_query, count_query, effects_query, page_query
from holdfast.store.sqlite.reader import Reader
from holdfast.store.sqlite.records import RECORDS
from holdfast.store.sqlite.rows import micros, moment
from holdfast.store.sqlite.sql import QUERIES

_SYNCHRONOUS: Final = ("off", "normal", "full", "extra")
"""By the number under which SQLite knows them."""


def get(reader: Reader, task_id: str) -> Task | None:
    """See ReadVerbs."""
    return reader.first(RECORDS.task, "task_record", task_id)


def standing(reader: Reader, task_id: str) -> Task | None:
    """See ReadVerbs."""
    return reader.first(RECORDS.task, "task_standing", task_id)


def revisions(reader: Reader, task_ids: Collection[str]) -> dict[str, int]:
    """See ReadVerbs."""
    return dict(reader.rows("revisions", json.dumps(list(task_ids))))


def find(reader: Reader, where: TaskFilter, limit: int, after: str | None, *, newest_first: bool) -> Page[Task]:
    """See ReadVerbs."""
    listing = page_query(where, after=after, newest_first=newest_first, limit=limit)
    return page_of(reader.select(RECORDS.task, listing), limit)


def count(reader: Reader, where: TaskFilter) -> dict[TaskState, int]:
    """See ReadVerbs."""
    return dict(reader.select(lambda state, tasks: (TaskState(state), tasks), count_query(where)))


def summary(reader: Reader) -> Summary:
    """See ReadVerbs."""
    return Summary(
        tasks=count(reader, TaskFilter()),
        workers=reader.number("count_workers"),
        open_approvals=reader.number("count_open_approvals"),
        doubts=reader.number("count_doubts"),
    )


def queues(reader: Reader) -> list[QueueCounts]:
    """See ReadVerbs."""
    return reader.all(RECORDS.queue, "queues", micros(reader.now()))


def queued(reader: Reader, queue: str | None, limit: int, after: str | None) -> Page[Task]:
    """See ReadVerbs."""
    begin = from_queue_cursor(after)
    as_of = begin.as_of or reader.now()
    (due_rank, due_id), (due_at, delayed_id) = begin.due_after, begin.delayed_after
    values = (queue, micros(as_of), micros(due_rank), due_id, micros(due_at or as_of), delayed_id, limit + 1)
    rows = reader.rows("queued", *values)
    found = [(RECORDS.task(*task), bool(delayed), moment(place)) for delayed, place, *task in rows]
    return queue_page_of(found, limit, as_of)


def ids(reader: Reader, noun: Noun, part: str, limit: int) -> list[str]:
    """See ReadVerbs."""
    for query in ("ids_that_begin", "ids_that_end"):
        if found := reader.select(str, (about(noun, QUERIES[query]), (part, limit))):
            return found
    return []


def history(reader: Reader, task_id: str) -> list[Transition]:
    """See ReadVerbs."""
    return reader.all(RECORDS.transition, "transitions", task_id)


def effects(
    reader: Reader, task_id: str | None, effect_id: str | None, states: Collection[EffectState] | None, limit: int
) -> list[Effect]:
    """See ReadVerbs."""
    listing = effects_query(task_id=task_id, effect_id=effect_id, states=states, limit=limit)
    return reader.select(RECORDS.effect, listing)


def evidence(reader: Reader, task_id: str, effect_id: str) -> list[Evidence]:
    """See ReadVerbs."""
    return reader.all(RECORDS.evidence, "evidence", task_id, effect_id)


def patches(reader: Reader, task_id: str, after: int) -> list[PatchRecord]:
    """See ReadVerbs."""
    return reader.all(RECORDS.patch, "patches", task_id, after)


def checkpoints(reader: Reader, task_id: str) -> list[Checkpoint]:
    """See ReadVerbs."""
    return reader.all(RECORDS.checkpoint, "checkpoints", task_id)


def approvals(
    reader: Reader, task_id: str | None, states: Collection[ApprovalState] | None, limit: int
) -> list[Approval]:
    """See ReadVerbs."""
    return reader.select(RECORDS.approval, approvals_query(task_id=task_id, states=states, limit=limit))


def approval(reader: Reader, approval_id: str) -> Approval | None:
    """See ReadVerbs."""
    return reader.first(RECORDS.approval, "approval_by_id", approval_id)


def accounts(reader: Reader, account: str) -> list[Account]:
    """See ReadVerbs."""
    return reader.all(RECORDS.account, "accounts", account)


def workers(reader: Reader) -> list[Worker]:
    """See ReadVerbs."""
    return reader.all(RECORDS.worker, "workers")


def events(reader: Reader, channel: str, after: int, limit: int) -> list[Event]:
    """See ReadVerbs."""
    return reader.all(RECORDS.event, "events", channel, after, limit)


async def position(db: Database, channel: str, before_task: str | None) -> int:
    """See ReadVerbs. Where a channel stood at a submission may have to be looked for among many events."""
    if before_task is None:
        return await db.read(lambda reader: reader.number("position", channel))
    found = await db.read_slowly(lambda reader: reader.first(int, "position_at_submission", channel, before_task))
    if found is None:
        raise NotFound("task", before_task)
    return found


def vitals(reader: Reader, backend: str, *, file: Path | None, thorough: bool) -> Vitals:
    """Look at the tables and, where they are kept in one, at the file."""
    problems: list[str] = []
    rows: dict[str, int] = {}
    try:
        if thorough:
            problems += [text for text in reader.all(str, "quick_check") if text != "ok"]
        rows = dict(reader.rows("count_rows"))
    except apsw.CorruptError as error:  # what is asked here is whether it is
        problems.append(str(error))
    return Vitals(
        backend=backend,
        version=apsw.sqlite_lib_version(),
        schema=reader.number("schema_version"),
        bytes=0 if file is None else _size(file) + _size(_wal(file)),
        rows=rows,
        exact_rows=True,
        settings={} if file is None else _settings(reader.connection, file),
        problems=tuple(problems),
    )


def _settings(connection: apsw.Connection, file: Path) -> Mapping[str, str]:
    return {
        "journal_mode": str(connection.pragma("journal_mode")),
        "synchronous": _SYNCHRONOUS[connection.pragma("synchronous")],
        "wal_bytes": str(_size(_wal(file))),
    }


def _wal(file: Path) -> Path:
    file = file.resolve()
    return file.with_name(f"{file.name}-wal")


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # gone, or in a folder that may not be looked at any more
        return 0
