"""The task's code while it runs: driven so that it can be left where it is, should it not let itself be stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from holdfast.engine.attempt.defiance import (
    LOOKS_AT_CLEAN_UP,
    UNWIND_WITHIN,
    Driven,
    Refusals,
    calling_line,
    is_in_thread,
    keep_thread,
)
from holdfast.engine.attempt.discovery import Discovery
from holdfast.engine.attempt.held_task import HeldTask
from holdfast.engine.attempt.journal import IGNORED_STOP, RESERVED
from holdfast.engine.attempt.journal_line import journal_line
from holdfast.engine.attempt.outbox import Outbox
from holdfast.engine.attempt.scope import current_branch
from holdfast.engine.attempt.stop_reasons import Lost, Stop
from holdfast.engine.runtime import log
from holdfast.engine.runtime.alarms import Alarm
from holdfast.engine.runtime.store_retry import insist
from holdfast.model.canonical import canonical
from holdfast.model.commit import Commit, Expect
from holdfast.model.errors import StoreClosed
from holdfast.model.failure import Failure
from holdfast.model.operations import WriteStep
from holdfast.model.step import Step, StepState
from holdfast.model.transitions import TaskState

T = TypeVar("T")


class Runner(HeldTask, Protocol):
    """The attempt that runs the code."""

    @property
    def outbox(self) -> Outbox:
        """What it writes with."""

    @property
    def discovery(self) -> Discovery:
        """The replay that only looks for code."""

    @property
    def runner(self) -> asyncio.Task[None]:
        """The asyncio task that runs it."""

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


class CodeRun:
    """The code of one attempt, and whether it lets itself be stopped."""

    __slots__ = ("_attempt", "_driven", "_overdue", "_refusals", "condemned")

    def __init__(self, attempt: Runner) -> None:
        """Begin with code that does."""
        self._attempt = attempt
        self.condemned: str | None = None
        """It did not let itself be stopped, and is never resumed: the line where that was noticed."""
        self._driven: Driven[Any] | None = None
        """The code that is under way."""
        self._overdue: Alarm | None = None
        self._refusals: dict[object, Refusals] = {}
        """How often each branch has called ``ctx`` although that is refused."""

    async def drive(self, code: Coroutine[Any, Any, T]) -> T:
        """Run code of the task's in a way that it can be left if it does not let itself be stopped."""
        self._driven = driven = Driven(code, self._is_condemned)
        try:
            result: T = await driven
            return result
        finally:
            self._driven = None

    def _is_condemned(self) -> bool:
        return self.condemned is not None

    # Code that was stopped and is still there

    def expect_end(self) -> None:
        """Give the task's code, which was stopped, a while for its clean-up."""
        if self._overdue is None and self._driven is not None:
            self._give_time(LOOKS_AT_CLEAN_UP)

    def cancel_alarm(self) -> None:
        """The attempt is over, and so is the wait for its code."""
        if self._overdue is not None:
            self._overdue.cancel()

    def _give_time(self, looks: int) -> None:
        """Look so often whether the code is over. A process that was frozen meanwhile has missed one look, not all."""

        def look() -> None:
            if looks > 1 or self._attempt.outbox.is_sending:
                self._give_time(max(looks - 1, 1))
            else:
                self.set_aside()

        with suppress(StoreClosed):
            self._overdue = self._attempt.services.alarms.after(UNWIND_WITHIN / LOOKS_AT_CLEAN_UP, look)

    def set_aside(self) -> None:
        """Leave the task's code where it is, if it is still under way although it was stopped.

        That is no death: the code may only be slow. What the engine itself has sent is waited for.
        """
        if self._driven is not None and not self._attempt.outbox.is_sending and self.condemned is None:
            self._condemn(self._driven.where, counts=False)

    # Code that calls ``ctx`` again and again although it was stopped

    def is_defied(self) -> bool:
        """Count a call of ``ctx`` that is refused; return whether its branch has made too many of them.

        If the whole attempt was stopped, it is condemned with the branch. Blocking code does not return from here.
        """
        attempt = self._attempt
        refusals = self._refusals.get(branch := current_branch())
        if refusals is None:
            self._refusals[branch] = refusals = Refusals()
        if not refusals.are_too_many() and self.condemned is None:
            return False
        was_stopped = attempt.stopping is not None or (attempt.over and not attempt.leaving)
        if was_stopped and not attempt.discovery.is_asking:
            self._condemn(calling_line())
        elif refusals.are_news():
            log.ignored_end(attempt.task, calling_line())
        if is_in_thread():
            keep_thread(f"task {attempt.task.name} {attempt.task.id}")
        return True

    def _condemn(self, where: str, *, counts: bool = True) -> None:
        loop = self._attempt.runner.get_loop()
        with suppress(RuntimeError):  # the loop is closed, and the process ends
            loop.call_soon_threadsafe(self._leave_for_good, where, counts)

    def _leave_for_good(self, where: str, counts: bool) -> None:  # noqa: FBT001 - a callback
        if self.condemned is not None:
            return
        if self._attempt.outbox.is_sending:  # its answer has to be heard in the code that is to be left
            with suppress(StoreClosed):
                self._attempt.services.alarms.after(1.0, partial(self._leave_for_good, where, counts))
            return
        self.condemned = where
        (log.ignored_stop if counts else log.slow_to_stop)(self._attempt.task, where)
        self._abandon(counts)

    def _abandon(self, counts: bool) -> None:  # noqa: FBT001 - see above
        attempt = self._attempt
        if counts and attempt.undoing is None and not isinstance(attempt.stopping, Lost):
            if self._driven is None or attempt.over:
                attempt.services.start(self._record_ignored_stop())
            else:
                attempt.outbox.buffer(WriteStep(self._ignored_stop()))  # it rides in the Commit that ends the attempt
        if self._driven is not None:
            attempt.runner.cancel()

    def _ignored_stop(self) -> Step:
        """Return the line of the journal that says that the code caught the signal that stops it, and went on."""
        attempt, where = self._attempt, self.condemned or ""
        message = f"its code caught the signal that stops it, and went on. {log.WHAT_TO_CHANGE}"
        failure = Failure(type_name="IgnoredStop", message=message, where=where)
        key = f"{RESERVED}{IGNORED_STOP}:{attempt.task.fence}"
        return journal_line(attempt, key, IGNORED_STOP, state=StepState.FAILED, error=canonical(failure.to_json()))

    async def _record_ignored_stop(self) -> None:
        """Write that down when the attempt has let go of the task, unless another one has it by now."""
        attempt = self._attempt
        commit = Commit(
            task_id=attempt.task.id,
            guard=Expect(states=frozenset({TaskState.PENDING, TaskState.WAITING, TaskState.REVIEW})),
            operations=(WriteStep(self._ignored_stop()),),
            actor=attempt.lease.worker_id,
        )
        await insist(lambda: attempt.services.store.commit([commit]))
