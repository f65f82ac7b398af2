"""``holdfast send``: send a message to an agent."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.options import AsJson, By, DatabaseUrl, TaskId
from holdfast.cli.store_session import command, opened, user
from holdfast.cli.terminal import print_json, print_message


@command
async def send(
    task: TaskId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The message.", show_default=False)],
    *,
    by: By = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Send a message to an agent that runs or waits; it reads it before its next model call."""
    who = user(by)
    async with opened(database_url) as service:
        receiver = await service.send(task, text, by=who)
    if as_json:
        print_json({"task_id": receiver.id, "text": text, "by": who})
    if receiver.started_at is not None and not receiver.version:
        print_message(f"task {receiver.id} has it; but it keeps no agent state, and only agents read messages")
    else:
        print_message(f"task {receiver.id} reads it before its next model call")
