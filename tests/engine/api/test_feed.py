"""hold.feed: everything that happens, filtered, live and from a cursor, in any process."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast import Context, CursorLost, Feed, FeedEvent, FeedRetention, Holdfast, InvalidValue
from holdfast.testing.contract._support import row

PATIENCE = 60.0


def application(url: str) -> Holdfast:
    hold = Holdfast(url)

    @hold.task(queue="deploys")
    async def deploy(ctx: Context, service: str) -> str:
        await ctx.progress(1, 2, "half")
        await ctx.step("collect", str.upper, service)
        await ctx.approval("Deploy?", risk="external_action")
        return service

    @hold.task
    async def other(ctx: Context) -> None:
        del ctx

    return hold


async def take(feed: Feed, until: str) -> list[FeedEvent]:
    """Return the events up to the first of this kind."""
    events: list[FeedEvent] = []
    async with asyncio.timeout(PATIENCE):
        async for event in feed:
            events.append(event)
            if event.kind == until:
                return events
    raise AssertionError(f"no {until}")


async def test_a_reader_in_another_process_hears_of_everything(url: str) -> None:
    """Two Holdfasts on one store: one works, the other one reads and decides."""
    working, reading = application(url), application(url)
    if url.startswith(("memory", "json")):
        reading = working
    async with reading:
        feed = reading.feed(labels={"tenant": "acme"}, kinds=["task.*", "approval.*", "progress"])
        asked = asyncio.create_task(take(feed, "approval.opened"))
        while feed.cursor is None:  # noqa: ASYNC110 - it begins with the next turns of the loop
            await asyncio.sleep(0)
        async with working, working.worker():
            await working.submit("other")
            handle = await working.submit("deploy", "billing", labels={"tenant": "acme"})
            events = await asked
            assert [event.kind for event in events] == [
                *("task.pending", "task.running", "progress", "approval.opened")
            ]
            assert {(event.task_id, event.name, event.queue) for event in events} == {(handle.id, "deploy", "deploys")}
            await reading.approve(events[-1].data["approval_id"], by="alice")
            rest = await take(feed, "task.completed")
            assert rest[0].kind == "approval.decided" or rest[0].kind == "task.waiting"
            assert await handle.result() == "billing"
            await feed.aclose()
            again = await take(reading.feed(after=events[0].cursor, task=handle, kinds=["task.*"]), "task.completed")
            assert [event.kind for event in again][:1] == ["task.running"]


async def test_filters(url: str) -> None:
    hold = application(url)
    async with hold:
        first = await hold.submit("deploy", "a", labels={"tenant": "acme", "kind": "nightly"})
        second = await hold.submit("other", labels={"tenant": "acme"}, queue="fast")
        await hold.cancel(second)
        for filters, expected in (
            ({}, ["task.pending", "task.pending", "task.cancelled"]),
            ({"kinds": ["task.cancelled"]}, ["task.cancelled"]),
            ({"kinds": ["*.pending", "task.c*"]}, ["task.pending", "task.pending", "task.cancelled"]),
            ({"task": first}, ["task.pending"]),
            ({"task": second.id}, ["task.pending", "task.cancelled"]),
            ({"name": "deploy"}, ["task.pending"]),
            ({"queue": "fast"}, ["task.pending", "task.cancelled"]),
            ({"labels": {"tenant": "acme"}}, ["task.pending", "task.pending", "task.cancelled"]),
            ({"labels": {"tenant": "acme", "kind": "nightly"}}, ["task.pending"]),
            ({"labels": {"tenant": "other"}}, []),
        ):
            with row(filters):
                feed = hold.feed(after="oldest", follow=False, **filters)
                assert [event.kind async for event in feed] == expected
                assert feed.cursor is not None
                assert [event async for event in hold.feed(after=feed.cursor, follow=False)] == []


async def test_what_cannot_be_meant_is_refused_at_once() -> None:
    """By the call, not by the first event."""
    async with Holdfast("memory://") as hold:
        for wrong in ({"kinds": ["nonsense"]}, {"kinds": ["task"]}, {"kinds": "task.*"}, {"after": "yesterday"}):
            with row(wrong), pytest.raises(InvalidValue):
                hold.feed(**wrong)
        with pytest.raises(InvalidValue):
            await hold.feed_retention(age=timedelta(0))
        with pytest.raises(InvalidValue):
            await hold.feed_retention(rows=0)


async def test_the_retention_is_kept_by_the_store(url: str) -> None:
    async with Holdfast(url) as hold:
        assert await hold.feed_retention() == FeedRetention()
        assert await hold.feed_retention(age=timedelta(days=30)) == FeedRetention(age=timedelta(days=30))
        assert await hold.feed_retention(rows=10) == FeedRetention(age=timedelta(days=30), rows=10)
        assert await hold.feed_retention() == FeedRetention(age=timedelta(days=30), rows=10)


def test_blocking_code_reads_it(url: str) -> None:
    hold = application(url)
    with hold.sync as h:
        handle = h.submit("other")
        with h.feed(after="oldest", task=handle) as feed:
            assert next(feed).kind == "task.pending"
            cursor = feed.cursor
            with h.worker():
                assert [next(feed).kind, next(feed).kind] == ["task.running", "task.completed"]
        assert [event.kind for event in h.feed(after=cursor, task=handle.id, follow=False)] == [
            "task.running",
            "task.completed",
        ]
        with pytest.raises(CursorLost):
            next(h.feed(after="99.0.0.abc", follow=False))
        assert h.feed_retention(rows=5).rows == 5
