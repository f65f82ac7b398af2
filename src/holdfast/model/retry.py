"""Retry: when to try again, decided apart from doing it.

``decide`` is pure: the engine passes the error, the time and a random number, and stores the answer, so that the
schedule of a retry survives a restart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeAlias, get_args

from holdfast.model.errors import InvalidValue

Jitter: TypeAlias = Literal["full", "equal", "none"]
ErrorKind: TypeAlias = type[BaseException] | str
"""An exception class, or its name: ``TimeoutError``, ``httpx.ConnectError``."""

_ONE_DAY = timedelta(days=1).total_seconds()
_LONGEST = timedelta(days=3650).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedError:
    """An error as the journal keeps it, after the exception itself is gone."""

    type_names: tuple[str, ...]
    """The qualified names of its class and of its base classes, most derived first."""
    retry_after: float | None = None

    @classmethod
    def of(cls, error: BaseException) -> RecordedError:
        """Return the part of ``error`` that a later decision needs."""
        return cls(type_names=tuple(map(qualified_name, type(error).__mro__)), retry_after=read_retry_after(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often, how soon and after which errors.

    The pause before attempt n+1 is ``initial * factor ** (n - 1)``, at most ``max_delay``, then jittered: "full" draws
    from 0 to the pause, "equal" from half of it to all of it, "none" keeps it, so that ``jitter="none"`` gives 1 s,
    2 s, 4 s, 8 s. With jitter, a thousand tasks that failed together do not retry together.

    If an error carries ``retry_after`` (seconds), the pause is at least that long, even above ``max_delay``. If a
    server asks for more than ``max_retry_after``, the retries end: the server does not allow an earlier retry, and this
    policy does not allow a longer wait.
    """

    max_attempts: int = 3
    initial: float = 1.0
    factor: float = 2.0
    max_delay: float = 60.0
    jitter: Jitter = "full"
    retry_on: tuple[ErrorKind, ...] = (Exception,)
    give_up_on: tuple[ErrorKind, ...] = ()
    """Takes precedence over ``retry_on``."""
    max_retry_after: float = _ONE_DAY
    away_on: tuple[ErrorKind, ...] = ()
    """Errors that mean that the other side cannot be reached. A step counts them apart: see max_away.

    A task counts all its attempts together, and allows max_away of them if the last one ended with such an error.
    """
    max_away: int = 60
    """Attempts in a row that may end with an error of ``away_on``. Their pauses grow like those of other attempts."""

    def __post_init__(self) -> None:
        """Reject a policy that cannot be followed."""
        for name in ("max_attempts", "max_away"):
            count = getattr(self, name)
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise InvalidValue(f"{name} is {count!r}; it must be a whole number of at least 1")
        for name, least in (("initial", 0.0), ("factor", 1.0), ("max_delay", 0.0), ("max_retry_after", 0.0)):
            number = getattr(self, name)
            if not least <= number <= _LONGEST:
                raise InvalidValue(f"{name} is {number!r}; it must be {least:g} to {_LONGEST:g}")
        if self.jitter not in get_args(Jitter):
            raise InvalidValue(f"jitter is {self.jitter!r}; choose one of {', '.join(get_args(Jitter))}")
        for name in ("retry_on", "give_up_on", "away_on"):
            object.__setattr__(self, name, check_kinds(name, getattr(self, name)))

    def backoff(self, attempt: int, random: float) -> float:
        """Return the pause in seconds after failed attempt number ``attempt`` (the first is 1)."""
        # A large exponent could overflow; the pause has reached max_delay long before.
        exponent = min(attempt - 1, 1000)
        try:
            pause = min(self.initial * self.factor**exponent, self.max_delay)
        except OverflowError:
            pause = self.max_delay
        if self.jitter == "full":
            return pause * random
        if self.jitter == "equal":
            return pause / 2 + pause / 2 * random
        return pause


@dataclass(frozen=True, slots=True)
class RetryAt:
    """Try again at this time, ``delay`` seconds from now."""

    at: datetime
    delay: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Do not try again, for this reason."""

    reason: str


def decide(
    policy: Retry,
    error: BaseException | RecordedError,
    attempt: int,
    now: datetime,
    random: float,
    *,
    deadline: datetime | None = None,
) -> RetryAt | GiveUp:
    """Decide what follows failed attempt number ``attempt`` (the first is 1); ``random`` is in [0, 1).

    For an error of ``away_on``, ``attempt`` counts the attempts in a row that ended with one.
    """
    name = error.type_names[0] if isinstance(error, RecordedError) else qualified_name(type(error))
    if matches(error, policy.give_up_on):
        return GiveUp(f"{name} is in give_up_on")
    if not matches(error, policy.retry_on):
        return GiveUp(f"{name} is not in retry_on")
    most = policy.max_away if matches(error, policy.away_on) else policy.max_attempts
    if attempt >= most:
        allowed = f"of {most} failed" if attempt <= most else "failed"
        return GiveUp(f"attempt {attempt} {allowed}")
    delay = policy.backoff(attempt, random)
    asked = error.retry_after if isinstance(error, RecordedError) else read_retry_after(error)
    if asked is not None:
        if asked > policy.max_retry_after:
            return GiveUp(f"asked to retry after {asked:g} s, more than max_retry_after ({policy.max_retry_after:g} s)")
        delay = max(delay, asked)
    at = now + timedelta(seconds=delay)
    if deadline is not None and at >= deadline:
        return GiveUp(f"deadline {deadline.isoformat()} comes before the next attempt at {at.isoformat()}")
    return RetryAt(at, delay)


def qualified_name(kind: type) -> str:
    """Return the name of a class as it is recorded: a built-in class without its module."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def check_kinds(name: str, kinds: Sequence[ErrorKind] | ErrorKind) -> tuple[ErrorKind, ...]:
    """Return the kinds as a tuple; reject anything but exception classes and their names."""
    listed = (kinds,) if isinstance(kinds, str | type) else tuple(kinds)
    for kind in listed:
        if not isinstance(kind, str) and not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise InvalidValue(f"{name} holds {kind!r}; name exception classes, or their names as text")
    return listed


def matches(error: BaseException | RecordedError, kinds: tuple[ErrorKind, ...]) -> bool:
    """Return whether the error is of one of these kinds, or of a class derived from them."""
    if isinstance(error, RecordedError):
        names = error.type_names
    else:
        if isinstance(error, tuple(kind for kind in kinds if not isinstance(kind, str))):
            return True
        names = tuple(map(qualified_name, type(error).__mro__))
    return any((kind if isinstance(kind, str) else qualified_name(kind)) in names for kind in kinds)


def read_retry_after(error: BaseException) -> float | None:
    """Return the seconds after which the error asks to try again; None if it does not."""
    asked = getattr(error, "retry_after", None)
    if isinstance(asked, timedelta):
        asked = asked.total_seconds()
    if isinstance(asked, bool) or not isinstance(asked, int | float):
        return None  # some libraries use the name for something else
    if (isinstance(asked, float) and math.isnan(asked)) or asked < 0:
        return None
    return float(min(asked, _LONGEST))  # the journal cannot hold infinity, and a float cannot hold every integer
