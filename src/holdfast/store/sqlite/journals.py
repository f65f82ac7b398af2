"""load: a task with everything a replay needs; and the journal line by line."""

from __future__ import annotations

import json
from collections.abc import Collection

from holdfast.model.errors import NotFound
from holdfast.model.queries import Loaded
from holdfast.model.step import Step
from holdfast.store.sqlite import queries
from holdfast.store.sqlite.database import Database
from holdfast.store.sqlite.reader import Reader
from holdfast.store.sqlite.records import RECORDS

_MANY_ROWS, _MANY_BYTES = 500, 4 << 20
"""What takes longer than a few milliseconds is not done on the event loop."""


async def load(db: Database, task_id: str, after: int) -> Loaded:
    """See WorkVerbs. A long journal is read in a thread."""
    read = db.read_apart if await db.read(lambda reader: _is_long(reader, task_id)) else db.read
    return await read(lambda reader: _load(reader, task_id, after))


def _is_long(reader: Reader, task_id: str) -> bool:
    [(rows, size)] = reader.rows("journal_size", task_id, _MANY_ROWS)
    return bool(rows >= _MANY_ROWS or size > _MANY_BYTES)


def _load(reader: Reader, task_id: str, after: int) -> Loaded:
    with reader.at_one_moment():
        task = queries.get(reader, task_id)
        if task is None:
            raise NotFound("task", task_id)
        checkpoint = reader.first(RECORDS.checkpoint, "newest_checkpoint", task_id)
        return Loaded(
            task=task,
            steps=tuple(reader.all(RECORDS.step, "journal", task_id, task.round, after)),
            effects=tuple(reader.all(RECORDS.effect, "task_effects", task_id)),
            patches=tuple(queries.patches(reader, task_id, checkpoint.version if checkpoint else 0)),
            checkpoint=checkpoint,
            approvals=tuple(reader.all(RECORDS.approval, "task_approvals", task_id)),
            accounts=tuple(queries.accounts(reader, task_id)),
            reservations=tuple(reader.all(RECORDS.reservation, "task_reservations", task_id)),
        )


def steps(reader: Reader, task_id: str) -> list[Step]:
    """See ReadVerbs."""
    return reader.all(RECORDS.step, "steps", task_id)


def step(reader: Reader, task_id: str, key: str, of_round: int) -> Step | None:
    """See ReadVerbs."""
    return reader.first(RECORDS.step, "step", task_id, of_round, key)


def last_steps(reader: Reader, task_ids: Collection[str]) -> dict[str, Step]:
    """See ReadVerbs."""
    rows = reader.rows("last_steps", json.dumps(list(task_ids)))
    return {task_id: RECORDS.step(*line) for task_id, *line in rows}
