"""The other things a store keeps: patches, checkpoints, artifacts, events, facts, budgets."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from holdfast.model.checks import check_moment, check_name, check_text
from holdfast.model.ids import new_id
from holdfast.model.task import JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchRecord:
    """One StatePatch as it was applied: AgentState is the fold of these, in order of version."""

    version: int
    body: bytes
    author: str
    reason: str
    at: datetime


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
    """One row of the entity/attribute/value memory."""

    entity: str
    attribute: str
    value: JsonValue
    id: str = field(default_factory=new_id)
    confidence: float = 1.0
    source: str = "user"
    created_at: datetime | None = None
    verified_at: datetime | None = None
    superseded_by: str | None = None

    def __post_init__(self) -> None:
        """Refuse names no store could hold."""
        check_name("fact id", self.id)
        check_name("fact entity", self.entity)
        check_name("fact attribute", self.attribute)
        check_text("fact source", self.source)
        check_moment("created_at", self.created_at)
        check_moment("verified_at", self.verified_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What one meter of a budget account stands at."""

    account: str
    meter: str
    limit: int | None
    spent: int
    reserved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Part of a budget held for one step of one attempt; at a take-over an unsettled one counts as spent."""

    account: str
    meter: str
    step_key: str
    fence: int
    amount: int
