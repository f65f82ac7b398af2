"""``holdfast migrate``: set up a store, or bring an older one to the schema of this version."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from holdfast.store import open_store


def migrate(
    database_url: Annotated[str, typer.Option(envvar="HOLDFAST_DATABASE_URL", help="The store to set up or upgrade.")],
    schema: Annotated[str, typer.Option(help="PostgreSQL only: the schema that holds the store.")] = "holdfast",
) -> None:
    """Set up a store, or bring an older one to the schema of this version."""
    asyncio.run(_migrate(database_url, schema))
    typer.echo("The store has the schema of this version.", err=True)


async def _migrate(url: str, schema: str) -> None:
    # Only PostgreSQL waits to be asked; the other stores migrate whenever they are opened.
    options: dict[str, Any] = {"migrate": True, "schema": schema} if url.startswith("postgres") else {}
    async with open_store(url, **options):
        pass
