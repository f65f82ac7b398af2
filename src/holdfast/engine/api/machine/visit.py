"""Visits of a machine: replay the recorded moves, then visit a state, check the move, record it.

A line ``ticket:3`` of the journal is the third entry into a state: from where, to where, why, and the data if it
changed. The keys of the steps of that visit begin with ``ticket:3/``, so that a second visit of a state does its work
again. The move that ends a visit is one Commit with its line and its event. A replay that finds the line continues from
there and does not call the handler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar

from holdfast.engine.attempt.attempt import attempt_of
from holdfast.engine.attempt.context import Context
from holdfast.engine.attempt.exits import as_failure
from holdfast.engine.attempt.journal import TRANSITION, ended_by, reopened
from holdfast.engine.attempt.stop_reasons import Unwind
from holdfast.engine.attempt.stuck_code import UNWIND_WITHIN, Driven
from holdfast.engine.runtime import log
from holdfast.engine.steps.waits import event_channel, pause_until
from holdfast.model.canonical import canonical, parse, write
from holdfast.model.codec import decode, encode
from holdfast.model.deadline import Deadline
from holdfast.model.errors import DeadlineExceeded, HoldfastError, InvalidValue, JournalMismatch, StoreError
from holdfast.model.failure import Failure
from holdfast.model.machine import UNCHANGED, Goto, Reached, TransitionTable, Visit, state_name
from holdfast.model.operations import Emit, Move, WriteStep
from holdfast.model.payload import from_json, to_json
from holdfast.model.retry import Retry, RetryAt, decide
from holdfast.model.step import Step, StepState
from holdfast.model.task import JsonValue
from holdfast.model.transitions import TaskState

if TYPE_CHECKING:
    from holdfast.engine.api.handle import Handle

D = TypeVar("D")


async def go_through(machine: MachineDeclaration, ctx: Context, data: D) -> Reached[D]:
    """Go from the initial state, or from the last state in the journal, to a final state."""
    if not isinstance(ctx, Context):
        raise InvalidValue(
            f"machine {machine.name!r} cannot run inside a blocking function; submit it as a child instead: "
            "ctx.submit(machine_task, data).result()"
        )
    journey: Journey[D] = Journey(machine, ctx)
    journey.begin(data)
    while not machine.table.is_final(journey.state):
        failed = await journey.discover() if journey.is_discovery else None
        if not journey.replay():
            if failed is not None:
                raise failed  # the handler failed in the same way before
            await journey.visit()
    return Reached(journey.state, journey.data())


@dataclass(frozen=True, slots=True)
class StateEntry:
    """The contents of a line: the state that was entered, from where, why, and with which data."""

    state: str
    came_from: str | None
    reason: str
    data: bytes | None
    """As JSON; None if it did not change."""

    def to_bytes(self) -> bytes:
        """Return the output for its line."""
        line: dict[str, JsonValue] = {"from": self.came_from, "to": self.state, "reason": self.reason}
        if self.data is not None:
            line["data"] = parse(self.data, wrapping=1)
        return encode(line)

    @classmethod
    def of(cls, step: Step) -> StateEntry:
        """Read a line that ``to_bytes`` made."""
        line = decode(step.output or b"", name=f"transition {step.key!r}")
        data = write(line["data"]) if "data" in line else None
        return cls(state=line["to"], came_from=line["from"], reason=line["reason"], data=data)


@dataclass(frozen=True, slots=True)
class StateHandler:
    """The function that does the work of one state, and its policies."""

    function: Callable[..., Any]
    is_async: bool
    retry: Retry | None
    timeout: float | None


class MachineDeclaration(Protocol):
    """A machine, as its author declared it."""

    name: str
    table: TransitionTable
    handlers: dict[str, StateHandler]
    data: Any
    """The type of the data that the handlers pass on."""


class Journey(Generic[D]):
    """One machine on its way through its states, within one attempt at a task."""

    def __init__(self, machine: MachineDeclaration, ctx: Context) -> None:
        """Start before the initial state."""
        self.state = ""
        self._machine = machine
        self._attempt = attempt_of(ctx)
        self._place = ctx.place()
        self._refuse_in_once()
        self._name = ctx._allot(self._place, machine.name, None)  # noqa: SLF001
        self._number = 0
        self._next_key = ""
        self._data = b""
        steps = self._attempt.journal.completed("step")
        self._undone = [step.key for step in steps if step.undone_at is not None]

    def _refuse_in_once(self) -> None:
        """Inside a ``once`` step, reject states that may take the task off its worker, before anything runs."""
        for state, handler in self._machine.handlers.items():
            if handler.retry is not None or handler.timeout is not None:
                option = "timeout=" if handler.retry is None else "retry="
                self._place.refuse_in_once(f"machine {self._machine.name!r}, whose state {state!r} has {option},")

    def data(self) -> D:
        """Return the current data. It is a fresh copy, so that a handler that fails changes nothing."""
        value: D = from_json(parse(self._data, wrapping=1), self._machine.data, name="data")
        return value

    def begin(self, data: D) -> None:
        """Enter the initial state. Its line is written with the next Commit of the attempt."""
        if self.replay():
            return
        entry = StateEntry(self._machine.table.initial, None, "started", self._write(data))
        for operation in self._record(entry, None, began=self._attempt.services.time.now()):
            self._attempt.outbox.buffer(operation)
        self._enter(entry)

    def replay(self) -> bool:
        """Take the next move from the journal; return False if it is not there."""
        key = f"{self._name}:{self._number + 1}"
        self._next_key = self._attempt.journal.allot(self._place.scope, key, key)
        recorded = self._attempt.find(key, TRANSITION)
        if recorded is None or recorded.state is not StepState.COMPLETED:
            return False
        if not self.is_discovery:
            self._check_not_undone()
        self._enter(StateEntry.of(recorded))
        return True

    @property
    def is_discovery(self) -> bool:
        """Whether this is a discovery replay, which only looks for the code of steps in order to undo them."""
        return self._attempt.discovery.is_under_way

    async def discover(self) -> Exception | None:
        """Run the state's handler during a discovery replay, although its move may be in the journal already.

        Return its error, if any: it may have failed before, and the discovery goes on with the other visits.
        """
        handler = self._machine.handlers.get(self.state)
        if handler is not None:
            try:
                with suppress(Unwind):
                    await self._invoke(handler, self._context(), self.data())
            except Exception as error:  # noqa: BLE001 - the caller decides
                return error
        return None

    def _check_not_undone(self) -> None:
        """Refuse to replay the move after a visit whose steps were undone: they would never be done again."""
        prefix = f"{self._name}:{self._number}/"
        if any(key.startswith(prefix) for key in self._undone):
            self._attempt.fatal = JournalMismatch(
                f"machine {self._machine.name!r} of task {self._attempt.task.id} is past its state {self.state!r}, "
                "whose steps have been undone since; it cannot go on as if they were done. Start the task again with "
                "hold.retry"
            )
            raise self._attempt.fatal

    async def visit(self) -> None:
        """Call the state's handler, check the move that it returns, and record it."""
        attempt, handler = self._attempt, self._handler()
        await attempt.check()
        began, data = attempt.services.time.now(), self.data()
        line = await self._begin_try(handler, began)
        try:
            entry = self._read(await self._call(handler, self._context(), data, line), data)
            move = self._record(entry, line, began=began)
        except Exception as error:
            await attempt.check()  # raises if the task was stopped: then the handler's error has no meaning
            error.add_note(f"in state {self.state!r} of machine {self._machine.name!r}, visit {self._number}")
            await self._retry_later(error, handler, line)
            raise
        await attempt.outbox.commit(*move)
        self._enter(entry)
        log.logger.info(
            "task %s %s: machine %s -> %s (%s)",
            attempt.task.name,
            attempt.task.id,
            entry.came_from,
            entry.state,
            entry.reason,
            extra={"task_id": attempt.task.id, "machine": self._name},
        )

    # The handler and its answer

    def _context(self) -> Context:
        return Context(self._attempt, prefix=f"{self._name}:{self._number}/", home=self._place.scope)

    def _handler(self) -> StateHandler:
        handler = self._machine.handlers.get(self.state)
        if handler is not None:
            return handler
        self._attempt.fatal = JournalMismatch(
            f"task {self._attempt.task.id} is in state {self.state!r}, which machine {self._machine.name!r} does not "
            "have any more; restore the state, with a handler that leads to the other states, then resume the task"
        )
        raise self._attempt.fatal

    async def _call(self, handler: StateHandler, context: Context, data: D, line: Step | None) -> object:
        if handler.timeout is None or line is None or line.started_at is None:
            return await self._invoke(handler, context, data)
        deadline = Deadline(line.started_at + timedelta(seconds=handler.timeout), f"state {self.state!r}")
        # The timer is a branch that parks like any other. So it also wakes a handler whose task waits off its worker.
        is_given_up = False
        code = Driven(self._invoke(handler, context, data), lambda: is_given_up)
        work = asyncio.create_task(code.run())
        timer = asyncio.create_task(pause_until(self._attempt, line, deadline.at))
        try:
            await asyncio.wait((work, timer), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            timer.result()
            raise DeadlineExceeded(deadline.message(self._attempt.services.time.now()))
        finally:
            work.cancel()
            timer.cancel()
            await asyncio.wait((work, timer), timeout=UNWIND_WITHIN)
            while (
                not work.done() and self._attempt.outbox.is_sending
            ):  # it waits for the store, directly or through something else
                await asyncio.wait((work, timer), timeout=1.0)
            if not work.done():
                log.ignored_timeout(self._attempt.task, f"state {self.state!r}", code.where)
                is_given_up = True
                work.cancel()
            await asyncio.gather(work, timer, return_exceptions=True)

    async def _invoke(self, handler: StateHandler, context: Context, data: D) -> object:
        branch = asyncio.current_task()
        try:
            if handler.is_async:
                return await handler.function(context, data)
            return await self._attempt.blocking.run(handler.function, context, data)
        except Exception:
            raise
        except BaseException as error:  # noqa: BLE001 - as_failure decides what it is
            raise as_failure(error, branch) from None

    def _read(self, answer: object, data: D) -> StateEntry:
        """Check the move that the handler returned. Raises, and changes nothing, if the table does not allow it."""
        goto: Goto[Any] = Goto(answer) if isinstance(answer, str | Enum) else answer  # type: ignore[assignment]
        if not isinstance(goto, Goto) or not isinstance(goto.reason, str):
            raise InvalidValue(
                f"the handler of state {self.state!r} of machine {self._machine.name!r} returned {answer!r}; return "
                'the name of the next state, or Goto("state", data, reason="why")'
            )
        table, target = self._machine.table, state_name(goto.state)
        table.check_move(self.state, target)
        written = self._write(data if goto.data is UNCHANGED else goto.data)
        return StateEntry(
            state=target,
            came_from=self.state,
            reason=goto.reason or table.moves[self.state][target],
            data=None if written == self._data else written,
        )

    def _write(self, data: D) -> bytes:
        return write(to_json(data, self._machine.data, name="data"))

    # The journal

    def _enter(self, entry: StateEntry) -> None:
        self.state = entry.state
        self._number += 1
        if entry.data is not None:
            self._data = entry.data

    def _record(self, entry: StateEntry, line: Step | None, *, began: datetime) -> tuple[WriteStep, Emit]:
        """Return the operations that record an entry and emit its event."""
        attempt = self._attempt
        done = replace(
            line or self._new_line(),
            state=StepState.COMPLETED,
            fence=attempt.task.fence,
            output=entry.to_bytes(),
            error=None,
            started_at=(line and line.started_at) or began,
            finished_at=attempt.services.time.now(),
        )
        event: JsonValue = {
            "kind": TRANSITION,
            "machine": self._name,
            "number": self._number + 1,
            "from": entry.came_from,
            "to": entry.state,
            "reason": entry.reason,
        }
        return WriteStep(done), Emit(channel=event_channel(attempt.task.id), payload=event)

    def _new_line(self) -> Step:
        return Step(
            key=self._next_key,
            kind=TRANSITION,
            position=self._attempt.journal.next_position(),
            state=StepState.PENDING,
            round=self._attempt.task.round,
            fence=self._attempt.task.fence,
        )

    # Tries. The line of the next move is written early if the start of a try, or the tries before it, must be kept.

    async def _begin_try(self, handler: StateHandler, began: datetime) -> Step | None:
        line = self._attempt.journal.get(self._next_key)
        if handler.timeout is None or (line is not None and line.state is StepState.RUNNING):
            return line  # a try that waited, or whose worker died, keeps its deadline
        fence = self._attempt.task.fence
        line = replace(line or self._new_line(), state=StepState.RUNNING, fence=fence, started_at=began)
        await self._attempt.outbox.commit(WriteStep(line))
        return line

    async def _retry_later(self, error: Exception, handler: StateHandler, line: Step | None) -> None:
        """Try the state again later if its own policy allows it. Otherwise the task's policy decides."""
        services, task = self._attempt.services, self._attempt.task
        now = services.time.now()
        tries = () if line is None or line.error is None else Failure.from_json(parse(line.error)).tries
        number = tries[-1].number + 1 if tries else 1
        failure = Failure.of(error).after(tries, number=number, at=now)
        if handler.retry is not None and failure.hopeless is None:
            random = services.random.random()
            decision = decide(handler.retry, failure.recorded, number, now, random, deadline=task.deadline)
            if isinstance(decision, RetryAt):
                try:
                    await self._postpone(failure, line, decision, f"try {number} of {handler.retry.max_attempts}")
                except StoreError:
                    raise
                except HoldfastError as refused:
                    self._attempt.ending = False  # the attempt goes on here, and can be stopped again
                    error.add_note(f"and its next try could not be postponed: {refused}")
        if line is not None:
            again = replace(line, state=StepState.PENDING, fence=task.fence, error=None, started_at=None)
            self._attempt.outbox.buffer(WriteStep(again))

    async def _postpone(self, failure: Failure, line: Step | None, decision: RetryAt, which: str) -> NoReturn:
        """End the attempt, without counting it, until the next try is due. A replay then finds the handler's steps.

        The handler is not called again in this attempt: branches of the failed try may still run.
        """
        attempt = self._attempt
        steps = [reopened(step) for step in ended_by(failure.steps, attempt.journal.get)]
        waiting = replace(
            line or self._new_line(),
            state=StepState.PENDING,
            fence=attempt.task.fence,
            error=canonical(replace(failure, traceback="").to_json()),
            started_at=None,
        )
        what = f"{failure.type_name}: {failure.message}"
        move = Move(
            to=TaskState.PENDING,
            reason=f"state {self.state!r} failed ({which}), again in {decision.delay:.3g} s: {what}",
            available_at=decision.at,
        )
        attempt.ending = True
        await attempt.outbox.commit(*attempt.unfinished(), *map(WriteStep, (*steps, waiting)), move)
        attempt.over = True
        log.moved(attempt.task, move)
        attempt.services.note_due(decision.at)
        raise Unwind


async def read_history(machine: MachineDeclaration, handle: Handle[Any]) -> list[Visit[D]]:
    """Return the states that a task has entered in its current round."""
    loaded = await handle._services.store.load(handle.id)  # noqa: SLF001 - both belong to the engine
    lines = {
        step.key: step
        for step in loaded.steps
        if step.kind == TRANSITION and step.round == loaded.task.round and step.state is StepState.COMPLETED
    }
    visits: list[Visit[D]] = []
    data: Any = None
    for number in count(1):
        step = lines.get(f"{machine.name}:{number}")
        if step is None or step.finished_at is None:
            break
        entry = StateEntry.of(step)
        if entry.data is not None:
            data = from_json(parse(entry.data, wrapping=1), machine.data, name=f"data of {step.key!r}")
        visits.append(
            Visit(
                number=number,
                state=entry.state,
                came_from=entry.came_from,
                reason=entry.reason,
                data=data,
                entered_at=step.finished_at,
            )
        )
    if not visits and loaded.task.name != machine.name:
        raise InvalidValue(f"task {handle.id} is a {loaded.task.name!r} and has no machine {machine.name!r} in it")
    return visits
