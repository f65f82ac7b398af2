"""What tools return: large results become artifacts, and whatever cannot be written down exactly still counts."""

import dataclasses
import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import Holdfast, tool
from holdfast.agent.scripted import Line, call
from holdfast.testing import Sandbox, crash_everywhere
from tests.agent.support import finished, output_of, register, shown, tool_results


class Opaque:
    def __repr__(self) -> str:
        return "<opaque>"


class Hostile:
    def __str__(self) -> str:
        raise ValueError("no")

    __repr__ = __str__


@dataclasses.dataclass
class Disk:
    name: str
    seen: datetime


def loop() -> list[Any]:
    inner: list[Any] = []
    inner.append(inner)
    return inner


def deep() -> list[Any]:
    nested: list[Any] = []
    for _ in range(500):
        nested = [nested]
    return nested


RESULTS: list[tuple[Callable[[], Any], str]] = [
    (lambda: None, "null"),
    (lambda: "", ""),
    (lambda: "plain \n ünï 🙂", "plain \n ünï 🙂"),
    (lambda: "nul \0", "nul \0"),
    (lambda: "lone \ud800", "lone \ud800"),
    (lambda: {"b": 1, "a": [True, None]}, '{"a": [true, null], "b": 1}'),
    (lambda: (1, 2), "[1, 2]"),
    (lambda: {3}, "[3]"),
    (lambda: b"bytes", "bytes"),
    (lambda: b"\xff\x00", "\ufffd\ufffd"),
    (lambda: Disk("sda", datetime(2026, 1, 2, tzinfo=UTC)), '{"name": "sda", "seen": "2026-01-02T00:00:00Z"}'),
    (lambda: {1: "a"}, '{"1": "a"}'),
    (Opaque, "<opaque>"),
    (lambda: [Opaque()], '["<opaque>"]'),
    (lambda: {"a": Hostile()}, "<dict>"),
    (Hostile, "<Hostile>"),
]


@pytest.mark.parametrize(("make", "seen"), RESULTS, ids=[str(number) for number in range(len(RESULTS))])
async def test_any_result_reaches_the_model(hold: Holdfast, make: Callable[[], Any], seen: str) -> None:
    made = 0

    @tool
    def act() -> Any:  # noqa: ANN401
        """Act."""
        nonlocal made
        made += 1
        return make()

    agent, model = register(hold, [call("act"), "done"], tools=[act])
    handle = await finished(hold, agent)
    assert (tool_results(model), made) == ([seen], 1)
    assert await hold.doubts(handle) == []


@pytest.mark.parametrize("make", [lambda: math.nan, lambda: {"a": math.inf}, loop, deep, lambda: 10**5_000])
async def test_what_is_not_json_is_shown_as_text(either: Holdfast, make: Callable[[], Any]) -> None:
    @tool
    async def act() -> Any:  # noqa: ANN401
        """Act."""
        return make()

    agent, model = register(either, [call("act"), "done"], tools=[act])
    await finished(either, agent)
    assert len(tool_results(model)) == 1


async def test_a_large_result_becomes_an_artifact_with_an_excerpt(either: Holdfast) -> None:
    text = "begin\n" + "x" * 1_000_000 + "\nend"

    @tool(risk="read_only")
    async def read() -> str:
        """Read."""
        return text

    script: list[Line] = [call("update_plan", plan=["look"], current_step="look"), call("read"), "done"]
    agent, model = register(either, script, tools=[read])
    handle = await finished(either, agent)
    [reference] = (await either.state(handle)).artifacts
    assert (reference.type, reference.bytes, reference.step) == ("tool_result.read", len(text), "look")
    assert reference.summary.startswith("begin xxx")
    output = await output_of(either, handle, "read:2.0")
    assert output["artifact"] == {"artifact_id": reference.artifact_id, "bytes": len(text)}
    assert await either.artifacts.read_text(reference.artifact_id) == text
    seen = tool_results(model)[-1]
    assert seen.startswith("begin\nxxx")
    assert "end" in seen
    assert len(seen) < 4_500
    assert f"[{len(text)} bytes, kept as artifact {reference.artifact_id}; read_artifact shows more of it]" in seen
    [link] = await either.store.artifact_links(handle.id)
    assert (link.artifact_id, link.type, link.step) == (reference.artifact_id, "tool_result.read", "look")


async def test_large_data_is_kept_as_json(hold: Holdfast) -> None:
    data = [{"number": number} for number in range(1_000)]

    @tool(risk="read_only")
    def read() -> list[dict[str, int]]:
        """Read."""
        return data

    agent, _ = register(hold, [call("read"), "done"], tools=[read], inline_bytes=300)
    handle = await finished(hold, agent)
    [reference] = (await hold.state(handle)).artifacts
    kept = await hold.artifacts.stat(reference.artifact_id)
    assert kept.media_type == "application/json"
    assert (await hold.artifacts.read_text(reference.artifact_id)).startswith('[{"number":0}')


async def test_the_same_large_result_is_stored_once(hold: Holdfast) -> None:
    @tool(risk="read_only")
    def read(number: int) -> str:
        """Read."""
        del number
        return "x" * 10_000

    agent, _ = register(hold, [[call("read", number=1), call("read", number=2)], "done"], tools=[read])
    handle = await finished(hold, agent)
    assert len((await hold.state(handle)).artifacts) == 1
    assert len(await hold.store.artifact_links(handle.id)) == 1


async def test_a_large_text_with_lone_surrogates_can_be_read_again(hold: Holdfast) -> None:
    @tool(risk="read_only")
    def read() -> str:
        """Read."""
        return "begin\n" + "\ud800" * 10_000 + "\nend"

    def look_into(request: object) -> Any:  # noqa: ANN401
        del request
        name = shown(model)[-1][1].partition("kept as artifact ")[2].partition(";")[0]
        return call("read_artifact", artifact_id=name)

    agent, model = register(hold, [call("read"), look_into, "done"], tools=[read])
    await finished(hold, agent)
    first, second = tool_results(model)
    assert first.startswith("begin")
    assert not second.startswith("Error")


@pytest.mark.parametrize("start", ["\0", "\ud800", "a" * 119 + "\0"], ids=ascii)
async def test_an_artifact_may_begin_with_anything(either: Holdfast, start: str) -> None:
    @tool
    async def read() -> str:
        """Read."""
        return start + "x" * 10_000

    script: list[Line] = [
        call("update_plan", plan=["nul \0"], current_step="nul \0"),
        call("read"),
        call("save_artifact", name="nul \0", content="text", summary="nul \0", type="nul \0"),
        "done",
    ]
    agent, _ = register(either, script, tools=[read])
    handle = await finished(either, agent)
    assert len(await either.store.artifact_links(handle.id)) == 2


async def test_large_results_survive_crashes(app: Holdfast) -> None:
    @tool(risk="read_only")
    async def read(size: int) -> str:
        """Read."""
        return "x" * size

    agent, model = register(app, [[call("read", size=9_000), call("read", size=9_001)], "done"], tools=[read])

    async def scenario(box: Sandbox) -> tuple[list[str], list[int], int]:
        handle = await box.hold.submit(agent, "go")
        await handle.result(timeout=3600)
        sizes = [artifact.bytes for artifact in (await box.hold.state(handle)).artifacts]
        return tool_results(model), sorted(sizes), len(await box.hold.store.artifact_links(handle.id))

    survived = await crash_everywhere(app, scenario)
    assert survived.result[1:] == ([9_000, 9_001], 2)
