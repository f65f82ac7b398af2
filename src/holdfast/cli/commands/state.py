"""``holdfast state`` and ``holdfast diff``: what an agent knows, its history, and what changed."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.options import AsJson, DatabaseUrl, NewestTask, TaskId
from holdfast.cli.render.state import PATCH_COLUMNS, PATCH_FLEXIBLE, changes, page, patch_rows
from holdfast.cli.store_session import command, opened
from holdfast.cli.terminal import print_json, print_message, print_page, print_table
from holdfast.model.errors import InvalidValue
from holdfast.service.forms import listed, patch_form


@command
async def state(
    task: NewestTask = None,
    *,
    at: Annotated[
        str | None,
        typer.Option(metavar="VERSION|STEP", help="As it was at a version, or right after a step.", show_default=False),
    ] = None,
    history: Annotated[bool, typer.Option("--history", help="List every change of it instead.")] = False,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Show an agent's state: goal, plan, facts, questions, artifacts, flags, constraints and budget.

    Without an id, that of the newest task.
    """
    if history and at is not None:
        raise InvalidValue("--history lists every change, and --at shows one moment; give one of them")
    async with opened(database_url) as service:
        now, task_id = await service.now(), await service.task_or_newest(task)
        if history:
            patches = await service.state_history(task_id)
            if as_json:
                print_json(listed("patches", [patch_form(applied) for applied in patches]))
            else:
                print_table(PATCH_COLUMNS, patch_rows(patches, now), empty="no change", flexible=PATCH_FLEXIBLE)
            return
        found = await service.state(task_id, at=None if at is None else moment(at))
        if as_json:
            print_json(found.to_json())
        else:
            print_page(page(found, now))


@command
async def diff(
    task: TaskId,
    old: Annotated[str, typer.Argument(metavar="OLD", help="A version of its state (digits), or the key of a step.")],
    new: Annotated[
        str | None, typer.Argument(metavar="NEW", help="Likewise; by default now.", show_default=False)
    ] = None,
    *,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Show what changed in an agent's state between two moments."""
    async with opened(database_url) as service:
        found = await service.state_diff(task, moment(old), None if new is None else moment(new))
    if as_json:
        print_json(listed("changes", [change.to_json() for change in found]))
    elif found:
        print_page(changes(found))
    else:
        print_message("nothing changed between them")


def moment(text: str) -> int | str:
    """Read a moment of a state: digits are a version, anything else is the key of a step."""
    return int(text) if text.isascii() and text.isdigit() else text
