"""The ``holdfast`` command. Data on stdout, words on stderr."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from holdfast._version import __version__
from holdfast.model.errors import HoldfastError

app = typer.Typer(
    name="holdfast",
    help="Keep long-running AI agents alive.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def _holdfast(
    *, version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


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


def main() -> None:
    """Run the command; an error people can act on is one line, not a traceback."""
    try:
        app()
    except HoldfastError as error:
        typer.echo(f"holdfast: {error}", err=True)
        sys.exit(1)
