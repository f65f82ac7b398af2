"""``holdfast feed``: everything that happens, one line each."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.options import AsJsonLines, DatabaseUrl, read_labels
from holdfast.cli.render.feed import feed_line
from holdfast.cli.store_session import command, opened
from holdfast.cli.terminal import print_line, print_page
from holdfast.model.feed import KINDS, OLDEST, feed_filter


def complete_kinds(incomplete: str) -> list[str]:
    """Offer the kinds of events to a shell."""
    groups = dict.fromkeys(f"{kind.partition('.')[0]}.*" for kind in KINDS if "." in kind)
    return [kind for kind in (*groups, *KINDS) if kind.startswith(incomplete)]


@command
async def feed(
    *,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="CURSOR",
            help=f"Begin behind this event: its cursor, from --json. `{OLDEST}`: with the oldest that is kept. By "
            "default with what happens from now on.",
            show_default=False,
        ),
    ] = None,
    kinds: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            "-k",
            metavar="KIND",
            help="Of this kind, as task.failed, or 'approval.*'; may be repeated.",
            show_default=False,
            autocompletion=complete_kinds,
        ),
    ] = None,
    task: Annotated[str | None, typer.Option(metavar="TASK", help="Of this task.", show_default=False)] = None,
    name: Annotated[
        str | None, typer.Option("--name", "-n", help="Of tasks with this name.", show_default=False)
    ] = None,
    queue: Annotated[str | None, typer.Option(help="Of tasks in this queue.", show_default=False)] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--label", "-l", metavar="NAME=VALUE", help="Of tasks with this label; may be repeated.", show_default=False
        ),
    ] = None,
    no_follow: Annotated[bool, typer.Option("--no-follow", help="Stop at the present.")] = False,
    as_json: AsJsonLines = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Show everything that happens, in any process, as it happens. Ctrl-C ends it.

    With --json each line has a cursor: pass the last one that you have handled to --after, and nothing is missed.
    """
    async with opened(database_url) as service:
        wanted = feed_filter(
            kinds=kinds or (),
            task_id=None if task is None else await service.task_id(task),
            name=name,
            queue=queue,
            labels=read_labels(labels),
        )
        async with service.feed(wanted, after=after, follow=not no_follow) as events:
            async for event in events:
                if as_json:
                    print_line(event.to_json())
                else:
                    print_page(feed_line(event, await service.now()))
