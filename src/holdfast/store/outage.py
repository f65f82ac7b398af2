"""Outages: times in which a store cannot be used. The log gets a line when one begins, and a line when it is over.

Many activities of a process notice the same outage: heartbeats, claims, commits, reads. They share one Outage. The
first that fails begins it. It is over when none of them fails any more: on a server that can only be read for a while,
reads succeed all the time.
"""

from __future__ import annotations

import time

from holdfast.model.errors import NotAStore, SchemaMismatch, StoreDamaged, StoreError, StoreReplaced
from holdfast.redaction import make_logger

FIRST_PAUSE, LONGEST_PAUSE, _DOUBLINGS = 0.05, 2.0, 6
"""Seconds between one try and the next while something fails: longer and longer."""

REMIND_AFTER = 600.0
"""Seconds after which an outage that goes on is said again: what does not pass by itself would be silent for ever."""

_LASTING = (StoreReplaced, StoreDamaged, NotAStore, SchemaMismatch)
"""What no waiting mends. Each of them says itself what a person has to do."""

_log = make_logger(__name__)


def pause_after(failures: int) -> float:
    """Return how many seconds to wait after so many failures in a row."""
    return float(min(FIRST_PAUSE * 2 ** min(failures - 1, _DOUBLINGS), LONGEST_PAUSE))


class Outage:
    """What is known about outages of one store."""

    def __init__(self) -> None:
        """Begin with a store that can be used."""
        self._since: float | None = None
        self._said = 0.0
        self._failing: set[object] = set()

    @property
    def is_on(self) -> bool:
        """Whether the store cannot be used now."""
        return self._since is not None

    def failed(self, who: object, error: Exception, *, since: float | None = None) -> None:
        """Note that an activity fails, ``since`` that time on the monotonic clock or since now, and tries again."""
        self._failing.add(who)
        now = time.monotonic()
        if self._since is None:
            self._since, self._said = now if since is None else since, now
            if isinstance(error, _LASTING):
                _log.error("the store cannot be used here any more: %s", error)
            else:
                _log.warning("the store cannot be used now: %s; everything waits for it, and goes on by itself", error)
        elif now - self._said > REMIND_AFTER:
            self._said = now
            _log.warning("the store cannot be used since %.0f minutes: %s", (now - self._since) / 60, error)

    def worked(self, who: object) -> None:
        """Note that an activity succeeded."""
        if self._since is None:
            return
        self._failing.discard(who)
        if not self._failing:
            _log.warning("the store can be used again, after %.1f s", time.monotonic() - self._since)
            self._since = None

    def left(self, who: object) -> None:
        """Note that an activity tries no more. That says nothing about the store."""
        self._failing.discard(who)


class Reminder:
    """Says when it is time to log again that something still fails."""

    def __init__(self) -> None:
        """The first line has just been logged."""
        self._said = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether the next line is due. If so, it counts as logged."""
        now = time.monotonic()
        if now - self._said <= REMIND_AFTER:
            return False
        self._said = now
        return True


class Streak:
    """The failures in a row of one activity. The first is logged, and the pauses between them grow."""

    def __init__(self, what: str, outage: Outage | None = None) -> None:
        """``what`` names the activity, for the log. Its StoreErrors belong to ``outage``."""
        self._what = what
        self._outage = outage or Outage()
        self._failures = 0
        self._is_defect = False

    def failed(self, error: Exception) -> float:
        """Note a failure; return how many seconds to wait before the next try."""
        self._failures += 1
        if isinstance(error, StoreError):
            self._outage.failed(self, error)
        elif not self._is_defect:
            self._is_defect = True
            _log.error("%s failed, and will be tried again until it works", self._what, exc_info=error)
        return pause_after(self._failures)

    def worked(self) -> None:
        """Note a success."""
        if self._failures:
            if self._is_defect:
                _log.warning("%s works again, after %d failures", self._what, self._failures)
            self._failures, self._is_defect = 0, False
        self._outage.worked(self)

    def left(self) -> None:
        """Note that there will be no further try."""
        self._outage.left(self)
