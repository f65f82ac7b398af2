"""Step: one unit of work inside a task, journaled under a key."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from holdfast.model.checks import check_key, check_moment, check_name, check_text


class StepState(StrEnum):
    """The progress of a step."""

    PENDING = "pending"
    """Failed and due again at ``retry_at``, or not begun."""
    RUNNING = "running"
    """Begun by the attempt with this fence; a later fence runs it again by the rules of its effect."""
    COMPLETED = "completed"
    """On replay its output is returned and nothing runs."""
    FAILED = "failed"
    """Gave up; on replay it fails in the same way if the code handled the failure."""


OVER = frozenset({StepState.COMPLETED, StepState.FAILED})
"""The states of a step that has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One line of a task's journal. Payloads are canonical bytes, decoded only when a replay asks for them."""

    key: str
    kind: str
    """step, llm, tool, sleep, event, child, approval ... part of the step's identity."""
    position: int
    """Its place in the journal; grows within a task, across rounds."""
    state: StepState
    round: int = 1
    attempts: int = 1
    fence: int = 0
    digest: str = ""
    """The digest of its arguments."""
    output: bytes | None = None
    error: bytes | None = None
    effect_id: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    retry_at: datetime | None = None
    undone_at: datetime | None = None
    """Compensated: it never replays as completed again."""

    def __post_init__(self) -> None:
        """Reject keys that a store could not hold."""
        check_key("step key", self.key)
        check_name("step kind", self.kind)
        check_text("effect id", self.effect_id)
        check_moment("started_at", self.started_at)
        check_moment("finished_at", self.finished_at)
        check_moment("retry_at", self.retry_at)
        check_moment("undone_at", self.undone_at)
