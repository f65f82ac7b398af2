"""``holdfast queues``: what every queue holds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from holdfast.cli.live import show_live
from holdfast.cli.options import AsJson, DatabaseUrl, Watch
from holdfast.cli.render.worker_list import FLEXIBLE, QUEUE_COLUMNS, pause_line, queue_rows
from holdfast.cli.store_session import command, opened
from holdfast.cli.terminal import print_json, print_message, print_table, table
from holdfast.model.pause import Pause
from holdfast.model.queries import QueueCounts
from holdfast.model.task import JsonValue
from holdfast.service.forms import listed, pause_form, queue_form

_SHOWN = 10


@command
async def queues(*, stay: Watch = False, as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """List the queues, with their tasks that have not ended, and everything that is paused."""
    async with opened(database_url) as service:

        async def look() -> tuple[Sequence[QueueCounts], datetime, Sequence[Pause]]:
            return await service.queues(), await service.now(), await service.pauses()

        if stay:
            views = service.follow(look)
            await show_live(
                views,
                lambda view: table(QUEUE_COLUMNS, queue_rows(*view), flexible=FLEXIBLE),
                lambda view: _form(view[0], view[2]),
                as_json=as_json,
            )
            return
        found, now, pauses = await look()
        if as_json:
            print_json(_form(found, pauses))
            return
        print_table(QUEUE_COLUMNS, queue_rows(found, now, pauses), empty="every queue is empty", flexible=FLEXIBLE)
        for pause in pauses[:_SHOWN]:
            print_message(pause_line(pause, now))
        if len(pauses) > _SHOWN:
            print_message(f"{len(pauses) - _SHOWN:,} more are paused: --json has them all")


def _form(found: Sequence[QueueCounts], pauses: Sequence[Pause]) -> JsonValue:
    queues = [queue_form(queue) for queue in found]
    return listed("queues", queues, pauses=[pause_form(pause) for pause in pauses])
