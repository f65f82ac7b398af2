"""Tools every agent has: to keep its plan and facts, ask a person, keep and read artifacts, and use memory."""

from __future__ import annotations

from typing import Literal

from holdfast.agent.tool import Tool, ToolError
from holdfast.agent.tool_context import ToolContext
from holdfast.model.agent_state import ArtifactRef, KnownFact
from holdfast.model.effect import EffectClass
from holdfast.model.errors import InvalidValue, NotFound
from holdfast.model.patch import StatePatch
from holdfast.model.risk import RiskLevel
from holdfast.model.state_size import check_patch_size
from holdfast.model.task import JsonValue

_READ_BYTES = 4_000
_LONGEST_NAME = 200
_MOST_STEPS, _LONGEST_STEP = 50, 200
"""Limits of a plan: the model sees all of it before each of its answers."""


def update_plan(
    context: ToolContext,
    plan: list[str] | None = None,
    current_step: str | None = None,
    completed: list[str] | None = None,
) -> tuple[str, StatePatch]:
    """Record or change your plan, set its current step, and mark steps as completed.

    Args:
        plan: All steps, in order. Leave it out to keep the plan as it is.
        current_step: The step you work on now, as it stands in the plan.
        completed: Steps that are done, as they stand in the plan.
    """
    if plan is not None and (len(plan) > _MOST_STEPS or any(len(step) > _LONGEST_STEP for step in plan)):
        raise ToolError(f"keep the plan short: up to {_MOST_STEPS} steps of up to {_LONGEST_STEP} characters")
    steps = list(context.state.plan) if plan is None else plan
    unknown = [step for step in (*(completed or ()), *([current_step] if current_step else ())) if step not in steps]
    if unknown:
        raise ToolError(f"{unknown[0]!r} is not a step of the plan; the plan is: {steps}")
    patch = StatePatch(
        replace_plan=None if plan is None else tuple(plan),
        current_step=current_step,
        complete_steps=tuple(completed or ()),
    )
    return "The plan is kept.", patch


def record_fact(key: str, value: str, confidence: float | None = None) -> tuple[str, StatePatch]:
    """Keep a fact you found out, so that you still know it when older messages are gone.

    Args:
        key: What the fact is about, in a few words.
        value: The fact.
        confidence: How sure you are, from 0 to 1.
    """
    if confidence is not None and not 0 <= confidence <= 1:
        raise ToolError(f"confidence is {confidence}; give a number from 0 to 1")
    patch = StatePatch(append_facts=(KnownFact(key=key, value=value, source="model", confidence=confidence),))
    return "Kept.", _fitting(patch, "keep the text with save_artifact, and record a short fact that names its id")


def _fitting(patch: StatePatch, instead: str) -> StatePatch:
    """Return the patch. Raises ToolError if it is too large, so that the model uses another way."""
    try:
        check_patch_size(patch)
    except InvalidValue as error:
        raise ToolError(f"{str(error).partition(';')[0]}; {instead}") from error
    return patch


def ask_question(question: str) -> str:
    """Ask a person something only they can know or decide, and wait for their answer.

    Args:
        question: The question, complete: they may not have followed the conversation.
    """
    return question  # never called: the agent itself asks, and waits


async def save_artifact(
    context: ToolContext,
    name: str,
    content: str,
    summary: str,
    type: str = "note",  # noqa: A002 - the name that the model sees
) -> tuple[str, StatePatch]:
    """Keep a text that is too long for the conversation: a report, a draft, a file. Returns its id.

    Args:
        name: What to call it, for example report.md.
        content: The text.
        summary: One line about its content.
        type: What kind of thing it is, for example report, draft, config.
    """
    for what, text, most in (("name", name, _LONGEST_NAME), ("type", type, _LONGEST_NAME), ("summary", summary, 1_000)):
        if len(text) > most:
            raise ToolError(f"{what} has {len(text)} characters, and {most} are allowed; the text itself is content")
    artifact = await context.artifacts.write(content, media_type="text/plain; charset=utf-8", name=name)
    reference = ArtifactRef(artifact_id=artifact.id, type=type, summary=f"{name}: {summary}", bytes=artifact.size)
    return f"Kept as artifact {artifact.id}.", StatePatch(add_artifacts=(reference,))


async def read_artifact(
    context: ToolContext,
    artifact_id: str,
    how: Literal["head", "tail", "head_tail", "grep"] = "head_tail",
    pattern: str | None = None,
) -> str:
    """Look into an artifact: its beginning, its end, or the lines that contain a text.

    Args:
        artifact_id: The id of the artifact, as your state or a tool's result names it.
        how: head, tail, head_tail (both ends), or grep (lines that contain ``pattern``).
        pattern: For grep: the text to look for.
    """
    try:
        return await context.artifacts.excerpt(artifact_id, how=how, pattern=pattern, max_bytes=_READ_BYTES - 500)
    except (NotFound, InvalidValue) as error:
        raise ToolError(str(error)) from error


async def remember(context: ToolContext, entity: str, attribute: str, value: str, confidence: float = 1.0) -> str:
    """Remember something beyond this task, for yourself and other agents.

    Args:
        entity: Who or what it is about.
        attribute: Which property of it.
        value: What you know.
        confidence: How sure you are, from 0 to 1.
    """
    source = f"agent:{context.agent_id}"
    try:
        await context.memory.store(entity, attribute, value, confidence=confidence, source=source)
    except InvalidValue as error:
        raise ToolError(str(error)) from error
    return "Remembered."


async def recall(context: ToolContext, entity: str | None = None, text: str | None = None) -> JsonValue:
    """Recall what is known about something, from earlier tasks too. Empty means that nothing is known.

    Args:
        entity: Who or what it is about.
        text: Words to search for in everything that is known, instead.
    """
    memory = context.memory
    if (entity is None) == (text is None):
        raise ToolError("give either entity or text")
    facts = await memory.recall(entity) if entity is not None else await memory.search(text or "", limit=20)
    return [
        {"entity": fact.entity, "attribute": fact.attribute, "value": fact.value, "source": fact.source}
        for fact in facts[:20]
    ]


def _local(function: object, effect: EffectClass = EffectClass.PURE) -> Tool:
    return Tool(function, risk=RiskLevel.READ_ONLY, effect=effect)  # type: ignore[arg-type]


ASK_QUESTION = _local(ask_question)

BUILT_IN = {
    tool.name: tool
    for tool in (
        _local(update_plan),
        _local(record_fact),
        ASK_QUESTION,
        _local(save_artifact, EffectClass.IDEMPOTENT),
        _local(read_artifact),
        _local(remember, EffectClass.IDEMPOTENT),
        _local(recall),
    )
}
