"""What a step calls: the function, its arguments, and the terms for its effect on the world."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary

from holdfast.engine.api.definition import is_async, type_hints
from holdfast.engine.attempt.journal import NO_ARGUMENTS, stable_bytes
from holdfast.engine.runtime.permit import Permit
from holdfast.model.approval import Ask
from holdfast.model.canonical import digest, write_plain
from holdfast.model.codec import encode
from holdfast.model.deadline import as_seconds
from holdfast.model.effect import EffectClass
from holdfast.model.errors import CodecError, HoldfastError, InvalidValue
from holdfast.model.failure import Exited
from holdfast.model.limits import DEFAULT_LIMITS
from holdfast.model.operations import Operation, WriteStep
from holdfast.model.retry import ErrorKind, Retry, check_kinds
from holdfast.model.step import Step, StepState
from holdfast.model.task import Task

ONE_TRY = Retry(max_attempts=1)
"""The policy of a step that names none: if it fails, the task's own policy retries the task."""

DEFAULT_TIMEOUT = timedelta(minutes=5).total_seconds()
"""The timeout of a ``once`` step that names none. It needs one: before a call ends, its absence cannot be proven."""

DEFAULT_SETTLE = 5.0
"""Seconds after the end of a call in which it may still take effect: a request in a buffer, a slow server."""

_MOST_KNOWN = 4096


@dataclass(frozen=True, slots=True)
class Compensation:
    """How to undo a step: ``compensate=Compensation(refund, effect="once", reconcile=was_refunded)``.

    ``function(result, *args)`` gets the step's result (None if it is not known) and the step's arguments. A plain
    function given as ``compensate=`` is ``Compensation(function)``: like a plain step it may run again, under an effect
    id of its own, and gets three tries.
    """

    function: Callable[..., Any]
    effect: EffectClass | str = EffectClass.IDEMPOTENT
    reconcile: Callable[..., Any] | None = None
    retry: Retry = field(default_factory=Retry)
    timeout: float | timedelta | None = None
    settle: float | timedelta | None = None
    absent_on: tuple[ErrorKind, ...] = ()

    def __post_init__(self) -> None:
        """Refuse terms that cannot work: now, and not when something has to be undone."""
        if not callable(self.function):
            raise InvalidValue(f"a compensation needs a function to call; {self.function!r} is not a function")
        name = getattr(self.function, "__name__", "compensate")
        is_once = _effect_class(name, self.effect) is EffectClass.ONCE
        if not is_once and (self.reconcile is not None or self.settle is not None or self.absent_on):
            raise InvalidValue(f"reconcile=, settle= and absent_on= of compensation {name} are for effect='once'")
        if self.timeout is not None:
            as_seconds(self.timeout, what=f"the timeout of compensation {name}")
        if self.settle is not None:
            _settle_time(self.settle, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms for a step's effect on the world. A step without any is idempotent and needs no approval."""

    effect: EffectClass = EffectClass.IDEMPOTENT
    reconcile: Callable[..., Any] | None = None
    settle: float = DEFAULT_SETTLE
    absent_on: tuple[ErrorKind, ...] = ()
    repeat: bool = False
    compensate: Compensation | None = None
    undone_in_transaction: bool = False
    """Whether ``compensate`` is called with a transaction, and is recorded in it."""
    ask: Ask | None = None


def terms_of(
    name: str,
    function: Callable[..., Any],
    *,
    effect: EffectClass | str | None,
    reconcile: Callable[..., Any] | None,
    settle: float | timedelta | None,
    compensate: Callable[..., Any] | Compensation | None,
    absent_on: tuple[ErrorKind, ...] | ErrorKind,
    repeat: bool,
    approval: Ask | None,
) -> Terms | None:
    """Return the terms of a step, with those that its function declares; None for a plain step."""
    if not isinstance(function, FunctionType | MethodType | BuiltinFunctionType):
        # A ready-made tool has its own terms.
        declared = getattr(function, "effect", None)
        if isinstance(declared, str):
            effect = effect if effect is not None else declared
            compensate = compensate if compensate is not None else getattr(function, "compensate", None)
            if effect == EffectClass.ONCE and reconcile is None:
                reconcile = getattr(function, "reconcile", None)
    kind = EffectClass.IDEMPOTENT if effect is None else _effect_class(name, effect)
    is_once = kind is EffectClass.ONCE
    if not is_once and (reconcile is not None or settle is not None or absent_on or repeat):
        raise InvalidValue(
            f"reconcile=, settle=, absent_on= and repeat= are for effect='once'; step {name!r} is {kind.value}, and "
            "simply runs again"
        )
    if reconcile is not None and not callable(reconcile):
        raise InvalidValue(f"reconcile of step {name!r} is {reconcile!r}; give the function that finds it out")
    if approval is not None and not isinstance(approval, Ask):
        raise InvalidValue(f'approval is {approval!r}; write approval=Ask("Deploy to production?", risk=...)')
    undo = as_compensation(name, compensate)
    if not is_once and undo is None and approval is None:
        return None
    return Terms(
        effect=kind,
        reconcile=reconcile,
        settle=DEFAULT_SETTLE if settle is None else _settle_time(settle, name),
        absent_on=check_kinds("absent_on", absent_on),
        repeat=repeat,
        compensate=undo,
        ask=approval,
    )


def _effect_class(name: str, effect: EffectClass | str) -> EffectClass:
    try:
        return EffectClass(effect)
    except ValueError:
        allowed = ", ".join(repr(one.value) for one in EffectClass)
        raise InvalidValue(f"effect of step {name!r} is {effect!r}; choose one of {allowed}") from None


def _settle_time(settle: float | timedelta, name: str) -> float:
    return 0.0 if settle == 0 else as_seconds(settle, what=f"the settle time of step {name!r}")


def as_compensation(name: str, compensate: Callable[..., Any] | Compensation | None) -> Compensation | None:
    """Return how a step is undone, from either form of ``compensate=``."""
    if compensate is None or isinstance(compensate, Compensation):
        return compensate
    if not callable(compensate):
        raise InvalidValue(f"compensate of step {name!r} is {compensate!r}; give the function that undoes the step")
    return Compensation(compensate)


@dataclass(frozen=True, slots=True)
class Function:
    """What is known about a step's function before it is called."""

    is_async: bool
    returns: Any
    takes_effect_id: bool


@dataclass(slots=True, eq=False)
class Call:
    """One call of ``ctx.step``."""

    key: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    retry: Retry
    timeout: float | None
    returns: Any
    kind: str = "step"
    name: str = ""
    """The step's name in the code, if its key differs."""
    terms: Terms | None = None
    arms: Callable[[Any], tuple[Operation, ...]] | None = None
    """Returns the intents of the calls that follow it, to be written with its result."""
    also: Callable[[Any], tuple[Operation, ...]] | None = None
    """Returns what else is written with its result."""
    stands_for: str | None = None
    """The key under which an earlier round may have made the same call."""
    accept_result: Callable[[Any], Awaitable[Any]] | None = None
    """Converts a result that a reconcile or a person gave into what the function would have returned."""
    misfit: Callable[[], str | None] | None = None
    """Returns why the function cannot be called with these arguments, which were recorded before the code was changed.
    A ``once`` step that is in doubt, or that was approved, then goes to a person. Otherwise the function is called, and
    has to refuse them."""
    is_lazy: bool = False
    """Its record may wait for the next Commit. Only for a step that may be repeated: a crash in between loses it."""
    limits: tuple[str, ...] = ()
    """Keys of limits: each try needs a permit for them."""
    tokens: int = 0
    """How many tokens a try will probably use."""
    prepare: Callable[[], Awaitable[None]] | None = None
    """What a try needs besides its permit, and may wait for: called before the permit is asked for."""
    permit: Permit | None = None
    """The permit of the current try."""
    is_fixed: bool = False
    """Whether ``args`` are kept as they were when the step began; see ``fix_arguments``."""
    _broken: Exception | None = None

    def args_to_call_with(self) -> tuple[Any, ...]:
        """Return the arguments for one try. It gets a copy of fixed arguments, so it may change them."""
        return deepcopy(self.args) if self.is_fixed else self.args

    def end_permit(self) -> None:
        """Give the permit of its try back, if it has one: the call has ended."""
        if self.permit is not None:
            self.permit.end()

    def why_unfit(self) -> str | None:
        """Return why it cannot be called with its arguments; None if it can."""
        return None if self.misfit is None else self.misfit()

    def consequences(self, value: object) -> tuple[Operation, ...]:
        """Return what is written together with the result. An error in ``arms`` must not prevent that record."""
        operations = () if self.also is None else self.also(value)
        if self.arms is not None:
            try:
                operations += self.arms(value)
            except Exception as error:  # noqa: BLE001 - an error of the caller's code, raised after the record
                self._broken = error
            except SystemExit as error:
                self._broken = Exited(error)
        return operations

    def recorded_result(self, value: Any) -> Any:  # noqa: ANN401
        """Return the result, now that it is recorded; or raise the error of ``arms``."""
        if self._broken is not None:
            raise self._broken
        return value


@dataclass(slots=True, eq=False)
class StepLine:
    """The future line of the journal of a step that is under way."""

    key: str
    kind: str
    position: int
    digest: str
    attempts: int = 1
    began: datetime | None = None
    error: bytes | None = None
    """The failures of the tries before this one."""
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
        """Return the operation that writes it, as it is now, in the journal of this task."""
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


def describe(function: Callable[..., Any]) -> Function:
    """Inspect a function once: signatures are slow to read, and steps are called in loops."""
    # The cache key is the function: functions from one factory share their code, but not their return types. A method
    # is a new object at each access; its function is not.
    owner = function.__func__ if isinstance(function, MethodType) else function
    if not isinstance(owner, FunctionType):
        return _look_at(function)
    known = _KNOWN.get(owner)
    if known is None:
        if len(_KNOWN) >= _MOST_KNOWN:  # a return type that refers to its function keeps it alive
            _KNOWN.clear()
        known = _KNOWN[owner] = _look_at(function)
    return known


def _look_at(function: Callable[..., Any]) -> Function:
    parameters: Mapping[str, inspect.Parameter] = {}
    with suppress(TypeError, ValueError):  # some builtins have no signature
        parameters = inspect.signature(function).parameters
    return Function(
        is_async=is_async(function),
        returns=type_hints(function).get("return", Any),
        takes_effect_id="effect_id" in parameters,
    )


_KNOWN: WeakKeyDictionary[FunctionType, Function] = WeakKeyDictionary()


def check_arguments(call: Call, known: Function) -> None:
    """Refuse arguments that the function does not take, before the intent is written."""
    named = {"effect_id": ""} if known.takes_effect_id else {}
    try:
        signature = inspect.signature(call.function)
    except (TypeError, ValueError):
        return  # some builtins have no signature
    try:
        signature.bind(*call.args, **named)
    except TypeError as error:
        raise InvalidValue(f"step {call.key!r} cannot call its function: {error}") from error


def digest_of(args: tuple[Any, ...]) -> str:
    """Return the digest of a step's arguments; empty if they cannot be stored as data."""
    if not args:
        return NO_ARGUMENTS
    plain = write_plain(list(args), DEFAULT_LIMITS)
    return digest(plain) if plain is not None else ""


def arguments_of(call: Call) -> bytes:
    """Return the exact arguments of an effect, as they are journaled. Raises InvalidValue if they are not data."""
    try:
        return encode(list(call.args), name=f"arguments of step {call.key!r}")
    except CodecError as error:
        raise InvalidValue(
            f"{error}. The arguments of a 'once' step are recorded before it is called, so they have to be data; "
            "bind clients and connections into the function (functools.partial, a method), and pass the data"
        ) from error


def fix_arguments(call: Call) -> None:
    """Keep a copy of the arguments, if they are data: a person is asked about them, or an undo needs them.

    The function may change the objects that it gets. The code that passed them may change them, too, while a person
    decides. Neither affects the next try, the undo or the record.
    """
    if call.is_fixed:
        return
    try:
        arguments_of(call)
    except InvalidValue:
        return  # a client or a connection cannot be copied
    call.args, call.is_fixed = deepcopy(call.args), True


# The effect id


def effect_id(task_id: str, round_: int, key: str, *, after: str = "") -> str:
    """Return the stable id of a step's effect on the world: the same for every try, in every attempt.

    ``after`` is the id of an effect that was undone: doing the step again is another effect.
    """
    parts = (after,) if after else ()
    return str(uuid.UUID(bytes=stable_bytes("effect", task_id, round_, key, *parts)[:16], version=5))


CURRENT: ContextVar[Callable[[], str]] = ContextVar("holdfast_effect_id")
"""Makes the effect id of the running step. Each branch of a task has its own."""


def current_effect_id() -> str:
    """Return the effect id of the step that runs here, for code that has no parameter for it."""
    made = CURRENT.get(None)
    if made is None:
        raise HoldfastError("no step runs here; current_effect_id() is for functions that ctx.step calls")
    return made()
