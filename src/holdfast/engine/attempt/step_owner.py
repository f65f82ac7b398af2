"""StepOwner: what steps, waits and effects need of the attempt that they belong to."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from holdfast.engine.api.definition import TaskDefinition
from holdfast.engine.attempt.code_run import CodeRun
from holdfast.engine.attempt.discovery import Discovery
from holdfast.engine.attempt.event_cursors import EventCursors
from holdfast.engine.attempt.held_task import HeldTask
from holdfast.engine.attempt.outbox import Outbox
from holdfast.engine.attempt.residence import Residence
from holdfast.engine.attempt.scope import Scope
from holdfast.engine.attempt.steps_under_way import StepsUnderWay
from holdfast.engine.attempt.stop_reasons import Stop
from holdfast.engine.attempt.time_limit import TimeLimit
from holdfast.engine.effects.intents import Intents
from holdfast.model.effect import Effect, Evidence
from holdfast.model.errors import HoldfastError
from holdfast.model.operations import Operation
from holdfast.model.step import Step


class StepOwner(HeldTask, Protocol):
    """A running attempt, as its steps see it: what they write with, where they are noted, and whether they may act."""

    fatal: HoldfastError | None
    """An error the task's code cannot handle away, such as a journal that does not fit."""

    time_limit: TimeLimit | None
    """The wall time it may take; None if its task has no budget."""

    # What they write, and how it stands

    @property
    def definition(self) -> TaskDefinition[..., Any]:
        """The task's code."""

    @property
    def outbox(self) -> Outbox:
        """What everything is written with."""

    @property
    def intents(self) -> Intents:
        """The effects of the task."""

    @property
    def events(self) -> EventCursors:
        """How far the task has read each channel."""

    def find(self, key: str, kind: str, /) -> Step | None:
        """Look a key up in the journal; one that does not fit ends the attempt."""

    def loose_ends(self, inside: str | None = None, /) -> tuple[Operation, ...]:
        """Return what has to be written about effects that are not through."""

    @property
    def leaves_calls_running(self) -> bool:
        """Whether a call under way is left to end by itself: the lease is over, and how it ends is still evidence."""

    async def add_evidence(self, evidence: Evidence, /) -> None:
        """Keep what was learned too late."""

    async def undo_now(self, effect: Effect, /) -> Effect:
        """Undo an effect that a person wants undone; return how it stands then."""

    # What goes on

    @property
    def under_way(self) -> StepsUnderWay:
        """The steps that are being done now."""

    @property
    def discovery(self) -> Discovery:
        """The replay that only looks for code."""

    @property
    def residence(self) -> Residence:
        """Its slot, and the branches that wait."""

    @property
    def code_run(self) -> CodeRun:
        """The task's code."""

    @property
    def scope(self) -> Scope:
        """The task's own code, as a place in the journal."""

    @property
    def runner(self) -> asyncio.Task[None]:
        """The asyncio task that runs it."""

    def pass_over(self, key: str, /) -> None:
        """Note that a try of a step is over."""

    async def take_turn(self, line: Step, /) -> None:
        """Count a line that is replayed, and let others go on now and then."""

    # Whether they may act

    @property
    def over(self) -> bool:
        """Whether nothing is written any more."""

    @property
    def stopping(self) -> Stop | None:
        """Why it is to stop."""

    @property
    def leaving(self) -> bool:
        """Whether its outcome is known."""

    @property
    def undoing(self) -> Step | None:
        """The line of the journal that says why its steps are undone."""

    @property
    def is_late(self) -> bool:
        """Whether the task's deadline has passed, or its wall time is spent."""

    async def check(self, *, only_to_wait: bool = False) -> None:
        """Pass only while this attempt may act."""
