"""Which tasks a command acts on: those that are named, or those that fit; and what became of each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import replace

import typer
from rich.console import RenderableType

from holdfast.cli.errors import in_one_line
from holdfast.cli.exits import ExitCode, exit_code
from holdfast.cli.filters import Filters
from holdfast.cli.render.words import input_of, state_text
from holdfast.cli.terminal import print_json, print_message, table
from holdfast.cli.times import age
from holdfast.model.errors import InvalidValue
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState
from holdfast.service.identify import short
from holdfast.service.selection import Done
from holdfast.service.service import Service

_COLUMNS = ("id", "task", "state", "queue", "submitted", "input")
_FLEXIBLE = ("input", "task")
_SHOWN = 10


def check_choice(parts: Sequence[str] | None, filters: Filters) -> None:
    """Refuse ids together with filters, which is ambiguous; and neither of them, which would be every task."""
    if parts and filters.are_given:
        raise InvalidValue("tasks are named, and there are filters as well; give one or the other")
    if not parts and not filters.are_given:
        raise InvalidValue("no task is named; give ids, or filters such as --name, --queue or --since")


async def chosen(
    service: Service, parts: Sequence[str] | None, filters: Filters, *, among: Collection[TaskState]
) -> list[Task]:
    """Return the tasks that are named, or those ``among`` these states that fit the filters."""
    if parts:
        return await service.select(parts, None)
    where = await filters.read(service)
    states = frozenset(among) if where.states is None else where.states & frozenset(among)
    if not states:
        raise InvalidValue(f"this is done to {_or(among)} tasks only; choose --state among these, or leave it out")
    return await service.select((), replace(where, states=states))


def nothing_chosen(*, among: Collection[TaskState], as_json: bool) -> typer.Exit:
    """Print that no task fits, and return the exit."""
    if as_json:
        print_json({"tasks": []})
    print_message(f"no {_or(among)} task fits; nothing was changed")
    return typer.Exit(ExitCode.NOT_FOUND)


async def preview(service: Service, tasks: Sequence[Task]) -> RenderableType:
    """Return a short table of the tasks that will be changed."""
    now = await service.now()
    made = table(
        _COLUMNS,
        [
            [short(task.id), task.name, state_text(task.state), task.queue, age(task.created_at, now), input_of(task)]
            for task in tasks[:_SHOWN]
        ],
        flexible=_FLEXIBLE,
    )
    if (hidden := len(tasks) - _SHOWN) > 0:
        made.caption, made.caption_justify = f"and {hidden} more", "left"
    return made


def count(tasks: Sequence[Task]) -> str:
    """Return how many: ``1 task``, ``12 tasks``."""
    return f"{len(tasks)} {'task' if len(tasks) == 1 else 'tasks'}"


async def report(
    doing: AsyncIterator[Done],
    tasks: Sequence[Task],
    *,
    as_json: bool,
    remark: Callable[[Task, Done], str | None] = lambda task, done: None,  # noqa: ARG005
) -> None:
    """Print what becomes of each task, as it happens; exit with the code of the first that refused.

    ``remark`` returns an extra remark about a task. If the user stops it in the middle, it reports how far it came.
    """
    done: list[Done] = []
    try:
        async for one in doing:
            if one.error is not None:
                print_message(in_one_line(one.error))
            elif not as_json:
                typer.echo(f"{one.task_id} {one.state}")
            if (words := remark(tasks[len(done)], one)) is not None:
                print_message(words)
            done.append(one)
    finally:
        if len(done) < len(tasks):
            print_message(f"stopped after {len(done)} of {len(tasks)} tasks; the one that was next may be done or not")
        if as_json:
            print_json({"tasks": [one.to_json() for one in done]})
    errors = [one.error for one in done if one.error is not None]
    if errors:
        raise typer.Exit(exit_code(errors[0]))


def _or(states: Collection[TaskState]) -> str:
    *others, last = sorted(states, key=list(TaskState).index)
    return f"{', '.join(others)} or {last}" if others else str(last)
