"""How far a task has read each channel of events."""

from __future__ import annotations

from holdfast.engine.attempt.journal import Journal
from holdfast.model.codec import decode


class EventCursors:
    """The channels that one attempt has read from."""

    __slots__ = ("_cursors", "_journal", "_reserved")

    def __init__(self, journal: Journal) -> None:
        """Start unread: most tasks wait for no event, so the journal is searched only when a cursor is needed."""
        self._journal = journal
        self._cursors: dict[str, int] | None = None
        self._reserved: dict[str, set[int]] = {}

    def read(self) -> dict[str, int]:
        """Return the number of the last event that was read from each channel.

        It comes from the whole journal, before any wait is replayed. Two branches that wait on one channel may replay
        in any order, and neither may get an event that the other one got.
        """
        if self._cursors is None:
            self._cursors = {}
            for step in self._journal.completed("event"):
                got = decode(step.output or b"", name=f"event {step.key!r}")
                self._cursors[got["channel"]] = max(self._cursors.get(got["channel"], 0), got["number"])
        return self._cursors

    def reserved(self, channel: str) -> set[int]:
        """Return the numbers of events that branches have found and not recorded yet."""
        return self._reserved.setdefault(channel, set())
