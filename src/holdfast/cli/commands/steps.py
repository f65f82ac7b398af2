"""``holdfast steps``: the journal of a task."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import typer
from rich.text import Text

from holdfast.cli.live import show_live
from holdfast.cli.options import AsJson, DatabaseUrl, NewestTask
from holdfast.cli.render.journal import FLEXIBLE, columns, current, one_step, rows
from holdfast.cli.store_session import command, opened
from holdfast.cli.terminal import print_json, print_page, print_table, table
from holdfast.model.step import Step
from holdfast.model.task import JsonValue, Task
from holdfast.service.forms import listed, step_form


@dataclass(frozen=True, slots=True)
class _Journal:
    task: Task
    steps: Sequence[Step]
    in_doubt: Collection[str]
    """The ids of their effects whose outcome is unknown."""
    at: datetime


@command
async def steps(
    task: NewestTask = None,
    key: Annotated[
        str | None,
        typer.Argument(
            metavar="STEP",
            help="A step, to see everything about it: its key, its name or number as listed.",
            show_default=False,
        ),
    ] = None,
    *,
    every: Annotated[
        bool, typer.Option("--all", "-a", help="Also those of earlier rounds, and the engine's own lines.")
    ] = False,
    output: Annotated[
        bool, typer.Option("--output", "-o", help="Show what they returned, or how they failed.")
    ] = False,
    follow_it: Annotated[bool, typer.Option("--follow", "-f", help="Stay until the task has ended.")] = False,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List the steps of a task, in the order in which they began; or show one of them in full.

    Without an id, those of the newest task.
    """
    async with opened(database_url) as service:
        task_id = await service.task_or_newest(task)
        if key is not None:
            step, now = await service.step(task_id, key), await service.now()
            if as_json:
                print_json(step_form(step))
            else:
                print_page(one_step(step, now))
            return

        async def look() -> _Journal:
            found = await service.task(task_id)
            journal = await service.steps(task_id)
            in_doubt = {doubt.effect.effect_id for doubt in await service.doubts(task_id)}
            return _Journal(found, journal if every else current(journal), in_doubt, await service.now())

        def lines(seen: _Journal) -> list[list[str | Text]]:
            return rows(seen.steps, seen.at, output=output, whole_keys=every, in_doubt=seen.in_doubt)

        if follow_it:
            await show_live(
                service.follow(look, task_id=task_id),
                lambda seen: table(columns(output=output), lines(seen), flexible=FLEXIBLE),
                _form,
                as_json=as_json,
                is_last=lambda seen: seen.task.state.is_terminal,
            )
            return
        seen = await look()
        if as_json:
            print_json(_form(seen))
            return
        empty = "it has no steps yet" if every else "it has no steps yet; --all shows the engine's own lines"
        print_table(columns(output=output), lines(seen), empty=empty, flexible=FLEXIBLE)


def _form(seen: _Journal) -> JsonValue:
    return listed("steps", [step_form(step) for step in seen.steps])
