"""set_limit, limits, limit_uses, close_limit, take_permits, return_permits; and what has room for what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from holdfast.model.errors import Conflict
from holdfast.model.flow_limit import (
    Limit,
    LimitUse,
    PermitAnswer,
    PermitRequest,
    PermitReturn,
    grain_of,
    limit_name,
    no_limit,
)
from holdfast.model.task import Task
from holdfast.model.worker import WorkerState
from tests.store.stateful.oracle.tables import NOT_READY, PermitRow, Tables, TaskRow

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def set_limit(tables: Tables, limit: Limit) -> Limit:
    before = tables.flow_limits.get(limit.name)
    if before is not None and before.each != limit.each:
        raise Conflict(f"limit {limit.name} has each={before.each}")
    tables.flow_limits[limit.name] = limit
    if not limit.each:
        tables.keys.setdefault(limit.name, None)
    return limit


def check_keys_of(tables: Tables, keys: Iterable[str]) -> None:
    """Raise for a key of no limit, and note the others."""
    for key in sorted(keys):
        limit = tables.flow_limits.get(limit_name(key))
        if limit is None or not limit.allows(key):
            raise no_limit(key, limit)
    for key in keys:
        tables.keys.setdefault(key, None)


def check_pausable(tables: Tables, name: str) -> None:
    if name not in tables.flow_limits:
        limit = tables.flow_limits.get(limit_name(name))
        if limit is None or not limit.allows(name):
            raise no_limit(name, limit)


def close_limit(tables: Tables, keys: Sequence[str], until: datetime) -> None:
    check_keys_of(tables, keys)
    for key in keys:
        before = tables.keys[key]
        tables.keys[key] = until if before is None else max(before, until)


def limit_uses(tables: Tables, name: str | None, limit: int, now: datetime) -> list[LimitUse]:
    of_tasks = {key for row in tables.tasks.values() for key in row.task.limits}
    found = [_use(tables, key, now) for key in sorted(of_tasks | tables.keys.keys()) if name in {None, limit_name(key)}]
    known = [use for use in found if use.key in tables.keys or _is_used(use)]
    return sorted(known, key=lambda use: not _is_used(use))[:limit]


def _is_used(use: LimitUse) -> bool:
    return bool(use.taken or use.waiting or use.calls or use.tokens)


def _use(tables: Tables, key: str, now: datetime) -> LimitUse:
    steps = [permit for permit in _line(tables, key) if _lives(tables, permit.request.worker_id)]
    return LimitUse(
        key=key,
        limit=tables.flow_limits[limit_name(key)],
        taken=taken(tables, key),
        waiting=len(steps) + sum(row.task.waits_for == key for row in waiting_tasks(tables)),
        calls=sum(calls for calls, _ in _uses(tables, key, now)),
        tokens=sum(tokens for _, tokens in _uses(tables, key, now)),
        closed_until=tables.keys[key] if _is_closed(tables, key, now) else None,
    )


def waiting_tasks(tables: Tables) -> Iterator[TaskRow]:
    """Yield the tasks with limits that are ready, and not paused themselves."""
    for row in tables.tasks.values():
        if row.task.limits and row.ready != NOT_READY and row.task.id not in tables.pauses:
            yield row


def taken(tables: Tables, key: str) -> int:
    at_work = [row.task for row in tables.tasks.values() if row.task.owner is not None and not row.task.resting]
    granted = [permit for permit in tables.permits.values() if permit.granted_at is not None]
    return sum(key in task.limits for task in at_work) + sum(key in permit.keys for permit in granted)


def _uses(tables: Tables, key: str, now: datetime) -> list[tuple[int, int]]:
    return [use for (name, until), use in tables.uses.items() if name == key and until > now]


def _is_paused(tables: Tables, key: str) -> bool:
    return not tables.pauses.keys().isdisjoint({f"limit:{key}", f"limit:{limit_name(key)}"})


def _is_closed(tables: Tables, key: str, now: datetime) -> bool:
    until = tables.keys.get(key)
    return until is not None and until > now


def _free(tables: Tables, key: str, now: datetime) -> tuple[float, float, float]:
    """Return how many places, calls and tokens are free."""
    limit = tables.flow_limits[limit_name(key)]
    calls, tokens = (sum(counts) for counts in zip((0, 0), *_uses(tables, key, now), strict=True))
    unlimited = float("inf")
    return (
        unlimited if limit.concurrency is None else limit.concurrency - taken(tables, key),
        unlimited if limit.rate is None else limit.rate + limit.burst - calls,
        unlimited if limit.tokens is None else limit.tokens - tokens,
    )


def full_key(tables: Tables, keys: Collection[str], now: datetime) -> str | None:
    """Return the first key that has no room for a task."""
    for key in keys:
        places, calls, _ = _free(tables, key, now)
        if _is_paused(tables, key) or _is_closed(tables, key, now) or min(places, calls) < 1:
            return key
    return None


def begin(tables: Tables, task: Task, now: datetime) -> None:
    """Count a task that begins."""
    for key in task.limits:
        _count(tables, key, counts_until(tables, key, now), 1, 0)


def counts_until(tables: Tables, key: str, now: datetime, valid_for: timedelta = timedelta(0)) -> datetime | None:
    limit = tables.flow_limits[limit_name(key)]
    if limit.per is None:
        return None
    end, grain = now + max(limit.validity, valid_for) + limit.per - _EPOCH, grain_of(limit.per)
    return _EPOCH + -(-end // grain) * grain


def _count(tables: Tables, key: str, until: datetime | None, calls: int, tokens: int) -> None:
    if until is not None:
        before = tables.uses.get((key, until), (0, 0))
        tables.uses[key, until] = before[0] + calls, before[1] + tokens


def stand_in_lines(tables: Tables, now: datetime) -> None:
    """Send each task that waits for a key with room to the line of another one that is full."""
    for row in list(waiting_tasks(tables)):
        task = row.task
        assert task.waits_for is not None
        if full_key(tables, [task.waits_for], now) is None:
            tables.change_task(task.id, waits_for=full_key(tables, task.limits, now) or task.waits_for)


def next_looks(tables: Tables, now: datetime) -> Iterator[datetime]:
    """Yield when time alone makes room for a task, or frees a permit of a dead worker."""
    lines = Counter((row.task.waits_for, row.task.queue, row.task.name, row.ready) for row in waiting_tasks(tables))
    for (key, *_), count in lines.items():
        assert key is not None
        places, calls, _ = _free(tables, key, now)
        if _is_paused(tables, key):
            continue
        if _is_closed(tables, key, now):
            yield from (until for until in [tables.keys[key]] if until is not None)
        elif count > min(places, calls) and places >= max(calls, 1):
            yield from sorted(until for name, until in tables.uses if name == key and until > now)[:1]
    for permit in tables.permits.values():
        if permit.settles_at is not None and not _lives(tables, permit.request.worker_id):
            yield permit.settles_at


def take_permits(tables: Tables, requests: Sequence[PermitRequest], now: datetime) -> list[PermitAnswer]:
    check_keys_of(tables, {key for request in requests for key in request.keys})
    valid_for = timedelta(seconds=max((request.valid_for for request in requests), default=0.0))
    for request in requests:
        permit = tables.permits.get(request.id)
        if permit is not None and permit.granted_at is not None:
            _renew(tables, permit, now, valid_for)
        elif permit is None and _lives(tables, request.worker_id):
            place = max((permit.place for permit in tables.permits.values()), default=0) + 1
            tables.permits[request.id] = PermitRow(request=request, place=place)
    for request in requests:
        permit = tables.permits.get(request.id)
        if permit is not None and permit.granted_at is None and _refusal(tables, request, now) is None:
            _grant(tables, permit, now, valid_for)
    answers = [_refusal(tables, request, now) for request in requests]
    return [PermitAnswer(granted=True) if answer is None else answer for answer in answers]


def _refusal(tables: Tables, request: PermitRequest, now: datetime) -> PermitAnswer | None:
    """Return why a request has no permit, and cannot have one; None: it has, or could."""
    permit = tables.permits.get(request.id)
    if permit is None:
        return PermitAnswer(granted=False, waits_for=min(request.keys))
    if permit.granted_at is not None:
        return None
    if not _lives(tables, permit.request.worker_id):
        return PermitAnswer(granted=False, waits_for=min(permit.keys))
    obstacles = (_obstacle(tables, permit, key, now) for key in permit.keys)
    return next((answer for answer in obstacles if answer is not None), None)


def _obstacle(tables: Tables, permit: PermitRow, key: str, now: datetime) -> PermitAnswer | None:
    if _is_paused(tables, key):
        return PermitAnswer(granted=False, waits_for=key, paused=True)
    if _is_closed(tables, key, now):
        return PermitAnswer(granted=False, waits_for=key, again_at=tables.keys[key])
    before = [other for other in _line(tables, key) if other.place < permit.place]
    before = [other for other in before if _lives(tables, other.request.worker_id)]
    places, calls, tokens = _free(tables, key, now)
    asked = sum(_reserved(tables, other, key) for other in [*before, permit])
    if min(places, calls) > len(before) and asked <= tokens:
        return None
    return PermitAnswer(granted=False, waits_for=key, again_at=_next_chance(tables, permit, key, now))


def _next_chance(tables: Tables, permit: PermitRow, key: str, now: datetime) -> datetime | None:
    """Return when there is room for this request alone, if that is later than now and known."""
    for moment in [now, *sorted(until for name, until in tables.uses if name == key and until > now)]:
        _, calls, tokens = _free(tables, key, moment)
        if calls >= 1 and _reserved(tables, permit, key) <= tokens:
            return None if moment == now else moment
    return None


def _reserved(tables: Tables, permit: PermitRow, key: str) -> int:
    limit = tables.flow_limits[limit_name(key)]
    return 0 if limit.tokens is None else min(permit.request.tokens, limit.tokens)


def _grant(tables: Tables, permit: PermitRow, now: datetime, valid_for: timedelta) -> None:
    uses = {key: (counts_until(tables, key, now, valid_for), _reserved(tables, permit, key)) for key in permit.keys}
    for key, (until, tokens) in uses.items():
        _count(tables, key, until, 1, tokens)
    tables.permits[permit.request.id] = replace(
        permit, granted_at=now, uses=uses, settles_at=_settles_at(tables, permit, now, valid_for)
    )


def _settles_at(tables: Tables, permit: PermitRow, now: datetime, valid_for: timedelta) -> datetime:
    validity = max(valid_for, *(tables.flow_limits[limit_name(key)].validity for key in permit.keys))
    return now + validity + timedelta(seconds=permit.request.lasts)


def _renew(tables: Tables, permit: PermitRow, now: datetime, valid_for: timedelta) -> None:
    """Let it count from now on; or have it wait again, if any use of it counts no more."""
    permit_id = permit.request.id
    if any(until is not None and until <= now for until, _ in permit.uses.values()):
        tables.permits[permit_id] = replace(permit, granted_at=None, uses={}, settles_at=None)
        return
    uses = {}
    for key, (until, tokens) in permit.uses.items():
        later = counts_until(tables, key, now, valid_for)
        _count(tables, key, until, -1, -tokens)
        uses[key] = (until if until is None or later is None else max(until, later), tokens)
        _count(tables, key, uses[key][0], 1, tokens)
    tables.permits[permit_id] = replace(
        permit, granted_at=now, uses=uses, settles_at=_settles_at(tables, permit, now, valid_for)
    )


def return_permits(tables: Tables, returned: Sequence[PermitReturn], now: datetime) -> None:
    for given in returned:
        permit = tables.permits.pop(given.id, None)
        if permit is None or given.tokens is None:
            continue
        for key, (until, reserved) in permit.uses.items():
            if until is not None and until > now and tables.flow_limits[limit_name(key)].tokens is not None:
                _count(tables, key, until, 0, given.tokens - reserved)


def forget_idle_keys(tables: Tables, now: datetime) -> None:
    """Forget the keys that nothing uses, of limits that hold for each key apart."""
    for key in list(tables.keys):
        use = _use(tables, key, now)
        if use.limit.each and not _is_used(use) and not _is_closed(tables, key, now):
            del tables.keys[key]


def sweep_permits(tables: Tables, limit: int, now: datetime) -> int:
    dead = [permit for permit in tables.permits.values() if not _lives(tables, permit.request.worker_id)]
    over = [permit for permit in dead if permit.settles_at is None or permit.settles_at <= now]
    over.sort(key=lambda permit: (permit.settles_at or _EPOCH, permit.request.id))
    for permit in over[:limit]:
        del tables.permits[permit.request.id]
    return len(over[:limit])


def _line(tables: Tables, key: str) -> list[PermitRow]:
    waiting = [permit for permit in tables.permits.values() if permit.granted_at is None and key in permit.keys]
    return sorted(waiting, key=lambda permit: permit.place)


def _lives(tables: Tables, worker_id: str) -> bool:
    return worker_id in tables.workers and tables.workers[worker_id].worker.state is not WorkerState.DEAD
