"""What the agent's tests share: an agent in one line, its conversation, its journal, its questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast import Agent, Approval, Handle, Holdfast, ScriptedModel, Step, TaskDefinition, decode, tool
from holdfast.agent.scripted import Line, Writer
from holdfast.agent.transcript import LLM, TOOL
from holdfast.engine.manage.message import MESSAGE
from tests.engine.support import until

PATIENCE = 30.0
"""Real seconds until a task that does not end fails its test."""

Defined = TaskDefinition[..., str]


def register(
    hold: Holdfast,
    replies: Sequence[Line] | Writer,
    *,
    name: str = "agent",
    **options: Any,  # noqa: ANN401
) -> tuple[Defined, ScriptedModel]:
    """Register an agent with a scripted model; return both."""
    model = ScriptedModel(replies)
    return hold.register(Agent(name, model=model, **options)), model


async def finished(hold: Holdfast, agent: Defined, text: str = "go", **options: Any) -> Handle[str]:  # noqa: ANN401
    """Submit to an agent, and return when a worker has done it."""
    handle = await hold.submit(agent, text, **options)
    async with hold.worker(concurrency=10):
        await handle.result(timeout=PATIENCE)
    return handle


async def steps_of(hold: Holdfast, handle: Handle[Any]) -> list[Step]:
    """Return the model calls, the tool calls and the messages of a task, in order."""
    steps = await hold.store.steps(handle.id)
    return sorted((step for step in steps if step.kind in {LLM, TOOL, MESSAGE}), key=lambda step: step.position)


async def keys_of(hold: Holdfast, handle: Handle[Any]) -> list[str]:
    return [step.key for step in await steps_of(hold, handle)]


async def output_of(hold: Holdfast, handle: Handle[Any], key: str) -> Any:  # noqa: ANN401
    """Return what a step recorded."""
    [step] = [step for step in await hold.store.steps(handle.id) if step.key == key]
    assert step.output is not None
    return decode(step.output)


def shown(model: ScriptedModel, request: int = -1) -> list[tuple[str, str]]:
    """Return the messages of a request with their roles; by default of the last one."""
    return [(message.role, message.content) for message in model.requests[request].messages]


def tool_results(model: ScriptedModel, request: int = -1) -> list[str]:
    """Return the results of tools that the model got."""
    return [content for role, content in shown(model, request) if role == "tool"]


def heard(model: ScriptedModel, request: int = -1) -> list[str]:
    """Return the users' messages that the model got."""
    return [content for role, content in shown(model, request) if role == "user"]


async def asked(hold: Holdfast, task: Handle[Any]) -> Approval:
    """Return the one thing that a task asks a person for, once it does."""
    found: list[Approval] = []

    async def is_there() -> bool:
        found[:] = await hold.approvals(task)
        return bool(found)

    await until(is_there, patience=PATIENCE)
    [approval] = found
    return approval


@tool(risk="read_only")
async def look(place: str = "here") -> str:
    """Look somewhere."""
    return f"nothing {place}"
