"""Runs the task's code in a way that the engine can abandon it if it does not stop when asked to."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from holdfast.engine.attempt.discovery import Discovery
from holdfast.engine.attempt.held_task import HeldTask
from holdfast.engine.attempt.journal import IGNORED_STOP, RESERVED
from holdfast.engine.attempt.journal_line import journal_line
from holdfast.engine.attempt.outbox import Outbox
from holdfast.engine.attempt.scope import current_branch
from holdfast.engine.attempt.stop_reasons import Lost, Stop
from holdfast.engine.attempt.stuck_code import (
    LOOKS_AT_CLEAN_UP,
    UNWIND_WITHIN,
    Driven,
    Refusals,
    block_thread,
    calling_line,
    is_in_thread,
)
from holdfast.engine.runtime import log
from holdfast.engine.runtime.alarms import Alarm
from holdfast.engine.runtime.store_retry import call_store
from holdfast.model.canonical import canonical
from holdfast.model.commit import Commit, Expect
from holdfast.model.errors import StoreClosed
from holdfast.model.failure import Failure
from holdfast.model.operations import WriteStep
from holdfast.model.step import Step, StepState
from holdfast.model.transitions import TaskState

T = TypeVar("T")

CANCELLED_BY_OTHERS = (
    "its asyncio task was cancelled by something else than Holdfast, such as a library that its code uses"
)


class Runner(HeldTask, Protocol):
    """The attempt that runs the code."""

    @property
    def outbox(self) -> Outbox:
        """What it writes with."""

    @property
    def discovery(self) -> Discovery:
        """Its discovery replays."""

    @property
    def runner(self) -> asyncio.Task[None]:
        """The asyncio task that runs it."""

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


class CodeRun:
    """The code of one attempt, and whether it stops when it is asked to."""

    __slots__ = ("_attempt", "_driven", "_overdue", "_refusals", "abandoned_at")

    def __init__(self, attempt: Runner) -> None:
        """Start without any code under way."""
        self._attempt = attempt
        self.abandoned_at: str | None = None
        """Set once the code has ignored a stop and is never resumed: the line of code where the engine noticed it."""
        self._driven: Driven[Any] | None = None
        """The code that is under way."""
        self._overdue: Alarm | None = None
        self._refusals: dict[object, Refusals] = {}
        """The refused calls of ``ctx``, by branch."""

    async def drive(self, code: Coroutine[Any, Any, T]) -> T:
        """Run code of the task in a way that it can be abandoned if it ignores a stop."""
        self._driven = driven = Driven(code, self._is_abandoned)
        try:
            result: T = await driven
            return result
        finally:
            self._driven = None

    def _is_abandoned(self) -> bool:
        return self.abandoned_at is not None

    # Code that was stopped and is not over

    def expect_end(self) -> None:
        """Give the task's code, which was stopped, some time to clean up."""
        if self._overdue is None and self._driven is not None:
            self._give_time(LOOKS_AT_CLEAN_UP)

    def cancel_alarm(self) -> None:
        """Stop waiting for the code: the attempt is over."""
        if self._overdue is not None:
            self._overdue.cancel()

    def _give_time(self, looks: int) -> None:
        """Check ``looks`` times whether the code is over. A process that was frozen has missed one check, not all."""

        def look() -> None:
            if looks > 1 or self._attempt.outbox.is_sending:
                self._give_time(max(looks - 1, 1))
            else:
                self.set_aside()

        with suppress(StoreClosed):
            self._overdue = self._attempt.services.alarms.after(UNWIND_WITHIN / LOOKS_AT_CLEAN_UP, look)

    def set_aside(self) -> None:
        """Abandon the task's code if it is still under way although it was stopped.

        It does not count as an ignored stop: the code may only be slow. The engine first waits for the store's answer
        to all that it has sent.
        """
        if self._driven is not None and not self._attempt.outbox.is_sending and self.abandoned_at is None:
            self._abandon_soon(self._driven.where, counts=False)

    # Code that keeps calling ``ctx`` although it was stopped

    def is_refused_too_often(self) -> bool:
        """Count a refused call of ``ctx``; return whether its branch has made too many of them.

        If the whole attempt was stopped, all of its code is abandoned. For blocking code this then never returns.
        """
        attempt = self._attempt
        refusals = self._refusals.get(branch := current_branch())
        if refusals is None:
            self._refusals[branch] = refusals = Refusals()
        if not refusals.are_too_many() and self.abandoned_at is None:
            return False
        was_stopped = attempt.stopping is not None or (attempt.over and not attempt.leaving)
        if was_stopped and not attempt.discovery.is_asking:
            self._abandon_soon(calling_line())
        elif refusals.is_first_report():
            log.ignored_end(attempt.task, calling_line())
        if is_in_thread():
            block_thread(f"task {attempt.task.name} {attempt.task.id}")
        return True

    def _abandon_soon(self, where: str, *, counts: bool = True) -> None:
        loop = self._attempt.runner.get_loop()
        with suppress(RuntimeError):  # the loop is closed, and the process ends
            loop.call_soon_threadsafe(self._abandon_now, where, counts)

    def _abandon_now(self, where: str, counts: bool) -> None:  # noqa: FBT001 - a callback
        if self.abandoned_at is not None:
            return
        if self._attempt.outbox.is_sending:  # the code that is to be abandoned still has to receive the store's answer
            with suppress(StoreClosed):
                self._attempt.services.alarms.after(1.0, partial(self._abandon_now, where, counts))
            return
        self.abandoned_at = where
        (log.ignored_stop if counts else log.slow_to_stop)(self._attempt.task, where)
        self._abandon(counts)

    def _abandon(self, counts: bool) -> None:  # noqa: FBT001 - see above
        attempt = self._attempt
        if counts and attempt.undoing is None and not isinstance(attempt.stopping, Lost):
            if self._driven is None or attempt.over:
                attempt.services.start(self._record_ignored_stop())
            else:
                attempt.outbox.buffer(WriteStep(self._ignored_stop()))  # goes into the Commit that ends the attempt
        if self._driven is not None:
            attempt.runner.cancel()

    def _ignored_stop(self) -> Step:
        """Return the line of the journal for code that caught the signal that stops it, and continued."""
        where = self.abandoned_at or ""
        message = f"its code caught the signal that stops it, and continued. {log.WHAT_TO_CHANGE}"
        return self._wrong_stop(Failure(type_name="IgnoredStop", message=message, where=where))

    def cancelled_by_others(self) -> Step:
        """Return the line of the journal for code whose asyncio task was cancelled by something else than Holdfast."""
        return self._wrong_stop(Failure(type_name="Cancelled", message=CANCELLED_BY_OTHERS))

    def _wrong_stop(self, failure: Failure) -> Step:
        attempt = self._attempt
        key = f"{RESERVED}{IGNORED_STOP}:{attempt.task.fence}"
        return journal_line(attempt, key, IGNORED_STOP, state=StepState.FAILED, error=canonical(failure.to_json()))

    async def _record_ignored_stop(self) -> None:
        """Record the ignored stop after the attempt has let go of the task, unless another attempt has it by now."""
        attempt = self._attempt
        commit = Commit(
            task_id=attempt.task.id,
            guard=Expect(states=frozenset({TaskState.PENDING, TaskState.WAITING, TaskState.REVIEW})),
            operations=(WriteStep(self._ignored_stop()),),
            actor=attempt.lease.worker_id,
        )
        await call_store(lambda: attempt.services.store.commit([commit]))
