"""A watcher that does not read delays no other one; a single failure ends no subscription."""

from __future__ import annotations

import asyncio
import logging

import pytest

from holdfast import Holdfast
from holdfast.mcp.addresses import FactAddress, QueueAddress
from holdfast.mcp.watches import Notifier
from tests.mcp.support import server_of
from tests.mcp.watching import watcher_of
from tests.proof.engine.conditions import PATIENCE, eventually
from tests.service.handover.support import Outside

QUEUE = "task://queue"


class Slow:
    """Reads only on request."""

    def __init__(self) -> None:
        self.listens = asyncio.Event()
        self.begun = 0
        self.heard: list[str] = []

    async def tell(self, uri: str) -> None:
        self.begun += 1
        await self.listens.wait()
        self.heard.append(uri)


async def test_a_messenger_tells_once_of_many_changes() -> None:
    slow = Slow()
    messenger = Notifier(QUEUE, slow.tell)
    for _ in range(5):
        messenger.send()
    await asyncio.sleep(0)
    assert (slow.begun, slow.heard) == (1, [])
    messenger.send()
    slow.listens.set()
    await eventually("it was notified", lambda: len(slow.heard) == 2)  # of the first, and of all the others
    await asyncio.sleep(0.05)
    assert slow.begun == 2
    messenger.send()
    await eventually("it is notified again", lambda: len(slow.heard) == 3)


async def test_a_messenger_that_fails_tries_again_with_the_next_change(caplog: pytest.LogCaptureFixture) -> None:
    tries = 0

    async def broken(_: str) -> None:
        nonlocal tries
        tries += 1
        raise RuntimeError("the line is dead")

    messenger = Notifier(QUEUE, broken)
    with caplog.at_level(logging.WARNING):
        for number in (1, 2):
            messenger.send()
            await eventually("it tried", lambda number=number: tries == number)  # type: ignore[misc]
            await asyncio.sleep(0)
    assert "a watcher of task://queue cannot be notified" in caplog.text


async def test_a_messenger_that_is_stopped_says_nothing_more() -> None:
    slow = Slow()
    messenger = Notifier(QUEUE, slow.tell)
    messenger.stop()  # nothing was under way
    messenger.send()
    messenger.send()
    await asyncio.sleep(0)
    messenger.stop()
    slow.listens.set()
    await asyncio.sleep(0.05)
    assert (slow.begun, slow.heard) == (1, [])


async def test_a_watcher_that_does_not_read_blocks_no_other(hold: Holdfast) -> None:
    server, ada, deaf, quick = server_of(hold), Outside(hold, "ada"), Slow(), Slow()
    quick.listens.set()
    async with server.http():
        for one in (deaf, quick):
            await server._watcher.watch(QUEUE, QueueAddress(), one.tell)
        for number in range(4):
            before = len(quick.heard)
            await ada.offer(f"{number}")
            await eventually("the quick one hears", lambda before=before: len(quick.heard) > before)  # type: ignore[misc]
        assert (deaf.begun, deaf.heard) == (1, [])
        deaf.listens.set()
        await eventually("it was notified of the first, and of the rest", lambda: len(deaf.heard) >= 2)
        before = len(deaf.heard)
        await ada.offer("one more")
        await eventually("it is notified as before", lambda: len(deaf.heard) > before)


async def test_a_deaf_watcher_is_left_behind_when_the_server_ends(hold: Holdfast) -> None:
    server, deaf = server_of(hold), Slow()
    async with asyncio.timeout(PATIENCE), server.http():
        await server._watcher.watch(QUEUE, QueueAddress(), deaf.tell)
        await Outside(hold, "ada").offer()
        await eventually("it is being notified", lambda: deaf.begun == 1)
    assert deaf.heard == []


async def test_a_defect_is_logged_and_the_watching_goes_on(
    hold: Holdfast, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, failures = server_of(hold), 0
    recall = hold.store.recall

    async def broken(entity: str | None = None, attribute: str | None = None, **options: object) -> object:
        nonlocal failures
        if failures < 1 and entity == "db1":
            failures += 1
            raise KeyError("a defect of ours")
        return await recall(entity, attribute, **options)  # type: ignore[arg-type]

    async with server.http(), watcher_of(server, "auto", ["fact://db1"]) as heard:
        assert FactAddress("db1") in server._watcher._watched
        monkeypatch.setattr(hold.store, "recall", broken)
        await eventually("it broke", lambda: failures == 1)
        await hold.memory.store("db1", "disk", "2 TB", source="bob")
        await heard.of("fact://db1")
    assert "holdfast-mcp-watcher failed, and will be tried again" in caplog.text


async def test_a_task_that_is_gone_when_it_is_swept(hold: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    server, swept = server_of(hold), 0
    sweep = hold.store.sweep

    async def sweep_what_is_gone() -> object:
        nonlocal swept
        found = await sweep()
        if swept:
            return found
        swept += 1
        return type(found)(recovered=("gone",), woken=("gone",))

    async with server.http(), watcher_of(server, "auto", [QUEUE]) as heard:
        monkeypatch.setattr(hold.store, "sweep", sweep_what_is_gone)
        await eventually("it was swept", lambda: swept == 1)
        await Outside(hold, "ada").offer()
        await heard.of(QUEUE)
