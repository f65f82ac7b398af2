"""Artifacts as resources: text, bytes, large ones, parts of them, and characters that a part would cut."""

from __future__ import annotations

import base64

import pytest
from mcp import Client
from mcp_types import BlobResourceContents, TextResourceContents

from holdfast import Holdfast

LIMIT = 128 << 10


async def content_of(client: Client, uri: str) -> TextResourceContents | BlobResourceContents:
    [content] = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents | BlobResourceContents)
    return content


async def text_at(client: Client, uri: str) -> str:
    content = await content_of(client, uri)
    assert isinstance(content, TextResourceContents), content
    return content.text


async def bytes_at(client: Client, uri: str) -> bytes:
    content = await content_of(client, uri)
    assert isinstance(content, BlobResourceContents), content
    return base64.b64decode(content.blob)


async def stored(hold: Holdfast, content: bytes, media_type: str = "text/plain") -> str:
    return f"artifact://{(await hold.artifacts.write(content, media_type=media_type)).id}"


async def test_text_is_text_and_has_its_type(hold: Holdfast, client: Client) -> None:
    uri = await stored(hold, "größer\n".encode(), "text/markdown")
    content = await content_of(client, uri)
    assert isinstance(content, TextResourceContents)
    assert (content.uri, content.mime_type, content.text) == (uri, "text/markdown", "größer\n")
    assert await text_at(client, await stored(hold, b"")) == ""


async def test_bytes_are_bytes(hold: Holdfast, client: Client) -> None:
    raw = bytes(range(256)) * 4
    uri = await stored(hold, raw, "image/png")
    assert await bytes_at(client, uri) == raw
    assert (await content_of(client, uri)).mime_type == "image/png"
    assert await bytes_at(client, f"{uri}?offset=250&length=10") == raw[250:260]


async def test_a_large_one_is_an_excerpt_that_says_how_to_read_the_rest(hold: Holdfast, client: Client) -> None:
    text = "".join(f"line {number}\n" for number in range(40_000))
    uri = await stored(hold, text.encode())
    excerpt = await text_at(client, uri)
    assert len(excerpt) < LIMIT + 1000
    assert excerpt.startswith("line 0\n")
    assert "line 39999" in excerpt
    assert f"{len(text)} bytes of text/plain" in excerpt
    assert f"{uri}?offset=0&length={LIMIT}" in excerpt
    parts = ""
    while len(parts) < len(text):
        parts += await text_at(client, f"{uri}?offset={len(parts)}&length={LIMIT}")
    assert parts == text


async def test_a_large_one_that_is_not_text(hold: Holdfast, client: Client) -> None:
    raw = bytes(range(256)) * 600
    uri = await stored(hold, raw, "application/zip")
    content = await content_of(client, uri)
    assert isinstance(content, TextResourceContents)
    assert f"{len(raw)} bytes of application/zip" in content.text
    assert await bytes_at(client, f"{uri}?offset={LIMIT}") == raw[LIMIT:]


@pytest.mark.parametrize("offset", range(5))
@pytest.mark.parametrize("length", range(1, 6))
async def test_a_part_never_has_half_a_character(hold: Holdfast, client: Client, offset: int, length: int) -> None:
    text = "aé€😀" * 20
    uri = await stored(hold, text.encode())
    part = await text_at(client, f"{uri}?offset={offset}&length={length}")
    assert part in text
    assert "?" not in part


async def test_a_part_is_never_more_than_is_sent_at_once(hold: Holdfast, client: Client) -> None:
    uri = await stored(hold, b"x" * (3 * LIMIT))
    assert len(await text_at(client, f"{uri}?offset=1&length={2 * LIMIT}")) == LIMIT
    assert len(await text_at(client, f"{uri}?offset=1")) == LIMIT
    assert await text_at(client, f"{uri}?offset={3 * LIMIT - 2}") == "xx"
    assert await text_at(client, f"{uri}?offset={9 * LIMIT}") == ""
    assert await text_at(client, f"{uri}?offset=0&length=0") == ""
