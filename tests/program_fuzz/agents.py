"""Agents in a program: each calls a tool that acts once, under a helper of its own where the case says so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from holdfast import Agent, Retry, ScriptedModel, tool
from holdfast.agent.model import Request
from holdfast.agent.scripted import call
from tests.program_fuzz.grammar import Node
from tests.program_fuzz.records import Records


def make_agent(
    node: Node,
    records: Records,
    retry: Retry,
    *,
    pass_by: Callable[[str], Awaitable[None]],
    look: Callable[..., Awaitable[Any]],
    timeout: float,
    settle: float,
) -> Agent:
    """Return the agent of a node. Its request is the label of its intent, which the model passes on word by word."""

    @tool(reconcile=look if node["reconcile"] else None, timeout=timeout, settle=settle)
    async def pay(label: str, effect_id: str) -> str:
        """Pay for what the label names."""
        await pass_by(label)
        about = {"node": node.id, "task": label.partition("/")[0], "round": 0, "key": None, "branch": "", "undo": None}
        records.write("act", label, **about, once=True, effect=effect_id, value="paid")
        await pass_by(label)
        return "paid"

    name = f"agent-{node.id}"
    if not node["helped"]:
        return Agent(name, model=_asks("pay", "label"), tools=[pay], builtins=False, retry=retry)
    helper = Agent(f"{name}-helper", description="Pays.", model=_asks("pay", "label"), tools=[pay], builtins=False)
    return Agent(name, model=_asks(helper.name, "request"), tools=[helper], builtins=False, retry=retry)


def _asks(what: str, parameter: str) -> ScriptedModel:
    """Return a model that calls the tool with what it was asked, unless the conversation has an answer of it."""

    def answer(request: Request) -> Any:  # noqa: ANN401
        if any(message.role == "tool" for message in request.messages):
            return "done"
        asked = next(message.content for message in request.messages if message.role == "user")
        return call(what, **{parameter: asked})

    return ScriptedModel(answer)
