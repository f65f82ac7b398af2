"""Approval: a recorded request for a human decision, and the record of who decided what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from holdfast.model.canonical import parse
from holdfast.model.checks import check_moment, check_name, check_text
from holdfast.model.deadline import as_seconds
from holdfast.model.errors import InvalidValue
from holdfast.model.ids import new_id
from holdfast.model.payload import plain
from holdfast.model.risk import RiskLevel
from holdfast.model.task import JsonValue


class ApprovalState(StrEnum):
    """Whether and how it was decided. Every state but OPEN is final."""

    OPEN = "open"
    APPROVED = "approved"
    REJECTED = "rejected"
    ANSWERED = "answered"
    """An open question, with its answer."""
    EXPIRED = "expired"
    """There was no decision in time; ``default`` applies."""
    VOID = "void"
    """The arguments changed after it was asked."""
    CLOSED = "closed"
    """Its task ended first."""


DECISIONS = frozenset({ApprovalState.APPROVED, ApprovalState.REJECTED, ApprovalState.ANSWERED, ApprovalState.VOID})
"""What a Commit may decide. Only the store sets EXPIRED (time passed) and CLOSED (the task ended)."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What to ask a person, and on which terms: ``Ask("Deploy to production?", risk="external_action", expires=3600)``.

    ``expires`` counts from when it is asked, in seconds or as a timedelta. After that ``default`` applies: "rejected"
    or "approved". ``deciders`` names who may decide; by default, every user who may approve.
    """

    question: str
    risk: str | None = None
    deciders: Sequence[str] = ()
    expires: float | timedelta | None = None
    default: str = "rejected"
    policy: str | None = None
    requested_by: str | None = None

    def __post_init__(self) -> None:
        """Reject a question that cannot be asked."""
        if not isinstance(self.question, str) or not self.question.strip():
            raise InvalidValue(f"the question is {self.question!r}; write what is to be decided")
        check_text("the question", self.question)
        if self.default not in {ApprovalState.APPROVED.value, ApprovalState.REJECTED.value}:
            raise InvalidValue(f"default is {self.default!r}; choose approved or rejected, for when nothing is decided")
        if self.risk is not None and self.risk not in set(RiskLevel):
            raise InvalidValue(f"risk is {self.risk!r}; choose one of {', '.join(RiskLevel)}")
        if self.risk is not None:
            object.__setattr__(self, "risk", RiskLevel(self.risk).value)  # it is stored as a word
        if isinstance(self.deciders, str) or not all(isinstance(name, str) and name for name in self.deciders):
            raise InvalidValue(f"deciders is {self.deciders!r}; give a tuple of names")
        object.__setattr__(self, "deciders", tuple(self.deciders))
        if self.expires is not None:
            as_seconds(self.expires, what="the time an approval is open")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """How an approval was decided: what ``ctx.approval`` returns."""

    approval_id: str
    state: ApprovalState
    by: str | None
    """None: there was no decision in time, and the default applies."""
    note: str | None
    at: datetime | None
    answer: JsonValue = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """One question to a person, bound to the exact arguments it was asked about."""

    task_id: str
    question: str
    step_key: str
    id: str = field(default_factory=new_id)
    kind: str = "approval"
    """"approval" (yes or no), "question" (free answer) or "doubt" (about an effect)."""
    risk: str | None = None
    arguments_bytes: bytes = b"null"
    """What it was asked about, as canonical JSON with its type tags. The hash is taken of these bytes."""
    arguments_hash: str = ""
    policy: str | None = None
    """Version of the policy that asked for it."""
    requested_by: str = "engine"
    deciders: tuple[str, ...] = ()
    """Who may decide; empty: every user who may approve."""
    expires_at: datetime | None = None
    default: ApprovalState = ApprovalState.REJECTED
    """What applies when it expires: approved or rejected."""
    state: ApprovalState = ApprovalState.OPEN
    answer: JsonValue = None
    decided_by: str | None = None
    note: str | None = None
    consumed_by: str | None = None
    """The one effect id it was used for."""
    created_at: datetime | None = None
    decided_at: datetime | None = None

    def __post_init__(self) -> None:
        """Reject ids that a store could not hold, and a default that is not a decision."""
        check_name("approval id", self.id)
        check_moment("expires_at", self.expires_at)
        if not isinstance(self.deciders, tuple):
            raise InvalidValue(f"deciders is {self.deciders!r}; give a tuple of names")
        if self.default not in {ApprovalState.APPROVED, ApprovalState.REJECTED}:
            raise InvalidValue(f"an approval's default is approved or rejected, not {self.default}")

    @property
    def arguments(self) -> JsonValue:
        """What it was asked about, as plain data for people, like ``Doubt.arguments``. None: nothing."""
        return plain(parse(self.arguments_bytes))
