"""The examples, as they are, in processes of their own, with a real endpoint instead of their scripts."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any

from holdfast import Holdfast, TaskState
from holdfast.agent.scripted import call
from holdfast.testing.chat_server import Answer, ChatServer
from holdfast.testing.snapshot import all_tasks
from tests.proof.engine.processes import CLONE

LONGEST = 120.0
PLAN = ["Check current status", "Apply changes", "Verify again"]


async def run_example(name: str, url: str, server: ChatServer) -> str:
    """Run an example to its end; return what it printed."""
    settings = {"HOLDFAST_DATABASE_URL": url, "HOLDFAST_MODEL": "small", "OPENAI_BASE_URL": server.base_url}
    environment = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"} | settings
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(CLONE / "examples" / name),
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(LONGEST):
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, errors.decode()
    return output.decode()


async def test_the_disk_space_agent(url: str) -> None:
    script = [
        Answer(status=429, text="slow down", retry_after="1"),
        Answer(text="I look at it.", calls=(call("check_disk"),)),
        Answer(text="I clean up.", calls=(call("clean_logs"),), cut_at=400),
        Answer(text="I clean up.", calls=(call("clean_logs"),)),
        Answer(text="I freed 20GB."),
    ]
    with ChatServer(script) as server:
        printed = await run_example("disk_space.py", url, server)
        asked = server.requests
    assert [exchange.outcome for exchange in asked] == ["refused", "completed", "broken", "completed", "completed"]
    assert asked[1].at - asked[0].at >= 1
    assert "AI: I freed 20GB." in printed
    assert [line.split() for line in printed.splitlines()[1:]] == [
        [step, "completed"] for step in ("llm:1", "check_disk:1.0", "llm:2", "clean_logs:2.0", "llm:3")
    ]


def deployer() -> Callable[[dict[str, Any]], Answer]:
    """Return what answers both agents of the deploy example, after it has failed once for each of their answers."""
    failed: set[tuple[str, int]] = set()

    def answer(body: dict[str, Any]) -> Answer:
        version = next(message["content"] for message in body["messages"] if message["role"] == "user").split()[-1]
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        if (version, turn) not in failed:
            failed.add((version, turn))
            return Answer(status=503, text="overloaded", retry_after="0")
        script = [
            Answer(calls=(call("update_plan", plan=PLAN, current_step=PLAN[0]),)),
            Answer(calls=(call("status", service="billing"),)),
            Answer(calls=(call("apply_changes", service="billing", version=version),)),
        ]
        return script[turn] if turn < len(script) else Answer(text=f"billing runs {version}.")

    return answer


async def test_the_deploy_agents(url: str) -> None:
    with ChatServer(deployer()) as server:
        printed = await run_example("deploy.py", url, server)
        asked = server.requests
    assert "billing runs 1.2." in printed
    assert printed.count("rolled back billing 1.1") == 1
    assert "failed: " in printed
    assert printed.count("May the agent call apply_changes") == 2  # once for each version, whatever the endpoint did
    assert {exchange.outcome for exchange in asked} == {"refused", "completed"}
    async with Holdfast(url) as hold:
        tasks = {task.name: task for task in await all_tasks(hold.store)}
        assert {name: task.state for name, task in tasks.items()} == {
            "deploy": TaskState.COMPLETED,
            "deploy-bad": TaskState.FAILED,
        }
        answers = [step for task in tasks.values() for step in await hold.store.steps(task.id) if step.kind == "llm"]
        assert server.completed == len(answers) == sum(exchange.outcome == "refused" for exchange in asked)
