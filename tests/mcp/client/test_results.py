"""What a tool answered, as plain data."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from holdfast import Holdfast
from holdfast.agent.scripted import call
from holdfast.mcp import tools
from holdfast.mcp.client.answers import read_answer
from tests.agent.support import output_of, register, tool_results
from tests.mcp.client.support import World, finished

THREE = base64.b64encode(b"abc").decode()
FOUR = base64.b64encode(b"abcd").decode()
LEFT_OUT = "the bytes are left out"

TABLE: list[tuple[list[Any], Any, Any]] = [
    ([], None, ""),
    ([TextContent(text="one")], None, "one"),
    ([TextContent(text="one"), TextContent(text="two")], None, "one\ntwo"),
    ([TextContent(text='{"a": 1}')], {"a": 1}, {"a": 1}),
    ([TextContent(text="one")], {"result": "one"}, "one"),
    ([TextContent(text="5")], {"result": 5}, {"result": 5}),
    ([], [1, 2], [1, 2]),
    (
        [ImageContent(data=FOUR, mime_type="image/png")],
        None,
        [{"type": "image", "media_type": "image/png", "bytes": 4, "note": LEFT_OUT}],
    ),
    (
        [TextContent(text="hear"), AudioContent(data=THREE, mime_type="audio/wav")],
        None,
        ["hear", {"type": "audio", "media_type": "audio/wav", "bytes": 3, "note": LEFT_OUT}],
    ),
    (
        [TextContent(text="x"), ImageContent(data=THREE, mime_type="image/png")],
        {"a": 1},
        {
            "data": {"a": 1},
            "attached": [{"type": "image", "media_type": "image/png", "bytes": 3, "note": LEFT_OUT}],
        },
    ),
    (
        [ResourceLink(uri="file:///a.txt", name="a", mime_type="text/plain")],
        None,
        [{"type": "resource_link", "uri": "file:///a.txt", "name": "a", "media_type": "text/plain"}],
    ),
    (
        [EmbeddedResource(resource=TextResourceContents(uri="file:///a.txt", text="hello"))],
        None,
        [{"type": "resource", "uri": "file:///a.txt", "media_type": None, "text": "hello"}],
    ),
    (
        [EmbeddedResource(resource=BlobResourceContents(uri="file:///a.bin", blob=FOUR))],
        None,
        [{"uri": "file:///a.bin", "type": "resource", "media_type": None, "bytes": 4, "note": LEFT_OUT}],
    ),
]


@pytest.mark.parametrize(("content", "structured", "data"), TABLE)
def test_the_table(content: list[Any], structured: Any, data: Any) -> None:  # noqa: ANN401
    answer = read_answer(CallToolResult(content=content, structured_content=structured))
    assert (answer.data, answer.is_error) == (data, False)


async def test_a_picture_is_not_in_the_journal(hold: Holdfast, world: World) -> None:
    agent, model = register(hold, [call("picture"), "done"], tools=[tools(world.command)])
    handle = await finished(hold, agent)
    [step] = [step for step in await hold.store.steps(handle.id) if step.key == "picture:1.0"]
    assert len(step.output or b"") < 1_000
    recorded = (await output_of(hold, handle, "picture:1.0"))["value"]
    assert recorded[0] == "here it is"
    assert recorded[1]["bytes"] == 300_000
    assert recorded[2]["text"] == "all is well"
    assert "here it is" in tool_results(model)[0]


async def test_a_long_text_is_kept_as_an_artifact(hold: Holdfast, world: World) -> None:
    agent, model = register(hold, [call("long_text"), "done"], tools=[tools(world.command)])
    await finished(hold, agent)
    assert "2700000 bytes, kept as artifact" in tool_results(model)[0]
