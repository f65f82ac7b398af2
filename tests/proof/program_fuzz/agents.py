"""Agents in a program: each calls a tool that acts once, under a helper of its own where the case says so."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast import Agent, Retry, ScriptedModel, tool
from holdfast.agent.model import Request
from holdfast.agent.scripted import call
from tests.proof.program_fuzz.grammar import Node
from tests.proof.program_fuzz.records import Records

PAID = "it is paid"


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
    """Return the agent of a node. Its request is the label of its intent, which the model passes on word by word.

    So is every message: a label to pay for.
    """

    @tool(reconcile=look if node["reconcile"] else None, timeout=timeout, settle=settle)
    async def pay(label: str, effect_id: str) -> str:
        """Pay for what the label names."""
        await pass_by(label)
        about = {"node": node.id, "task": label.partition("/")[0], "round": 0, "key": None, "branch": "", "undo": None}
        records.write("act", label, **about, once=True, effect=effect_id, value=PAID)
        await pass_by(label)
        return PAID

    name = f"agent-{node.id}"
    options: dict[str, Any] = {
        "builtins": False,
        "approve": ["external_action"] if node["approved"] else [],
        "checkpoint": node["checkpoint"] or "every_step",
    }
    if not node["helped"]:
        return Agent(name, model=_model("pay", "label", records), tools=[pay], retry=retry, **options)
    helper = Agent(f"{name}-helper", description="Pays.", model=_model("pay", "label", None), tools=[pay], **options)
    return Agent(name, model=_model(helper.name, "request", records), tools=[helper], retry=retry, **options)


def _model(what: str, parameter: str, records: Records | None) -> ScriptedModel:
    """Return a model that calls the tool with each label it was given, one after the other, unless it has done so.

    It notes what it reads, where there are records.
    """

    def answer(request: Request) -> Any:  # noqa: ANN401
        given = [message.content for message in request.messages if message.role == "user"]
        labels = [text for text in given if text.startswith(given[0])]
        asked = {call_.id: call_.arguments for message in request.messages for call_ in message.tool_calls}
        answers = {
            json.loads(asked[message.tool_call_id])[parameter]: message.content
            for message in request.messages
            if message.role == "tool" and message.tool_call_id is not None
        }
        if records is not None:
            paid = [label for label, result in answers.items() if PAID in result]
            records.write("reads", given[0], texts=labels, paid=paid)
        waiting = next((label for label in labels if label not in answers), None)
        return PAID if waiting is None else call(what, **{parameter: waiting})

    return ScriptedModel(answer)
