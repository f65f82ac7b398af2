"""Feed: everything that happens, as an asynchronous iterator. ``hold.feed`` returns it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Self

from holdfast.engine.runtime.feed_pump import FeedReader
from holdfast.engine.runtime.services import Services
from holdfast.model.feed import OLDEST, FeedEvent, FeedFilter, read_cursor
from holdfast.store.transaction import refuse_inside


class Feed:
    """What happens to all tasks, in order: ``async for event in hold.feed(kinds=["task.*"])``.

    ``async with`` it, or ``aclose()`` it, to stop at once; otherwise it stops when it is garbage.
    """

    def __init__(self, services: Services, after: str | None, wanted: FeedFilter, *, follow: bool) -> None:
        """``hold.feed`` makes it."""
        refuse_inside("hold.feed")
        if after not in {None, OLDEST}:
            read_cursor(after or "")
        self._reader = FeedReader(services.store, services.feed, after, wanted, follow=follow)
        self._stream = _read(self._reader, services.feed.reading if follow else nullcontext)

    @property
    def cursor(self) -> str | None:
        """Where it is: behind everything that was looked at, also what the filter left out. None before the first look.

        Keep it rather than that of the last event, if the events you want are rare: an old cursor is kept no longer.
        """
        return self._reader.cursor

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> FeedEvent:
        """Return the next event."""
        return await anext(self._stream)

    async def aclose(self) -> None:
        """Stop reading."""
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop reading."""
        await self.aclose()


async def _read(
    reader: FeedReader, reading: Callable[[], AbstractContextManager[None]]
) -> AsyncGenerator[FeedEvent, None]:
    """Yield the events. No method of Feed: it would end only when garbage is collected, not with its Feed."""
    with reading():
        while (event := await reader.next()) is not None:
            yield event
