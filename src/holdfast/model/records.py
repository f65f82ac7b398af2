"""The other things a store keeps: patches, checkpoints, artifacts, events, facts, budgets."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from holdfast.model.checks import check_moment, check_name, check_text
from holdfast.model.errors import InvalidValue
from holdfast.model.ids import new_id
from holdfast.model.task import JsonValue

LONGEST_HALF_LIFE = timedelta(days=36_500)
"""A fact with a longer half-life need not decay at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchRecord:
    """One StatePatch as it was applied: AgentState is the fold of these, in order of version."""

    version: int
    body: bytes
    author: str
    reason: str
    at: datetime
    step_key: str | None = None
    """The step whose Commit carried it; None for a patch from outside."""
    round: int = 1
    """Of the task when it was applied: with the key it identifies the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A cached fold: AgentState at a position of the journal. Never the only copy of anything."""

    number: int
    position: int
    version: int
    body: bytes
    checksum: str
    schema: int = 1
    created_at: datetime | None = None
    damaged: str | None = None
    """Why it was set aside; a damaged checkpoint is kept for inspection and never resumed from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A large output, stored once under the hash of its bytes."""

    id: str
    size: int
    media_type: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactLink:
    """One task's use of an artifact: a user's file name is only metadata here."""

    artifact_id: str
    name: str
    type: str
    summary: str
    bytes: int
    step: str | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A stored fact that something happened: kept, numbered within its channel, read from any position."""

    channel: str
    number: int
    payload: JsonValue
    actor: str
    key: str | None
    """Emitting the same key again on the channel changes nothing."""
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFact:
    """One row of the entity/attribute/value memory. Its id, and what it is about, never change."""

    entity: str
    attribute: str
    value: JsonValue
    id: str = field(default_factory=new_id)
    confidence: float = 1.0
    """From 0 to 1, when it was last stated or verified; ``effective_confidence`` computes what is left of it."""
    source: str = "user"
    """Who stated it first."""
    created_at: datetime | None = None
    verified_at: datetime | None = None
    """When it was last stated again, or verified."""
    superseded_by: str | None = None
    """The id of the fact that replaced it; None while it is live."""
    half_life: timedelta | None = None
    """The time in which its confidence halves; None: it never decays."""
    verified_by: str | None = None
    relation: bool = False
    """The value is the name of another entity, and other values may exist beside it."""

    def __post_init__(self) -> None:
        """Reject values that a store could not hold."""
        check_name("fact id", self.id)
        check_name("fact entity", self.entity)
        check_name("fact attribute", self.attribute)
        if self.relation:
            check_name("related entity", self.value)
        for what in ("source", "verified_by", "superseded_by"):
            _check_named(f"fact {what}", getattr(self, what), optional=what != "source")
        check_moment("created_at", self.created_at)
        check_moment("verified_at", self.verified_at)
        _check_confidence(self.confidence)
        _check_half_life(self.half_life)

    @property
    def other(self) -> str | None:
        """The entity at the other end, if this is a relation."""
        return str(self.value) if self.relation else None

    @property
    def is_live(self) -> bool:
        """Whether no other fact has replaced it."""
        return self.superseded_by is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The amounts of one meter of a budget account."""

    account: str
    meter: str
    limit: int | None
    spent: int
    reserved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Part of a budget held for one step of one attempt; at a take-over, an unsettled reservation counts as spent."""

    account: str
    meter: str
    step_key: str
    fence: int
    amount: int


def _check_named(what: str, value: str | None, *, optional: bool) -> None:
    if value is None and optional:
        return
    if not isinstance(value, str) or not value:
        raise InvalidValue(f"{what} is {value!r}; it has to be text that names a person or a thing")
    check_text(what, value)


def _check_confidence(value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidValue(f"confidence is {value!r}; give a number from 0 to 1")


def _check_half_life(value: timedelta | None) -> None:
    if value is not None and (not isinstance(value, timedelta) or not timedelta(0) < value <= LONGEST_HALF_LIFE):
        raise InvalidValue(
            f"half_life is {value!r}; give a timedelta above zero, of a hundred years at most, or None for never"
        )
