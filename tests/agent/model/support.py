"""What the tests of models have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast.agent.model import Model, Request
from holdfast.agent.openai_model import OpenAIModel
from holdfast.model.message import Message, Reply, ToolSpec
from holdfast.testing.chat_server import ChatServer, Exchange

PATIENT = 60.0
"""Seconds: a limit that only a failing test reaches."""
IMPATIENT = (0.3, 3.0, 30.0)
"""Seconds that a test waits for on purpose: more, where a busy machine did not reach the fault in less."""

WEATHER = ToolSpec(
    name="weather",
    description="The weather in a town.",
    parameters={"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]},
)


def user(text: str, **more: Any) -> Request:  # noqa: ANN401 - fields of Request
    """Ask one question."""
    return Request(messages=(Message(role="user", content=text),), **more)


def ignore(_: str) -> None:
    """Take a piece of text."""


def model_of(server: ChatServer, **settings: Any) -> OpenAIModel:  # noqa: ANN401 - those of OpenAIModel
    return OpenAIModel("small", base_url=server.base_url, **settings)


async def converse(model: Model, turns: int, *, first: str = "go") -> list[Reply]:
    """Ask as often as that, each time with all that was said before."""
    messages: tuple[Message, ...] = (Message(role="user", content=first),)
    replies = []
    for _ in range(turns):
        reply = await model.complete(Request(messages=messages), ignore)
        replies.append(reply)
        results = [Message(role="tool", content="done", tool_call_id=call.id) for call in reply.tool_calls]
        messages = (*messages, reply.message, *(results or [Message(role="user", content="and then?")]))
    return replies


async def until(server: ChatServer, seen: Callable[[list[Exchange]], bool]) -> None:
    """Wait without blocking the event loop."""
    await asyncio.to_thread(server.wait_until, seen, timeout=PATIENT)
