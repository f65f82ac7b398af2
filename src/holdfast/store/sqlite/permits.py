"""Permits of steps: asked for, granted in the order of the line, given back, and freed after their worker died."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from holdfast.model.flow_limit import PermitAnswer, PermitRequest, PermitReturn
from holdfast.store.sqlite import limits, lines
from holdfast.store.sqlite.limit_keys import Key, Keys
from holdfast.store.sqlite.rows import moment_or_none
from holdfast.store.sqlite.write_transaction import WriteTransaction

_MOST_BEFORE = 1000
"""So many that stand before a request are looked at. A request behind more of them waits."""


class _Row(NamedTuple):
    """A row of the query ``permit_rows``."""

    key: str
    place: int
    worker_id: str
    tokens: int
    lasts: int
    granted_at: int | None
    until: int | None
    reserved: int


def take_permits(tx: WriteTransaction, requests: Sequence[PermitRequest]) -> list[PermitAnswer]:
    """See FlowVerbs."""
    names = sorted({key for request in requests for key in request.keys})
    limits.ensure_keys(tx, names)
    keys = Keys(tx)
    keys.load(names)
    valid_for = round(max((request.valid_for for request in requests), default=0.0) * 1_000_000)
    asked: dict[str, list[_Row]] = {}
    for request in requests:
        if request.id not in asked:
            asked[request.id] = _stand_in_line(tx, keys, request, valid_for)
    granted = {permit_id for permit_id, rows in asked.items() if _is_granted(tx, keys, permit_id, rows, valid_for)}
    # After all grants: they say until when the others have to wait.
    return [
        PermitAnswer(granted=True) if request.id in granted else _refusal(tx, keys, request, asked[request.id])
        for request in requests
    ]


def _stand_in_line(tx: WriteTransaction, keys: Keys, request: PermitRequest, valid_for: int) -> list[_Row]:
    """Return the rows of a request; a new one gets the last place in the line of each key. None of a dead worker's."""
    rows = _rows(tx, request.id)
    keys.load(row.key for row in rows)  # the same id is the same request, whatever else it names now
    if rows and rows[0].granted_at is not None and not _renew(tx, keys, request.id, rows, valid_for):
        rows = _rows(tx, request.id)
    if rows or not _lives(tx, request.worker_id):
        return rows
    ((place,),) = tx.all("next_place")
    lasts = round(request.lasts * 1_000_000)
    for key in sorted(set(request.keys)):
        tx.run("insert_permit", request.id, key, place, request.task_id, request.worker_id, request.tokens, lasts)
    return _rows(tx, request.id)


def _is_granted(tx: WriteTransaction, keys: Keys, permit_id: str, rows: Sequence[_Row], valid_for: int) -> bool:
    """Say whether the request has its permit; it gets one that is free."""
    if not rows or rows[0].granted_at is not None:
        return bool(rows)
    if not _lives(tx, rows[0].worker_id) or any(_obstacle(tx, keys[row.key], row) for row in rows):
        return False
    _grant(tx, keys, permit_id, rows, valid_for)
    return True


def _refusal(tx: WriteTransaction, keys: Keys, request: PermitRequest, rows: Sequence[_Row]) -> PermitAnswer:
    if rows and _lives(tx, rows[0].worker_id):
        obstacles = (_obstacle(tx, keys[row.key], row) for row in rows)
        return next(answer for answer in obstacles if answer is not None)
    return PermitAnswer(granted=False, waits_for=min([row.key for row in rows] or request.keys))


def _rows(tx: WriteTransaction, permit_id: str) -> list[_Row]:
    return [_Row(*row) for row in tx.all("permit_rows", permit_id)]


def _lives(tx: WriteTransaction, worker_id: str) -> bool:
    ((lives,),) = tx.all("worker_lives", worker_id)
    return bool(lives)


def _obstacle(tx: WriteTransaction, key: Key, row: _Row) -> PermitAnswer | None:
    """Return why the request has to wait for this key, if it has to: what stands before it keeps its room free."""
    if key.is_paused:
        return PermitAnswer(granted=False, waits_for=key.key, paused=True)
    if key.is_closed(tx.now):
        return PermitAnswer(granted=False, waits_for=key.key, again_at=moment_or_none(key.closed_until))
    free, tokens = min(key.free_places, key.free_calls), key.counted(row.tokens)
    if free >= 1 and tokens <= key.free_tokens:
        before = tx.all("permits_before", key.key, row.place, min(free, _MOST_BEFORE))
        if len(before) < min(free, _MOST_BEFORE):
            reserved = sum(key.counted(asked) for (asked,) in before)
            if reserved + tokens <= key.free_tokens:
                return None
    return PermitAnswer(granted=False, waits_for=key.key, again_at=_next_chance(tx, key, tokens))


def _next_chance(tx: WriteTransaction, key: Key, tokens: int) -> datetime | None:
    """Return when what counts now leaves room for this request alone; None if time alone does not make room."""
    calls_missing = 1 - key.free_calls
    tokens_missing = tokens - key.free_tokens
    if calls_missing <= 0 and tokens_missing <= 0:
        return None
    for until, calls, used in tx.all("uses_of_key", key.key, tx.now):
        calls_missing -= calls
        tokens_missing -= used
        if calls_missing <= 0 and tokens_missing <= 0:
            return moment_or_none(until)
    return None


def _grant(tx: WriteTransaction, keys: Keys, permit_id: str, rows: Sequence[_Row], valid_for: int) -> None:
    """Take the places, and count the calls and the tokens."""
    settles_at = tx.now + max(max(keys[row.key].validity(), valid_for) + row.lasts for row in rows)
    for row in rows:
        key = keys[row.key]
        until, reserved = key.counts_until(tx.now, valid_for), key.counted(row.tokens)
        if until is not None:
            tx.run("add_use", row.key, until, 1, reserved, tx.now)
            keys.add(row.key, 1, reserved)
        tx.run("grant_permit", permit_id, row.key, tx.now, until, reserved, settles_at)
        key.taken += 1  # by a trigger


def _renew(tx: WriteTransaction, keys: Keys, permit_id: str, rows: Sequence[_Row], valid_for: int) -> bool:
    """Let what was granted before begin from now on: its answer was lost, and the call will count for longer.

    False if it counts no more. Then the request waits again at its place, which is before all that came later.
    """
    is_over = any(row.until is not None and row.until <= tx.now for row in rows)
    settles_at = tx.now + max(max(keys[row.key].validity(), valid_for) + row.lasts for row in rows)
    for row in rows:
        if is_over:
            tx.run("grant_permit", permit_id, row.key, None, None, 0, None)
            keys[row.key].taken -= 1
            continue
        until = row.until and max(row.until, keys[row.key].counts_until(tx.now, valid_for) or row.until)
        if until != row.until:
            tx.run("change_use", row.key, row.until, -1, -row.reserved)
            tx.run("delete_empty_use", row.key, row.until)
            tx.run("add_use", row.key, until, 1, row.reserved, tx.now)
        tx.run("grant_permit", permit_id, row.key, tx.now, until, row.reserved, settles_at)
    return not is_over


def return_permits(tx: WriteTransaction, returned: Sequence[PermitReturn]) -> None:
    """See FlowVerbs."""
    keys = Keys(tx)
    for permit in returned:
        rows = _rows(tx, permit.id)
        keys.load(row.key for row in rows)
        for row in rows:
            if permit.tokens is not None and row.until is not None and keys[row.key].token_limit is not None:
                _settle_tokens(tx, keys, row, row.until, permit.tokens - row.reserved)
        _delete(tx, permit.id, rows)
    tx.hints.update(f"queue:{queue}" for queue in lines.let_out(tx, Keys(tx)).values())


def _settle_tokens(tx: WriteTransaction, keys: Keys, row: _Row, until: int, more: int) -> None:
    """Replace what was reserved by what was used, where it still counts."""
    if more and tx.changes("change_use", row.key, until, 0, more):
        keys.add(row.key, 0, more)


def _delete(tx: WriteTransaction, permit_id: str, rows: Sequence[_Row]) -> None:
    tx.run("delete_permit", permit_id)
    tx.hints.update(f"limit:{row.key}" for row in rows)


def sweep_permits(tx: WriteTransaction, limit: int) -> int:
    """Delete what dead workers wait for, and what they had when their calls are over; return how many requests."""
    over = tx.all("permits_over", tx.now, limit)
    for permit_id, _, still_takes in over:
        if still_takes is None:
            _delete(tx, permit_id, _rows(tx, permit_id))
        else:
            tx.run("settle_permit_later", permit_id, tx.now, tx.now + still_takes)
    return len(over)
