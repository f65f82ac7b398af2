"""Limits: their settings, how their keys stand, and the lines of the tasks that wait for them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import psycopg

from holdfast.model.errors import Conflict, StoreError
from holdfast.model.flow_limit import Limit, LimitUse, grain_of
from holdfast.store.postgres.database import Database
from holdfast.store.postgres.parameters import TextArray
from holdfast.store.postgres.records import RECORDS

MOST_PROMOTED: Final = 1000
"""Tasks made claimable in one transaction: it holds the locks of their keys."""

MOST_KEYS: Final = 1000
"""Keys that one sweep looks at, to find those that are idle."""

_MICROSECOND: Final = timedelta(microseconds=1)


async def set_limit(db: Database, limit: Limit) -> Limit:
    """See FlowVerbs."""
    per = None if limit.per is None else limit.per // _MICROSECOND
    grain = None if limit.per is None else grain_of(limit.per) // _MICROSECOND
    settings = (limit.name, limit.concurrency, limit.rate, limit.tokens, per, limit.burst, limit.each)
    try:
        [(hints,)] = await db.fetch("set_limit", *settings, limit.validity // _MICROSECOND, grain)
    except StoreError as error:
        cause = error.__cause__
        if isinstance(cause, psycopg.Error) and cause.sqlstate == "HF010":
            raise _keeps_its_keys(limit) from None
        raise
    db.publish(hints or ())
    return limit


def _keeps_its_keys(limit: Limit) -> Conflict:
    was, becomes = ("has no keys", "each=True") if limit.each else ("holds for each of its keys apart", "each=False")
    return Conflict(
        f"limit {limit.name!r} {was}, and tasks are stored that name it so; it cannot become {becomes}: "
        "set a limit of another name"
    )


async def limits(db: Database) -> list[Limit]:
    """See FlowVerbs."""
    return await db.all(RECORDS.limit, "limits")


async def limit_uses(db: Database, name: str | None, limit: int) -> list[LimitUse]:
    """See FlowVerbs."""
    return await db.all(RECORDS.limit_use, "limit_uses", name, limit, db.at())


async def close_limit(db: Database, keys: Sequence[str], until: datetime) -> None:
    """See FlowVerbs."""
    await db.fetch("close_limit", TextArray(keys), until)


async def give_turns(db: Database, queues: Sequence[str] | None) -> bool:
    """Give turns to the tasks of fair queues that have none. Return whether there is something to promote now."""
    [(has_line,)] = await db.fetch("give_turns", None if queues is None else TextArray(queues), db.at())
    return bool(has_line)


async def promote(db: Database) -> None:
    """Make the first tasks of lines claimable, of keys for which something was noted or whose time has come."""
    [(hints,)] = await db.fetch("promote", MOST_PROMOTED, db.at())
    db.publish(hints)


async def sweep_keys(db: Database) -> None:
    """Delete the rows of keys that are idle, a part of all keys at a time."""
    await db.fetch("sweep_keys", MOST_KEYS, db.at())
