"""The ``holdfast`` command. Data on stdout, words on stderr.

working.py submitting.py migrating.py demo/      one command each

finding.py    the application's Holdfast object
arguments.py  a task's arguments, typed by people as JSON
signals.py    signals that ask to stop
logs.py urls.py options.py exits.py      what is logged, what is shown, what is shared, exit codes
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from holdfast._version import __version__
from holdfast.cli.demo.command import demo
from holdfast.cli.exits import exit_code
from holdfast.cli.migrating import migrate
from holdfast.cli.submitting import submit
from holdfast.cli.working import work
from holdfast.model.errors import HoldfastError

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


app.command("demo")(demo)
app.command("worker")(work)
app.command("submit")(submit)
app.command("migrate")(migrate)


def main() -> None:
    """Run the command; an error people can act on is one line, not a traceback."""
    try:
        app()
    except HoldfastError as error:
        typer.echo(f"holdfast: {error}", err=True)
        sys.exit(exit_code(error))
