"""Submitting tasks and emitting events: how things get into the store from outside a lease."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import psycopg

from holdfast.model.canonical import canonical
from holdfast.model.errors import StoreError
from holdfast.model.records import Event
from holdfast.model.task import JsonValue, NewTask, Submitted
from holdfast.redaction import make_logger
from holdfast.store.postgres.batch import encode_tasks, lone_task
from holdfast.store.postgres.connections import Row
from holdfast.store.postgres.database import Database
from holdfast.store.postgres.errors import is_refused
from holdfast.store.postgres.parameters import ByteaArray
from holdfast.store.postgres.records import RECORDS

_log = make_logger(__name__)


async def submit(db: Database, tasks: Sequence[NewTask]) -> list[Submitted]:
    """See WorkVerbs."""
    if not tasks:
        return []
    answers = (await _submit_one(db, tasks[0]) if len(tasks) == 1 else None) or await _submit_many(db, tasks)
    db.publish(hints_of(tasks, answers))
    return answers


def hints_of(tasks: Sequence[NewTask], answers: Sequence[Submitted]) -> set[str]:
    """Return the topics of what these submissions changed."""
    changed = [
        (task.queue, answer.task_id)
        for task, answer in zip(tasks, answers, strict=True)
        if answer.created or (task.replaces and not answer.conflict)
    ]
    return {f"queue:{queue}" for queue, _ in changed} | {f"task:{task_id}" for _, task_id in changed}


async def _submit_one(db: Database, task: NewTask) -> list[Submitted] | None:
    """Take the short way for a lone task; None: not possible, or its id is taken."""
    values = lone_task(task)
    if values is None:
        return None
    try:
        stored = await db.fetch("submit_one", db.at(), *values)
    except StoreError as error:
        if is_refused(error.__cause__):
            return None  # submit meets the same refusal, or finds who was faster
        raise
    return [Submitted(task_id=task.id, created=True)] if stored else None


async def _submit_many(db: Database, tasks: Sequence[NewTask]) -> list[Submitted]:
    return read_answers(tasks, await db.fetch("submit", *submission(tasks, db.at())))


def submission(tasks: Sequence[NewTask], at: datetime | None) -> tuple[str, ByteaArray, bool, datetime | None]:
    """Return the values of the query submit."""
    return (*encode_tasks(tasks), has_to_be_in_order(tasks), at)


def has_to_be_in_order(tasks: Sequence[NewTask]) -> bool:
    """Return whether the tasks have to be stored one after the other, because they may meet each other."""
    return _share_id_or_key(tasks) or any(task.replaces for task in tasks)


def read_answers(tasks: Sequence[NewTask], found: Sequence[Row]) -> list[Submitted]:
    """Return what became of each task: the database answers for those that are not new."""
    others = {n: Submitted(task_id=task_id, created=False, conflict=conflict) for n, task_id, _, conflict in found}
    return [others.get(n) or Submitted(task_id=task.id, created=True) for n, task in enumerate(tasks)]


def is_refusal(error: psycopg.Error) -> bool:
    """Say whether a submission was refused for what it asks for, by a rule of ours or by the database."""
    return (error.sqlstate or "").startswith("HF") or is_refused(error)


def _share_id_or_key(tasks: Sequence[NewTask]) -> bool:
    """Say whether two of the tasks share an id or a key, so that the later one must find the earlier one."""
    ids = {task.id for task in tasks}
    keys = [(task.name, task.key) for task in tasks if task.key is not None]
    return len(ids) < len(tasks) or len(set(keys)) < len(keys)


async def emit(db: Database, channel: str, payload: JsonValue, key: str | None, actor: str) -> Event:
    """See WorkVerbs."""
    body = canonical(payload, name="payload")
    # Without a key, an event whose answer was lost cannot be distinguished from one that never arrived.
    [(hints, *event)] = await db.fetch("emit", channel, key, body, actor, db.at(), repeatable=key is not None)
    db.publish(hints)
    return RECORDS.event(*event)
