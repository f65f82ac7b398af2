"""Which tasks: filters that combine, the same for listing and for acting on many."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import astuple, dataclass, fields
from functools import wraps
from typing import Annotated, Any, TypeAlias, get_type_hints

import typer

from holdfast.cli.options import read_labels
from holdfast.cli.times import read_moment
from holdfast.model.errors import InvalidValue
from holdfast.model.queries import TaskFilter
from holdfast.model.transitions import OPEN, TERMINAL, TaskState
from holdfast.service.service import Service

_GROUPS = {"open": OPEN, "ended": TERMINAL}


def _option(
    *names: str,
    help: str,  # noqa: A002 - as typer has it
    metavar: str | None = None,
    complete: Callable[[str], list[str]] | None = None,
) -> Any:  # noqa: ANN401 - as typer has it
    return typer.Option(
        *names,
        help=help,
        metavar=metavar,
        rich_help_panel="Which tasks",
        show_default=False,
        autocompletion=complete,
    )


def complete_states(incomplete: str) -> list[str]:
    """Offer the states of tasks to a shell."""
    return complete_listed(incomplete, [*TaskState, *_GROUPS])


def complete_listed(incomplete: str, words: Sequence[str]) -> list[str]:
    """Complete the last word of a list with commas; words that it has already are left out."""
    before, comma, last = incomplete.rpartition(",")
    taken = before.split(",")
    return [f"{before}{comma}{word}" for word in words if word.startswith(last.lower()) and word not in taken]


Queue: TypeAlias = Annotated[str | None, _option("--queue", help="In this queue.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """The filters of a command, as they were typed. Each field is an option; see ``filtered``."""

    states: Annotated[
        list[str] | None,
        _option(
            "--state",
            "-s",
            metavar="STATE",
            help=f"{', '.join(TaskState)}; or open, ended. Several by commas.",
            complete=complete_states,
        ),
    ] = None
    queue: Queue = None
    name: Annotated[str | None, _option("--name", "-n", help="Of this task or agent.")] = None
    agent_id: Annotated[str | None, _option("--agent", help="With this agent id.")] = None
    key: Annotated[str | None, _option("--key", help="Submitted under this key.")] = None
    labels: Annotated[
        list[str] | None,
        _option("--label", "-l", metavar="NAME=VALUE", help="With this label; may be repeated, the rarest first."),
    ] = None
    parent_id: Annotated[str | None, _option("--parent", help="Children of this task.")] = None
    owner: Annotated[str | None, _option("--worker", help="Held by this worker.")] = None
    text: Annotated[str | None, _option("--text", "-t", help="With this in name, key or input.")] = None
    since: Annotated[str | None, _option("--since", help="Submitted since: 2h, 3d, or 2026-11-15T14:00.")] = None
    until: Annotated[str | None, _option("--until", help="Submitted before: as --since.")] = None

    @property
    def are_given(self) -> bool:
        """Whether there is any."""
        return any(given not in (None, []) for given in astuple(self))

    async def read(self, service: Service) -> TaskFilter:
        """Return all filters as one TaskFilter."""
        now = await service.now()
        return TaskFilter(
            states=read_states(self.states),
            queue=self.queue,
            name=self.name,
            agent_id=self.agent_id,
            key=self.key,
            parent_id=None if self.parent_id is None else await service.task_id(self.parent_id),
            owner=None if self.owner is None else await service.worker_id(self.owner),
            text=self.text,
            labels=read_labels(self.labels) or {},
            created_after=None if self.since is None else read_moment(self.since, now, what="--since"),
            created_before=None if self.until is None else read_moment(self.until, now, what="--until"),
        )


def filtered(function: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Coroutine[Any, Any, None]]:
    """Give a command an option for each field of Filters, and hand them over as its parameter ``filters``."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Coroutine[Any, Any, None]:  # noqa: ANN401
        given = {field.name: kwargs.pop(field.name) for field in fields(Filters)}
        return function(*args, filters=Filters(**given), **kwargs)

    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint)
        for name, hint in get_type_hints(Filters, include_extras=True).items()
    ]
    taken = inspect.signature(function, eval_str=True)
    parameters = list(taken.parameters.values())
    place = next(number for number, parameter in enumerate(parameters) if parameter.name == "filters")
    parameters[place : place + 1] = options
    # Typer reads both.
    call.__signature__ = taken.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def read_states(given: Sequence[str] | None) -> frozenset[TaskState] | None:
    """Read ``--state failed,waiting --state open``."""
    if not given:
        return None
    wanted: set[TaskState] = set()
    for word in (word.strip().lower() for one in given for word in one.split(",")):
        if word in _GROUPS:
            wanted |= _GROUPS[word]
        elif word in set(TaskState):
            wanted.add(TaskState(word))
        else:
            known = [*TaskState, *_GROUPS]
            close = difflib.get_close_matches(word, known, n=1)
            remedy = f"did you mean {close[0]}?" if close else f"choose from {', '.join(known)}"
            raise InvalidValue(f"--state {word!r} is not a state; {remedy}")
    return frozenset(wanted)
