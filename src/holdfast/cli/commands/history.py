"""``holdfast history``: every move of a task."""

from __future__ import annotations

from holdfast.cli.options import AsJson, DatabaseUrl, NewestTask
from holdfast.cli.render.words import safe, state_text, who
from holdfast.cli.store_session import command, opened
from holdfast.cli.terminal import print_json, print_table
from holdfast.cli.times import local
from holdfast.service.forms import listed, transition_form

COLUMNS = ("when", "from", "to", "fence", "by", "why")


@command
async def history(task: NewestTask = None, *, as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """List every move of a task from one state to another: when, why, and who made it.

    Without an id, those of the newest task.
    """
    async with opened(database_url) as service:
        moves, now = await service.history(await service.task_or_newest(task)), await service.now()
    if as_json:
        print_json(listed("history", [transition_form(move) for move in moves]))
        return
    rows = [
        [
            local(move.at, now),
            "" if move.from_state is None else state_text(move.from_state),
            state_text(move.to_state),
            str(move.fence),
            who(move.actor),
            safe(" ".join(move.reason.split())),
        ]
        for move in moves
    ]
    print_table(COLUMNS, rows, empty="it has not moved yet", flexible={"by", "why"})
