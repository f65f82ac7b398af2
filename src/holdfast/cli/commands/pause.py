"""``holdfast pause``, ``holdfast unpause``: let nothing new begin of a queue, a name, a limit, a schedule or a task."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from holdfast.cli.options import AsJson, By, DatabaseUrl
from holdfast.cli.store_session import command, opened, user
from holdfast.cli.terminal import print_json, print_message
from holdfast.model.pause import LIMIT, SCHEDULE, kind_of
from holdfast.service.forms import pause_form

Subject: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="SUBJECT",
        help="queue:NAME, task:NAME for all tasks of that name, limit:NAME or limit:KEY, schedule:NAME, or the id of "
        "one task or a few characters of it.",
        show_default=False,
    ),
]

_EFFECTS = {
    None: "the task runs no further",
    SCHEDULE: "it submits nothing",
    LIMIT: "no task and no step that needs it begins",
}


@command
async def pause(
    subject: Subject,
    *,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for the record.", show_default=False)] = None,
    by: By = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Let nothing new begin of a queue, of the tasks of a name, with a limit, or of one task.

    Workers claim none of it until it is unpaused. Tasks of a queue or a name that run go on; a single task that runs
    stops at its next step. Deadlines pass meanwhile, and a cancel works. A paused schedule submits nothing; the ticks
    that pass are not caught up.
    """
    who = user(by)
    async with opened(database_url) as service:
        paused = await service.pause(subject, by=who, reason=reason)
    if as_json:
        print_json(pause_form(paused))
    what = _EFFECTS.get(kind_of(paused.subject), "nothing of it is claimed")
    print_message(f"{paused.subject} is paused: {what} until `holdfast unpause {paused.subject}`")


@command
async def unpause(
    subject: Subject, *, by: By = None, as_json: AsJson = False, database_url: DatabaseUrl = None
) -> None:
    """Let what is paused go on."""
    who = user(by)
    async with opened(database_url) as service:
        found, was_paused = await service.unpause(subject, by=who)
    if as_json:
        print_json({"subject": found, "was_paused": was_paused})
    print_message(f"{found} goes on" if was_paused else f"{found} was not paused; nothing was changed")
