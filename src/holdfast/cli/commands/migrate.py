"""``holdfast migrate``: set up a store, or bring an older one to the schema of this version."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.options import AsJson, DatabaseUrl
from holdfast.cli.store_session import command, holdfast_to_look_at
from holdfast.cli.terminal import print_json, say
from holdfast.redaction import without_password
from holdfast.service.migration import migrate as bring_up_to_date


@command
async def migrate(
    database_url: DatabaseUrl = None,
    *,
    schema: Annotated[
        str | None, typer.Option(help="PostgreSQL only: the schema that holds the store.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Set up a store, or bring an older one to the schema of this version."""
    hold = holdfast_to_look_at(database_url)
    url, named = hold.url, hold._options.get("schema")  # noqa: SLF001 - what its code says about how to open the store
    vitals = await bring_up_to_date(url, schema=schema or named)
    if as_json:
        print_json({"database_url": without_password(url), "schema": vitals.schema})
    else:
        say(f"{without_password(url)} has schema {vitals.schema}, which is the one of this version")
