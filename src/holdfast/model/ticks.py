"""Ticks: the moments at which a schedule fires. Pure: every worker that computes them gets the same ones.

``every`` counts elapsed time from the schedule's anchor, and knows no time zone. ``cron`` counts local time, with the
rules of Debian's cron where clocks are changed (docs/schedules.md, "When clocks change").
"""

from __future__ import annotations

import hashlib
from collections import deque
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from holdfast.model.errors import InvalidValue
from holdfast.model.schedule import SHORTEST_EVERY, UTC_ZONE, ScheduleSpec, check_spec

_FIRST_LOOK, _WIDER = timedelta(minutes=1), 4
_MAX_CRON = 200
_FRACTIONS = 1 << 32


class NoTick(InvalidValue):
    """There is no tick in the next fifty years."""


def check_times(spec: ScheduleSpec, now: datetime) -> None:
    """Refuse a spec that is not consistent, or has no ticks. InvalidValue says what to write instead."""
    check_spec(spec)
    if (spec.cron is None) == (spec.every is None):
        raise InvalidValue("give a schedule either cron=, as in cron='0 7 * * mon-fri', or every=, as a timedelta")
    if spec.every is not None:
        _check_every(spec, spec.every)
    next_tick(spec, now, now)


def _check_every(spec: ScheduleSpec, every: timedelta) -> None:
    if every < SHORTEST_EVERY:
        raise InvalidValue(f"every is {every}; the shortest is {SHORTEST_EVERY}")
    if spec.timezone != UTC_ZONE:
        raise InvalidValue("every= counts elapsed time and knows no time zone; leave timezone= out, or use cron=")
    if spec.jitter >= every:
        raise InvalidValue(f"jitter is {spec.jitter}, which is not less than every={every}; make it shorter")


def next_tick(spec: ScheduleSpec, anchor: datetime, after: datetime) -> datetime:
    """Return the first tick later than ``after``, in UTC."""
    try:
        if spec.every is not None:
            passed = max((after - anchor) // spec.every, 0)
            return (anchor + (passed + 1) * spec.every).astimezone(UTC)
        return _next_by_cron(spec.cron or "", find_zone(spec.timezone), after)
    except OverflowError as error:
        raise NoTick("the schedule has no tick before the year 9999; choose other times") from error


def latest_ticks(
    spec: ScheduleSpec, anchor: datetime, first: datetime, until: datetime, *, most: int
) -> list[datetime]:
    """Return the ticks from ``first``, which is one, to ``until``, oldest first; of many only the newest ``most``."""
    if until < first:
        return []
    if spec.every is not None:
        begin = max(first, anchor + ((until - anchor) // spec.every - most + 1) * spec.every)
        return _ticks_between(spec, anchor, begin, until, most=most)
    span = _FIRST_LOOK
    while True:  # backwards in growing steps: after a long time without workers there may be very many ticks
        if until - first <= span:
            return _ticks_between(spec, anchor, first, until, most=most)
        begin = until - span
        found = _ticks_between(spec, anchor, next_tick(spec, anchor, begin), until, most=most)
        if len(found) == most:
            return found
        span *= _WIDER


def _ticks_between(
    spec: ScheduleSpec, anchor: datetime, first: datetime, until: datetime, *, most: int
) -> list[datetime]:
    found: deque[datetime] = deque(maxlen=most)
    tick = first
    while tick <= until:
        found.append(tick)
        tick = next_tick(spec, anchor, tick)
    return list(found)


def due_time(spec: ScheduleSpec, name: str, tick: datetime) -> datetime:
    """Return when the task of a tick is submitted: the tick and its jitter, which all workers compute alike."""
    if not spec.jitter:
        return tick
    digest = hashlib.sha256(f"{name}\n{tick.astimezone(UTC).isoformat()}".encode()).digest()
    return tick + _longest_jitter(spec, tick) * (int.from_bytes(digest[:4]) / _FRACTIONS)


def _longest_jitter(spec: ScheduleSpec, tick: datetime) -> timedelta:
    """Return the jitter of the spec, or the time to the next tick if that is shorter: ticks become due in order.

    Only the next tick of a schedule is stored. One that was due behind later ones would be dropped with them.
    """
    try:
        return min(spec.jitter, next_tick(spec, tick, tick) - tick)
    except NoTick:
        return spec.jitter


@lru_cache(maxsize=256)
def find_zone(name: str) -> ZoneInfo:
    """Return a time zone of this machine."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError) as error:
        raise InvalidValue(
            f"timezone {name!r} is not known on this machine; write a name such as 'Europe/Berlin', or install the "
            "zones: pip install tzdata"
        ) from error


def _next_by_cron(cron: str, zone: ZoneInfo, after: datetime) -> datetime:
    ticks = _cron_from(cron, after.astimezone(zone))
    for local in ticks:
        tick = local.astimezone(UTC)
        if tick > after:  # in the hour that comes twice, cronsim begins with the first one
            return tick
    raise NoTick(f"cron {cron!r} has no tick in the next 50 years; choose days that exist")


def _cron_from(cron: str, local: datetime) -> CronSim:
    if not isinstance(cron, str) or len(cron) > _MAX_CRON:
        raise InvalidValue(f"cron is {str(cron)[:_MAX_CRON]!r}; write an expression such as '0 7 * * mon-fri'")
    try:
        return CronSim(cron, local)
    except (CronSimError, AssertionError) as error:
        raise InvalidValue(
            f"cron {cron!r} cannot be read ({error}); write minute, hour, day of month, month and day of week, as in "
            "'0 7 * * mon-fri'"
        ) from error
