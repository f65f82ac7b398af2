"""Intents that are written in the Commit of the step before: effect safety without an extra Commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from holdfast.engine.attempt.journal import RESERVED
from holdfast.engine.attempt.step_owner import StepOwner
from holdfast.engine.effects.armed_intent import DISPATCH_WITHIN, arming
from holdfast.engine.steps.call import (
    ONE_TRY,
    Call,
    Compensation,
    StepLine,
    arguments_of,
    describe,
    effect_id,
    terms_of,
)
from holdfast.model.deadline import as_seconds
from holdfast.model.effect import EffectClass
from holdfast.model.errors import InvalidValue
from holdfast.model.flow_limit import check_keys
from holdfast.model.operations import Operation, RequireUndo, WriteEffect
from holdfast.model.step import StepState


class Intent:
    """A ``once`` step that will be called next: ``ctx.step("choose", choose, arms=lambda c: [Intent("pay", pay, c)])``.

    Key, function, arguments, timeout, settle, limits and compensate have to be those of the ``ctx.step`` that follows.
    Otherwise that step writes an intent of its own.
    """

    __slots__ = ("call",)

    def __init__(
        self,
        key: str,
        function: Callable[..., Any],
        *args: Any,  # noqa: ANN401
        timeout: float | timedelta | None = None,
        settle: float | timedelta | None = None,
        compensate: Callable[..., Any] | Compensation | None = None,
        limits: Sequence[str] = (),
    ) -> None:
        """``key`` is the key of the step: its name, or its ``key=``. With ``limits`` it waits for a permit first."""
        if key.startswith(RESERVED):
            raise InvalidValue(f"step names that begin with {RESERVED!r} are Holdfast's own; {key!r} cannot be armed")
        seconds = None if timeout is None else as_seconds(timeout, what=f"the timeout of step {key!r}")
        self.call = Call(key, function, args, ONE_TRY, seconds, None, limits=check_keys(limits))
        self.call.terms = terms_of(
            key,
            function,
            effect=EffectClass.ONCE,
            reconcile=None,
            settle=settle,
            compensate=compensate,
            absent_on=(),
            repeat=False,
            approval=None,
        )


def carry(
    attempt: StepOwner, prefix: str, choose: Callable[[Any], Sequence[Intent]], value: object
) -> tuple[Operation, ...]:
    """Return the operations that arm the calls after a result; the attempt remembers that they are armed."""
    calls = []
    for intent in choose(value):
        if not isinstance(intent, Intent):
            raise InvalidValue(f"arms= returned {intent!r}; return a list of Intent(key, function, *args)")
        calls.append(replace(intent.call, key=prefix + intent.call.key))
    return arm(attempt, calls)


def arm(attempt: StepOwner, calls: Iterable[Call]) -> tuple[Operation, ...]:
    """Return the operations that arm these ``once`` steps, which are called next."""
    operations: list[Operation] = []
    for call in calls:
        if (
            attempt.task.round > 1
            or call.limits  # it is armed once it has its permit, which it may have to wait for
            or attempt.journal.get(call.key) is not None
            or attempt.journal.earlier(call.stands_for or call.key) is not None
        ):
            continue  # it has a history, which the step itself must check
        identifier = effect_id(attempt.task.id, attempt.task.round, call.key)
        arguments = arguments_of(call)
        is_async = describe(call.function).is_async
        armed = replace(
            arming(attempt, call, identifier, arguments, patience=DISPATCH_WITHIN),
            thread_of=None if is_async else attempt.lease.worker_id,
        )
        # Without a digest: until the call is made, the code may still call this step with other arguments.
        line = StepLine(call.key, call.kind, attempt.journal.next_position(), "", effect_id=identifier)
        line.began = attempt.services.time.now()
        operations += (line.written(attempt.task, StepState.RUNNING), WriteEffect(armed))
        if armed.compensable:
            operations.append(RequireUndo(required=True))
        attempt.intents.carried[identifier] = armed
    return tuple(operations)
