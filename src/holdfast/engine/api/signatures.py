"""Signatures of ``submit`` and ``step``: for type checkers, and for the errors about wrong options.

Arguments of a function are passed by position; keywords are options of the call. ``ParamSpec`` cannot express that: it
takes all keywords for the function. So there is one type for each number of arguments. More than four arguments are not
checked.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict, TypeVar

from holdfast.model.errors import InvalidValue

if TYPE_CHECKING:
    from holdfast.engine.api.definition import Bound
    from holdfast.engine.api.handle import Handle
    from holdfast.engine.api.start import ArtifactNames, Facts
    from holdfast.engine.api.sync.handle import SyncHandle
    from holdfast.engine.effects.carried_intents import Intent
    from holdfast.engine.steps.call import Compensation
    from holdfast.model.agent_state import AgentState
    from holdfast.model.approval import Ask
    from holdfast.model.effect import EffectClass
    from holdfast.model.retry import ErrorKind, Retry
    from holdfast.model.task import IfExists

R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
R_co = TypeVar("R_co", covariant=True)
A_contra = TypeVar("A_contra", contravariant=True)
B_contra = TypeVar("B_contra", contravariant=True)
C_contra = TypeVar("C_contra", contravariant=True)
D_contra = TypeVar("D_contra", contravariant=True)
Later: TypeAlias = Coroutine[Any, Any, R]
"""The return type of an async function."""

# Tasks by their number of arguments. Any class with such a bind() fits: it keeps the types of the parameters.


class Task0(Protocol[R_co]):
    """A task that can be called with 0 arguments."""

    def bind(self) -> Bound[R_co]: ...  # noqa: D102


class Task1(Protocol[A_contra, R_co]):
    """A task that can be called with 1 argument."""

    def bind(self, a: A_contra, /) -> Bound[R_co]: ...  # noqa: D102


class Task2(Protocol[A_contra, B_contra, R_co]):
    """A task that can be called with 2 arguments."""

    def bind(self, a: A_contra, b: B_contra, /) -> Bound[R_co]: ...  # noqa: D102


class Task3(Protocol[A_contra, B_contra, C_contra, R_co]):
    """A task that can be called with 3 arguments."""

    def bind(self, a: A_contra, b: B_contra, c: C_contra, /) -> Bound[R_co]: ...  # noqa: D102


class Task4(Protocol[A_contra, B_contra, C_contra, D_contra, R_co]):
    """A task that can be called with 4 arguments."""

    def bind(self, a: A_contra, b: B_contra, c: C_contra, d: D_contra, /) -> Bound[R_co]: ...  # noqa: D102


# Functions by their number of arguments, which also take the effect id. The engine passes it.


class TakesId0(Protocol[R_co]):
    """A function of 0 arguments and an effect id."""

    def __call__(self, *, effect_id: str) -> R_co: ...  # noqa: D102


class TakesId1(Protocol[A_contra, R_co]):
    """A function of 1 argument and an effect id."""

    def __call__(self, a: A_contra, /, *, effect_id: str) -> R_co: ...  # noqa: D102


class TakesId2(Protocol[A_contra, B_contra, R_co]):
    """A function of 2 arguments and an effect id."""

    def __call__(self, a: A_contra, b: B_contra, /, *, effect_id: str) -> R_co: ...  # noqa: D102


class TakesId3(Protocol[A_contra, B_contra, C_contra, R_co]):
    """A function of 3 arguments and an effect id."""

    def __call__(self, a: A_contra, b: B_contra, c: C_contra, /, *, effect_id: str) -> R_co: ...  # noqa: D102


class TakesId4(Protocol[A_contra, B_contra, C_contra, D_contra, R_co]):
    """A function of 4 arguments and an effect id."""

    def __call__(self, a: A_contra, b: B_contra, c: C_contra, d: D_contra, /, *, effect_id: str) -> R_co: ...  # noqa: D102


class StartOptions(TypedDict, total=False):
    """Options that set what an agent's state holds from the beginning."""

    state: AgentState | None
    plan: Sequence[str] | None
    facts: Facts | None
    artifacts: ArtifactNames | None


class ChildOptions(TypedDict, total=False):
    """The options of ``ctx.submit``, in addition to the arguments of the task."""

    key: str | None
    queue: str | None
    priority: int | None
    deadline: float | timedelta | datetime | None
    delay: float | timedelta | None
    at: datetime | None
    labels: Mapping[str, str] | None
    limits: Sequence[str]


class KeyOptions(TypedDict, total=False):
    """What to do if a task has the key already."""

    if_exists: IfExists | str
    debounce: float | timedelta | None
    debounce_max: float | timedelta | None


class TransactionOptions(ChildOptions, KeyOptions, total=False):
    """The options of ``tx.submit``, in addition to the arguments of the task."""

    agent_id: str | None


class SubmitOptions(ChildOptions, StartOptions, KeyOptions, total=False):
    """The options of ``hold.submit``, in addition to the arguments of the task."""

    agent_id: str | None
    after: Handle[Any] | str | None
    connection: object


class SyncSubmitOptions(ChildOptions, StartOptions, KeyOptions, total=False):
    """The options of ``hold.sync.submit``, in addition to the arguments of the task."""

    agent_id: str | None
    after: SyncHandle[Any] | str | None
    connection: object


class StepOptions(TypedDict, total=False):
    """The options of ``ctx.step``, in addition to the arguments of the function."""

    key: str | None
    retry: Retry | None
    timeout: float | timedelta | None
    effect: EffectClass | str | None
    reconcile: Callable[..., Any] | None
    settle: float | timedelta | None
    absent_on: tuple[ErrorKind, ...] | ErrorKind
    compensate: Callable[..., Any] | Compensation | None
    approval: Ask | None
    arms: Callable[[Any], Sequence[Intent]] | None
    returns: Any
    repeat: bool
    limits: Sequence[str]


TRANSACTION_OPTIONS = ("key", "timeout", "compensate", "returns", "repeat")


def refuse_for_task(call: str, task: object, given: Mapping[str, object], options: Iterable[str]) -> None:
    """Reject keywords that ``hold.submit`` and similar calls do not take. The error shows where they belong."""
    if given:
        name = getattr(task, "__name__", "task")
        named = ", ".join(f"{one}=..." for one in given)
        instead = f"the arguments of a task are named in bind: {call}({name}.bind({named}))"
        if given.keys() <= StartOptions.__annotations__.keys():
            begun = f"{name}.bind(text, start=StatePatch(replace_plan=..., append_facts=...).to_json())"
            instead = f"only hold.submit takes that, for an agent; give a child a start instead: {call}({begun})"
        raise _refusal(call, given, options, instead)


def refuse_for_function(call: str, function: object, given: Mapping[str, object], options: Iterable[str]) -> None:
    """Reject keywords that ``ctx.step`` and similar calls do not take. The error shows where they belong."""
    if given:
        name = getattr(function, "__name__", "function")
        named = ", ".join(f"{one}=..." for one in given)
        raise _refusal(
            call,
            given,
            options,
            f'pass the arguments of a function by position: {call}("name", {name}, ...). For a keyword argument, '
            f"pass functools.partial({name}, {named}); only tasks have .bind(...)",
        )


def _refusal(call: str, given: Mapping[str, object], options: Iterable[str], instead: str) -> InvalidValue:
    known = list(options)
    words = ", ".join(f"{one}=" for one in given)
    meant = [close for one in given for close in get_close_matches(one, known, n=1)]
    hint = f" (did you mean {meant[0]}=?)" if meant else ""
    return InvalidValue(f"{call} has no option {words}{hint}; {instead}. Its options: {', '.join(known)}")
