"""The server by hand says what the SDK's server says, and so may stand in for it where the SDK is not the point."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, Holdfast, ScriptedModel
from holdfast.agent.scripted import call
from holdfast.mcp import tools
from holdfast.testing.contract._support import row
from tests.mcp.client.support import World, finished

CALLS: dict[str, dict[str, Any]] = {
    "search": {"query": "x", "more": 1},
    "send": {"to": "ann"},
    "wait_and_send": {"to": "bob"},
    "fail": {"why": "no paper"},
    "wipe": {},
    "innocent": {},
    "picture": {},
    "long_text": {},
}
META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.holdfast/effect_id": "e",
}


def conversation(command: list[str]) -> list[dict[str, Any]]:
    """Ask everything, one question after the other."""
    asked: list[tuple[str, dict[str, Any]]] = [("server/discover", {}), ("tools/list", {})]
    asked += [("tools/call", {"name": name, "arguments": arguments}) for name, arguments in CALLS.items()]
    answers = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        for number, (method, params) in enumerate(asked, start=1):
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params | {"_meta": META}}
            server.stdin.write(json.dumps(request) + "\n")
            server.stdin.flush()
            answers.append(json.loads(server.stdout.readline()))
        server.stdin.close()
    return answers


def test_both_say_the_same(tmp_path: Path) -> None:
    worlds = []
    for name in ("small", "sdk"):
        (tmp_path / name).mkdir()
        worlds.append(World(tmp_path / name))
    small, real = worlds
    for world in worlds:
        world.gate.touch()
    for ours, theirs in zip(conversation(small.command), conversation(real.sdk_command), strict=True):
        with row(str(theirs)[:200]):
            assert ours == theirs
    assert small.calls == real.calls
    assert [one["tool"] for one in real.calls] == list(CALLS)


@pytest.mark.parametrize("is_small", [True, False])
async def test_an_agent_calls_them_alike(hold: Holdfast, world: World, is_small: bool) -> None:
    source = tools(world.command if is_small else world.sdk_command)
    model = ScriptedModel([call("send", to="ann"), call("fail", why="no paper"), "done"])
    await finished(hold, hold.register(Agent("agent", model=model, tools=[source], approve=[])))
    assert world.called == ["send", "fail"]
    sent, failed = (message.content for message in model.requests[-1].messages if message.tool_call_id)
    assert json.loads(sent) == {"sent": "ann", "copies": 1}
    assert "Error executing tool fail: no paper" in failed
