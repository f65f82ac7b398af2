"""Model text arrives at watchers while the model still generates it."""

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from holdfast import Agent, Handle, Holdfast, ModelError, Reply, Request, Retry
from holdfast.agent.text_stream import TextStream
from tests.agent.support import PATIENCE
from tests.engine.support import settle


class Speaker:
    """A model that says one word after the other, each when the test allows it."""

    name = "speaker"

    def __init__(self, *tries: list[str | Exception]) -> None:
        self._tries = list(tries)
        self.may_go_on = asyncio.Event()

    async def complete(self, request: Request, on_text: Callable[[str], None]) -> Reply:
        del request
        said = ""
        for word in self._tries.pop(0):
            if isinstance(word, Exception):
                raise word
            on_text(word)
            said += word
            async with asyncio.timeout(PATIENCE):
                await self.may_go_on.wait()
            self.may_go_on.clear()
        return Reply(content=said)


async def watch(handle: Handle[str], speaker: Speaker) -> list[dict[str, object]]:
    """Let the model go on each time something of it has arrived; return what arrived."""
    seen: list[dict[str, object]] = []
    async with asyncio.timeout(PATIENCE):
        async for event in handle.events():
            if event.payload["kind"] == "text":
                seen.append(event.payload)
                speaker.may_go_on.set()
    return seen


async def test_text_arrives_while_the_call_is_going_on_and_in_order(either: Holdfast) -> None:
    speaker = Speaker(["One ", "two ", "three."])
    agent = either.register(Agent("agent", model=speaker))
    handle = await either.submit(agent, "go")
    async with either.worker():
        seen = await watch(handle, speaker)  # the model would wait for ever if nothing arrived before its end
        assert await handle.result(timeout=PATIENCE) == "One two three."
    assert [one["text"] for one in seen] == ["One ", "two ", "three."]
    assert [one["index"] for one in seen] == [0, 1, 2]
    assert {one["step"] for one in seen} == {"llm:1"}


async def test_the_text_of_a_failing_try_differs_from_that_of_the_next(hold: Holdfast) -> None:
    speaker = Speaker(["Once ", "upon ", ModelError("cut")], ["No. ", "Really."])
    retry = Retry(max_attempts=2, initial=0.0)
    agent = hold.register(Agent("agent", model=speaker, model_retry=retry))
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        seen = await watch(handle, speaker)
        assert await handle.result(timeout=PATIENCE) == "No. Really."
    texts: dict[tuple[object, object], str] = {}
    for one in seen:
        key = one["attempt"], one["try"]
        texts[key] = texts.get(key, "") + str(one["text"])
    assert list(texts.values()) == ["Once upon ", "No. Really."]


async def test_text_that_no_store_holds_is_shown_as_well_as_possible(hold: Holdfast) -> None:
    speaker = Speaker(["a\0b\ud800"])
    agent = hold.register(Agent("agent", model=speaker))
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        seen = await watch(handle, speaker)
        assert await handle.result(timeout=PATIENCE) == "a\0b\ud800"
    assert [one["text"] for one in seen] == ["a\ufffdb?"]


async def test_a_cancel_that_comes_with_the_end_of_the_text_is_not_lost() -> None:
    kept: list[asyncio.Task[Any]] = []
    attempt = MagicMock()
    attempt.services.store.emit = AsyncMock()
    attempt.services.keep = kept.append
    stream = TextStream(attempt, "llm:1", 1)
    stream("One ")
    await settle()
    closing = asyncio.create_task(stream.close())
    await asyncio.sleep(0)  # it has said that this is the end
    kept[0].cancel()
    await closing
    with pytest.raises(asyncio.CancelledError):
        kept[0].result()
    attempt.services.store.emit.assert_not_called()
