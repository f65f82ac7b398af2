"""The ``holdfast`` command. Data on stdout, words on stderr."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Any

import typer

from holdfast._version import __version__
from holdfast.model.errors import HoldfastError
from holdfast.store import open_store

app = typer.Typer(
    name="holdfast",
    help="Keep long-running AI agents alive.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - how typer calls it
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _holdfast(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    database_url: Annotated[
        str | None, typer.Option(help="A store to run on; by default a SQLite file in a temporary folder.")
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the facts as one JSON object.")] = False,
) -> None:
    """Kill a worker in the middle of a deployment and watch another one finish it."""
    from holdfast.cli.demo import run_demo  # noqa: PLC0415 - only this command needs it

    raise typer.Exit(run_demo(database_url, as_json=as_json))


@app.command()
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


def main() -> None:
    """Run the command; an error people can act on is one line, not a traceback."""
    try:
        app()
    except HoldfastError as error:
        typer.echo(f"holdfast: {error}", err=True)
        sys.exit(1)
