"""Verbs about the feed: everything that happens in the store, in an order that every reader sees."""

from __future__ import annotations

from holdfast.model.feed import OLDEST, FeedPage, FeedRetention, read_cursor
from holdfast.store.backend import Backend, Pending
from holdfast.store.checks import check_limit


class FeedVerbs:
    """The feed. What appends to it is every other verb, in the transaction of its change."""

    _backend: Backend

    def read_feed(self, after: str | None = None, *, limit: int = 500) -> Pending[FeedPage]:
        """Return the events behind a place, in order, about ``limit`` of them, and the place where they end.

        Without ``after`` it is where the feed ends now, without events; ``"oldest"`` is where it begins. Every event is
        returned once, to all readers in one order. The events of a task are in the order in which they happened. What a
        transaction that is still open has written comes behind what was committed before.

        There may be more than ``limit``: the events of one statement are not torn apart. Raises CursorLost if events
        behind the place were deleted, or if this store never had it: a server took over without it, or a backup.
        """
        if after not in {None, OLDEST}:
            read_cursor(after or "")
        check_limit(limit)
        return self._backend.read_feed(after, limit)

    def set_feed_retention(self, retention: FeedRetention) -> Pending[None]:
        """Keep events as long as this says. ``sweep`` deletes what is older, about once a minute."""
        return self._backend.set_feed_retention(retention)

    def feed_retention(self) -> Pending[FeedRetention]:
        """Return how long events are kept."""
        return self._backend.feed_retention()
