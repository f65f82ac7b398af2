"""The Typer application: every command, in the order people meet them."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast._version import __version__
from holdfast.cli.commands.approvals import answer, approvals, approve, reject
from holdfast.cli.commands.bench import bench
from holdfast.cli.commands.budget import budget
from holdfast.cli.commands.cancel import cancel
from holdfast.cli.commands.config import config
from holdfast.cli.commands.doctor import doctor
from holdfast.cli.commands.doubts import doubts, resolve
from holdfast.cli.commands.feed import feed
from holdfast.cli.commands.fork import fork
from holdfast.cli.commands.history import history
from holdfast.cli.commands.init import init
from holdfast.cli.commands.limits.group import limits
from holdfast.cli.commands.list import list_tasks
from holdfast.cli.commands.mcp import mcp
from holdfast.cli.commands.memory.group import memory
from holdfast.cli.commands.migrate import migrate
from holdfast.cli.commands.pause import pause, unpause
from holdfast.cli.commands.prune import prune
from holdfast.cli.commands.queues import queue, queues
from holdfast.cli.commands.resume import resume, retry
from holdfast.cli.commands.run import run
from holdfast.cli.commands.schedules.group import schedules
from holdfast.cli.commands.send import send
from holdfast.cli.commands.serve import serve
from holdfast.cli.commands.show import show
from holdfast.cli.commands.state import diff, state
from holdfast.cli.commands.steps import steps
from holdfast.cli.commands.submit import submit
from holdfast.cli.commands.watch import watch
from holdfast.cli.commands.worker import work
from holdfast.cli.commands.workers import workers
from holdfast.cli.demo.command import demo
from holdfast.cli.errors import show_tracebacks
from holdfast.cli.help import PlainCommand, PlainGroup

app = typer.Typer(
    name="holdfast",
    cls=PlainGroup,
    help="Keep long-running AI agents alive.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
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
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks of errors.", callback=show_tracebacks)
    ] = False,
) -> None:
    pass


BEGIN, LOOK, ACT, DECIDE, KEEP = "Begin", "Look", "Look after tasks", "Decide", "Look after the store"

app.command("demo", rich_help_panel=BEGIN)(demo)
app.command("init", rich_help_panel=BEGIN)(init)
app.command("run", rich_help_panel=BEGIN)(run)
app.command("submit", rich_help_panel=BEGIN)(submit)
app.command("worker", rich_help_panel=BEGIN)(work)
app.command("mcp", rich_help_panel=BEGIN)(mcp)
app.command("serve", rich_help_panel=BEGIN)(serve)

app.command("list", rich_help_panel=LOOK)(list_tasks)
app.command("show", rich_help_panel=LOOK)(show)
app.command("watch", rich_help_panel=LOOK)(watch)
app.command("feed", rich_help_panel=LOOK)(feed)
app.command("steps", rich_help_panel=LOOK)(steps)
app.command("history", rich_help_panel=LOOK)(history)
app.command("state", rich_help_panel=LOOK)(state)
app.command("diff", rich_help_panel=LOOK)(diff)
app.command("queues", rich_help_panel=LOOK)(queues)
app.command("workers", rich_help_panel=LOOK)(workers)
app.add_typer(schedules, cls=PlainGroup, rich_help_panel=LOOK)
app.add_typer(limits, cls=PlainGroup, rich_help_panel=LOOK)

app.command("resume", rich_help_panel=ACT)(resume)
app.command("retry", rich_help_panel=ACT)(retry)
app.command("cancel", rich_help_panel=ACT)(cancel)
app.command("pause", rich_help_panel=ACT)(pause)
app.command("unpause", rich_help_panel=ACT)(unpause)
app.command("queue", rich_help_panel=ACT)(queue)
app.command("fork", rich_help_panel=ACT)(fork)
app.command("send", rich_help_panel=ACT)(send)
app.command("budget", rich_help_panel=ACT)(budget)

app.command("approvals", rich_help_panel=DECIDE)(approvals)
app.command("approve", rich_help_panel=DECIDE)(approve)
app.command("reject", rich_help_panel=DECIDE)(reject)
app.command("answer", rich_help_panel=DECIDE)(answer)
app.command("doubts", rich_help_panel=DECIDE)(doubts)
app.command("resolve", rich_help_panel=DECIDE)(resolve)

app.add_typer(memory, cls=PlainGroup, rich_help_panel=KEEP)
app.command("prune", rich_help_panel=KEEP)(prune)
app.command("migrate", rich_help_panel=KEEP)(migrate)
app.command("doctor", rich_help_panel=KEEP)(doctor)
app.command("config", rich_help_panel=KEEP)(config)
app.command("bench", rich_help_panel=KEEP)(bench)

for registered in (
    *app.registered_commands,
    *memory.registered_commands,
    *schedules.registered_commands,
    *limits.registered_commands,
):
    registered.cls = PlainCommand
