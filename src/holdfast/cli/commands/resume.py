"""``holdfast resume`` and ``holdfast retry``: bring failed tasks back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias

import typer

from holdfast.cli.confirmation import ask
from holdfast.cli.filters import Filters, filtered
from holdfast.cli.options import AsJson, By, DatabaseUrl, TaskIds, Yes
from holdfast.cli.selection import check_choice, chosen, count, nothing_chosen, preview, report
from holdfast.cli.store_session import command, opened, user
from holdfast.cli.times import read_seconds
from holdfast.model.deadline import as_seconds
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState
from holdfast.service.selection import Done
from holdfast.service.service import Service

_FAILED = frozenset({TaskState.FAILED})

NewDeadline: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="SPAN",
        help="Its new deadline, from now: seconds, or 10m, 2h. A task whose deadline has passed needs one.",
        show_default=False,
    ),
]


@command
@filtered
async def resume(
    tasks: TaskIds = None,
    *,
    message: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A message that the agent reads first.", show_default=False)
    ] = None,
    accept_stale: Annotated[
        bool, typer.Option("--accept-stale", help="Also if what the agent knows is older than its checkpoints may be.")
    ] = False,
    deadline: NewDeadline = None,
    filters: Filters,
    by: By = None,
    yes: Yes = False,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Go on with failed tasks where they stopped.

    Completed steps replay, and the step that failed runs again. Name tasks, or choose them by filters among those that
    failed. A named task that has not failed stays as it is. A task whose deadline has passed needs a new --deadline;
    the others go on.
    """
    check_choice(tasks, filters)
    who, over_in = user(by), _seconds(deadline)
    async with opened(database_url) as service:
        found = await _agreed(service, tasks, filters, "resumed", yes=yes, as_json=as_json)
        ids = [task.id for task in found]
        doing = service.resume(ids, by=who, message=message, accept_stale=accept_stale, deadline=over_in)
        await report(doing, found, as_json=as_json, remark=_not_failed)


@command
@filtered
async def retry(
    tasks: TaskIds = None,
    *,
    feedback: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A text that its steps see in ctx.feedback.", show_default=False)
    ] = None,
    deadline: NewDeadline = None,
    filters: Filters,
    by: By = None,
    yes: Yes = False,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Start failed tasks over, in a new round.

    Their steps run again, except those whose effect happens once and has happened. Name tasks, or choose them by
    filters among those that failed. A task whose deadline has passed needs a new --deadline; the others go on.
    """
    check_choice(tasks, filters)
    who, over_in = user(by), _seconds(deadline)
    async with opened(database_url) as service:
        found = await _agreed(service, tasks, filters, "started over", yes=yes, as_json=as_json)
        doing = service.retry([task.id for task in found], by=who, feedback=feedback, deadline=over_in)
        await report(doing, found, as_json=as_json)


def _seconds(deadline: str | None) -> float | None:
    """Read ``--deadline``; refuse an impossible one before any task is changed."""
    return None if deadline is None else as_seconds(read_seconds(deadline, what="--deadline"), what="--deadline")


def _not_failed(before: Task, after: Done) -> str | None:
    if before.state is TaskState.FAILED or after.error is not None:
        return None
    return f"task {before.id} was not failed but {before.state}, and is left as it is"


async def _agreed(
    service: Service,
    parts: Sequence[str] | None,
    filters: Filters,
    what: str,
    *,
    yes: bool,
    as_json: bool,
) -> list[Task]:
    """Return the tasks. If a filter finds several, ask first: there may be more than the user expects."""
    found = await chosen(service, parts, filters, among=_FAILED)
    if not found:
        raise nothing_chosen(among=_FAILED, as_json=as_json)
    if not parts and len(found) > 1:
        ask(f"{count(found)} will be {what}.", await preview(service, found), yes=yes)
    return found
