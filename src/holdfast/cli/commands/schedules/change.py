"""``holdfast schedules trigger`` and ``delete``."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from holdfast.cli.confirmation import ask
from holdfast.cli.options import AsJson, By, DatabaseUrl, Yes
from holdfast.cli.store_session import command, opened, user
from holdfast.cli.terminal import print_json, print_message

Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="The schedule.", show_default=False)]


@command
async def trigger(name: Name, *, by: By = None, as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """Submit a task of a schedule now, apart from its ticks, and print its id. Also while it is paused."""
    who = user(by)
    async with opened(database_url) as service:
        task_id = await service.trigger_schedule(name, by=who)
    if as_json:
        print_json({"id": task_id, "schedule": name})
    else:
        typer.echo(task_id)


@command
async def delete(name: Name, *, yes: Yes = False, database_url: DatabaseUrl = None) -> None:
    """Delete a schedule. Tasks that it has submitted stay."""
    async with opened(database_url) as service:
        await service.schedule(name)
        ask(f"Schedule {name} will be deleted; the tasks that it has submitted stay.", yes=yes)
        await service.delete_schedule(name)
    print_message(f"schedule {name} is deleted")
