"""Task definitions: the function that does a task, the one that checks its result, and its policies."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, get_type_hints

from holdfast.model.agent_state import Constraints
from holdfast.model.budget import Budget
from holdfast.model.canonical import Unreadable
from holdfast.model.checks import check_integer, check_name, check_queue
from holdfast.model.deadline import as_seconds
from holdfast.model.errors import CodecError, DuplicateName, HoldfastError, InvalidValue
from holdfast.model.flow_limit import check_keys
from holdfast.model.payload import from_json, to_json
from holdfast.model.restore import fit
from holdfast.model.retry import Retry
from holdfast.model.schedule import ScheduleSpec
from holdfast.model.task import DEFAULT_QUEUE, MANUAL, MAX_PRIORITY, JsonValue

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
_POSITIONAL = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
Verifier = TypeVar("Verifier", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Bound(Generic[R_co]):
    """A task with its arguments, for ``submit``. It keeps keyword arguments and their types."""

    definition: TaskDefinition[..., R_co]
    user_input: JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRules:
    """Limits for every task of an agent. The start that a task is submitted with can only tighten them."""

    constraints: Constraints
    budget: Budget


class TaskDefinition(Generic[P, R]):
    """A task function with its name and policies. Calling it calls the plain function."""

    def __init__(
        self,
        function: Callable[Concatenate[Any, P], Any],
        *,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        retry: Retry | None = None,
        deadline: float | timedelta | None = None,
        agent_id: str | None = None,
        budget: Budget | None = None,
        limits: Sequence[str] = (),
        budget_limits: Mapping[str, int] | None = None,
        companions: Sequence[TaskDefinition[..., Any]] = (),
        rules: AgentRules | None = None,
    ) -> None:
        """``deadline`` is counted from the submission; ``retry`` is for the whole task (three attempts by default).

        ``budget`` limits what ``ctx.charge`` counts, and the wall time; ``budget_limits`` are those of an agent, by
        meter. ``limits`` are keys of limits of which each of its tasks needs a permit while it has a slot.
        ``companions`` are tasks that it needs, such as those of its sub-agents: they are registered with it. ``rules``
        are for agents: only a task with rules can start with a state.
        """
        _check_function(function)
        self.function = function
        self.name = check_name("task name", name or _name_of(function))
        if self.name == MANUAL:
            raise InvalidValue(f"{MANUAL!r} is the name of tasks driven by hand; give this task another name")
        self.queue = check_queue(queue)
        check_integer("priority", priority, lowest=-MAX_PRIORITY, highest=MAX_PRIORITY)
        self.priority = priority
        self.retry = Retry() if retry is None else check_retry(retry)
        self.deadline = None if deadline is None else timedelta(seconds=as_seconds(deadline, what="the deadline"))
        self.agent_id = check_name("agent id", agent_id or self.name)
        self.budget_limits = {**_limits_of(budget), **(budget_limits or {})}
        self.limits = check_keys(limits)
        self.companions = tuple(companions)
        self.rules = rules
        has_cost = budget is not None and budget.max_cost is not None
        self.unpriced: str | None = None if has_cost else "it does not belong to an agent, and calls no model"
        """Why a limit on its cost would never be reached; None if its cost is known. An agent sets it."""
        self.prepare: Callable[[Any], Coroutine[Any, Any, None]] | None = None
        """Called with each attempt, before any code of the task or its verifier."""
        self.verifier: Callable[..., Any] | None = None
        self.schedule: ScheduleSpec | None = None
        """When workers that have this definition submit it by themselves."""
        self.is_async = is_async(function)
        self.__doc__ = function.__doc__
        self.__name__ = self.name

    def __repr__(self) -> str:
        """Return its name in the store."""
        return f"<task {self.name!r}>"

    def __call__(self, ctx: Any, *args: P.args, **kwargs: P.kwargs) -> Any:  # noqa: ANN401
        """Call the plain function. Nothing is stored, except by the given ``ctx``."""
        return self.function(ctx, *args, **kwargs)

    def verify(self, verifier: Verifier) -> Verifier:
        """Let ``verifier(ctx, result)`` check the result, in the state review.

        True accepts. False, or a string with the reason, rejects: the task runs again from the start, with the reason
        in ``ctx.feedback``, until its attempts are used up. An exception is not a rejection: the verifier is retried.
        """
        if self.verifier is not None:
            raise DuplicateName(f"task {self.name!r} has a verifier already; give it only one")
        self.verifier = verifier
        return verifier

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Bound[R]:
        """Return the task with its arguments, checked and with their types: ``hold.submit(deploy.bind("billing"))``."""
        return Bound(self, self.write_input(args, kwargs))

    @property
    def is_agent(self) -> bool:
        """Whether it belongs to an agent, which creates and keeps an AgentState by itself."""
        return self.rules is not None

    @property
    def needs_arguments(self) -> bool:
        """Whether it cannot be called without arguments."""
        return any(
            parameter.default is parameter.empty
            and parameter.kind not in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
            for parameter in self._parameters
        )

    @property
    def signature(self) -> str:
        """Its parameters, as text."""
        return self._takes

    def takes(self, name: str) -> bool:
        """Return whether its function has a parameter of this name."""
        return name in self._signature.parameters

    # How arguments and results are stored

    @cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self.function)

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return type_hints(self.function)

    @cached_property
    def returns(self) -> Any:  # noqa: ANN401 - an annotation
        """The type of its result."""
        return self._hints.get("return", Any)

    @cached_property
    def _parameters(self) -> list[inspect.Parameter]:
        return list(self._signature.parameters.values())[1:]

    def write_input(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> JsonValue:
        """Return arguments as they are stored; InvalidValue if the function does not take them.

        Here, and only here, they are checked and converted by the annotations of their parameters, for every way of
        submitting. So a validator that changes its value changes it only once.
        """
        if kwargs or not self._is_plain or not self._least <= len(args) <= len(self._parameters):
            try:
                bound = self._signature.bind(None, *args, **kwargs)
            except TypeError as error:
                raise InvalidValue(
                    f"task {self.name!r} cannot be called like this: {error}; it takes {self._takes}"
                ) from None
            args, kwargs = bound.args[1:], bound.kwargs
        try:
            positional = [
                _written(value, annotation, name)
                for value, (name, annotation) in zip(args, self._positions(len(args)), strict=False)
            ]
            named = {name: _written(value, self._type_of(name), name) for name, value in kwargs.items()}
        except CodecError as error:
            raise CodecError(
                f"{error}; the task takes {self._takes}", path=f"arguments of task {self.name!r}"
            ) from None
        return {"args": positional, "kwargs": named} if named else positional

    def read_input(self, stored: JsonValue) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments that ``write_input`` stored, or that an earlier version stored unchecked."""
        if isinstance(stored, Unreadable):
            raise CodecError(f"the stored input {stored}", path=self.name)
        args, kwargs = (stored["args"], stored["kwargs"]) if isinstance(stored, dict) else (stored or [], {})
        positional = [
            from_json(value, annotation, name=name)
            for value, (name, annotation) in zip(args, self._positions(len(args)), strict=False)
        ]
        named = {name: from_json(value, self._type_of(name), name=name) for name, value in kwargs.items()}
        return positional, named

    def is_same_input(self, stored: JsonValue, given: JsonValue) -> bool:
        """Return whether input that an earlier version stored unchecked equals the input from ``write_input``."""
        if stored == given:
            return True
        try:
            # If checking twice changes the input again, it is not known whether the stored input was checked.
            return bool(self._checked(stored) == given == self._checked(given))
        except (HoldfastError, TypeError, ValueError):
            return False  # the stored input does not fit the function any more

    def _checked(self, stored: JsonValue) -> JsonValue:
        return self.write_input(*self.read_input(stored))

    @cached_property
    def _named_positions(self) -> list[tuple[str, Any]]:
        """Name and type of each positional parameter."""
        return [(one.name, self._hints.get(one.name, Any)) for one in self._parameters if one.kind in _POSITIONAL]

    @cached_property
    def _others(self) -> tuple[str, Any] | None:
        """Name and type of ``*args``, if the function has it."""
        return next(
            (
                (one.name, self._hints.get(one.name, Any))
                for one in self._parameters
                if one.kind is inspect.Parameter.VAR_POSITIONAL
            ),
            None,
        )

    def _type_of(self, name: str) -> Any:  # noqa: ANN401 - an annotation
        """Return the type of a keyword argument, which may be one of ``**options``."""
        if name in self._signature.parameters:
            return self._hints.get(name, Any)
        rest = self._parameters[-1].name if self._parameters else ""
        return self._hints.get(rest, Any)

    @cached_property
    def _is_plain(self) -> bool:
        """Whether all parameters are positional, so that the number of arguments shows whether they fit."""
        return all(parameter.kind in _POSITIONAL for parameter in self._parameters)

    @cached_property
    def _least(self) -> int:
        return sum(one.default is inspect.Parameter.empty for one in self._parameters if one.kind in _POSITIONAL)

    def _positions(self, count: int) -> Sequence[tuple[str, Any]]:
        """Return the name and type of each positional argument, for so many arguments."""
        if self._others is None or count <= len(self._named_positions):
            return self._named_positions
        return self._named_positions + [self._others] * (count - len(self._named_positions))

    @property
    def _takes(self) -> str:
        return "(" + ", ".join(map(_as_written, self._parameters)) + ")"


def _written(value: object, annotation: object, name: str) -> JsonValue:
    return to_json(fit(value, annotation, name=name), annotation, name=name)


def _as_written(parameter: inspect.Parameter) -> str:
    """Return a parameter as it is written in the code: without the quotes of an annotation that was not evaluated."""
    annotation = parameter.annotation
    return str(parameter).replace(repr(annotation), annotation, 1) if isinstance(annotation, str) else str(parameter)


class Definitions:
    """The tasks an application has defined, by name."""

    def __init__(self) -> None:
        """Start without tasks."""
        self._by_name: dict[str, TaskDefinition[..., Any]] = {}

    def add(self, definition: TaskDefinition[..., Any]) -> None:
        """Add a task. Its name must be free, or a stored task could mean either of two. Adding it twice is allowed."""
        if self._by_name.get(definition.name) is definition:
            return
        if definition.name in self._by_name:
            raise DuplicateName(
                f"a task named {definition.name!r} is defined already; give one of them another name= "
                "(names are stored with the tasks, so they outlive the code)"
            )
        self._by_name[definition.name] = definition
        for companion in definition.companions:
            self.add(companion)

    def get(self, name: str) -> TaskDefinition[..., Any] | None:
        """Return the task of that name, or None."""
        return self._by_name.get(name)

    @property
    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._by_name)

    @property
    def queues(self) -> list[str]:
        """The default queues of all tasks and the queue "default", sorted."""
        return sorted({definition.queue for definition in self._by_name.values()} | {DEFAULT_QUEUE})


def _limits_of(budget: Budget | None) -> dict[str, int]:
    """Return the limits of a plain task's budget, by meter."""
    if budget is None:
        return {}
    if not isinstance(budget, Budget):
        raise InvalidValue(f"budget is {budget!r}; give a Budget, for example Budget(max_steps=20)")
    if budget.on_exhausted != "fail":
        raise InvalidValue(
            f"on_exhausted={budget.on_exhausted!r} is for agents; in a task's own code, catch BudgetExceeded and ask a "
            "person with ctx.approval"
        )
    return {str(meter): limit for meter, limit in budget.limits().items()}


def check_retry(retry: Retry) -> Retry:
    """Reject a value that is not a Retry, before it is needed."""
    if not isinstance(retry, Retry):
        raise InvalidValue(f"retry is {retry!r}; write retry=Retry(max_attempts={retry!r}), or omit it")
    return retry


def _check_function(function: Callable[..., Any]) -> None:
    if not callable(function):
        raise InvalidValue(f"{function!r} is not a function; use @hold.task, or @hold.task(name=...) above a function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidValue(
            f"{_name_of(function)} yields; return the result of a task, and report progress with ctx.progress(...)"
        )
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].kind not in {*_POSITIONAL, inspect.Parameter.VAR_POSITIONAL}:
        raise InvalidValue(f"{_name_of(function)} takes no context; its first parameter has to be ctx")


def _name_of(function: Callable[..., Any]) -> str:
    name = str(getattr(function, "__name__", ""))
    return "" if name == "<lambda>" else name


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a call returns a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
    )


def type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function; an empty dict if a name in them cannot be found."""
    target = function if hasattr(function, "__annotations__") else getattr(function, "__call__", function)  # noqa: B004
    try:
        return get_type_hints(target, include_extras=True)
    except (NameError, TypeError, AttributeError):
        return {}
