"""How large an AgentState, a patch and a message may be.

Input from outside that is too large is rejected with an error: a patch, a fact, a question, a message. Data that exists
already is shortened instead, such as the result of a tool that was called, or the content of an old store. The freshest
facts stay in a state; the journal keeps all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from holdfast.model.agent_state import AgentState, ArtifactRef, KnownFact
from holdfast.model.canonical import canonical
from holdfast.model.errors import InvalidValue
from holdfast.model.excerpt import excerpt
from holdfast.model.utf8 import encode

if TYPE_CHECKING:
    from holdfast.model.patch import StatePatch

TEXT_BYTES: Final = 8_000
"""Of a question, a step of a plan, a flag, the summary of an artifact."""

FACT_BYTES: Final = 16_000
"""Of one fact of a state. By default a model sees 8,000 bytes of facts."""

PATCH_BYTES: Final = 256_000
"""Of one patch from outside."""

MESSAGE_BYTES: Final = 256_000
"""Of one message to an agent. A longer one is larger than the whole default context of a model."""

FACTS_BYTES: Final = 2_000_000
"""Of all facts in a state. Beyond that the oldest are dropped."""

REST_BYTES: Final = 1_000_000
"""Of everything in a state except its goal and its facts."""

_INSTEAD = "keep long texts as an artifact and name its id"
_NAME_BYTES = 1_000
_SHOWN = 60


def size_of(text: str) -> int:
    """Return the bytes of a text."""
    return len(text) if text.isascii() else len(encode(text))


def check_size(what: str, text: str, most: int, instead: str = _INSTEAD) -> None:
    """Refuse a text that is too long."""
    if (size := size_of(text)) > most:
        raise InvalidValue(f"{what} takes {size:,} bytes, and {most:,} are allowed; {instead}")


def check_patch_size(patch: StatePatch) -> None:
    """Reject a patch from outside that is too large. What it removes does not count."""
    for name in ("replace_plan", "add_questions", "set_flags", "complete_steps"):
        for text in getattr(patch, name) or ():
            check_size(f"{name}: {_shown(text)}", text, TEXT_BYTES)
    check_size("current_step", patch.current_step or "", TEXT_BYTES)
    check_size("goal", patch.goal or "", MESSAGE_BYTES)
    for artifact in patch.add_artifacts:
        for field in ("summary", "type", "artifact_id"):
            most = TEXT_BYTES if field == "summary" else _NAME_BYTES
            check_size(f"the {field} of an artifact", getattr(artifact, field), most, "shorten it")
    for fact in patch.append_facts:
        check_size(f"the fact {_shown(fact.key)}", _written(fact), FACT_BYTES)
    # The goal has its own limit above, and removals do not count.
    added = replace(patch, resolve_questions=(), clear_flags=(), goal=None)
    check_size("the patch", canonical(added.to_json()).decode(), PATCH_BYTES, "send it in parts")


def check_growth(before: AgentState, after: AgentState) -> None:
    """Reject a change after which a state, without its facts, would be too large."""
    if (size := _rest_of(after)) > REST_BYTES and size > _rest_of(before):
        raise InvalidValue(
            f"plan, steps, questions, flags and artifacts of the state would take {size:,} bytes, and {REST_BYTES:,} "
            "are allowed; resolve questions, clear flags or shorten the plan first"
        )


def fit_patch(patch: StatePatch, open_questions: Sequence[str] = ()) -> StatePatch:
    """Return a patch with its long texts cut in the middle.

    A question that it resolves is one of the ``open_questions``, or was shortened when it was added.
    """
    resolved = (one if one in open_questions else excerpt(one, max_bytes=TEXT_BYTES) for one in patch.resolve_questions)
    return replace(
        patch,
        append_facts=freshest([fit_fact(fact) for fact in patch.append_facts], lambda fact: size_of(_written(fact))),
        replace_plan=None if patch.replace_plan is None else _fit(patch.replace_plan),
        add_questions=_fit(patch.add_questions),
        resolve_questions=tuple(resolved),
        goal=None if patch.goal is None else excerpt(patch.goal, max_bytes=MESSAGE_BYTES),
        set_flags=_fit(patch.set_flags),
        complete_steps=_fit(patch.complete_steps),
        current_step=None if patch.current_step is None else excerpt(patch.current_step, max_bytes=TEXT_BYTES),
        add_artifacts=tuple(map(_fit_artifact, patch.add_artifacts)),
    )


def fit_fact(fact: KnownFact, most: int = FACT_BYTES) -> KnownFact:
    """Return a fact that takes no more than ``most`` bytes, with both ends of its value if it was larger."""
    if size_of(_written(fact)) <= most:
        return fact
    name, room = min(_NAME_BYTES, max(most // 8, 64)), most // 2
    text = fact.value if isinstance(fact.value, str) else canonical(fact.value).decode()
    shortened = replace(
        fact,
        key=excerpt(fact.key, max_bytes=name),
        source=excerpt(fact.source, max_bytes=name),
        step=None if fact.step is None else excerpt(fact.step, max_bytes=name),
    )
    while True:  # a JSON escape takes up to six times the size of its character
        fitted = replace(shortened, value=excerpt(text, max_bytes=max(room, 64)))
        if size_of(_written(fitted)) <= most or room < 64:  # noqa: PLR2004 - the smallest excerpt
            return fitted
        room //= 2


def freshest(facts: Sequence[KnownFact], weight: Callable[[KnownFact], int] | None = None) -> tuple[KnownFact, ...]:
    """Return the last facts, as many as fit into a state; at least the last one.

    Called for every fact that is added, so the default ``weight`` is a quick estimate.
    """
    size = 0
    for index in range(len(facts) - 1, -1, -1):
        size += (weight or _weight)(facts[index])
        if size > FACTS_BYTES and index < len(facts) - 1:
            return tuple(facts[index + 1 :])
    return tuple(facts)


def _fit(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(excerpt(text, max_bytes=TEXT_BYTES) for text in texts)


def _fit_artifact(artifact: ArtifactRef) -> ArtifactRef:
    return replace(
        artifact,
        summary=excerpt(artifact.summary, max_bytes=TEXT_BYTES),
        type=excerpt(artifact.type, max_bytes=_NAME_BYTES),
    )


def _weight(fact: KnownFact) -> int:
    """Return about the size of a fact: JSON escapes in a text take more."""
    value = size_of(fact.value) if isinstance(fact.value, str) else len(canonical(fact.value))
    return value + size_of(fact.key) + size_of(fact.source) + size_of(fact.step or "") + 100


def _written(fact: KnownFact) -> str:
    return canonical(fact.to_json()).decode()


def _rest_of(state: AgentState) -> int:
    texts = (*state.plan, *state.open_questions, *state.risk_flags, *state.completed_steps, state.current_step or "")
    named = sum(size_of(one.summary) + size_of(one.type) + size_of(one.artifact_id) + 50 for one in state.artifacts)
    return named + sum(size_of(text) + 4 for text in texts)


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
