"""Tool: a function that an agent's model may call, and its terms."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, overload

from holdfast.agent.arguments import Arguments
from holdfast.agent.docstrings import read_docstring
from holdfast.agent.tool_context import ToolContext
from holdfast.engine.api.definition import check_retry, is_async, type_hints
from holdfast.engine.steps.call import DEFAULT_TIMEOUT, ONE_TRY, Compensation, Terms, terms_of
from holdfast.model.deadline import as_seconds
from holdfast.model.effect import EffectClass
from holdfast.model.errors import InvalidValue, NotHappened
from holdfast.model.flow_limit import check_keys
from holdfast.model.message import ToolSpec
from holdfast.model.retry import ErrorKind, Retry
from holdfast.model.risk import RiskLevel
from holdfast.model.task import JsonValue

if TYPE_CHECKING:
    from holdfast.engine.attempt.attempt import Attempt

F = TypeVar("F", bound=Callable[..., Any])

THREE_TRIES = Retry(max_attempts=3)
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ToolError(NotHappened):
    """Raise it from a tool to report an error to the model at once: nothing was done, and the call is not retried."""


class BadArguments(InvalidValue):
    """The model's arguments do not fit the tool; the model gets this error."""


class Tool:
    """A tool. ``@tool`` makes one from a function; calling it calls the function."""

    is_spare: bool = False
    """A source found it, and the agent did not ask for it by name: another tool of the same name has priority."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        risk: RiskLevel | str = RiskLevel.EXTERNAL_ACTION,
        effect: EffectClass | str | None = None,
        retry: Retry | None = None,
        timeout: float | timedelta | None = None,
        reconcile: Callable[..., Any] | None = None,
        settle: float | timedelta | None = None,
        absent_on: tuple[ErrorKind, ...] | ErrorKind = (),
        compensate: Callable[..., Any] | Compensation | None = None,
        repeat: bool = False,
        limits: Sequence[str] = (),
    ) -> None:
        """See ``tool``."""
        _check_function(function)
        self.function = function
        self.name = check_tool_name(name or str(getattr(function, "__name__", "")))
        self.risk = _risk(self.name, risk)
        documented, meanings = read_docstring(function)
        self.description = description or documented
        if not self.description:
            raise InvalidValue(f"tool {self.name!r} has no docstring; a model has to know what the tool does")
        declared = effect if effect is not None else getattr(function, "effect", None)
        if declared is None:
            declared = EffectClass.PURE if self.risk is RiskLevel.READ_ONLY else EffectClass.ONCE
        self.terms: Terms = terms_of(
            self.name,
            function,
            effect=declared,
            reconcile=reconcile,
            settle=settle,
            compensate=compensate,
            absent_on=absent_on,
            repeat=repeat,
            approval=None,
        ) or Terms(effect=EffectClass(declared))
        self.effect = self.terms.effect
        self.limits = check_keys(limits)
        usual = ONE_TRY if self.effect is EffectClass.ONCE else THREE_TRIES
        policy = usual if retry is None else check_retry(retry)
        self.retry = replace(policy, give_up_on=(*policy.give_up_on, ToolError))
        self.timeout = (
            DEFAULT_TIMEOUT if timeout is None else as_seconds(timeout, what=f"the timeout of tool {self.name!r}")
        )
        self.is_async = is_async(function)
        parameters = inspect.signature(function).parameters
        self.takes_effect_id = "effect_id" in parameters
        hints = type_hints(function)
        if not hints and getattr(function, "__annotations__", None):
            raise InvalidValue(
                f"the annotations of tool {self.name!r} name something that cannot be found; define it at the top of "
                "the module, so that the schema can be made from them"
            )
        self.context_parameter = next((name for name in parameters if hints.get(name) is ToolContext), None)
        self._arguments = Arguments(self.name, parameters, hints, meanings)
        self.spec = ToolSpec(name=self.name, description=self.description, parameters=self._arguments.schema)
        """The tool as a model sees it."""
        self.__doc__, self.__name__ = function.__doc__, self.name

    def __repr__(self) -> str:
        """Return its name, risk and effect."""
        return f"<tool {self.name!r}, {self.risk.value}, {self.effect.value}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Call the plain function."""
        return self.function(*args, **kwargs)

    # What the model chose

    def read(self, arguments: str) -> dict[str, JsonValue]:
        """Return the model's arguments, and the defaults of missing ones, as plain data. Raises BadArguments.

        Arguments are read once, when the model's answer is recorded. Exactly this data is recorded, a person approves
        it, and the tool is called with it. So arguments that could not be restored unchanged from it are refused.
        """
        try:
            return self._arguments.read(arguments)
        except InvalidValue as error:
            raise BadArguments(str(error)) from error

    def restore(self, arguments: Mapping[str, JsonValue]) -> dict[str, Any]:
        """Convert recorded arguments to what the function takes, in its order. Raises BadArguments.

        They may have been recorded before the tool was changed. Then nothing is left out, and no default is filled in:
        arguments that this tool would record in another way do not fit it.
        """
        try:
            return self._arguments.restore(arguments)
        except InvalidValue as error:
            raise BadArguments(str(error)) from error

    def misfit(self, arguments: Mapping[str, JsonValue]) -> str | None:
        """Return why the tool cannot be called with recorded arguments; None if it can."""
        try:
            self.restore(arguments)
        except BadArguments as error:
            return str(error)
        return None

    def in_order(self, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Return arguments in the order of the parameters, as a person reads them."""
        known = [name for name in self._arguments.names if name in arguments]
        return {name: arguments[name] for name in dict.fromkeys((*known, *arguments))}


class ToolSource(ABC):
    """Tools that are not known when an agent is defined, and are found when an attempt at its task begins."""

    @abstractmethod
    async def find(self, attempt: Attempt) -> Sequence[Tool]:
        """Return the tools for this attempt. A discovery replay gets those that can undo the recorded steps."""


@overload
def tool(function: F, /) -> Tool: ...
@overload
def tool(
    function: None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    risk: RiskLevel | str = RiskLevel.EXTERNAL_ACTION,
    effect: EffectClass | str | None = None,
    retry: Retry | None = None,
    timeout: float | timedelta | None = None,
    reconcile: Callable[..., Any] | None = None,
    settle: float | timedelta | None = None,
    absent_on: tuple[ErrorKind, ...] | ErrorKind = (),
    compensate: Callable[..., Any] | Compensation | None = None,
    repeat: bool = False,
    limits: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a tool: ``@tool`` or ``@tool(risk="read_only", timeout=10)``.

    The model sees the docstring and a schema made from the type hints. Docstring sections ``Args:`` (or ``:param x:``)
    and ``Annotated[..., Field(description=...)]`` describe the parameters. A parameter ``effect_id`` gets the call's
    idempotency key, and a parameter annotated with ToolContext gets the agent's context; the model sees neither.

    ``risk`` is how much it can do to the world: "read_only", "write_local" or "external_action" (the default). The
    agent's constraints define which of them need a person's approval.

    ``effect`` defines how often a call may be made. "pure" and "idempotent" calls are tried again when they fail (three
    attempts, or as ``retry`` defines) or when their worker dies. "once", the default for every tool that is not
    read-only, is never repeated blindly: ``reconcile(effect_id, *args)`` or a person resolves an unknown outcome.
    ``timeout`` (seconds or timedelta, five minutes by default) limits each call. ``compensate(result, *args)`` undoes
    the call if the task fails later. ``settle``, ``absent_on``, ``repeat`` and ``limits`` are as for ``ctx.step``.

    It may return any data, or ``(data, StatePatch)`` to change the agent's state with it. Raise ToolError if nothing
    was done: the model gets the error at once. Any other error is first retried, if that is allowed; then the model
    gets it.
    """
    if function is None:
        return lambda decorated: Tool(decorated, **options)
    return Tool(function, **options)


def check_tool_name(name: str) -> str:
    """Refuse names that endpoints refuse: now, and not in the first model call."""
    if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
        raise InvalidValue(f"a tool cannot be called {str(name)[:80]!r}; use up to 64 letters, digits, _ and -")
    return name


def _check_function(function: Callable[..., Any]) -> None:
    if not callable(function):
        raise InvalidValue(f"{function!r} is not a function; write @tool, or @tool(risk=...), above a function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidValue(f"{function.__name__} yields; a tool returns its result")


def _risk(name: str, risk: RiskLevel | str) -> RiskLevel:
    try:
        return RiskLevel(risk)
    except ValueError:
        raise InvalidValue(f"risk of tool {name!r} is {risk!r}; choose one of {', '.join(RiskLevel)}") from None
