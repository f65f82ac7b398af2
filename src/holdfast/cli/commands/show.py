"""``holdfast show``: one task on one screen."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.exits import ExitCode
from holdfast.cli.live import show_live
from holdfast.cli.options import AsJson, DatabaseUrl, NewestTask
from holdfast.cli.render.overview import page
from holdfast.cli.store_session import command, opened
from holdfast.cli.terminal import console, print_json, print_page
from holdfast.model.transitions import TaskState
from holdfast.service.overview import Overview


@command
async def show(
    task: NewestTask = None,
    *,
    follow_it: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Stay until it has ended; the exit code is 5 if it failed, or was cancelled."
        ),
    ] = False,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Show what a task is, where it stands, why, and what can be done next; without an id, the newest one."""
    async with opened(database_url) as service:
        task_id = await service.task_or_newest(task)
        if not follow_it:
            seen = await service.overview(task_id)
            if as_json:
                print_json(seen.to_json())
            else:
                print_page(page(seen))
            return
        last: Overview = await service.overview(task_id)

        async def look() -> Overview:
            nonlocal last
            last = await service.overview(task_id)
            return last

        await show_live(
            service.follow(look, task_id=task_id),
            lambda seen: page(seen, height=console().height if console().is_terminal else None),
            Overview.to_json,
            as_json=as_json,
            is_last=lambda seen: seen.task.state.is_terminal,
        )
    if last.task.state is not TaskState.COMPLETED:
        raise typer.Exit(ExitCode.TASK_FAILED)
