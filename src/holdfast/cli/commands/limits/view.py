"""``holdfast limits``: how each key of each limit stands."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.options import AsJson, DatabaseUrl
from holdfast.cli.render.limit_list import COLUMNS, limit_rows
from holdfast.cli.store_session import command, opened
from holdfast.cli.terminal import print_json, print_table
from holdfast.service.forms import limit_use_form, listed


@command
async def list_limits(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One limit.", show_default=False)] = None,
    *,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List the limits: what of each key is taken, how many wait, and what counts against its rates."""
    async with opened(database_url) as service:
        found, pauses, now = await service.limits(name), await service.pauses(), await service.now()
    if as_json:
        print_json(listed("limits", [limit_use_form(use, pauses) for use in found]))
        return
    empty = "there is no such limit" if name else "there is no limit; set one: holdfast limits set NAME --concurrency 2"
    print_table(COLUMNS, limit_rows(found, pauses, now), empty=empty, flexible={"key"})
