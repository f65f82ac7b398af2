"""What a model is shown: the instructions, the relevant part of the state, and as much of the talk as fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from holdfast.model.agent_state import AgentState, ArtifactRef
from holdfast.model.context_slice import filter_relevant_state
from holdfast.model.history import compact, measure
from holdfast.model.message import Message, ToolSpec
from holdfast.model.tokens import estimate_tokens

DEFAULT_STATE_BYTES = 8_000
"""Of artifacts and facts in the context, where the budget names no ``max_artifact_bytes_in_context``."""

DEFAULT_CONTEXT_TOKENS = 120_000
EXCERPT_BYTES = 1_500
"""Of one artifact, where the conversation does not show it any more."""

_RECENT_MESSAGES = 20
_MOST_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How much a model may be shown."""

    state_bytes: int = DEFAULT_STATE_BYTES
    tokens: int | None = DEFAULT_CONTEXT_TOKENS
    bytes: int | None = None


def build_prompt(
    instructions: str,
    state: AgentState,
    conversation: Sequence[Message],
    room: Room,
    excerpts: Mapping[str, str] | None = None,
) -> tuple[Message, ...]:
    """Return the messages of a model call: never more than the room, the same for the same state and talk."""
    described = describe_state(state, room.state_bytes, excerpts)
    system = "\n\n".join(part for part in (instructions.strip(), described) if part)
    first = [Message(role="system", content=system)] if system else []
    return compact([*first, *conversation], max_bytes=room.bytes, max_tokens=room.tokens)


def artifacts_to_show(state: AgentState, conversation: Sequence[Message]) -> tuple[ArtifactRef, ...]:
    """Return the artifacts of the current step, the newest ones, that the recent talk does not mention."""
    recent = conversation[-_RECENT_MESSAGES:]
    current = [artifact for artifact in state.artifacts if artifact.step == state.current_step]
    return tuple(
        artifact
        for artifact in current[-_MOST_SHOWN:]
        if not any(artifact.artifact_id in message.content for message in recent)
    )


def describe_state(state: AgentState, max_bytes: int, excerpts: Mapping[str, str] | None = None) -> str:
    """Return what of the state the next step needs; nothing where it says no more than the conversation does."""
    chosen = filter_relevant_state(state, state.current_step, max_bytes, excerpts=excerpts)
    is_bare = not (chosen.facts or chosen.artifacts or chosen.open_questions or state.plan or state.risk_flags)
    if is_bare:
        return ""
    return "\n".join(("Your state, kept for you:", *_plan(state), *_flags(state), chosen.render()))


def _plan(state: AgentState) -> Iterator[str]:
    if state.plan:
        yield "Plan:"
        for step in state.plan:
            mark = "x" if step in state.completed_steps else ">" if step == state.current_step else " "
            yield f"[{mark}] {' '.join(step.split())}"


def _flags(state: AgentState) -> Iterator[str]:
    if state.risk_flags:
        yield f"Flags: {', '.join(' '.join(flag.split()) for flag in state.risk_flags)}"


def estimate_prompt(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> int:
    """Estimate the tokens of a model call, rather too many than too few."""
    offered = sum(estimate_tokens(f"{tool.name}{tool.description}{tool.parameters}") for tool in tools)
    return measure(messages).tokens + offered
