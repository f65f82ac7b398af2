"""Limits: their settings, how their keys stand, and closing one for a time."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from holdfast.model.errors import Conflict
from holdfast.model.flow_limit import Limit, LimitUse, limit_name, no_limit
from holdfast.store.base import ANYTHING
from holdfast.store.sqlite import lines
from holdfast.store.sqlite.limit_keys import Keys
from holdfast.store.sqlite.reader import Reader
from holdfast.store.sqlite.records import RECORDS
from holdfast.store.sqlite.rows import micros
from holdfast.store.sqlite.write_transaction import WriteTransaction

_MICROSECOND = timedelta(microseconds=1)
_MOST_KEYS = 1000
"""Keys that one sweep looks at, to find those that are idle."""
_BETWEEN_PARTS, _BETWEEN_WALKS = 1_000_000, 60_000_000


def set_limit(tx: WriteTransaction, limit: Limit) -> Limit:
    """See FlowVerbs."""
    before = _stored(tx, limit.name)
    if before == limit:
        return limit
    if before is not None and before.each != limit.each:
        raise Conflict(
            f"limit {limit.name!r} has each={before.each}, and tasks may name keys of it; set a limit of another name"
        )
    per = None if limit.per is None else limit.per // _MICROSECOND
    tx.run("put_limit", limit.name, limit.concurrency, limit.rate, limit.tokens, per, limit.burst, int(limit.each))
    if not limit.each:
        tx.run("insert_key", limit.name, limit.name)
    note_change(tx, limit.name)
    return limit


def limits(reader: Reader) -> list[Limit]:
    """See FlowVerbs."""
    return reader.all(RECORDS.limit, "limits")


def limit_uses(reader: Reader, name: str | None, limit: int) -> list[LimitUse]:
    """See FlowVerbs."""
    return reader.all(RECORDS.limit_use, "limit_uses", name, micros(reader.now()), limit)


def close_limit(tx: WriteTransaction, keys: Sequence[str], until: datetime) -> None:
    """See FlowVerbs. What was let out of a line finds the key closed when it is claimed, and is held again."""
    ensure_keys(tx, keys)
    tx.run_many("close_key", [(key, micros(until)) for key in keys])


def ensure_keys(tx: WriteTransaction, keys: Collection[str]) -> None:
    """Make the rows of these keys where they are missing. NotFound, or InvalidValue, for a key of no limit."""
    if not keys:
        return
    wanted = set(keys)
    known = {key for (key,) in tx.all("known_keys", json.dumps(sorted(wanted)))}
    for key in sorted(wanted - known):
        _check_key(tx, key)
        tx.run("insert_key", key, limit_name(key))


def sweep_keys(tx: WriteTransaction) -> None:
    """Delete the rows of idle keys, a part of all keys at a time. What looks at such a key next makes its row again."""
    due = tx.first("key_sweep_due", tx.now)
    if due is None:
        return
    keys = [key for (key,) in tx.all("next_keys", due[0], _MOST_KEYS)]
    if not keys and not due[0]:
        return  # a store without limits writes nothing
    Keys(tx).load(keys)  # what is over counts no more
    tx.run("delete_idle_keys", json.dumps(keys), tx.now)
    if len(keys) < _MOST_KEYS:
        tx.run("continue_key_sweep", "", tx.now + _BETWEEN_WALKS)
    else:
        tx.run("continue_key_sweep", keys[-1], tx.now + _BETWEEN_PARTS)


def check_limited(tx: WriteTransaction, name: str) -> None:
    """Accept the name of a limit, or a key of one; otherwise raise as ensure_keys does."""
    if _stored(tx, name) is None:
        _check_key(tx, name)


def note_change(tx: WriteTransaction, name: str) -> None:
    """Let out what a changed limit, or one key of it, has room for now; and hint it to the steps that wait."""
    tx.run("look_at_limit" if _stored(tx, name) is not None else "look_at_line", name)
    tx.hints.update(f"queue:{queue}" for queue in lines.let_out(tx, Keys(tx)).values())
    tx.hints.update(f"limit:{key}" for (key,) in tx.all("keys_that_steps_wait_for", name))
    if lines.has_more(tx):
        tx.hints.add(ANYTHING)  # the next claim lets them out, of whatever queue


def _check_key(tx: WriteTransaction, key: str) -> None:
    limit = _stored(tx, limit_name(key))
    if limit is None or not limit.allows(key):
        raise no_limit(key, limit)


def _stored(tx: WriteTransaction, name: str) -> Limit | None:
    found = tx.first("limit_by_name", name)
    return None if found is None else RECORDS.limit(*found)
