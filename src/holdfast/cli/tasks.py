"""Which task of which application, with which arguments: what ``submit`` and ``run`` share."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import typer

from holdfast import Handle, TaskDefinition
from holdfast.cli.arguments import bind_json
from holdfast.cli.terminal import print_json, print_line
from holdfast.model.errors import InvalidValue
from holdfast.model.task import Task
from holdfast.service.forms import task_form
from holdfast.service.service import Bound, Service
from holdfast.service.session import find_application

Words: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="MODULE:HOLDFAST TASK",
        help="The application and the name of one of its tasks or agents; the task alone where holdfast.toml or "
        "HOLDFAST_APPLICATION names the application.",
        show_default=False,
    ),
]
Args: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="JSON", help="The task's arguments: an array, or an object of named ones.", show_default=False
    ),
]
Input: TypeAlias = Annotated[
    str | None,
    typer.Option("--input", "-i", metavar="TEXT", help="Its only argument, as it stands.", show_default=False),
]
Key: TypeAlias = Annotated[str | None, typer.Option(help="The same key again is the same task.", show_default=False)]
Priority: TypeAlias = Annotated[
    int | None, typer.Option(help="Higher goes first; by default the task's own.", show_default=False)
]
Queue: TypeAlias = Annotated[
    str | None, typer.Option(help="Where to put it; by default the task's own queue.", show_default=False)
]
Deadline: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="SPAN", help="It has to be over by then: seconds, or 10m, 2h.", show_default=False),
]


After: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="TASK", help="Agents: go on from this task, which has ended: its state, its words.", show_default=False
    ),
]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A task that is about to be submitted, and the application it belongs to."""

    service: Service
    """Of the application; not yet open."""
    bound: Bound[Any]


def choose(
    words: Sequence[str], args: str | None, text: str | None, database_url: str | None, *, goal: str = ""
) -> Chosen:
    """Find the application and its task, and bind the arguments; ``goal`` is the text where none is given."""
    if len(words) > 2:  # noqa: PLR2004 - an application and a task
        raise InvalidValue(f"{' '.join(words)!r} is too much: give MODULE:HOLDFAST and TASK; arguments go into --args")
    if args is not None and text is not None:
        raise InvalidValue("--args and --input exclude each other; --input X is --args '[\"X\"]'")
    *application, name = words
    if not application and ":" in name:
        raise InvalidValue(f"{name!r} names an application; the name of a task goes behind it")
    service = find_application(application[0] if application else None, database_url)
    definition = _definition(service, name)
    if args is None and text is None and definition.rules is not None:
        text = goal or None
    if args is None and text is None and definition.needs_arguments:
        raise InvalidValue(f"task {name!r} takes {definition.signature}; give it with --input TEXT or --args JSON")
    given = json.dumps([text]) if text is not None else args or "[]"
    return Chosen(service, bind_json(definition, given))


async def submit_chosen(chosen: Chosen, *, after: str | None, **options: Any) -> Handle[Any]:  # noqa: ANN401
    """Store the task; ``after`` is a part of an id."""
    _, named = chosen.bound.definition.read_input(chosen.bound.user_input)
    if named and after is not None:
        raise InvalidValue("--after goes with the text for the agent alone: --input TEXT")
    return await chosen.service.submit(chosen.bound, after=after, **options)


def _definition(service: Service, name: str) -> TaskDefinition[..., Any]:
    definition = service.definitions.get(name)
    if definition is None:
        names = service.definitions.names
        close = difflib.get_close_matches(name, names, n=1) or names
        raise InvalidValue(f"there is no task {name!r} in this application; it has: {', '.join(close) or 'none'}")
    return definition


def print_result(task: Task, *, as_json: bool) -> None:
    """Print what a completed task came to: nothing, if it returned nothing."""
    form = task_form(task)
    if as_json:
        print_json(form)
    elif form["result"] is not None:
        print_line(form["result"])
