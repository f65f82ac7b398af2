"""The line of the journal that a step will become, be it of a worker's attempt or of an agent outside."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.model.operations import WriteStep
from holdfast.model.step import Step, StepState
from holdfast.model.task import Task


@dataclass(slots=True, eq=False)
class JournalLine:
    """A line under way: what is known of it before it is written, and between two times that it is."""

    key: str
    kind: str
    position: int
    digest: str = ""
    attempts: int = 1
    began: datetime | None = None
    error: bytes | None = None
    """The tries before this one."""
    effect_id: str | None = None
    undone_at: datetime | None = None

    def written(
        self,
        task: Task,
        state: StepState,
        *,
        output: bytes | None = None,
        error: bytes | None = None,
        finished_at: datetime | None = None,
        retry_at: datetime | None = None,
    ) -> WriteStep:
        """Return the operation that writes it as it stands, in the journal of this task."""
        return WriteStep(
            Step(
                key=self.key,
                kind=self.kind,
                position=self.position,
                state=state,
                round=task.round,
                attempts=self.attempts,
                fence=task.fence,
                digest=self.digest,
                output=output,
                error=error,
                effect_id=self.effect_id,
                started_at=self.began,
                finished_at=finished_at,
                retry_at=retry_at,
                undone_at=self.undone_at,
            )
        )
