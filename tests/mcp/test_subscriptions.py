"""Subscriptions: a watcher is notified of a change by any process, and of nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.client import ConnectMode
from mcp.client.subscriptions import ResourceUpdated
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

from holdfast import Holdfast, Task
from holdfast.mcp.addresses import FactAddress, QueueAddress, StateAddress
from holdfast.mcp.server import McpServer
from holdfast.mcp.subscriptions import MOST_AT_ONCE
from holdfast.model.errors import StoreUnavailable
from holdfast.model.patch import StatePatch
from holdfast.model.records import MemoryFact
from tests.mcp.support import client_of, server_of
from tests.mcp.watching import watcher_of
from tests.proof.engine.conditions import eventually
from tests.service.handover.support import NOTHING, Outside
from tests.store.contract.truncating import EmptiedDatabase


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/hold.db"
    emptied: EmptiedDatabase = request.getfixturevalue("emptied_database")
    return emptied.empty()


@pytest.fixture
async def elsewhere(url: str, hold: Holdfast) -> AsyncIterator[Outside]:
    """Another user of the same store, as in another process: it shares nothing with the server."""
    del hold
    async with Holdfast(url) as other:
        yield Outside(other, "bob")


async def test_every_kind_of_resource_is_notified(hold: Holdfast, elsewhere: Outside, era: ConnectMode) -> None:
    task = await elsewhere.offer(agent_id="ops")
    state = f"state://agents/ops/tasks/{task.id}"
    uris = [state, f"{state}/steps", f"{state}/checkpoints/1", "task://queue", "task://queue?queue=default"]
    uris += ["task://current", "fact://db1"]
    server = server_of(hold)
    async with server.http(), watcher_of(server, era, uris) as heard:
        taken = await elsewhere.take()
        for uri in (state, "task://queue", "task://queue?queue=default", "task://current"):
            await heard.of(uri)
        heard.forget()
        await elsewhere.step(taken.lease, "look", 1)
        await heard.of(f"{state}/steps")
        await elsewhere.hold.memory.store("db1", "disk", "2 TB", source="bob")
        await heard.of("fact://db1")
        await elsewhere.hold.patch_state(task.id, StatePatch(set_flags=("x",)), version=1, by="bob")
        await heard.of(state)
        await elsewhere.holding(taken.lease).release("", NOTHING)
        await heard.of("task://queue")


async def test_a_new_artifact_is_notified(hold: Holdfast, elsewhere: Outside, era: ConnectMode) -> None:
    async with Holdfast("memory://") as beforehand:  # an artifact's id is made of its bytes
        uri = f"artifact://{(await beforehand.artifacts.write(b'soon')).id}"
    server = server_of(hold)
    async with server.http(), watcher_of(server, era, [uri]) as heard:
        await elsewhere.hold.artifacts.write(b"soon")
        await heard.of(uri)


async def test_many_tasks_are_looked_at_together(
    hold: Holdfast, elsewhere: Outside, era: ConnectMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One question for all of them, however many: each look has a second at the most."""
    tasks = [await elsewhere.offer(f"{number}") for number in range(40)]
    uris = [f"state://agents/default/tasks/{task.id}" for task in tasks]
    asked: list[int] = []
    revisions = hold.store.revisions

    async def counted(task_ids: Collection[str]) -> dict[str, int]:
        asked.append(len(task_ids))
        return await revisions(task_ids)

    async def too_many(task_id: str) -> Task | None:
        raise AssertionError(f"task {task_id} is looked at alone")

    server = server_of(hold)
    async with server.http(), watcher_of(server, era, uris) as heard:
        monkeypatch.setattr(hold.store, "revisions", counted)
        monkeypatch.setattr(hold.store, "get", too_many)
        await elsewhere.hold.patch_state(tasks[7].id, StatePatch(set_flags=("x",)), version=1, by="bob")
        await heard.of(uris[7])
        await eventually("a look at all of them", lambda: 40 in asked)
    assert set(asked) <= {1, 40}  # a hint names one


async def test_news_of_a_task_do_not_wait_for_what_is_read_one_by_one(
    hold: Holdfast, elsewhere: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await elsewhere.offer()
    fact, state = FactAddress("db1"), StateAddress("default", task.id)
    was_notified, go_on = asyncio.Event(), asyncio.Event()

    async def tell(_: str) -> None:
        was_notified.set()

    async def slow(*_: object, **__: object) -> list[MemoryFact]:
        await go_on.wait()
        return []

    watcher = server_of(hold)._watcher
    await watcher.watch("fact://db1", fact, tell)
    await watcher.watch("state", state, tell)
    monkeypatch.setattr(hold.store, "recall", slow)
    await elsewhere.hold.patch_state(task.id, StatePatch(set_flags=("x",)), version=1, by="bob")
    looking = asyncio.create_task(watcher._look([fact, state]))
    await asyncio.wait_for(was_notified.wait(), 60)
    assert not looking.done()
    go_on.set()
    await looking


async def test_no_notification_without_a_change(hold: Holdfast, elsewhere: Outside, era: ConnectMode) -> None:
    task, other = await elsewhere.offer("mine"), await elsewhere.offer("other", queue="elsewhere")
    server = server_of(hold)
    uris = [f"state://agents/default/tasks/{task.id}", "task://queue?queue=default", "fact://db1"]
    async with server.http(), watcher_of(server, era, uris) as heard:
        await heard.nothing()
        await elsewhere.hold.patch_state(other.id, StatePatch(set_flags=("x",)), version=1, by="bob")
        await elsewhere.hold.memory.store("db2", "disk", "2 TB", source="bob")
        await heard.nothing()  # other resources changed, not these


async def test_a_lease_that_runs_out_is_a_change(hold: Holdfast, elsewhere: Outside, era: ConnectMode) -> None:
    task = await elsewhere.offer()
    server = server_of(hold)
    uri = f"state://agents/default/tasks/{task.id}"
    async with server.http(), watcher_of(server, era, [uri]) as heard:
        await elsewhere.take(seconds=3)
        await heard.until(uri, lambda: is_free(hold, task.id))  # only time has passed


async def is_free(hold: Holdfast, task_id: str) -> bool:
    task = await hold.store.get(task_id)
    return task is not None and task.owner is None


async def test_facts_are_notified_while_the_store_is_never_quiet(hold: Holdfast, elsewhere: Outside) -> None:
    task = await elsewhere.offer()
    server, stop = server_of(hold), asyncio.Event()

    async def traffic() -> None:
        version = 1
        while not stop.is_set():
            await elsewhere.hold.patch_state(task.id, StatePatch(set_flags=(f"{version}",)), version=version, by="bob")
            version += 1
            await asyncio.sleep(0.05)

    async with server.http(), watcher_of(server, "auto", ["fact://db1"]) as heard, asyncio.TaskGroup() as group:
        group.create_task(traffic())
        await elsewhere.hold.memory.store("db1", "disk", "2 TB", source="bob")
        await heard.of("fact://db1")
        stop.set()


async def test_after_unsubscribing_no_notification_comes(hold: Holdfast, elsewhere: Outside) -> None:
    server = server_of(hold)
    async with server.http(), watcher_of(server, "legacy", ["task://queue"]) as heard:
        await elsewhere.offer("one")
        await heard.of("task://queue")
        for _ in range(2):  # a second time is answered the same
            await unsubscribe(heard.client, "task://queue")
        assert watched(server) == set()
        heard.forget()
        await elsewhere.offer("two")
        await heard.nothing()


def watched(server: McpServer) -> set[str]:
    """The URIs with a watcher."""
    return {uri for one in server._watcher._watched.values() for uri, _ in one.watching}


async def subscribe(client: Client, uri: str) -> None:
    with pytest.warns(MCPDeprecationWarning):  # what legacy clients do is what is tested here
        await client.subscribe_resource(uri)


async def unsubscribe(client: Client, uri: str) -> None:
    with pytest.warns(MCPDeprecationWarning):
        await client.unsubscribe_resource(uri)


async def test_the_end_of_a_connection_ends_what_it_watched(hold: Holdfast, era: ConnectMode) -> None:
    server = server_of(hold)
    async with server.http():
        async with watcher_of(server, era, ["task://queue"]):
            async with watcher_of(server, era, ["task://queue", "fact://db1"]):
                assert watched(server) == {"task://queue", "fact://db1"}
            await eventually("the second has left", lambda: watched(server) == {"task://queue"})
        await eventually("both have left", lambda: watched(server) == set())


async def test_a_watcher_that_left_without_a_word(hold: Holdfast) -> None:
    server = server_of(hold)
    async with server.http(), client_of(server, "legacy") as client:
        for _ in range(2):  # twice is once
            await subscribe(client, "task://queue")
        assert watched(server) == {"task://queue"}
    assert watched(server) == set()


async def test_unknown_addresses_are_not_watched(hold: Holdfast) -> None:
    server = server_of(hold)
    wanted = ["task://queue", "file:///etc/passwd", "task://current?x=1", "state://agents/a/tasks/nowhere"]
    async with server.http(), client_of(server) as client, client.listen(resource_subscriptions=wanted) as stream:
        assert stream.honored.resource_subscriptions == ["task://queue", "state://agents/a/tasks/nowhere"]
    async with server.http(), client_of(server, "legacy") as client:
        for uri in ("file:///etc/passwd", "task://current?x=1"):
            with pytest.raises(MCPError, match="is not a resource of this server"):
                await subscribe(client, uri)


async def test_there_is_a_limit(hold: Holdfast) -> None:
    server = server_of(hold)
    many = [f"fact://e{number}" for number in range(MOST_AT_ONCE + 5)]
    async with server.http():
        async with client_of(server) as client, client.listen(resource_subscriptions=many) as stream:
            assert stream.honored.resource_subscriptions == many[:MOST_AT_ONCE]
        async with client_of(server, "legacy") as client:
            for uri in many[:MOST_AT_ONCE]:
                await subscribe(client, uri)
            with pytest.raises(MCPError, match="unsubscribe from some"):
                await subscribe(client, many[-1])
            await unsubscribe(client, many[0])
            await subscribe(client, many[-1])


async def test_a_stream_ends_in_good_order_with_the_server(hold: Holdfast) -> None:
    server = server_of(hold)
    ended = asyncio.Event()

    async def listen(client: Client, ready: asyncio.Event) -> None:
        async with client.listen(resource_subscriptions=["task://queue"]) as stream:
            ready.set()
            async for event in stream:  # ends by itself; a stream that was lost would raise
                assert isinstance(event, ResourceUpdated)
        ended.set()

    async with client_of(server) as client, asyncio.TaskGroup() as group:
        async with server.http():
            ready = asyncio.Event()
            group.create_task(listen(client, ready))
            await ready.wait()
            assert not ended.is_set()
        await asyncio.wait_for(ended.wait(), 60)
    assert watched(server) == set()


async def test_the_store_may_be_away_for_a_moment(
    hold: Holdfast, elsewhere: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, failures = server_of(hold), [0]
    queued: Callable[..., Awaitable[object]] = hold.store.queued

    async def failing(**options: object) -> object:
        if failures[0] < 2:
            failures[0] += 1
            raise StoreUnavailable("it is away")
        return await queued(**options)

    async with server.http(), watcher_of(server, "auto", ["task://queue"]) as heard:
        monkeypatch.setattr(hold.store, "queued", failing)
        await elsewhere.offer()
        await heard.of("task://queue")
        assert failures == [2]  # it really was away


async def test_an_unreachable_watcher_does_not_block_the_others(hold: Holdfast, elsewhere: Outside) -> None:
    server = server_of(hold)

    async def broken(_: str) -> None:
        raise RuntimeError("deaf")

    async with server.http(), watcher_of(server, "auto", ["task://queue"]) as heard:
        await server._watcher.watch("task://queue", QueueAddress(), broken)
        await elsewhere.offer()
        await heard.of("task://queue")
        server._watcher.leave("task://queue", QueueAddress(), broken)
