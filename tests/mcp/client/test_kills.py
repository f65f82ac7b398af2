"""SIGKILL of a worker between a call and its record: what must not be done twice is not; the rest may be."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import Decision, Holdfast
from tests.agent.support import tool_results
from tests.conftest import SOAK
from tests.engine.support import until
from tests.mcp.client.support import HERE, PATIENCE, World
from tests.mcp.client.test_meaning import decided
from tests.mcp.client.victim import describe

ROOT = HERE.parent.parent


@contextmanager
def served(world: World, how: str) -> Iterator[str | list[str]]:
    if how == "stdio":
        yield world.command
    else:
        with world.over_http() as (url, _):
            yield url


async def killed(world: World, url: str, server: object, declared: dict[str, Any], place: str) -> None:
    """Have a worker call the tool, and be killed before anything of that is recorded."""
    command = [sys.executable, str(HERE / "victim.py"), url, json.dumps(server), json.dumps(declared), place]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as victim:
        try:
            await until(lambda: world.called == ["wait_and_send"] or victim.poll() is not None, patience=PATIENCE)
            if place == "amid":
                victim.send_signal(signal.SIGKILL)
            else:
                world.gate.touch()
            said, complaint = victim.communicate(timeout=PATIENCE)
        finally:
            victim.kill()
        assert victim.returncode == -signal.SIGKILL, complaint
        assert ("sent to ann" in said) is (place == "answered")
    assert world.called == ["wait_and_send"]
    world.gate.touch()


EVERY_WAY = [("stdio", "amid"), ("http", "answered"), ("stdio", "answered"), ("http", "amid")]
"""How the server is reached, and where its worker is killed. An everyday run takes the first two."""


@pytest.mark.parametrize(("how", "place"), EVERY_WAY if SOAK else EVERY_WAY[:2])
async def test_a_once_call_is_not_made_again(tmp_path: Path, world: World, how: str, place: str) -> None:
    url = f"sqlite:///{tmp_path}/hold.db"
    declared = {"timeout": 6, "settle": 0.1}
    with served(world, how) as server:
        await killed(world, url, server, declared, place)
        hold = Holdfast(url)
        agent, _, model = describe(hold, server, declared)
        async with hold:
            handle = await hold.submit(agent, "go", key="only")
            async with hold.worker():
                await decided(hold, handle, Decision.HAPPENED, result="a person saw it")
                assert await handle.result(timeout=PATIENCE) == "done"
    assert world.called == ["wait_and_send"]
    assert tool_results(model) == ["a person saw it"]


@pytest.mark.parametrize("declared", [{"risk": "read_only"}, {"risk": "write_local", "effect": "idempotent"}])
async def test_what_may_be_called_again_is(tmp_path: Path, world: World, declared: dict[str, Any]) -> None:
    url = f"sqlite:///{tmp_path}/hold.db"
    with ExitStack() as stack:
        server = stack.enter_context(served(world, "stdio"))
        await killed(world, url, server, declared, "answered")
        hold = Holdfast(url)
        agent, _, model = describe(hold, server, declared)
        async with hold:
            handle = await hold.submit(agent, "go", key="only")
            async with hold.worker():
                assert await handle.result(timeout=PATIENCE) == "done"
            assert await hold.doubts(handle) == []
    assert world.called == ["wait_and_send", "wait_and_send"]
    # Under one id, by which a server that supports it recognises that they are one.
    assert len({each["effect_id"] for each in world.calls}) == 1
    assert tool_results(model) == ["sent to ann"]
