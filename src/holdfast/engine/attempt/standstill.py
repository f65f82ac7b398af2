"""A paused task stands still: no step of it begins, and when none is under way any more it leaves its worker."""

from __future__ import annotations

import asyncio
from typing import Protocol

from holdfast.engine.attempt.held_task import HeldTask
from holdfast.engine.attempt.scope import SCOPE, Scope
from holdfast.engine.attempt.stop_reasons import Paused, Stop, Unwind
from holdfast.model.step import Step

LOOK_EVERY = 1.0
"""Seconds between two looks at the steps under way: one of them may have begun to wait, and nothing tells."""


class UnderWay(Protocol):
    """The steps that are running now."""

    def only_wait(self, scopes: list[Scope], /) -> bool:
        """Return whether each of them only waits: one of these scopes, where a branch waits, is inside it."""


class Pausable(HeldTask, Protocol):
    """An attempt whose task can be paused."""

    @property
    def scope(self) -> Scope:
        """The scope of the task's own code."""

    @property
    def waiting_scopes(self) -> list[Scope]:
        """Where its branches wait for something from outside."""

    @property
    def undoing(self) -> Step | None:
        """The line of the journal that records why its steps are undone."""

    @property
    def under_way(self) -> UnderWay:
        """The steps that are running now."""

    def stop(self, why: Stop, /) -> None:
        """Interrupt the task's code."""


class Standstill:
    """Where the branches of a paused task stop, each at its next step.

    A step that is under way is not interrupted: the task leaves its worker when the last of them has ended, or only
    contains branches that stand here. A ``once`` step is done to its end, with the steps inside it. Undoing goes on.
    """

    __slots__ = ("_attempt", "_changed", "_standing", "since")

    def __init__(self, attempt: Pausable) -> None:
        """Let every branch go on."""
        self._attempt = attempt
        self._standing: list[Scope] = []
        self._changed: asyncio.Event | None = None
        self.since: float | None = None
        """When, on the boot clock, this process learned of the pause; None while there is none."""

    def begin(self) -> None:
        """Let no further step begin."""
        if self.since is None:
            self.since = self._attempt.services.clock.boot()

    def end(self) -> None:
        """Let the branches go on, if it is not too late: the task was unpaused."""
        self.since = None
        self.look()

    def look(self) -> None:
        """Look again whether any step is under way: one has ended."""
        if self._changed is not None:
            self._changed.set()

    async def stand(self) -> None:
        """Stand still while the task is paused. Raises Unwind once it leaves its worker."""
        scope, attempt = SCOPE.get(self._attempt.scope), self._attempt
        if scope.is_once or attempt.undoing is not None:
            return
        self._standing.append(scope)
        self.look()
        changed = self._changed = self._changed or asyncio.Event()
        try:
            while self.since is not None:
                if attempt.under_way.only_wait(self._standing + attempt.waiting_scopes):
                    attempt.stop(Paused())
                    raise Unwind
                changed.clear()
                await attempt.services.alarms.wait(changed, LOOK_EVERY)
        finally:
            self._standing.remove(scope)
