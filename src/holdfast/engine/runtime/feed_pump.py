"""FeedPump: reads the feed once for all readers of a Holdfast, and keeps the last events for them.

No event is sent to a reader: each reader has a place in what is kept, and takes what is behind it. So a thousand
readers cost the store what one does, and a slow one delays no other: what is kept no longer, it reads from the store by
itself. Without readers nothing goes on here.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from holdfast.engine.runtime.store_retry import call_store
from holdfast.engine.runtime.watcher import Watcher
from holdfast.model.errors import CursorLost, StoreClosed
from holdfast.model.feed import OLDEST, FeedEvent, FeedFilter, FeedPage, read_cursor
from holdfast.store.background import Loop, end
from holdfast.store.base import ANYTHING, StateStore

LOOK_EVERY: Final = 0.4
"""Seconds between two looks. Stores hint at most of what happens, but not at steps."""

BREATH: Final = 0.05
"""Seconds between two looks when there are hints all the time: what happens meanwhile comes in one page."""

PAGE: Final = 500

KEPT: Final = 5000
"""Events that readers find here."""

Order = tuple[int, int, float]
"""A place, comparable: every store gives out places in the order of its feed."""


def order_of(cursor: str) -> Order:
    """Return where a cursor stands in the feed."""
    place = read_cursor(cursor)
    return place.number, place.row, place.entry or float("inf")


class _Part(NamedTuple):
    """Events that came in one page, with what tells a reader that none of them is for it."""

    first: int
    end: int
    kinds: frozenset[str]
    tasks: frozenset[str | None]

    def may_have(self, wanted: FeedFilter) -> bool:
        return not self.kinds.isdisjoint(wanted.wanted) and (wanted.task_id is None or wanted.task_id in self.tasks)


class FeedPump:
    """The last events, and the task that reads more of them while there are readers."""

    def __init__(self, store: StateStore, watcher: Watcher) -> None:
        """Start to read with the first reader."""
        self._store = store
        self._watcher = watcher
        self._readers = 0
        self._reading: asyncio.Task[None] | None = None
        self._is_closed = False
        self._wake = asyncio.Event()
        self._looked: asyncio.Future[None] | None = None
        """Done after the next look that begins from now on."""
        self._grown = asyncio.Event()
        self.generation = 0
        """Changes when all indexes become void."""
        self._forget()

    def _forget(self) -> None:
        self.generation += 1
        self.cursor: str | None = None
        """Where the feed ends, as far as the pump knows."""
        self._events: list[FeedEvent] = []
        self._orders: list[Order] = []
        self._parts: list[_Part] = []
        self._first = 0
        """How many events were kept before the first of them."""
        self._begins: Order = (0, 0, 0.0)
        """The place in front of the first of them."""

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Have the pump work until the block ends."""
        if self._is_closed:
            raise StoreClosed("the store is closed; read the feed inside the block that opened it")
        self._readers += 1
        if self._readers == 1:
            self._begin()
        try:
            yield
        finally:
            self._readers -= 1
            if self._readers == 0:
                self._stop()

    def _begin(self) -> None:
        self._forget()
        self._wake = asyncio.Event()
        self._watcher.add(ANYTHING, self._wake.set)
        self._reading = Loop("holdfast-feed", self._look, outage=self._store.outage).start()

    def _stop(self) -> None:
        self._watcher.remove(ANYTHING, self._wake.set)
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        self._forget()

    async def now(self) -> int:
        """Return the index of the next event that happens: after a look that began after this call."""
        if self._looked is None:
            self._looked = asyncio.get_running_loop().create_future()
        looked = self._looked
        self._wake.set()
        await asyncio.shield(looked)
        self._check()
        return self.end

    @property
    def end(self) -> int:
        """The index behind the last event."""
        return self._first + len(self._events)

    def index_behind(self, cursor: str) -> int | None:
        """Return the index of the first event behind a cursor; None if the pump does not know that."""
        order = order_of(cursor)
        if self.cursor is None or order < self._begins or order > order_of(self.cursor):
            return None
        return self._first + bisect_right(self._orders, order)

    def keeps(self, index: int) -> bool:
        """Say whether the event with this index, and so all behind it, are still kept."""
        return index >= self._first

    def find(self, index: int, wanted: FeedFilter) -> tuple[int, FeedEvent | None]:
        """Return the next event that a reader wants, and the index behind what was looked at for it."""
        for part in self._parts[bisect_right(self._parts, index, key=lambda part: part.end) :]:
            if part.may_have(wanted):
                for place in range(max(index, part.first), part.end):
                    event = self._events[place - self._first]
                    if wanted.takes(event):
                        return place + 1, event
            index = part.end
        return index, None

    def cursor_before(self, index: int) -> str | None:
        """Return the cursor of the event in front of an index; None if it is not kept."""
        return self._events[index - 1 - self._first].cursor if index > self._first else None

    async def growth(self) -> None:
        """Return when there are more events, or when the pump has looked again."""
        self._check()
        grown = self._grown
        await grown.wait()
        self._check()

    def _check(self) -> None:
        if self._is_closed:
            raise StoreClosed("the store was closed; read the feed inside the block that opened it")

    async def _look(self) -> None:
        self._wake.clear()
        asked, self._looked = self._looked, None
        page: FeedPage | None = None
        try:
            while page is None or len(page.events) >= PAGE:
                page = await self._page()
                self._keep(page)
        except BaseException:
            if asked is not None and self._looked is None:
                self._looked, asked = asked, None  # the next look answers it
            raise
        finally:
            if asked is not None and not asked.done():
                asked.set_result(None)
        await asyncio.sleep(BREATH)
        # Not wait_for: up to Python 3.11 it loses a cancel that comes together with what it waits for.
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY - BREATH):
                await self._wake.wait()

    async def _page(self) -> FeedPage:
        cursor = self.cursor
        try:
            return await self._store.read_feed(cursor, limit=PAGE)
        except CursorLost:
            # The store was restored, or a server took over. Each reader asks the store for its own place, and hears it.
            self._forget()
            return await self._store.read_feed(None, limit=PAGE)

    def _keep(self, page: FeedPage) -> None:
        if self.cursor is None:
            self._begins = order_of(page.cursor)
        self.cursor = page.cursor
        if not page.events:
            self._notify()
            return
        first = self.end
        self._events += page.events
        kinds, tasks = ({getattr(event, name) for event in page.events} for name in ("kind", "task_id"))
        self._parts.append(_Part(first, self.end, frozenset(kinds), frozenset(tasks)))
        self._orders += [order_of(event.cursor) for event in page.events]
        excess = len(self._events) - KEPT
        if excess > 0:
            self._begins = self._orders[excess - 1]
            self._first += excess
            del self._events[:excess], self._orders[:excess]
            # A part of which some events are kept no longer begins with those that are.
            left = [part for part in self._parts if part.end > self._first]
            self._parts = [left[0]._replace(first=max(left[0].first, self._first)), *left[1:]]
        self._notify()

    def _notify(self) -> None:
        grown, self._grown = self._grown, asyncio.Event()
        grown.set()

    async def close(self) -> None:
        """Stop, and let the readers raise StoreClosed."""
        self._is_closed = True
        reading, self._reading = self._reading, None
        if reading is not None:
            self._watcher.remove(ANYTHING, self._wake.set)
            await end(reading)
        self._notify()
        if self._looked is not None and not self._looked.done():
            self._looked.set_result(None)


class FeedReader:
    """One reader's way through the feed: from the store as long as it is behind, and then beside the pump."""

    def __init__(
        self, store: StateStore, pump: FeedPump, after: str | None, wanted: FeedFilter | None = None, *, follow: bool
    ) -> None:
        """Begin behind ``after``, or now; stop at the end of the feed unless the reader follows it."""
        self._store = store
        self._wanted = wanted or FeedFilter()
        self._pump = pump
        self._follow = follow
        self.cursor = after
        """Where the reader is: behind the last event that it has seen, wanted or not."""
        self._page: list[FeedEvent] = []
        self._next = 0
        self._index: int | None = None
        self._generation = 0
        self._is_begun = after is not None and after != OLDEST

    async def next(self) -> FeedEvent | None:
        """Return the next event that fits; None at the end, for a reader that does not follow."""
        while True:
            while self._next < len(self._page):
                event = self._page[self._next]
                self._next += 1
                self.cursor = event.cursor
                if self._wanted.takes(event):
                    return event
            if self._index is not None and self._generation != self._pump.generation:
                self._index = None
            if self._index is None:
                if not await self._catch_up():
                    return None
            elif not self._pump.keeps(self._index):
                self._index = None  # too slow: read from the store again
            elif self._index < self._pump.end:
                self._index, found = self._pump.find(self._index, self._wanted)
                self.cursor = self._pump.cursor_before(self._index) or self.cursor
                if found is not None:
                    return found
            else:
                await self._pump.growth()

    async def _catch_up(self) -> bool:
        """Come closer to the end, by a page of the store or by a place beside the pump; False: this was the end."""
        if self.cursor is None and self._follow:
            self._index = await self._pump.now()
            self._generation, self.cursor = self._pump.generation, self._pump.cursor
            return True
        page = await call_store(lambda: self._store.read_feed(self.cursor, limit=PAGE), self._store.outage)
        self._page, self._next = page.events, 0
        if page.events:
            return True
        self.cursor = page.cursor
        if not self._is_begun:
            self._is_begun = True  # that was only the place where the feed begins, or where it ends
            return True
        return self._follow and await self._join(page.cursor)

    async def _join(self, cursor: str) -> bool:
        """Go on beside the pump, if it is as far; otherwise wait until it is."""
        self._index, self._generation = self._pump.index_behind(cursor), self._pump.generation
        if self._index is None:
            await self._pump.growth()
        return True
