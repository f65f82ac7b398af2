"""Two agents in two processes share one task through real MCP clients: one dies, the other learns it and continues."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psutil
from mcp import Client

from holdfast import Holdfast, TaskState
from tests.proof.engine.conditions import PATIENCE, eventually
from tests.proof.mcp.reaching import Reached, client_of
from tests.proof.mcp.watching import Notices, hearing, watching


@asynccontextmanager
async def first_agent(reached: Reached, mode: str, task_id: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start the one that will die; nothing it started outlives it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.proof.mcp.agent",
        *reached.words,
        mode,
        task_id,
        stdout=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")},
    )
    children: list[psutil.Process] = []
    try:
        yield process
        children = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.kill()
        assert await process.wait() == -signal.SIGKILL
    assert len(children) == (1 if reached.address is None else 0)
    await eventually("its server has left", lambda: not any(map(psutil.Process.is_running, children)))


async def heard(process: asyncio.subprocess.Process, word: str) -> str:
    """Wait until the agent prints something; return that."""
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        while True:
            line = await process.stdout.readline()
            assert line, f"it ended before it said {word}"
            said = json.loads(line)
            if word in said:
                return str(said[word])


async def ask(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401
    """Call a tool that has to succeed."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    answer: dict[str, Any] = result.structured_content
    return answer


async def state_of(client: Client, uri: str) -> dict[str, Any]:
    """Read a resource, not from the client's cache."""
    [content] = (await client.read_resource(uri, cache_mode="refresh")).contents
    shared: dict[str, Any] = json.loads(content.text)  # type: ignore[union-attr]
    return shared


async def until(notices: Notices, client: Client, uri: str, state: str) -> dict[str, Any]:
    """Read the state at each notification of a change, and only then, until it is this one."""
    async with asyncio.timeout(PATIENCE):
        while True:
            assert await notices.get() == uri
            shared = await state_of(client, uri)
            if shared["state"] == state and shared["agent_state"]["known_facts"]:
                return shared


async def test_one_agent_dies_and_the_other_goes_on(reached: Reached, mode: str) -> None:
    notices: Notices = asyncio.Queue()
    async with client_of(reached, mode, name="second", message_handler=hearing(notices)) as client:
        assert client.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
        task = await ask(client, "submit_task", goal="Free the disk", plan=["look", "clean"], agent_id="ops")
        uri = task["uri"]
        async with watching(client, mode, uri, notices):
            async with first_agent(reached, mode, task["task_id"]) as agent:
                stale = await heard(agent, "lease")
                await heard(agent, "recorded")
                shared = await until(notices, client, uri, "running")
                assert shared["agent_state"]["completed_steps"] == ["look"]
                refused = await client.call_tool("claim_task", {"task_id": task["task_id"]})
                assert refused.is_error  # while it lives, the task is its own
            # Its death is not reported: its lease runs out, and a watcher is notified that the task is free.
            shared = await until(notices, client, uri, "pending")

        claimed = await ask(client, "claim_task", task_id=task["task_id"])
        known = claimed["agent_state"]
        assert (known["completed_steps"], known["current_step"]) == (["look"], "clean")
        [fact] = known["known_facts"]
        assert (fact["key"], fact["value"]) == ("disk", "92%")
        briefing = (await client.get_prompt("resume_task", {"task_id": task["task_id"]})).messages[0]
        assert "[x] look" in briefing.content.text  # type: ignore[union-attr]

        # What the first one still sends is refused, and changes nothing.
        before = await state_of(client, uri)
        for tool, more in (
            ("complete_step", {"key": "clean", "output": 1}),
            ("report_progress", {"message": "here I am"}),
            ("finish_task", {"result": "mine"}),
            ("release_task", {}),
        ):
            late = await client.call_tool(tool, {"lease": stale, **more})
            assert late.is_error
            assert late.structured_content["kind"] == "LeaseLost"
        assert await state_of(client, uri) == before

        lease = claimed["lease"]
        await ask(client, "complete_step", lease=lease, key="clean", output="20 GB freed", plan_step="clean")
        done = await ask(client, "finish_task", lease=lease, result={"freed": "20 GB"})
        assert done["state"] == "completed"
        ended = await ask(client, "wait_for_task", task_id=task["task_id"])
        assert (ended["done"], ended["result"]) == (True, {"freed": "20 GB"})

    async with Holdfast(reached.url) as hold:
        steps = await hold.store.steps(task["task_id"])
        assert [step.key for step in steps] == ["outside:look", "outside:clean"]
        moves = await hold.store.history(task["task_id"])
        assert [move.to_state for move in moves].count(TaskState.RUNNING) == 2
        assert [move.to_state for move in moves].count(TaskState.COMPLETED) == 1
        assert any(move.reason == "its worker died" for move in moves)
