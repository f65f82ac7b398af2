"""``holdfast queues``: what every queue holds; ``holdfast queue``: the settings of one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer

from holdfast.cli.live import show_live
from holdfast.cli.options import AsJson, DatabaseUrl, Watch
from holdfast.cli.render.worker_list import FLEXIBLE, QUEUE_COLUMNS, pause_line, queue_rows
from holdfast.cli.store_session import command, opened
from holdfast.cli.terminal import print_json, print_message, print_table, table
from holdfast.model.errors import InvalidValue
from holdfast.model.glyphs import show_text
from holdfast.model.pause import Pause
from holdfast.model.queries import QueueCounts
from holdfast.model.queue_settings import KEEP, QueueSettings
from holdfast.model.task import JsonValue
from holdfast.service.forms import listed, pause_form, queue_form, queue_settings_form

_SHOWN = 10


@command
async def queues(*, stay: Watch = False, as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """List the queues, with their tasks that have not ended, and everything that is paused."""
    async with opened(database_url) as service:

        async def look() -> tuple[Sequence[QueueCounts], datetime, Sequence[Pause], Sequence[QueueSettings]]:
            return (
                *(await service.queues(), await service.now(), await service.pauses()),
                await service.queue_settings(),
            )

        if stay:
            views = service.follow(look)
            await show_live(
                views,
                lambda view: table(QUEUE_COLUMNS, queue_rows(*view[:3]), flexible=FLEXIBLE),
                lambda view: _form(view[0], *view[2:]),
                as_json=as_json,
            )
            return
        found, now, pauses, settings = await look()
        if as_json:
            print_json(_form(found, pauses, settings))
            return
        print_table(QUEUE_COLUMNS, queue_rows(found, now, pauses), empty="every queue is empty", flexible=FLEXIBLE)
        for queue in settings:
            if queue.max_pending is not None:
                print_message(f"{show_text(queue.name)}: {queue.pending:,} of at most {queue.max_pending:,} pending")
        for pause in pauses[:_SHOWN]:
            print_message(pause_line(pause, now))
        if len(pauses) > _SHOWN:
            print_message(f"{len(pauses) - _SHOWN:,} more are paused: --json has them all")


def _form(found: Sequence[QueueCounts], pauses: Sequence[Pause], settings: Sequence[QueueSettings]) -> JsonValue:
    return listed(
        "queues",
        [queue_form(queue) for queue in found],
        pauses=[pause_form(pause) for pause in pauses],
        settings=[queue_settings_form(queue) for queue in settings],
    )


@command
async def queue(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The queue.", show_default=False)],
    *,
    max_pending: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER|none",
            help="How many of its tasks may be pending; a submission beyond that is refused.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Change the settings of a queue, for every process and worker, or show them."""
    limit = KEEP if max_pending is None else _number_or_none(max_pending)
    async with opened(database_url) as service:
        settings = await service.set_queue(name, max_pending=limit)
    if as_json:
        print_json(queue_settings_form(settings))
    most = "any number" if settings.max_pending is None else f"at most {settings.max_pending:,}"
    print_message(f"queue {show_text(name)}: {settings.pending:,} pending, of {most}")


def _number_or_none(text: str) -> int | None:
    if text == "none":
        return None
    if not text.isdecimal():
        raise InvalidValue(f"--max-pending is {text!r}; give a whole number, or none for no limit")
    return int(text)
