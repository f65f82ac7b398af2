"""The steps that an attempt's branches do now, and the scopes of their tries."""

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
from holdfast.engine.attempt.stop_reasons import Stop, Unwind
from holdfast.engine.steps.call import Call, StepLine
from holdfast.model.errors import HoldfastError
from holdfast.model.operations import Operation, WriteStep
from holdfast.model.step import StepState
from holdfast.model.task import FLAT_KEYS


class Doer(HeldTask, Protocol):
    """The attempt that does these steps."""

    @property
    def outbox(self) -> Outbox:
        """What it writes with."""

    @property
    def scope(self) -> Scope:
        """The task's own code, as a place in the journal."""

    @property
    def runner(self) -> asyncio.Task[None]:
        """The asyncio task that runs it."""

    @property
    def over(self) -> bool:
        """Whether nothing is written any more."""

    @property
    def stopping(self) -> Stop | None:
        """Why it is to stop."""

    def pass_over(self, key: str, /) -> None:
        """Note that a try of a step is over."""

    def loose_ends(self, inside: str | None = None, /) -> tuple[Operation, ...]:
        """Return what has to be written about effects that are not through."""


class StepsUnderWay:
    """What the branches of one attempt are doing."""

    __slots__ = ("_attempt", "_busy", "_lines", "_sending")

    def __init__(self, attempt: Doer) -> None:
        """Begin with none."""
        self._attempt = attempt
        self._lines: dict[str, StepLine] = {}
        self._busy = 0
        self._sending: set[asyncio.Task[Any]] = set()

    def begin(self, line: StepLine) -> None:
        """Note that a step is under way, so that a long one can be seen in the store."""
        self._lines[line.key] = line

    def end(self, line: StepLine) -> None:
        """Note that it is not under way any more."""
        self._lines.pop(line.key, None)
        self._attempt.pass_over(line.key)

    @property
    def keys(self) -> list[str]:
        """The keys of the steps."""
        return list(self._lines)

    def __bool__(self) -> bool:
        """Return whether any branch is doing something now that must not be cut off."""
        return bool(self._lines) or self._busy > 0

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Have the task stay on its worker until the block ends, whatever its other branches wait for."""
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1

    def only_wait(self, scopes: Iterable[Scope]) -> bool:
        """Return whether each step under way has one of these scopes, where a branch waits, inside it."""
        waiting = list(scopes)
        return (
            self._busy == 0
            and not any(scope.is_once for scope in waiting)
            and all(any(scope.is_inside(key) for scope in waiting) for key in self._lines)
        )

    # Long steps are written down as running, so that people can see them

    def begun_before(self, before: datetime) -> list[StepLine]:
        """Return the steps that are under way since before that time and not in the journal yet."""
        return [
            line
            for line in self._lines.values()
            if line.began is not None and line.began < before and not self._is_noted(line)
        ]

    async def note_running(self, line: StepLine) -> None:
        """Write down that a step is being done, unless it is done by then: this would undo its record."""
        with suppress(Unwind, HoldfastError):  # the step itself finds out
            await self._attempt.outbox.commit_while(
                lambda: self._lines.get(line.key) is line,
                line.written(self._attempt.task, StepState.RUNNING, error=line.error),
            )

    def _is_noted(self, line: StepLine) -> bool:
        known = self._attempt.journal.get(line.key)
        return known is not None and known.state is StepState.RUNNING and known.fence == self._attempt.task.fence

    # Tries, and the steps inside them

    def enter(self, call: Call, *, is_once: bool = False, go_back: Callable[[], None] | None = None) -> Scope:
        """Return the scope of a new try of a step, which begins where ``go_back`` leads."""
        attempt = self._attempt
        if go_back is not None:
            go_back()
        if attempt.task.key_form == FLAT_KEYS:
            return attempt.scope
        if len(call.key) > SHORT_KEY:
            attempt.journal.digests.note(call.key)
        return Scope(attempt, call.key, SCOPE.get(attempt.scope), is_once=is_once)

    async def leave(self, scope: Scope) -> None:
        """See to the branches that a try has left behind. When the attempt is over nothing they do is written."""
        attempt = self._attempt
        if not attempt.over and attempt.stopping is None:
            await scope.close(self._sending.__contains__, lambda: attempt.over or attempt.stopping is not None)

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Have the branch that makes a call which must not be repeated be awaited, not cut off, when its try ends."""
        branch = asyncio.current_task()
        assert branch is not None  # noqa: S101 - a coroutine runs in a task
        self._sending.add(branch)
        try:
            yield
        finally:
            self._sending.discard(branch)

    def reopening(self, call: Call, keys: Iterable[str]) -> tuple[Operation, ...]:
        """Return what lets the next try of a step do again what ended this one, and clears up what it left."""
        attempt = self._attempt
        if attempt.task.key_form == FLAT_KEYS:
            return ()
        path = path_inside(call.key)
        is_inside = attempt.journal.digests.is_inside
        again = [step for step in ended_by(keys, attempt.journal.get) if is_inside(step.key, path)]
        return *attempt.loose_ends(path), *(WriteStep(reopened(step)) for step in again)
