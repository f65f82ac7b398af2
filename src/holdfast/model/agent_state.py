"""AgentState: everything an agent knows about its run, as a contract and not as a transcript.

Goal, constraints, budget, plan, facts, questions, artifacts, flags: small enough to show to a model, complete enough to
continue after a restart. It is changed only by a StatePatch (see patch); the journal holds the patches and a state is
their fold. The JSON form has the same names; optional fields that are not set are left out of it.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.model.budget import Budget
from holdfast.model.canonical import check_json
from holdfast.model.checks import as_tuple
from holdfast.model.errors import InvalidValue
from holdfast.model.json_object import JsonObject, without_none
from holdfast.model.limits import DEFAULT_LIMITS
from holdfast.model.risk import RiskLevel
from holdfast.model.task import JsonValue

__all__ = ["AgentState", "ArtifactRef", "Budget", "Constraints", "HumanInTheLoop", "KnownFact", "RiskLevel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanInTheLoop:
    """Which risk levels a person must agree to."""

    required_for_risk_levels: tuple[RiskLevel, ...] = ()

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON form."""
        return {"required_for_risk_levels": [str(level) for level in self.required_for_risk_levels]}

    @classmethod
    def from_json(cls, value: JsonValue, path: str) -> HumanInTheLoop:
        """Read the JSON form; InvalidValue names the path of what is wrong."""
        read = JsonObject(value, path, ("required_for_risk_levels",))
        return cls(required_for_risk_levels=read.items("required_for_risk_levels", _read_risk_level))


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """The rules an agent works under."""

    human_in_the_loop: HumanInTheLoop | None = None

    def requires_approval(self, risk: RiskLevel) -> bool:
        """Return whether a person must agree to an action of this risk."""
        return self.human_in_the_loop is not None and risk in self.human_in_the_loop.required_for_risk_levels

    def tightened(self, other: Constraints) -> Constraints:
        """Return rules that ask for a person wherever either of the two does."""
        own, more = self.human_in_the_loop, other.human_in_the_loop
        if own is None or more is None:
            return other if own is None else self
        levels = dict.fromkeys((*own.required_for_risk_levels, *more.required_for_risk_levels))
        return Constraints(human_in_the_loop=HumanInTheLoop(required_for_risk_levels=tuple(levels)))

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON form."""
        return {} if self.human_in_the_loop is None else {"human_in_the_loop": self.human_in_the_loop.to_json()}

    @classmethod
    def from_json(cls, value: JsonValue, path: str = "constraints") -> Constraints:
        """Read the JSON form; InvalidValue names the path of what is wrong."""
        read = JsonObject(value, path, ("human_in_the_loop",))
        if "human_in_the_loop" not in read:
            return cls()
        human = HumanInTheLoop.from_json(read.raw("human_in_the_loop"), read.path("human_in_the_loop"))
        return cls(human_in_the_loop=human)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFact:
    """Something the agent found out, and its source."""

    key: str
    value: JsonValue
    source: str
    step: str | None = None
    """The plan step that was current."""
    at: datetime | None = None
    confidence: float | None = None

    def __post_init__(self) -> None:
        """Refuse a value that is not JSON, and keep a copy that no other code can change."""
        check_json(self.value, DEFAULT_LIMITS, f"known_facts.{self.key}")
        object.__setattr__(self, "value", copy.deepcopy(self.value))

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON form."""
        return {"key": self.key, "value": copy.deepcopy(self.value), "source": self.source} | without_none(
            {"step": self.step, "at": self.at and self.at.isoformat(), "confidence": self.confidence}
        )

    @classmethod
    def from_json(cls, value: JsonValue, path: str = "fact") -> KnownFact:
        """Read the JSON form; InvalidValue names the path of what is wrong."""
        read = JsonObject(value, path, ("key", "value", "source", "step", "at", "confidence"))
        return cls(
            key=read.text("key"),
            value=read.raw("value"),
            source=read.text("source"),
            step=read.optional_text("step"),
            at=read.optional_moment("at"),
            confidence=read.optional_fraction("confidence"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactRef:
    """A large output that is kept outside the context, as the state mentions it."""

    artifact_id: str
    type: str
    summary: str
    bytes: int
    step: str | None = None
    """The plan step that was current."""

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON form."""
        return without_none({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_json(cls, value: JsonValue, path: str = "artifact") -> ArtifactRef:
        """Read the JSON form; InvalidValue names the path of what is wrong."""
        read = JsonObject(value, path, ("artifact_id", "type", "summary", "bytes", "step"))
        return cls(
            artifact_id=read.text("artifact_id"),
            type=read.text("type"),
            summary=read.text("summary"),
            bytes=read.integer("bytes"),
            step=read.optional_text("step"),
        )


_SEQUENCES = ("plan", "known_facts", "open_questions", "artifacts", "risk_flags", "completed_steps")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentState:
    """The state of one agent run."""

    goal: str
    constraints: Constraints = field(default_factory=Constraints)
    budget: Budget = field(default_factory=Budget)
    plan: tuple[str, ...] = ()
    known_facts: tuple[KnownFact, ...] = ()
    """The freshest last."""
    open_questions: tuple[str, ...] = ()
    artifacts: tuple[ArtifactRef, ...] = ()
    risk_flags: tuple[str, ...] = ()
    current_step: str | None = None
    completed_steps: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Keep lists as tuples: a state is compared with others, and never changes."""
        for name in _SEQUENCES:
            object.__setattr__(self, name, as_tuple(name, getattr(self, name)))

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON form; ``canonical`` of it is what a checkpoint stores."""
        return {
            "goal": self.goal,
            "constraints": self.constraints.to_json(),
            "budget": self.budget.to_json(),
            "plan": list(self.plan),
            "known_facts": [fact.to_json() for fact in self.known_facts],
            "open_questions": list(self.open_questions),
            "artifacts": [artifact.to_json() for artifact in self.artifacts],
            "risk_flags": list(self.risk_flags),
        } | without_none({"current_step": self.current_step, "completed_steps": list(self.completed_steps) or None})

    @classmethod
    def from_json(cls, value: JsonValue, path: str = "state") -> AgentState:
        """Read the JSON form; only the goal is required. InvalidValue names the path of what is wrong."""
        read = JsonObject(value, path, cls.__slots__)
        return cls(
            goal=read.text("goal"),
            constraints=Constraints.from_json(read.raw("constraints"), read.path("constraints"))
            if "constraints" in read
            else Constraints(),
            budget=Budget.from_json(read.raw("budget"), read.path("budget")) if "budget" in read else Budget(),
            plan=read.texts("plan"),
            known_facts=read.items("known_facts", KnownFact.from_json),
            open_questions=read.texts("open_questions"),
            artifacts=read.items("artifacts", ArtifactRef.from_json),
            risk_flags=read.texts("risk_flags"),
            current_step=read.optional_text("current_step"),
            completed_steps=read.texts("completed_steps"),
        )


def _read_risk_level(value: JsonValue, path: str) -> RiskLevel:
    try:
        return RiskLevel(value)
    except ValueError:
        known = ", ".join(RiskLevel)
        raise InvalidValue(f"{path}: {value!r} is not a risk level; choose one of {known}") from None
