"""What a model sees: the instructions, the relevant part of the state, and as much of the conversation as fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.agent.excerpts import limit_excerpts, needed_bytes
from holdfast.model.agent_state import AgentState, ArtifactRef, KnownFact
from holdfast.model.canonical import canonical
from holdfast.model.context_slice import ContextSlice, share_room
from holdfast.model.excerpt import SMALLEST_EXCERPT, excerpt
from holdfast.model.history import compact, measure
from holdfast.model.message import Message, ToolSpec
from holdfast.model.state_size import fit_fact, size_of
from holdfast.model.tokens import estimate_tokens

DEFAULT_STATE_BYTES = 8_000
"""For artifacts and facts in the context, if the budget has no ``max_artifact_bytes_in_context``."""

DEFAULT_CONTEXT_TOKENS = 120_000
EXCERPT_BYTES = 1_500
"""For one artifact that the conversation does not show any more."""

ALWAYS_BYTES = 8_000
"""For the plan, and for the open questions; half of it for the goal, a quarter for the flags. These are always shown,
so they must not fill a context."""

_RECENT_MESSAGES = 20
_MOST_SHOWN = 5
_NAME_BYTES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRoom:
    """How much a model may see."""

    state_bytes: int = DEFAULT_STATE_BYTES
    artifact_bytes: int | None = None
    """For artifacts and facts, in state and conversation together; None: the conversation is not limited."""
    tokens: int | None = DEFAULT_CONTEXT_TOKENS
    bytes: int | None = None

    @property
    def _least(self) -> int | None:
        """The bytes that always fit: the densest text needs a token for two bytes."""
        limits = [] if self.bytes is None else [self.bytes]
        return min([*limits, *([] if self.tokens is None else [2 * self.tokens])], default=None)

    @property
    def facts(self) -> int:
        """How many bytes of artifacts and facts may be shown: they never fill the context."""
        return self.state_bytes if self._least is None else min(self.state_bytes, self._least // 2)

    @property
    def always(self) -> int:
        """How many bytes for each always shown part, see ALWAYS_BYTES."""
        return ALWAYS_BYTES if self._least is None else max(SMALLEST_EXCERPT, min(ALWAYS_BYTES, self._least // 8))


def build_prompt(
    instructions: str,
    state: AgentState,
    conversation: Sequence[Message],
    room: PromptRoom,
    excerpts: Mapping[str, str] | None = None,
) -> tuple[Message, ...]:
    """Return the messages of a model call: never more than the room, and the same for the same state and messages."""
    facts = room.facts
    if room.artifact_bytes is not None:
        # The conversation gets what it needs, the newest first; half stays for what only the state has.
        facts = min(facts, max(room.artifact_bytes - needed_bytes(conversation, state), room.artifact_bytes // 2))
    chosen = _choose(state, facts, excerpts)
    if room.artifact_bytes is not None:
        conversation = limit_excerpts(conversation, state, room.artifact_bytes - chosen.size.bytes)
    described = _describe(state, chosen, room.always)
    system = "\n\n".join(part for part in (instructions.strip(), described) if part)
    first = [Message(role="system", content=system)] if system else []
    return compact([*first, *conversation], max_bytes=room.bytes, max_tokens=room.tokens)


def artifacts_to_show(state: AgentState, conversation: Sequence[Message]) -> tuple[ArtifactRef, ...]:
    """Return the newest artifacts of the current step that the recent messages do not mention."""
    recent = conversation[-_RECENT_MESSAGES:]
    current = [artifact for artifact in state.artifacts if artifact.step == state.current_step]
    return tuple(
        artifact
        for artifact in current[-_MOST_SHOWN:]
        if not any(artifact.artifact_id in message.content for message in recent)
    )


def _choose(state: AgentState, max_bytes: int, excerpts: Mapping[str, str] | None) -> ContextSlice:
    facts = _shown_facts(state.known_facts, max_bytes)
    return share_room(replace(state, known_facts=facts), state.current_step, max_bytes, excerpts=excerpts)


def _describe(state: AgentState, chosen: ContextSlice, always: int) -> str:
    """Return the part of the state that the next step needs; empty if it adds nothing to the conversation.

    Of long texts, the beginning and the end are shown, with a note: a large state must never stop its agent.
    """
    is_bare = not (chosen.facts or chosen.artifacts or chosen.open_questions or state.plan or state.risk_flags)
    if is_bare:
        return ""
    current = state.current_step
    shown = replace(
        chosen,
        goal=excerpt(chosen.goal, max_bytes=max(always // 2, SMALLEST_EXCERPT)),
        current_step=None if current is None else excerpt(current, max_bytes=max(always // 8, SMALLEST_EXCERPT)),
        open_questions=_last(chosen.open_questions, always, "question"),
        artifacts=tuple(replace(one, type=excerpt(one.type, max_bytes=_NAME_BYTES)) for one in chosen.artifacts),
    )
    return "\n".join(("Your state, kept for you:", *_plan(state, always), *_flags(state, always // 4), shown.render()))


def _shown_facts(facts: Sequence[KnownFact], max_bytes: int) -> tuple[KnownFact, ...]:
    """Return the facts. Facts too long to be shown as a whole are shortened, as far back as facts can be shown."""
    shown, used = list(facts), 0
    for index in range(len(facts) - 1, -1, -1):
        shown[index] = fact = _shown_fact(facts[index], max_bytes)
        used += len(fact.value) if isinstance(fact.value, str) else 1
        if used > max_bytes:
            break
    return tuple(shown)


def _shown_fact(fact: KnownFact, max_bytes: int) -> KnownFact:
    """Return a fact, shortened if it is too long to be shown as a whole: it would hide all older ones."""
    if isinstance(fact.value, str) and 6 * (len(fact.value) + len(fact.key) + len(fact.source)) < max_bytes:
        return fact  # short enough in any encoding
    return fact if size_of(canonical(fact.to_json()).decode()) <= max_bytes else fit_fact(fact, max_bytes // 2)


def _last(texts: Sequence[str], most: int, what: str) -> tuple[str, ...]:
    """Return the last texts that fit, each shortened if necessary, and a note of how many were left out."""
    kept: list[str] = []
    left = most
    for text in reversed(texts):
        shown = excerpt(text, max_bytes=max(most // 4, SMALLEST_EXCERPT))
        left -= size_of(canonical(shown).decode())
        if left < 0 and kept:
            break
        kept.append(shown)
    missing = len(texts) - len(kept)
    note = [f"[{missing} earlier {what}{'s' * (missing > 1)} left out]"] if missing else []
    return (*note, *reversed(kept))


def _plan(state: AgentState, most: int) -> Iterator[str]:
    if not state.plan:
        return
    yield "Plan:"
    lines = []
    for step in state.plan:
        mark = "x" if step in state.completed_steps else ">" if step == state.current_step else " "
        text = " ".join(excerpt(step, max_bytes=max(most // 4, SMALLEST_EXCERPT)).split())
        lines.append(f"[{mark}] {text}")
    # From the current step on: the steps before it are done, or nothing waits for them.
    first = next((index for index, line in enumerate(lines) if line.startswith("[>]")), 0)
    if sum(map(size_of, lines)) > most:
        yield from _around(lines, first, most)
    else:
        yield from lines


def _around(lines: Sequence[str], first: int, most: int) -> Iterator[str]:
    """Return the lines from ``first`` on, as many as fit, with a note where others were left out."""
    if first:
        yield f"[{first} earlier left out]"
    left = most
    for index, line in enumerate(lines[first:], first):
        left -= size_of(line)
        if left < 0 and index > first:
            yield f"[{len(lines) - index} more left out]"
            return
        yield line


def _flags(state: AgentState, most: int) -> Iterator[str]:
    if state.risk_flags:
        shown = _last([" ".join(flag.split()) for flag in state.risk_flags], max(most, SMALLEST_EXCERPT), "flag")
        yield f"Flags: {', '.join(' '.join(flag.split()) for flag in shown)}"


def estimate_prompt(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> int:
    """Estimate the tokens of a model call: too many rather than too few."""
    offered = sum(estimate_tokens(f"{tool.name}{tool.description}{tool.parameters}") for tool in tools)
    return measure(messages).tokens + offered
