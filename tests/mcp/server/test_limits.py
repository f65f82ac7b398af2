"""Limits of watchers: several names of one thing count once, and no client takes all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

from holdfast import Holdfast, InvalidValue
from holdfast.mcp import subscriptions, watches
from holdfast.mcp.addresses import FactAddress
from holdfast.mcp.subscriptions import MOST_AT_ONCE, MOST_OF_ONE_CALLER
from tests.mcp.support import client_of, server_of
from tests.mcp.watching import watcher_of
from tests.proof.engine.conditions import eventually
from tests.proof.mcp.reaching import client_of as client_over_http
from tests.proof.mcp.reaching import serving
from tests.service.handover.support import Outside

READER, OTHER = "a-long-secret-of-a-reader", "a-long-secret-of-another"


async def ignore(_: str) -> None:
    """Take a notification, and do nothing about it."""


async def subscribe(client: Client, uri: str) -> None:
    with pytest.warns(MCPDeprecationWarning):  # what legacy clients do is what is tested here
        await client.subscribe_resource(uri)


async def test_pages_of_one_listing_cost_one_look(hold: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    server, ada = server_of(hold), Outside(hold, "ada")
    task = await ada.offer()
    steps = f"state://agents/default/tasks/{task.id}/steps"
    uris = [*(f"task://queue?after={number}" for number in range(20)), *(f"{steps}?after={n}" for n in range(20))]
    looks = 0
    queued: Callable[..., Awaitable[object]] = hold.store.queued

    async def counting(**options: object) -> object:
        nonlocal looks
        looks += 1
        return await queued(**options)

    async with server.http(), client_of(server) as client:
        monkeypatch.setattr(hold.store, "queued", counting)
        async with client.listen(resource_subscriptions=uris) as stream:
            assert stream.honored.resource_subscriptions == uris
            assert looks < len(uris) // 2  # one to begin with, and perhaps some by the clock
            assert len(server._watcher._watched) == 2


async def test_each_is_notified_under_the_name_it_asked_for(hold: Holdfast) -> None:
    server = server_of(hold)
    uris = ["task://queue", "task://queue/", "task://queue?after=0", "task://queue?queue=default"]
    async with server.http(), watcher_of(server, "legacy", uris) as heard:
        assert len(server._watcher._watched) == 2  # the last one is another listing
        await Outside(hold, "ada").offer()
        for uri in uris:
            await heard.of(uri)


async def test_a_server_watches_only_so_much(hold: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "MOST_WATCHED", 3)
    watcher = server_of(hold)._watcher
    for number in range(3):
        await watcher.watch(f"fact://e{number}", FactAddress(f"e{number}"), ignore)
    with pytest.raises(InvalidValue, match="end some of the subscriptions first"):
        await watcher.watch("fact://more", FactAddress("more"), ignore)
    await watcher.watch("fact://e0", FactAddress("e0"), ignore)  # what is watched already costs nothing more
    watcher.leave("fact://e1", FactAddress("e1"), ignore)
    await watcher.watch("fact://more", FactAddress("more"), ignore)


async def test_a_caller_has_only_so_many_places_in_either_era(hold: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MOST_OF_ONE_CALLER", 4)
    server = server_of(hold)
    async with server.http(), client_of(server) as client, client_of(server, "legacy") as legacy:
        async with client.listen(resource_subscriptions=["fact://a", "fact://b"]):
            await subscribe(legacy, "fact://c")
            await subscribe(legacy, "fact://c")  # twice is once
            with pytest.raises(MCPError, match="ada watches 4 resources already; end some subscriptions first"):
                async with client.listen(resource_subscriptions=["fact://d", "fact://e"]):
                    pass
            await subscribe(legacy, "fact://d")
            with pytest.raises(MCPError, match="end some subscriptions first"):
                await subscribe(legacy, "fact://e")
            with pytest.raises(MCPError, match="end some subscriptions first"):
                async with client.listen(tools_list_changed=True):  # a stream counts, whatever it is for
                    pass
            with pytest.warns(MCPDeprecationWarning):
                await legacy.unsubscribe_resource("fact://c")
            await subscribe(legacy, "fact://e")
        await eventually("the stream has left its places", lambda: server._subscriptions._places["ada"] == 2)
        async with client.listen(resource_subscriptions=["fact://f", "fact://g"]):
            pass
    await eventually("nothing is left", lambda: server._subscriptions._places["ada"] == 0)


async def test_what_could_not_be_watched_takes_no_place(hold: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "MOST_WATCHED", 1)
    server = server_of(hold)
    async with server.http(), client_of(server) as client, client_of(server, "legacy") as legacy:
        await subscribe(legacy, "fact://a")
        for _ in range(3):
            with pytest.raises(MCPError, match="1 resources are watched already"):
                await subscribe(legacy, "fact://b")
            with pytest.raises(MCPError, match="1 resources are watched already"):
                async with client.listen(resource_subscriptions=["fact://a", "fact://b"]):
                    pass
        assert server._subscriptions._places["ada"] == 1


async def test_one_token_leaves_room_for_others(url: str, tmp_path: Path) -> None:
    tokens = {"HOLDFAST_API_TOKEN_READER": f"read:{READER}", "HOLDFAST_API_TOKEN_OTHER": f"read:{OTHER}"}
    async with serving(url, tmp_path, **tokens) as reached, AsyncExitStack() as open_:
        greedy = await open_.enter_async_context(client_over_http(reached, "auto", token=READER))
        for number in range(MOST_OF_ONE_CALLER // MOST_AT_ONCE):
            uris = [f"fact://e{number}-{entity}" for entity in range(MOST_AT_ONCE)]
            await open_.enter_async_context(greedy.listen(resource_subscriptions=uris))
        with pytest.raises(MCPError, match=f"watches {MOST_OF_ONE_CALLER} resources already"):
            await open_.enter_async_context(greedy.listen(resource_subscriptions=["task://queue"]))
        other = await open_.enter_async_context(client_over_http(reached, "auto", token=OTHER))
        stream = await open_.enter_async_context(other.listen(resource_subscriptions=["task://queue"]))
        async with Holdfast(url) as hold, asyncio.timeout(60):
            await Outside(hold, "ada").offer()
            assert (await anext(aiter(stream))).uri == "task://queue"  # type: ignore[union-attr]
