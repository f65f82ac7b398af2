"""A server that is started: its tools in an agent, and what is left of it afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from holdfast import Holdfast, Retry, TaskFailed
from holdfast.agent.scripted import Line, call
from holdfast.mcp import CannotStart, Declared, ServerAway, tools
from holdfast.mcp.client.reach import reach
from holdfast.mcp.client.servers import Command
from holdfast.mcp.client.source import PATIENCE as PATIENT
from holdfast.testing import sandbox
from tests.agent.support import output_of, register, tool_results
from tests.engine.support import until
from tests.mcp.client.support import PATIENCE, World, finished, old_command


async def test_an_agent_calls_the_tools_of_a_server(hold: Holdfast, world: World) -> None:
    source = tools(world.command, declare={"search": Declared(risk="read_only")}, prefix="w_")
    agent, model = register(hold, [call("w_search", query="cats"), call("w_send", to="ann"), "done"], tools=[source])
    handle = await finished(hold, agent)
    assert tool_results(model) == ["nothing about cats", '{"copies": 1, "sent": "ann"}']
    assert world.called == ["search", "send"]
    assert await output_of(hold, handle, "w_send:2.0") == {"value": {"sent": "ann", "copies": 1}}
    [spec] = [each for each in model.requests[0].tools if each.name == "w_send"]
    assert spec.description == "Send something to an address."
    assert spec.parameters["required"] == ["to"]


async def test_the_effect_id_travels_with_the_call(hold: Holdfast, world: World) -> None:
    agent, _ = register(hold, [call("send", to="ann"), "done"], tools=[tools(world.command)])
    handle = await finished(hold, agent)
    [step] = [step for step in await hold.store.steps(handle.id) if step.key == "send:1.0"]
    assert step.effect_id is not None
    assert world.calls[0]["effect_id"] == step.effect_id


async def test_wrong_arguments_are_refused_before_anything_is_sent(hold: Holdfast, world: World) -> None:
    script: list[Line] = [call("send", to=5), call("send"), call("search", query="x", more=1), "done"]
    agent, model = register(hold, script, tools=[tools(world.command)])
    await finished(hold, agent)
    assert tool_results(model)[:2] == [
        "Error: BadArguments: the arguments of send are wrong: to: 5 is not of type 'string'",
        "Error: BadArguments: the arguments of send are wrong: arguments: 'to' is a required property",
    ]
    assert world.called == ["search"]  # which allows more than it names


async def test_calls_at_the_same_time_share_one_process(hold: Holdfast, world: World) -> None:
    source = tools(world.command)
    script: list[Line] = [[call("wait_and_send", to=str(number)) for number in range(5)], "done"]
    agent, model = register(hold, script, tools=[source])
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        await until(lambda: len(world.calls) == 5, patience=PATIENCE)
        assert len(servers(world.command)) == 1
        world.gate.touch()
        await handle.result(timeout=PATIENCE)
    assert sorted(tool_results(model)) == [f"sent to {number}" for number in range(5)]
    await source.close()
    assert servers(world.command) == []


async def test_a_server_that_died_while_unused_is_started_again(hold: Holdfast, world: World) -> None:
    source = tools(world.command)
    agent, model = register(hold, [call("send", to="ann"), "done"], tools=[source])
    await finished(hold, agent)
    [first] = servers(world.command)
    session = reach(source._server)._connection._client.session  # type: ignore[union-attr]
    first.kill()
    # Until its end was noticed, an unsent call cannot be recognised: it would rightly be in doubt.
    await until(lambda: session._dispatcher._closed)  # type: ignore[union-attr]
    handle = await finished(hold, agent)
    assert await hold.doubts(handle) == []
    assert world.called == ["send", "send"]
    assert tool_results(model) == ['{"copies": 1, "sent": "ann"}']
    assert first not in servers(world.command)


async def test_those_who_need_it_first_at_the_same_time_start_it_once(world: World) -> None:
    source, other = tools(world.command), tools(world.command, prefix="other_")
    await asyncio.gather(source.listed(), source.listed(), other.listed(), other.listed())
    assert len(servers(world.command)) == 1


@pytest.mark.parametrize(
    ("code", "connect", "words"),
    [
        ("pass", PATIENCE, "cannot be reached: it ended; its own messages are on stderr"),
        ("import time; time.sleep(600)", 2, "it did not answer within 2 s"),
        ("print('not JSON', flush=True); input()", 2, "cannot be reached"),
    ],
)
async def test_a_server_that_does_not_come_up(code: str, connect: float, words: str) -> None:
    command = [sys.executable, "-c", code]
    with pytest.raises(ServerAway, match=words):
        await tools(command, connect=connect).listed()
    await until(lambda: servers(command) == [], patience=PATIENCE)  # ending it takes longer than waiting for it


@pytest.mark.parametrize(
    ("command", "options", "words"),
    [
        (["no-such-program"], {}, "No such file"),
        ([str(Path(__file__).parent)], {}, "Permission denied"),
        ([sys.executable], {"cwd": "no-such-folder"}, "No such file.*no-such-folder"),
    ],
)
async def test_a_command_that_does_not_exist_is_not_waited_for(
    hold: Holdfast, command: list[str], options: dict[str, Any], words: str
) -> None:
    """A person has to mend it, so it is reported."""
    patient = Retry(max_attempts=60, initial=0.01, jitter="none", retry_on=(ServerAway,))
    source = tools(command, wait=patient, **options)
    with pytest.raises(CannotStart, match=f"cannot be started: .*{words}.*; fix its command"):
        await source.listed()
    agent, _ = register(hold, ["done"], tools=[source], retry=Retry(max_attempts=1))
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        with pytest.raises(TaskFailed, match=f"cannot be started: .*{words}"):
            await handle.result(timeout=PATIENCE)
    [step] = [step for step in await hold.store.steps(handle.id) if step.kind == "tools"]
    assert step.key == f"holdfast:tools:{Path(command[0]).name}:1"
    assert step.attempts == 4


@pytest.mark.parametrize(
    ("command", "options", "tries", "words"),
    [
        (["false"], {}, 60, "cannot be reached: it ended"),
        (
            ["sleep", "600"],
            {"connect": 0.1, "wait": replace(PATIENT, max_attempts=3)},
            3,
            "did not answer within 0.1 s",
        ),
    ],
)
async def test_waiting_for_a_server_that_never_comes_up_ends(
    command: list[str], options: dict[str, Any], tries: int, words: str
) -> None:
    """By default after three quarters of an hour. Then the task fails; its error names the server and the reason."""
    hold = Holdfast("memory://")
    source = tools(command, **options)
    agent, _ = register(hold, ["done"], tools=[source], retry=Retry(max_attempts=1))
    async with sandbox(hold):
        handle = await hold.submit(agent, "go")
        with pytest.raises(TaskFailed, match=f"the MCP server {command[0]} .*{words}"):
            await handle.result()
        [step] = [step for step in await hold.store.steps(handle.id) if step.kind == "tools"]
        task = await handle.task()
    assert step.attempts == tries
    assert task.created_at is not None
    assert task.finished_at is not None
    assert task.finished_at - task.created_at < timedelta(hours=1)
    await source.close()


async def test_reaching_a_server_takes_half_of_a_tools_time_at_most(world: World) -> None:
    """Otherwise it would be a timeout of the call, and it would be unknown that nothing was sent."""
    source = tools(world.command, declare={"send": Declared(timeout=2)}, only=["send"])
    [send] = await source.listed()
    await source.close()
    source._server = Command((sys.executable, "-c", "import time; time.sleep(600)"))
    with pytest.raises(ServerAway, match="it did not answer within 1 s"):
        await send({"to": "ann"}, effect_id="1")


async def test_an_old_server_is_understood(hold: Holdfast) -> None:
    agent, model = register(hold, [call("echo", text="hello"), "done"], tools=[tools(old_command())])
    await finished(hold, agent)
    assert tool_results(model) == ["hello"]


def test_a_blocking_program_uses_them_and_leaves_nothing_running(tmp_path: Path, world: World) -> None:
    program = f"""
from holdfast import Agent, Holdfast, ScriptedModel
from holdfast.agent.scripted import Line, call
from holdfast.mcp import tools

hold = Holdfast("memory://")
model = ScriptedModel([call("send", to="ann"), "done"])
agent = hold.register(Agent("agent", model=model, tools=[tools({world.command!r})]))
with hold.sync as h, h.worker():
    print(h.submit(agent, "go").result(timeout=60))
"""
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=120)
    assert (ended.stdout, ended.returncode) == ("done\n", 0), ended.stderr
    assert "Error" not in ended.stderr
    assert "Warning" not in ended.stderr
    assert world.called == ["send"]
    assert not [each for each in psutil.process_iter(["cmdline"]) if str(world.file) in (each.info["cmdline"] or [])]


def test_a_server_goes_with_the_process_that_is_killed(tmp_path: Path, world: World) -> None:
    program = f"""
import asyncio, os, signal
from holdfast.mcp import tools

async def main():
    await tools({world.command!r}).listed()
    print(os.getpid(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert ended.returncode == -signal.SIGKILL
    left = [each for each in psutil.process_iter(["cmdline"]) if str(world.file) in (each.info["cmdline"] or [])]
    assert psutil.wait_procs(left, timeout=PATIENCE)[1] == []


def servers(command: list[str]) -> list[psutil.Process]:
    """The servers that this process has started with a command, and that still run."""
    return [each for each in psutil.Process(os.getpid()).children() if _runs(each, command)]


def _runs(process: psutil.Process, command: list[str]) -> bool:
    try:
        return bool(process.cmdline() == command)
    except psutil.NoSuchProcess:  # it has ended; a zombie has, too
        return False
