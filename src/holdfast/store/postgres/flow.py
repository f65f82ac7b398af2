"""What is paused, and the settings of queues."""

from __future__ import annotations

import msgspec
import psycopg

from holdfast.model.errors import Conflict, NotFound, StoreError, StoreUnavailable
from holdfast.model.pause import LIMIT, QUEUE, Pause, kind_of, nothing_to_pause
from holdfast.model.queue_settings import QueueChange, QueueSettings, stored_retention
from holdfast.store.base import ANYTHING
from holdfast.store.postgres.database import Database
from holdfast.store.postgres.records import RECORDS

_to_json = msgspec.json.Encoder().encode


async def pause(db: Database, subject: str, by: str, reason: str | None) -> Pause:
    """See FlowVerbs."""
    if kind_of(subject) == LIMIT:
        return RECORDS.pause(*(await db.fetch("pause_limit", subject, by, reason, db.at()))[0])
    is_task = kind_of(subject) is None
    try:
        [row] = await db.fetch("pause", subject, is_task, by, reason, db.at())
    except NotFound:
        raise nothing_to_pause(subject) from None
    except StoreError as error:
        cause = error.__cause__
        if isinstance(cause, psycopg.Error) and cause.sqlstate == "HF005":
            raise Conflict(f"task {subject} is {cause.diag.message_detail}; there is nothing left to pause") from None
        raise
    if is_task:
        db.publish({f"task:{subject}"})
    return RECORDS.pause(*row)


async def unpause(db: Database, subject: str) -> bool:
    """See FlowVerbs."""
    kind = kind_of(subject)
    if kind == LIMIT:
        [(hints,)] = await db.fetch("unpause_limit", subject)
        db.publish(hints or ())
        return hints is not None
    [(queues,)] = await db.fetch("unpause", subject, kind is None)
    if queues is None:
        return False
    if kind is None:
        db.publish({f"task:{subject}", *(f"queue:{queue}" for queue in queues)})
    else:
        db.publish({subject if kind == QUEUE else ANYTHING})
    return True


async def pauses(db: Database) -> list[Pause]:
    """See FlowVerbs."""
    return await db.all(RECORDS.pause, "pauses")


async def set_queue(db: Database, name: str, change: QueueChange) -> QueueSettings:
    """See FlowVerbs."""
    given = change.given()
    if "retention" in given:
        given["retention"] = stored_retention(given["retention"])  # type: ignore[arg-type]
    try:
        await db.fetch("set_queue", name, _to_json(given).decode())
    except StoreError as error:
        cause = error.__cause__
        if isinstance(cause, psycopg.errors.LockNotAvailable):
            raise StoreUnavailable(
                f"the tasks of queue {name!r} could not be counted, because a transaction that submits tasks stays "
                "open; nothing was changed. Set the queue again when that transaction is over"
            ) from error
        raise
    [row] = await db.fetch("settings_of_queue", name)
    if "concurrency" in change.given():
        db.publish({f"queue:{name}"})
    return RECORDS.queue_settings(*row)


async def queue_settings(db: Database) -> list[QueueSettings]:
    """See FlowVerbs."""
    return await db.all(RECORDS.queue_settings, "queue_settings")
