"""``holdfast cancel``: stop tasks and their children, for good."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.confirmation import ask
from holdfast.cli.filters import Filters, filtered
from holdfast.cli.options import AsJson, By, DatabaseUrl, TaskIds, Yes
from holdfast.cli.selection import check_choice, chosen, count, nothing_chosen, preview, report
from holdfast.cli.store_session import command, opened, user
from holdfast.model.task import Task
from holdfast.model.transitions import OPEN, TaskState
from holdfast.service.selection import Done


@command
@filtered
async def cancel(
    tasks: TaskIds = None,
    *,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the record.")] = "cancelled",
    filters: Filters,
    by: By = None,
    yes: Yes = False,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Stop tasks and their children, for good: a cancelled task cannot be resumed.

    Name tasks, or choose them by filters among those that have not ended. A task that has ended stays as it is. A task
    that a worker holds is stopped by that worker, at its next step; steps that can be undone are undone first.
    """
    check_choice(tasks, filters)
    who = user(by)
    async with opened(database_url) as service:
        found = await chosen(service, tasks, filters, among=OPEN)
        if not found:
            raise nothing_chosen(among=OPEN, as_json=as_json)
        if any(task.state in OPEN for task in found):
            them = "it has" if len(found) == 1 else "they have"
            ask(
                f"{count(found)}, with whatever children {them}, will be cancelled for good.",
                await preview(service, found),
                yes=yes,
            )
        doing = service.cancel([task.id for task in found], reason, by=who)
        await report(doing, found, as_json=as_json, remark=_not_cancelled)


def _not_cancelled(before: Task, after: Done) -> str | None:
    if before.state not in OPEN:
        return f"task {before.id} had ended before ({before.state}), and is left as it is"
    if after.error is None and after.state != TaskState.CANCELLED:
        return f"task {before.id} is asked to stop; its worker stops it, after it has undone what is to be undone"
    return None
