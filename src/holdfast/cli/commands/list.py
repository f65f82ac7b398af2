"""``holdfast list``: tasks, by filters that combine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer
from rich.text import Text as Styled

from holdfast.cli.filters import Filters, filtered
from holdfast.cli.live import show_live
from holdfast.cli.options import AsJson, DatabaseUrl, Limit, Watch
from holdfast.cli.render.words import input_of, outcome_of, standing_of
from holdfast.cli.store_session import command, opened
from holdfast.cli.terminal import print_json, print_message, print_table, table
from holdfast.cli.times import age
from holdfast.model.pause import Pause
from holdfast.model.queries import Page
from holdfast.model.task import Task
from holdfast.service.forms import listed, pause_of_task, task_form
from holdfast.service.identify import short

COLUMNS = ("id", "task", "state", "queue", "submitted", "input", "outcome")
FLEXIBLE = frozenset({"task", "queue", "input", "outcome"})
"""The columns that are cut first."""


@command
@filtered
async def list_tasks(
    *,
    filters: Filters,
    limit: Limit = 50,
    oldest_first: Annotated[bool, typer.Option("--oldest-first", help="By default the newest come first.")] = False,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Go on where the page before ended.", show_default=False)
    ] = None,
    stay: Watch = False,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List tasks, the newest first. Every filter that is given must fit."""
    async with opened(database_url) as service:
        where = await filters.read(service)

        async def look() -> tuple[Page[Task], datetime, Sequence[Pause]]:
            page = await service.tasks(where, limit=limit, after=after, newest_first=not oldest_first)
            return page, await service.now(), await service.pauses()

        if stay:
            await show_live(
                service.follow(look),
                lambda view: table(COLUMNS, rows(view[0].items, *view[1:]), flexible=FLEXIBLE),
                lambda view: _form(view[0], view[2]),
                as_json=as_json,
            )
            return
        page, now, pauses = await look()
        if as_json:
            print_json(_form(page, pauses))
            return
        print_table(COLUMNS, rows(page.items, now, pauses), empty="no task fits", flexible=FLEXIBLE)
        if page.next is not None:
            print_message(f"there are more: --after {page.next}, or a larger --limit")


def rows(tasks: Sequence[Task], now: datetime, pauses: Sequence[Pause] = ()) -> list[list[str | Styled]]:
    """Return one line for each task."""
    return [
        [
            short(task.id),
            task.name,
            standing_of(task, pauses),
            task.queue,
            age(task.created_at, now),
            input_of(task),
            outcome_of(task),
        ]
        for task in tasks
    ]


def _form(page: Page[Task], pauses: Sequence[Pause]) -> dict[str, object]:
    tasks = [task_form(task) | {"paused": pause_of_task(task, pauses)} for task in page.items]
    return dict(listed("tasks", tasks, next=page.next))
