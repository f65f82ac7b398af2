"""The steps that an attempt's branches run now, and the scopes of their tries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, Protocol

from holdfast.engine.attempt.held_task import HeldTask
from holdfast.engine.attempt.journal import ended_by, reopened
from holdfast.engine.attempt.outbox import Outbox
from holdfast.engine.attempt.scope import SCOPE, SHORT_KEY, Scope, path_inside
from holdfast.engine.attempt.standstill import Standstill
from holdfast.engine.attempt.stop_reasons import Stop, Unwind
from holdfast.engine.steps.call import Call, StepLine
from holdfast.model.errors import HoldfastError
from holdfast.model.operations import Operation, WriteStep
from holdfast.model.step import StepState
from holdfast.model.task import FLAT_KEYS

_NO_BRANCHES: frozenset[asyncio.Task[Any]] = frozenset()
"""One for all attempts: ``frozenset()`` makes a new object each time, and few attempts have a ``once`` step."""


class StepAttempt(HeldTask, Protocol):
    """The attempt that runs these steps."""

    @property
    def outbox(self) -> Outbox:
        """What it writes with."""

    @property
    def standstill(self) -> Standstill:
        """Where its branches stand still while the task is paused."""

    @property
    def scope(self) -> Scope:
        """The scope of the task's own code."""

    @property
    def runner(self) -> asyncio.Task[None]:
        """The asyncio task that runs it."""

    @property
    def over(self) -> bool:
        """Whether the attempt writes nothing any more."""

    @property
    def stopping(self) -> Stop | None:
        """Why the attempt must stop; None while it may run."""

    def pass_over(self, key: str, /) -> None:
        """Note that a try of a step is over."""

    def unfinished(self, inside: str | None = None, /) -> tuple[Operation, ...]:
        """Return what must be written about unfinished effects."""


class StepsUnderWay:
    """The running steps of one attempt."""

    __slots__ = ("_attempt", "_busy", "_lines", "_sending")

    def __init__(self, attempt: StepAttempt) -> None:
        """Start without any."""
        self._attempt = attempt
        self._lines: dict[str, StepLine] = {}
        self._busy = 0
        self._sending = _NO_BRANCHES

    def begin(self, line: StepLine) -> None:
        """Note that a step is under way. The store gets to know it if the step takes long."""
        self._lines[line.key] = line

    def end(self, line: StepLine) -> None:
        """Note that it is not under way any more; the second time nothing is left to note."""
        if self._lines.pop(line.key, None) is not None:
            self._attempt.pass_over(line.key)
        self._attempt.standstill.look()

    @property
    def keys(self) -> list[str]:
        """The keys of the steps."""
        return list(self._lines)

    def __bool__(self) -> bool:
        """Return whether any branch does something that must not be interrupted."""
        return bool(self._lines) or self._busy > 0

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Keep the task on its worker until the block ends, whatever its other branches wait for."""
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            self._attempt.standstill.look()

    def only_wait(self, scopes: Iterable[Scope]) -> bool:
        """Return whether each step under way only waits: one of these scopes, where a branch waits, is inside it."""
        waiting = list(scopes)
        return (
            self._busy == 0
            and not any(scope.is_once for scope in waiting)
            and all(any(scope.is_inside(key) for scope in waiting) for key in self._lines)
        )

    # Long steps are recorded as running, so that people can see them

    def begun_before(self, before: datetime) -> list[StepLine]:
        """Return the steps that began before that time and are not in the journal as running yet."""
        return [
            line
            for line in self._lines.values()
            if line.began is not None and line.began < before and not self._is_noted(line)
        ]

    async def note_running(self, line: StepLine) -> None:
        """Record that a step is running, unless it has ended by then: this would overwrite its final record."""
        with suppress(Unwind, HoldfastError):  # the step itself gets the same error when it writes
            await self._attempt.outbox.commit_while(
                lambda: self._lines.get(line.key) is line,
                line.written(self._attempt.task, StepState.RUNNING, error=line.error),
            )

    def _is_noted(self, line: StepLine) -> bool:
        known = self._attempt.journal.get(line.key)
        return known is not None and known.state is StepState.RUNNING and known.fence == self._attempt.task.fence

    # Tries, and the steps inside them

    def enter(self, call: Call, *, is_once: bool = False, go_back: Callable[[], None] | None = None) -> Scope:
        """Return the scope of a new try of a step. ``go_back`` first moves the journal back to where the try begins."""
        attempt = self._attempt
        if go_back is not None:
            go_back()
        if attempt.task.key_form == FLAT_KEYS:
            return attempt.scope
        if len(call.key) > SHORT_KEY:
            attempt.journal.digests.note(call.key)
        return Scope(attempt, call.key, SCOPE.get(attempt.scope), is_once=is_once, limits=call.limits)

    async def leave(self, scope: Scope) -> None:
        """End a try and stop its branches, unless the attempt is over: then nothing they do is written."""
        attempt = self._attempt
        if not attempt.over and attempt.stopping is None:
            await scope.close(
                lambda branch: branch in self._sending, lambda: attempt.over or attempt.stopping is not None
            )

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Mark the current branch: its call must not be repeated, so the end of its try awaits it, without a cancel."""
        branch = asyncio.current_task()
        assert branch is not None  # noqa: S101 - a coroutine runs in a task
        self._sending |= {branch}
        try:
            yield
        finally:
            self._sending -= {branch}

    def reopening(self, call: Call, keys: Iterable[str]) -> tuple[Operation, ...]:
        """Return what is written before the next try: unfinished effects, and the steps to do again."""
        attempt = self._attempt
        if attempt.task.key_form == FLAT_KEYS:
            return ()
        path = path_inside(call.key)
        is_inside = attempt.journal.digests.is_inside
        again = [step for step in ended_by(keys, attempt.journal.get) if is_inside(step.key, path)]
        return *attempt.unfinished(path), *(WriteStep(reopened(step)) for step in again)
