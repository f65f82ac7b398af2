"""What is paused, and the settings of queues."""

from __future__ import annotations

import psycopg

from holdfast.model.errors import Conflict, NotFound, StoreError
from holdfast.model.pause import QUEUE, Pause, kind_of, nothing_to_pause
from holdfast.model.queue_settings import KEEP, Keep, QueueSettings
from holdfast.store.base import ANYTHING
from holdfast.store.postgres.database import Database
from holdfast.store.postgres.records import RECORDS


async def pause(db: Database, subject: str, by: str, reason: str | None) -> Pause:
    """See FlowVerbs."""
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


async def set_queue(db: Database, name: str, max_pending: int | Keep | None) -> QueueSettings:
    """See FlowVerbs."""
    changes_limit = max_pending is not KEEP
    await db.fetch("set_queue", name, changes_limit, max_pending if changes_limit else None)
    [row] = await db.fetch("settings_of_queue", name)
    return RECORDS.queue_settings(*row)


async def queue_settings(db: Database) -> list[QueueSettings]:
    """See FlowVerbs."""
    return await db.all(RECORDS.queue_settings, "queue_settings")
