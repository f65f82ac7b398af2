"""StatePatch: the only way an AgentState changes.

A patch names the changes ("append these facts, replace the plan, this question is resolved"). ``apply`` is pure, so a
state can always be computed again from the patches in the journal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from holdfast.model.agent_state import AgentState, ArtifactRef, Constraints, KnownFact
from holdfast.model.budget import Budget
from holdfast.model.canonical import canonical
from holdfast.model.checks import as_tuple
from holdfast.model.errors import InvalidValue
from holdfast.model.json_object import JsonObject
from holdfast.model.state_size import freshest
from holdfast.model.task import JsonValue

_SEQUENCES = (
    *("append_facts", "replace_plan", "add_questions", "resolve_questions", "add_artifacts"),
    *("set_flags", "clear_flags", "complete_steps"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePatch:
    """One change of an AgentState. A field that is empty or None changes nothing."""

    append_facts: tuple[KnownFact, ...] = ()
    replace_plan: tuple[str, ...] | None = None
    add_questions: tuple[str, ...] = ()
    resolve_questions: tuple[str, ...] = ()
    add_artifacts: tuple[ArtifactRef, ...] = ()
    """An artifact with a known id replaces the earlier one."""
    set_flags: tuple[str, ...] = ()
    clear_flags: tuple[str, ...] = ()
    current_step: str | None = None
    """The empty string means that no step is current any more."""
    complete_steps: tuple[str, ...] = ()
    goal: str | None = None
    constraints: Constraints | None = None
    budget: Budget | None = None

    def __post_init__(self) -> None:
        """Reject a patch that contradicts itself; keep lists as tuples, which cannot change."""
        for name in _SEQUENCES:
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, as_tuple(name, given))
        for name, one, other in (
            ("flag", self.set_flags, self.clear_flags),
            ("question", self.add_questions, self.resolve_questions),
        ):
            if both := [text for text in one if text in other]:
                raise InvalidValue(f"the patch both adds and removes the {name} {both[0]!r}; choose one of the two")

    @property
    def is_empty(self) -> bool:
        """Whether it changes nothing."""
        return self == StatePatch()

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON form, with only what the patch changes."""
        written: dict[str, JsonValue] = {}
        for spec in fields(self):
            value = getattr(self, spec.name)
            if value is None or (value == () and spec.name != "replace_plan"):
                continue
            written[spec.name] = _write(value)
        return written

    @classmethod
    def from_json(cls, value: JsonValue, path: str = "patch") -> StatePatch:
        """Read the JSON form; InvalidValue names the path of what is wrong."""
        read = JsonObject(value, path, cls.__slots__)
        return cls(
            append_facts=read.items("append_facts", KnownFact.from_json),
            replace_plan=read.texts("replace_plan") if "replace_plan" in read else None,
            add_questions=read.texts("add_questions"),
            resolve_questions=read.texts("resolve_questions"),
            add_artifacts=read.items("add_artifacts", ArtifactRef.from_json),
            set_flags=read.texts("set_flags"),
            clear_flags=read.texts("clear_flags"),
            current_step=read.optional_text("current_step"),
            complete_steps=read.texts("complete_steps"),
            goal=read.optional_text("goal"),
            constraints=Constraints.from_json(read.raw("constraints"), read.path("constraints"))
            if "constraints" in read
            else None,
            budget=Budget.from_json(read.raw("budget"), read.path("budget")) if "budget" in read else None,
        )


def apply(state: AgentState, patch: StatePatch) -> AgentState:
    """Return the state after ``patch``. Adding what the state already holds changes nothing.

    If the facts take more room than a state has, the oldest are dropped.
    """
    for question in patch.resolve_questions:
        if question not in state.open_questions:
            raise InvalidValue(f"the question {question!r} is not open; it may have been resolved before")
    still_open = [question for question in state.open_questions if question not in patch.resolve_questions]
    still_set = [flag for flag in state.risk_flags if flag not in patch.clear_flags]
    return replace(
        state,
        goal=state.goal if patch.goal is None else patch.goal,
        constraints=state.constraints if patch.constraints is None else patch.constraints,
        budget=state.budget if patch.budget is None else patch.budget,
        plan=state.plan if patch.replace_plan is None else patch.replace_plan,
        known_facts=_append_facts(state.known_facts, patch.append_facts),
        open_questions=_once(still_open, patch.add_questions),
        artifacts=_merge_artifacts(state.artifacts, patch.add_artifacts),
        risk_flags=_once(still_set, patch.set_flags),
        current_step=state.current_step if patch.current_step is None else patch.current_step or None,
        completed_steps=_once(state.completed_steps, patch.complete_steps),
    )


def absorb(state: AgentState, patch: StatePatch) -> AgentState:
    """Return the state after a patch that is already stored, and so can no longer be rejected.

    Two patches made at the same time may resolve the same question; the second one is valid too.
    """
    gone = [question for question in patch.resolve_questions if question not in state.open_questions]
    if gone:
        still = tuple(question for question in patch.resolve_questions if question not in gone)
        patch = replace(patch, resolve_questions=still)
    return apply(state, patch)


def _once(present: Iterable[str], added: Iterable[str]) -> tuple[str, ...]:
    """Append the texts that are not there yet. Earlier duplicates stay: this patch did not make them."""
    result = list(present)
    for text in added:
        if text not in result:
            result.append(text)
    return tuple(result)


def _append_facts(present: tuple[KnownFact, ...], added: tuple[KnownFact, ...]) -> tuple[KnownFact, ...]:
    if not added:
        return present
    # Compare only facts with the same key, and compare as JSON: in Python, 1 equals True.
    keys = {fact.key for fact in added}
    known = {canonical(fact.to_json()) for fact in present if fact.key in keys}
    result = list(present)
    for fact in added:
        written = canonical(fact.to_json())
        if written not in known:
            known.add(written)
            result.append(fact)
    return freshest(result)


def _merge_artifacts(present: tuple[ArtifactRef, ...], added: tuple[ArtifactRef, ...]) -> tuple[ArtifactRef, ...]:
    # A dict keeps the place of a key whose value is replaced.
    return tuple({artifact.artifact_id: artifact for artifact in (*present, *added)}.values())


def _write(value: object) -> JsonValue:
    if isinstance(value, tuple):
        return [_write(item) for item in value]
    return value if isinstance(value, str) else value.to_json()  # type: ignore[attr-defined]
