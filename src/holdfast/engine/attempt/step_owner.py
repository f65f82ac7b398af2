"""StepOwner: what steps, waits and effects need from the attempt that they belong to."""

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
from holdfast.engine.attempt.standstill import Standstill
from holdfast.engine.attempt.steps_under_way import StepsUnderWay
from holdfast.engine.attempt.stop_reasons import Stop
from holdfast.engine.attempt.time_limit import TimeLimit
from holdfast.engine.effects.intents import Intents
from holdfast.model.effect import Effect, Evidence
from holdfast.model.errors import HoldfastError
from holdfast.model.operations import Operation
from holdfast.model.step import Step


class StepOwner(HeldTask, Protocol):
    """A running attempt, as its steps see it: how they write, where they are noted, and whether they may act."""

    fatal: HoldfastError | None
    """An error that ends the attempt even if the task's code catches it, such as a journal that does not fit."""

    time_limit: TimeLimit | None
    """The wall time it may take; None if its task has no budget."""

    # What they write and read

    @property
    def definition(self) -> TaskDefinition[..., Any]:
        """The task's code."""

    @property
    def outbox(self) -> Outbox:
        """Everything is written with it."""

    @property
    def intents(self) -> Intents:
        """The effects of the task."""

    @property
    def events(self) -> EventCursors:
        """How far the task has read each channel."""

    def find(self, key: str, kind: str, /) -> Step | None:
        """Look up a key in the journal. A journal that does not fit ends the attempt."""

    def unfinished(self, inside: str | None = None, /) -> tuple[Operation, ...]:
        """Return what must be written about unfinished effects."""

    @property
    def leaves_calls_running(self) -> bool:
        """Whether calls under way are left to end by themselves: the lease is over, but their end is still evidence."""

    async def add_evidence(self, evidence: Evidence, /) -> None:
        """Store what was learned after the lease was over."""

    async def undo_now(self, effect: Effect, /) -> Effect:
        """Undo an effect at a person's request; return its new record."""

    # What is under way

    @property
    def under_way(self) -> StepsUnderWay:
        """The steps that are running now."""

    @property
    def discovery(self) -> Discovery:
        """Its discovery replays."""

    @property
    def residence(self) -> Residence:
        """Its slot, and its waiting branches."""

    @property
    def standstill(self) -> Standstill:
        """Where its branches stand still while the task is paused."""

    @property
    def code_run(self) -> CodeRun:
        """The task's code."""

    @property
    def scope(self) -> Scope:
        """The scope of the task's own code."""

    @property
    def runner(self) -> asyncio.Task[None]:
        """The asyncio task that runs it."""

    def hand_back(self) -> None:
        """Stop, and let another worker continue."""

    def pass_over(self, key: str, /) -> None:
        """Note that a try of a step is over."""

    async def take_turn(self, line: Step, /) -> None:
        """Count a replayed line, and let other tasks run now and then."""

    # Whether they may act

    @property
    def over(self) -> bool:
        """Whether the attempt writes nothing any more."""

    @property
    def stopping(self) -> Stop | None:
        """Why the attempt must stop; None while it may run."""

    @property
    def leaving(self) -> bool:
        """Whether its outcome is known."""

    @property
    def undoing(self) -> Step | None:
        """The line of the journal that records why its steps are undone."""

    @property
    def is_late(self) -> bool:
        """Whether the task's deadline has passed, or its wall time is spent."""

    async def begin_work(self) -> None:
        """Return only while this attempt may act and the task is not paused."""

    async def check(self, *, only_to_wait: bool = False) -> None:
        """Return only while this attempt may act."""
