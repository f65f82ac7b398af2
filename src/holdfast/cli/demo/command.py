"""The command ``holdfast demo``."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.exits import ExitCode


def demo(
    database_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A store to run on; by default a SQLite file in a temporary folder."),
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the facts as one JSON object.")] = False,
) -> None:
    """Kill a worker in the middle of a deployment and watch another one finish it."""
    # Imported here: only this command needs rich, and a Holdfast of its own.
    from rich.console import Console  # noqa: PLC0415

    from holdfast.cli.demo.scenario import Scenario  # noqa: PLC0415
    from holdfast.cli.demo.stage import Stage  # noqa: PLC0415

    stage = Stage(Console(quiet=as_json))
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        url = database_url or f"sqlite:///{folder}/demo.db"
        outcome = asyncio.run(Scenario(url, Path(folder), stage).play())
    stage.conclude(outcome)
    if as_json:
        typer.echo(json.dumps(outcome.facts(), indent=1))
    raise typer.Exit(ExitCode.OK if outcome.is_good else ExitCode.FAILURE)
