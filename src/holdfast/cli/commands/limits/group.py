"""The Typer application of the group. Without a command it lists."""

from __future__ import annotations

import typer

from holdfast.cli.commands.limits.change import set_limit
from holdfast.cli.commands.limits.view import list_limits
from holdfast.cli.options import AsJson, DatabaseUrl

limits = typer.Typer(
    name="limits",
    help="What tasks and steps may do at the same time, or in a time. `holdfast pause limit:NAME` pauses a limit.",
    invoke_without_command=True,
)


@limits.callback()
def _list_by_default(context: typer.Context, *, as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """List the limits, or set one. `holdfast pause limit:NAME` pauses one."""
    if context.invoked_subcommand is None:
        list_limits(as_json=as_json, database_url=database_url)


limits.command("list")(list_limits)
limits.command("set")(set_limit)
