"""ContextSlice: the part of an AgentState that one model call sees.

Goal, current step and open questions are always in it. Then come the artifacts of the current step and the freshest
facts, as far as there is room for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from holdfast.model.agent_state import AgentState, ArtifactRef, KnownFact
from holdfast.model.canonical import canonical
from holdfast.model.json_object import without_none
from holdfast.model.task import JsonValue
from holdfast.model.tokens import ContextRoom, TextSize

# The characters that end a line for str.splitlines and that JSON does not escape.
_LINE_ENDS = str.maketrans({character: f"\\u{ord(character):04x}" for character in "\x85\u2028\u2029"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSlice:
    """The part of a state that fits into the context."""

    goal: str
    current_step: str | None = None
    facts: tuple[KnownFact, ...] = ()
    """The freshest first."""
    artifacts: tuple[ArtifactRef, ...] = ()
    """In the order of the state."""
    open_questions: tuple[str, ...] = ()
    excerpts: Mapping[str, str] = field(default_factory=dict)
    """By artifact id, the part of the bytes of the artifacts above that the model sees."""

    @property
    def size(self) -> TextSize:
        """The room its artifacts and facts take; ``filter_relevant_state`` defines what counts."""
        shown = [_size(_artifact_lines(one, self.excerpts)) for one in self.artifacts]
        return sum((*shown, *(_size([_fact_line(fact)]) for fact in self.facts)), start=TextSize())

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON form; an artifact with an excerpt has the field "excerpt"."""
        return {
            "goal": self.goal,
            "facts": [fact.to_json() for fact in self.facts],
            "artifacts": [
                artifact.to_json() | without_none({"excerpt": self.excerpts.get(artifact.artifact_id)})
                for artifact in self.artifacts
            ],
            "open_questions": list(self.open_questions),
        } | without_none({"current_step": self.current_step})

    def render(self) -> str:
        """Return the text for the model.

        Every line is a label, one value as JSON after a label or a dash, or a line of an excerpt after ``  | ``. So
        no data can look like a label: the model can always recognise the output of a tool.
        """
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"Goal: {_render_json(self.goal)}"
        if self.current_step is not None:
            yield f"Current step: {_render_json(self.current_step)}"
        if self.open_questions:
            yield "Open questions:"
            yield from (f"- {_render_json(question)}" for question in self.open_questions)
        if self.artifacts:
            yield "Artifacts of this step:"
            for artifact in self.artifacts:
                yield from _artifact_lines(artifact, self.excerpts)
        if self.facts:
            yield "Facts, the freshest first:"
            yield from map(_fact_line, self.facts)


def filter_relevant_state(
    state: AgentState,
    current_step: str | None,
    max_bytes: int,
    *,
    max_tokens: int | None = None,
    excerpts: Mapping[str, str] | None = None,
) -> ContextSlice:
    """Select what the step needs: its artifacts while they fit, then the freshest facts up to the first that does not.

    ``excerpts`` holds, by artifact id, the part of an artifact that the model may see. Artifacts and facts take the
    room of the lines that show them: an artifact's id, summary and excerpt count, its stored bytes do not. Goal, step,
    open questions and labels are always shown and do not count. An artifact that does not fit is skipped: a smaller one
    after it may fit. Facts end at the first that does not fit: a newer fact may correct an older one, so the older one
    is not shown without it.
    """
    room = ContextRoom(max_bytes, max_tokens)
    excerpts = excerpts or {}
    used = TextSize()
    artifacts = []
    for artifact in state.artifacts:
        if artifact.step != current_step:
            continue
        size = used + _size(_artifact_lines(artifact, excerpts))
        if room.holds(size):
            artifacts.append(artifact)
            used = size
    facts = []
    for fact in reversed(state.known_facts):
        used += _size([_fact_line(fact)])
        if not room.holds(used):
            break
        facts.append(fact)
    ids = [artifact.artifact_id for artifact in artifacts]
    return ContextSlice(
        goal=state.goal,
        current_step=current_step,
        facts=tuple(facts),
        artifacts=tuple(artifacts),
        open_questions=state.open_questions,
        excerpts={artifact_id: excerpts[artifact_id] for artifact_id in ids if artifact_id in excerpts},
    )


def share_room(
    state: AgentState, current_step: str | None, max_bytes: int, *, excerpts: Mapping[str, str] | None = None
) -> ContextSlice:
    """Select what the step needs, with half of the room for facts if they need it, and the newest artifacts first.

    An agent keeps collecting artifacts. In ``filter_relevant_state`` the oldest of them would take all the room.
    """
    facts = filter_relevant_state(replace(state, artifacts=()), current_step, max_bytes // 2)
    newest_first = replace(state, known_facts=(), artifacts=state.artifacts[::-1])
    newest = filter_relevant_state(newest_first, current_step, max_bytes - facts.size.bytes, excerpts=excerpts)
    chosen = replace(state, artifacts=newest.artifacts[::-1])
    return filter_relevant_state(chosen, current_step, max_bytes, excerpts=excerpts)


def _artifact_lines(artifact: ArtifactRef, excerpts: Mapping[str, str]) -> list[str]:
    excerpt = excerpts.get(artifact.artifact_id, "").splitlines()
    return [f"- {_render_json(artifact.to_json())}", *(f"  | {line}" for line in excerpt)]


def _fact_line(fact: KnownFact) -> str:
    return f"- {_render_json(fact.to_json())}"


def _size(lines: list[str]) -> TextSize:
    return TextSize.of("".join(f"{line}\n" for line in lines))


def _render_json(value: JsonValue) -> str:
    """Write ``value`` on one line, also for readers that end lines at unusual characters."""
    return canonical(value).decode().translate(_LINE_ENDS)
