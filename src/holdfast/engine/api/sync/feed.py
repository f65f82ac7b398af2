"""SyncFeed: the feed for blocking code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self

from holdfast.engine.api.feed import Feed
from holdfast.engine.api.sync.loop_thread import LoopThread
from holdfast.model.errors import StoreError
from holdfast.model.feed import FeedEvent


class SyncFeed(Iterator[FeedEvent]):
    """What happens to all tasks, in order: ``for event in h.feed(kinds=["task.*"])``."""

    def __init__(self, thread: LoopThread, feed: Feed) -> None:
        """``h.feed`` makes it."""
        self._thread = thread
        self._feed = feed

    @property
    def cursor(self) -> str | None:
        """See Feed."""
        return self._feed.cursor

    def __iter__(self) -> Self:
        """Return itself."""
        return self

    def __next__(self) -> FeedEvent:
        """Block until the next event, and return it."""
        event = self._thread.wait(self._next())
        if event is None:
            raise StopIteration
        return event

    async def _next(self) -> FeedEvent | None:
        return await anext(self._feed, None)

    def close(self) -> None:
        """Stop reading."""
        # Not waited for: the garbage collector may do it, on any thread.
        with suppress(StoreError):  # the store is closed, or belongs to the parent process
            self._thread.send(self._feed.aclose())

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop reading."""
        self.close()

    def __del__(self) -> None:
        """Stop reading."""
        self.close()
