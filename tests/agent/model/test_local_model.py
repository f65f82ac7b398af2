"""A small real model behind a real endpoint, for `make test-local-model`: its answers are not scripted."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.agent.model import Request
from holdfast.agent.openai_model import OpenAIModel
from holdfast.model.message import Message
from tests.agent.model.support import ignore, user

pytestmark = pytest.mark.skipif(
    os.environ.get("HOLDFAST_LOCAL_MODEL") != "1", reason="needs a model of 100 MB; run make test-local-model"
)


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    command = [sys.executable, str(Path(__file__).with_name("local_model_process.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address, f"the model did not start: exit code {process.wait()}"
            yield address
        finally:
            process.kill()


@pytest.fixture
def model(base_url: str) -> OpenAIModel:
    return OpenAIModel("smollm2", base_url=base_url, temperature=0.0)


async def test_it_answers(model: OpenAIModel) -> None:
    messages = (
        Message(role="system", content="You answer in one short sentence."),
        Message(role="user", content="What is the capital of France?"),
    )
    reply = await model.complete(Request(messages=messages, max_output_tokens=40, effect_id="a"), ignore)
    assert "Paris" in reply.content
    assert reply.finish_reason == "stop"
    assert reply.usage is not None
    assert reply.usage.input_tokens > 10
    assert 0 < reply.usage.output_tokens <= 40


async def test_its_text_comes_in_pieces(model: OpenAIModel) -> None:
    pieces: list[str] = []
    reply = await model.complete(user("Count from one to ten.", max_output_tokens=30), pieces.append)
    assert "".join(pieces) == reply.content
    assert len(pieces) > 5


async def test_the_limit_of_tokens_is_kept(model: OpenAIModel) -> None:
    reply = await model.complete(user("Tell me a long story.", max_output_tokens=5), ignore)
    assert reply.finish_reason == "length"
    assert reply.usage is not None
    assert reply.usage.output_tokens == 5


async def test_it_can_be_interrupted_and_asked_again(model: OpenAIModel) -> None:
    begun = asyncio.Event()
    asked = asyncio.create_task(
        model.complete(user("Tell me a long story.", max_output_tokens=1000), lambda _: begun.set())
    )
    await begun.wait()
    asked.cancel()
    await asyncio.wait([asked])
    assert asked.cancelled()
    assert (await model.complete(user("Say hello.", max_output_tokens=20), ignore)).content
