"""The command ``holdfast demo``."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.exits import ExitCode
from holdfast.cli.options import not_empty
from holdfast.cli.signals import exiting_when_killed
from holdfast.cli.terminal import print_json
from holdfast.model.errors import InvalidValue
from holdfast.model.ids import new_id

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.cli.demo.outcome import Outcome
    from holdfast.cli.demo.stage import DemoStage

_LEASE = 2.0
"""Seconds: short, so that the user does not wait long for the take-over. A real worker takes 30."""


def demo(
    *,
    database_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A store to run on, and to keep the task in; by default a SQLite file in a temporary folder.",
            show_default=False,
            callback=not_empty,
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Keep the database, the ledger and the workers' output in a new folder.",
            show_default=False,
        ),
    ] = None,
    pace: Annotated[
        float, typer.Option(metavar="FACTOR", min=1, max=10, help="How many times slower: 3 to follow every step.")
    ] = 1,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw what this run has shown.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the facts as one JSON object.")] = False,
) -> None:
    """Kill an agent's worker in the middle of a deployment and watch another one finish it.

    The kill comes between an effect and its record. A ledger outside the store shows that nothing ran twice.
    """
    # Imported here: only this command needs rich, and a Holdfast of its own.
    from rich.console import Console  # noqa: PLC0415

    from holdfast.cli.demo.stage import DemoStage  # noqa: PLC0415

    if svg is not None and not svg.absolute().parent.is_dir():
        raise InvalidValue(f"there is no folder {svg.absolute().parent} to draw {svg.name} in; make it first")
    console = Console(quiet=as_json, highlight=False)
    stage = DemoStage(console)
    with _stopped_by_signals(), _folder(keep) as folder:
        url = database_url or f"sqlite:///{folder.absolute()}/demo.db"
        outcome = _play(url, folder, stage, pace=pace)
    _conclude(console, outcome, url if database_url or keep else None)
    if svg is not None:
        _draw(svg, stage, outcome)
    if as_json:
        print_json(outcome.facts())
    raise typer.Exit(ExitCode.OK if outcome.is_good else ExitCode.FAILURE)


def _play(url: str, folder: Path, stage: DemoStage, *, pace: float) -> Outcome:
    from holdfast.cli.demo.scenario import Scenario  # noqa: PLC0415
    from holdfast.cli.demo.worker_processes import DemoWorkers  # noqa: PLC0415 - as above

    queue = f"demo-{new_id()}"  # one that no other worker serves
    with DemoWorkers(url, folder, queue=queue, lease=_LEASE * pace, pace=pace) as processes:
        return asyncio.run(Scenario(processes, stage, pace=pace).play(url, queue))


def _conclude(console: Console, outcome: Outcome, url: str | None) -> None:
    from rich.text import Text  # noqa: PLC0415 - as above

    from holdfast.cli.demo.summary import commands, proof, verdict  # noqa: PLC0415
    from holdfast.cli.own_command import own_command  # noqa: PLC0415

    console.print("", proof(outcome), "", *verdict(outcome), sep="\n")
    if url is not None:
        console.print("", *commands(outcome, url), sep="\n", soft_wrap=True)
    else:
        words = f"Next: `{own_command()} init my-agents` writes a project of your own."
        console.print("", Text(words, "dim"), sep="\n")


def _draw(file: Path, stage: DemoStage, outcome: Outcome) -> None:
    from holdfast.cli.demo.picture import draw  # noqa: PLC0415
    from holdfast.cli.demo.summary import proof, verdict  # noqa: PLC0415 - as above

    draw(file, (*stage.log, "", proof(outcome), "", *verdict(outcome)))


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """Return where the files go: a temporary folder, or one that stays."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
            yield Path(folder)
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise InvalidValue(f"{keep} is there already, and not empty; name a new folder")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Clean up on a signal: end the workers and remove the folder first. Ctrl-C is 130, without a traceback."""
    try:
        with exiting_when_killed():
            yield
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
