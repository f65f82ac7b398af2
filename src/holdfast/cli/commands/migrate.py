"""``holdfast migrate``: set up a store, or bring an older one to the schema of this version."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.options import AsJson, DatabaseUrl
from holdfast.cli.store_session import command
from holdfast.cli.terminal import print_json, print_message
from holdfast.redaction import without_password
from holdfast.service import session


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
    url, vitals = await session.migrate(database_url, schema=schema)
    if as_json:
        print_json({"database_url": without_password(url), "schema": vitals.schema})
    else:
        print_message(f"{without_password(url)} has schema {vitals.schema}, which is the one of this version")
