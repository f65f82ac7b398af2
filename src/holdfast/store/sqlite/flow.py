"""What is paused, and the settings of queues."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Final

import apsw

from holdfast.model.errors import Conflict, QueueFull
from holdfast.model.pause import LIMIT, QUEUE, TASK, Pause, kind_of, nothing_to_pause
from holdfast.model.queue_settings import QueueChange, QueueSettings, stored_retention
from holdfast.store.base import ANYTHING
from holdfast.store.sqlite import limits, turns
from holdfast.store.sqlite.reader import Reader
from holdfast.store.sqlite.records import RECORDS
from holdfast.store.sqlite.rows import TaskRow
from holdfast.store.sqlite.write_transaction import WriteTransaction

PAUSED: Final = 1
"""In the column ``held``: the task itself is paused."""


def pause(tx: WriteTransaction, subject: str, by: str, reason: str | None) -> Pause:
    """See FlowVerbs."""
    found = tx.first("pause", subject)
    if found is not None:
        return RECORDS.pause(*found)
    kind = kind_of(subject)
    if kind is None:
        _pause_task(tx, subject)
    elif kind == LIMIT:
        limits.check_limited(tx, subject.removeprefix(f"{LIMIT}:"))
    tx.run("insert_pause", subject, tx.now, by, reason)
    return RECORDS.pause(subject, tx.now, by, reason)


def _pause_task(tx: WriteTransaction, task_id: str) -> None:
    row = tx.task(task_id)
    if row is None:
        raise nothing_to_pause(task_id)
    if row.state.is_terminal:
        raise Conflict(f"task {task_id} is {row.state}; there is nothing left to pause")
    _hold(tx, row, row.held | PAUSED)


def unpause(tx: WriteTransaction, subject: str) -> bool:
    """See FlowVerbs."""
    if not tx.changes("delete_pause", subject):
        return False
    kind = kind_of(subject)
    if kind == QUEUE:
        tx.hints.add(subject)
    elif kind == LIMIT:
        limits.note_change(tx, subject.removeprefix(f"{LIMIT}:"))
    elif kind is not None:
        tx.hints.add(ANYTHING)  # in which queues the tasks of this name are is not known
    elif (row := tx.task(subject)) is not None:
        _hold(tx, row, row.held & ~PAUSED)
        if row.ready:
            tx.hints.add(f"queue:{row.queue}")
    return True


def _hold(tx: WriteTransaction, row: TaskRow, held: int) -> None:
    """Change what keeps a task from being claimed. Not ``updated_at``: nothing of its work has happened."""
    row.held = held
    row.revision += 1
    tx.save(row)
    tx.hints.add(f"task:{row.id}")


def pauses(reader: Reader) -> list[Pause]:
    """See FlowVerbs."""
    return reader.all(RECORDS.pause, "pauses")


def without_paused(tx: WriteTransaction, queues: Collection[str], names: Collection[str]) -> tuple[set[str], set[str]]:
    """Leave out the queues and the names that are paused."""
    paused = {subject for (subject,) in tx.all("pauses_by_kind")}
    return (
        {queue for queue in queues if f"{QUEUE}:{queue}" not in paused},
        {name for name in names if f"{TASK}:{name}" not in paused},
    )


def why_paused(tx: WriteTransaction, row: TaskRow, *, any_by_kind: bool) -> str | None:
    """Return the subject of the pause that keeps this task from being leased, if one does."""
    if row.held & PAUSED:
        return row.id
    if any_by_kind:
        queues, names = without_paused(tx, [row.queue], [row.name])
        if not names:
            return f"{TASK}:{row.name}"
        if not queues:
            return f"{QUEUE}:{row.queue}"
    return None


_FULL: Final = "holdfast: the queue is full"
"""What the trigger task_is_queued says."""


def set_queue(tx: WriteTransaction, name: str, change: QueueChange) -> QueueSettings:
    """See FlowVerbs."""
    if tx.first("settings_of_queue", name) is None:
        tx.run("insert_queue", name)
    before = _settings(tx, name)
    for setting, value in change.given().items():
        if getattr(before, setting) != value:
            stored = (value,) if setting != "retention" else (_retention_text(change), tx.now)
            tx.run(f"set_{setting}", name, *stored)
            if setting == "fair_by":
                turns.begin_again(tx, name, is_fair=value is not None)
    after = _settings(tx, name)
    if before.is_at_work and not after.is_at_work:
        tx.hints.add(f"queue:{name}")
    return after


def _retention_text(change: QueueChange) -> str | None:
    retention = change.given()["retention"]
    return None if retention is None else json.dumps(stored_retention(retention))  # type: ignore[arg-type]


def _settings(tx: WriteTransaction, name: str) -> QueueSettings:
    ((*row,),) = tx.all("settings_of_queue", name)
    return RECORDS.queue_settings(*row)


def queue_settings(reader: Reader) -> list[QueueSettings]:
    """See FlowVerbs."""
    return reader.all(RECORDS.queue_settings, "queue_settings")


def full_queue(tx: WriteTransaction, error: apsw.ConstraintError, queues: Iterable[str]) -> QueueFull | None:
    """Return which of these queues is full, if that is what the error of an insert says."""
    if _FULL not in str(error):
        return None
    found = [tx.first("settings_of_queue", name) for name in dict.fromkeys(queues)]
    full = [settings for row in found if row is not None and (settings := RECORDS.queue_settings(*row)).is_full]
    return QueueFull(full[0].name, full[0].max_pending or 0)
