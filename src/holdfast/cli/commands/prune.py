"""``holdfast prune``: delete what ended long ago."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from holdfast.cli.confirmation import ask
from holdfast.cli.options import AsJson, DatabaseUrl, Yes
from holdfast.cli.store_session import command, opened
from holdfast.cli.terminal import print_json, print_message, print_table, words
from holdfast.cli.times import read_span, span
from holdfast.model.queries import Pruned
from holdfast.service.forms import Form, pruned_form
from holdfast.service.service import Service


@command
async def prune(
    *,
    older_than: Annotated[
        str, typer.Option(metavar="SPAN", help="How long ago it ended: 30d, 12h, 2h30m.", show_default=False)
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the tasks.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Delete tasks that ended long ago, with their steps, effects and approvals.

    Also deletes events, artifacts and dead workers that are as old and not used any more. A task stays while its
    parent or a child of it has not ended, or has an effect in doubt.
    """
    age = read_span(older_than, what="--older-than", needs_unit=True)
    async with opened(database_url) as service:
        tasks = await service.prunable(age)
        if dry_run:
            _print({"tasks": tasks}, as_json=as_json)
            return
        ask(f"{_about(tasks, age)}, and events, artifacts and dead workers as old, will be deleted for good.", yes=yes)
        total = await _delete(service, age, tasks)
    _print(pruned_form(total), as_json=as_json)


async def _delete(service: Service, age: timedelta, expected: int) -> Pruned:
    total = Pruned(tasks=0, events=0, artifacts=0, more=True)
    with words().status("deleting") as status:
        while total.more:
            batch = await service.prune(age)
            total = Pruned(
                tasks=total.tasks + batch.tasks,
                events=total.events + batch.events,
                artifacts=total.artifacts + batch.artifacts,
                more=batch.more,
            )
            progress = f"deleted {total.tasks:,} of {max(expected, total.tasks):,} tasks"
            status.update(progress)
            if not words().is_terminal:
                print_message(progress)
    return total


def _about(tasks: int, age: timedelta) -> str:
    """Return how many tasks it is at most: some of them may have to stay."""
    counted = {0: "No task", 1: "1 task"}.get(tasks, f"Up to {tasks:,} tasks")
    return f"{counted} that ended more than {span(age.total_seconds())} ago"


def _print(counts: Form, *, as_json: bool) -> None:
    if as_json:
        print_json(counts)
    else:
        print_table(list(counts), [[str(count) for count in counts.values()]], empty="")
