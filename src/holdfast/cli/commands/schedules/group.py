"""The Typer application of the group. Without a command it lists."""

from __future__ import annotations

import typer

from holdfast.cli.commands.schedules.change import delete, trigger
from holdfast.cli.commands.schedules.view import list_schedules
from holdfast.cli.options import AsJson, DatabaseUrl

schedules = typer.Typer(
    name="schedules",
    help="Tasks that are submitted again and again. `holdfast pause schedule:NAME` pauses a schedule.",
    invoke_without_command=True,
)


@schedules.callback()
def _list_by_default(context: typer.Context, *, as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """List the schedules, or change one. `holdfast pause schedule:NAME` pauses one."""
    if context.invoked_subcommand is None:
        list_schedules(as_json=as_json, database_url=database_url)


schedules.command("list")(list_schedules)
schedules.command("trigger")(trigger)
schedules.command("delete")(delete)
