"""The pump of the feed: one for all readers, and a way of their own for those that are behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest import mock

import pytest

from holdfast import Feed, Holdfast, StoreClosed
from holdfast.engine.runtime import feed_pump
from holdfast.engine.runtime.feed_pump import FeedReader
from holdfast.engine.runtime.services import Services
from holdfast.model.errors import CursorLost
from holdfast.model.feed import OLDEST

PATIENCE = 60.0


@asynccontextmanager
async def opened(url: str = "memory://") -> AsyncIterator[tuple[Holdfast, Services]]:
    async with Holdfast(url) as hold:
        yield hold, hold.services


class Unread:
    """A store that no reader may ask by itself."""

    outage = None

    async def read_feed(self, *_: object, **__: object) -> None:
        raise AssertionError("a reader asked the store by itself")


async def take(reader: FeedReader, count: int) -> list[str | None]:
    events = []
    async with asyncio.timeout(PATIENCE):
        for _ in range(count):
            event = await reader.next()
            assert event is not None
            events.append(event.task_id)
    return events


def pumps() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "holdfast-feed" and not task.cancelling()]


async def until_begun(*readers: FeedReader | Feed) -> None:
    """Return when readers that were just started have their place."""
    async with asyncio.timeout(PATIENCE):
        while not all(reader.cursor for reader in readers):  # noqa: ASYNC110 - they begin with the next turns
            await asyncio.sleep(0)


async def submit(hold: Holdfast, count: int, first: int = 0) -> list[str]:
    return [(await hold.submit("job", number, queue="unattended")).id for number in range(first, first + count)]


async def test_a_thousand_readers_cost_the_store_what_one_does() -> None:
    async with opened() as (hold, services):
        pump = services.feed
        with pump.reading():
            readers = [FeedReader(Unread(), pump, None, follow=True) for _ in range(1000)]  # type: ignore[arg-type]
            taking = [asyncio.create_task(take(reader, 3)) for reader in readers]
            await until_begun(*readers)
            ids = await submit(hold, 3)
            assert await asyncio.gather(*taking) == [ids] * 1000


async def test_a_slow_reader_gets_what_is_kept_no_longer_from_the_store() -> None:
    with mock.patch.object(feed_pump, "KEPT", 5):
        async with opened() as (hold, services):
            with services.feed.reading():
                slow = FeedReader(services.store, services.feed, None, follow=True)
                fast = FeedReader(services.store, services.feed, None, follow=True)
                begun = asyncio.create_task(take(slow, 1))
                following = asyncio.create_task(take(fast, 30))
                await until_begun(slow, fast)
                ids = await submit(hold, 30)
                assert await following == ids  # which the slow one does not hold up
                assert await begun == ids[:1]
                assert services.feed.end > 5
                assert not services.feed.keeps(0)
                assert await take(slow, 29) == ids[1:]
                more = await submit(hold, 2, 30)
                assert await take(slow, 2) == more


async def test_it_rests_without_readers() -> None:
    async with opened() as (hold, services):
        with mock.patch.object(services.store, "read_feed", wraps=services.store.read_feed) as asked:
            feed = hold.feed()
            first = asyncio.create_task(_first(feed, 1))
            await until_begun(feed)
            ids = await submit(hold, 1)
            assert await first == ids
            await feed.aclose()
            calls = asked.call_count
            assert calls
            await submit(hold, 3, 1)
            for _ in range(20):
                await asyncio.sleep(0)
            assert asked.call_count == calls
            assert not pumps()


async def test_a_feed_that_is_dropped_stops(url: str) -> None:
    """As ``async for`` leaves it after a break."""
    async with opened(url) as (hold, _):
        await submit(hold, 1)
        async for _ in hold.feed(after=OLDEST):
            break
        async with asyncio.timeout(PATIENCE):
            while pumps():  # noqa: ASYNC110 - nothing tells when a generator was collected
                await asyncio.sleep(0.01)


async def test_closing_ends_the_readers() -> None:
    async with opened() as (hold, _):
        feed = hold.feed()
        reading = asyncio.create_task(_first(feed, 1))
        await until_begun(feed)
    with pytest.raises(StoreClosed):
        await reading


async def test_a_reader_hears_that_the_feed_has_lost_its_place() -> None:
    """And one that begins then, begins with what there is."""
    async with opened() as (hold, services):
        store = services.store
        with services.feed.reading():
            reader = FeedReader(store, services.feed, None, follow=True)
            begun = asyncio.create_task(take(reader, 1))
            await until_begun(reader)
            ids = await submit(hold, 1)
            assert await begun == ids
            before = reader.cursor
            read = store.read_feed

            async def without_it(after: str | None = None, **options: Any) -> Any:  # noqa: ANN401
                if after == before:
                    raise CursorLost("it is gone", before or "")
                return await read(after or OLDEST, **options)  # as if all of it was new

            with mock.patch.object(store, "read_feed", without_it):
                waiting = asyncio.create_task(reader.next())
                new = FeedReader(store, services.feed, None, follow=True)
                later = asyncio.create_task(take(new, 2))
                await until_begun(new)
                more = await submit(hold, 1, 1)
                with pytest.raises(CursorLost, match="it is gone"):
                    await waiting
                assert await later == ids + more


async def test_readers_that_begin_anywhere_get_the_same(url: str) -> None:
    async with opened(url) as (hold, _):
        ids = await submit(hold, 5)
        events = [event async for event in hold.feed(after=OLDEST, follow=False)]
        assert [event.task_id for event in events] == ids
        feeds = [hold.feed(after=event.cursor) for event in events]
        taking = [asyncio.create_task(_first(feed, 10 - 1 - place)) for place, feed in enumerate(feeds)]
        ids += await submit(hold, 5, 5)
        async with asyncio.timeout(PATIENCE):
            got = await asyncio.gather(*taking)
        assert got == [ids[place + 1 :] for place in range(5)]


async def _first(feed: Feed, count: int) -> list[str | None]:
    return [(await anext(feed)).task_id for _ in range(count)]
