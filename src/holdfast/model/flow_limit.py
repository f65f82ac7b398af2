"""Limits: how much all workers together may do at the same time, or in a time, under a name that they share.

A limit has a name. Its *keys* are what counts: ``openai`` for a limit of that name, and ``tenant:acme``,
``tenant:globex`` and so on for a limit ``tenant`` that holds for ``each`` apart. A *permit* is the right to use the
keys of one task, or of one step: all of them or none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from holdfast.model.checks import check_integer, check_moment, check_name
from holdfast.model.errors import InvalidValue, NotFound
from holdfast.model.ids import new_id

MAX_KEYS: Final = 8
"""Of one task, or of one step. All of them are taken together."""

MAX_KEY: Final = 200
"""Characters of a key: it stands in rows of indexes."""

MOST: Final = 1_000_000_000
"""The largest number of permits, calls or tokens."""

SHORTEST, LONGEST = timedelta(milliseconds=100), timedelta(days=400)
"""What ``per`` may be."""

_NOT_NAMES: Final = frozenset({"queue", "task", "schedule", "limit"})
"""Would be taken for something else where a subject is named: ``queue:deploys``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit as its owner has set it. None: not limited in this way."""

    name: str
    concurrency: int | None = None
    """How many tasks or steps may be at work with it at the same time."""
    rate: int | None = None
    """How many may begin in any time of the length ``per``."""
    tokens: int | None = None
    """How many tokens the calls that begin in any time of the length ``per`` may use."""
    per: timedelta | None = None
    burst: int = 0
    """How many more than ``rate`` may begin in one such time."""
    each: bool = False
    """It holds for each of its keys apart: ``tenant:acme``, ``tenant:globex``."""

    def __post_init__(self) -> None:
        """Reject limits that could not mean anything."""
        check_name("name of a limit", self.name)
        if ":" in self.name or self.name in _NOT_NAMES:
            raise InvalidValue(
                f"a limit cannot be named {self.name!r}: a name has no colon, and is not one of {sorted(_NOT_NAMES)}"
            )
        check_key_length(self.name)
        for what, value in (("concurrency", self.concurrency), ("rate", self.rate), ("tokens", self.tokens)):
            if value is not None:
                check_integer(what, value, lowest=1, highest=MOST)
        check_integer("burst", self.burst, lowest=0, highest=MOST)
        is_timed = self.rate is not None or self.tokens is not None
        if is_timed and self.per is None:
            raise InvalidValue(f"limit {self.name!r} has a rate; say in which time: per=timedelta(minutes=1)")
        if not is_timed and (self.per is not None or self.burst):
            raise InvalidValue(f"per= and burst= of limit {self.name!r} belong to rate= or tokens=; give one of them")
        if self.burst and self.rate is None:
            raise InvalidValue(f"burst= of limit {self.name!r} belongs to rate=, which is not given")
        if self.per is not None and not (isinstance(self.per, timedelta) and SHORTEST <= self.per <= LONGEST):
            raise InvalidValue(f"per of limit {self.name!r} is {self.per!r}; give a time from {SHORTEST} to {LONGEST}")

    @property
    def is_timed(self) -> bool:
        """Whether it counts what begins in a time."""
        return self.per is not None

    @property
    def validity(self) -> timedelta:
        """How long after it was given a permit may be used to begin. After that it is void, but counts all the same."""
        return validity_of(self.per)

    def allows(self, key: str) -> bool:
        """Return whether ``key`` has the form that this limit asks for."""
        return key.startswith(f"{self.name}:") and len(key) > len(self.name) + 1 if self.each else key == self.name


def validity_of(per: timedelta | None) -> timedelta:
    """Return for how long a permit may be used: a tenth of the time that it counts in, from 0.1 s to a second."""
    if per is None:
        return timedelta(seconds=1)
    return min(max(per / 10, timedelta(milliseconds=100)), timedelta(seconds=1))


def grain_of(per: timedelta) -> timedelta:
    """Return to which multiple the end of a permit's time is rounded up, so that few rows hold many permits."""
    return min(max(per / 100, timedelta(milliseconds=10)), timedelta(milliseconds=250))


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitUse:
    """How one key of a limit stands."""

    key: str
    limit: Limit
    taken: int = 0
    """Permits that tasks and steps have now."""
    waiting: int = 0
    """Steps that wait for a permit, and tasks that are ready and stand in the line of this key. Those that the next
    claim would get are among them; those that are paused themselves are not."""
    calls: int = 0
    """What counts against ``rate`` now. Counted by every limit with a ``per``."""
    tokens: int = 0
    """What counts against ``tokens`` now."""
    closed_until: datetime | None = None
    """A provider asked for this: nothing begins with it before. None, or past: it is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitRequest:
    """A step asks for a permit. The same id again is the same request: it keeps its place, or is answered as before."""

    id: str = field(default_factory=new_id)
    task_id: str
    worker_id: str
    keys: Sequence[str]
    tokens: int = 0
    """How many tokens the call will probably use. Counted by the keys that limit tokens, at most as their limit."""
    lasts: float
    """Seconds after which the call is over even if its worker died: its timeout and what it may take to settle."""
    valid_for: float = 0.0
    """Seconds for which the permit has to be valid, if that is longer than the ``validity`` of its limits: for a worker
    whose calls to the store take long. It counts for so much longer. Of one call, the longest is for all."""

    def __post_init__(self) -> None:
        """Reject a request that no store could keep."""
        check_name("permit id", self.id)
        check_name("task id", self.task_id)
        check_name("worker id", self.worker_id)
        check_keys(self.keys)
        if not self.keys:
            raise InvalidValue("a permit without keys would limit nothing")
        check_integer("tokens", self.tokens, lowest=0, highest=MOST)
        for what, seconds in (("lasts", self.lasts), ("valid_for", self.valid_for)):
            is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
            if not is_number or not 0 <= seconds <= LONGEST.total_seconds():
                raise InvalidValue(f"{what} is {seconds!r}; give seconds, at most {LONGEST}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitAnswer:
    """The answer to one request."""

    granted: bool
    waits_for: str | None = None
    """The key for which it has to wait."""
    paused: bool = False
    """That key, or its limit, is paused."""
    again_at: datetime | None = None
    """When time alone makes room for this request with that key, if nothing else happens before; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitReturn:
    """A step needs its permit no more, or waits for it no more."""

    id: str
    tokens: int | None = None
    """How many tokens the call used. None: as many as were reserved."""

    def __post_init__(self) -> None:
        """Reject what no store could count."""
        check_name("permit id", self.id)
        if self.tokens is not None:
            check_integer("tokens", self.tokens, lowest=0, highest=MOST)


def check_key_length(key: str) -> None:
    """Reject a key that is too long for the rows of an index."""
    if len(key) > MAX_KEY:
        raise InvalidValue(f"the limit {key[:40]!r}... has {len(key)} characters; at most {MAX_KEY} fit")


def check_keys(keys: Sequence[str]) -> tuple[str, ...]:
    """Return the keys in the order in which they are taken, each once; raise InvalidValue for what cannot be one."""
    if isinstance(keys, str) or not isinstance(keys, Sequence):
        raise InvalidValue(f"limits is {keys!r}; give a list of names, as ['openai', 'tenant:acme']")
    if len(keys) > MAX_KEYS:
        raise InvalidValue(f"{len(keys)} limits are too many for one task or step; at most {MAX_KEYS} fit")
    for key in keys:
        check_name("limit", key)
        check_key_length(key)
    return tuple(sorted(set(keys)))


def limit_name(key: str) -> str:
    """Return the name of the limit that a key belongs to."""
    return key.partition(":")[0]


def check_closing(until: datetime) -> None:
    """Reject a time without a zone."""
    check_moment("until", until)


def no_limit(key: str, limit: Limit | None) -> NotFound | InvalidValue:
    """Return the error for a key that names no limit, or has not the form that its limit asks for."""
    name = limit_name(key)
    if limit is None:
        return NotFound("limit", name, where=f"in this store; set it first: hold.limit({name!r}, concurrency=...)")
    if limit.each:
        return InvalidValue(f"limit {name!r} holds for each key apart; name one: '{name}:<key>'")
    return InvalidValue(f"limit {name!r} has no keys, so {key!r} is not one of them; name {name!r}")


def refuse_unknown(keys: Collection[str], limits: Mapping[str, Limit]) -> None:
    """Raise NotFound, or InvalidValue, for the first of these keys that is not one of these limits, by name."""
    for key in keys:
        limit = limits.get(limit_name(key))
        if limit is None or not limit.allows(key):
            raise no_limit(key, limit)
