"""``holdfast queues``: what every queue holds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from holdfast.cli.live import show_live
from holdfast.cli.options import AsJson, DatabaseUrl, Watch
from holdfast.cli.render.worker_list import FLEXIBLE, QUEUE_COLUMNS, queue_rows
from holdfast.cli.store_session import command, opened
from holdfast.cli.terminal import print_json, print_table, table
from holdfast.model.queries import QueueCounts
from holdfast.model.task import JsonValue
from holdfast.service.forms import listed, queue_form


@command
async def queues(*, stay: Watch = False, as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """List the queues, with their tasks that have not ended."""
    async with opened(database_url) as service:

        async def look() -> tuple[Sequence[QueueCounts], datetime]:
            return await service.queues(), await service.now()

        if stay:
            views = service.follow(look)
            await show_live(
                views,
                lambda view: table(QUEUE_COLUMNS, queue_rows(*view), flexible=FLEXIBLE),
                lambda view: _form(view[0]),
                as_json=as_json,
            )
            return
        found, now = await look()
        if as_json:
            print_json(_form(found))
        else:
            print_table(QUEUE_COLUMNS, queue_rows(found, now), empty="every queue is empty", flexible=FLEXIBLE)


def _form(found: Sequence[QueueCounts]) -> JsonValue:
    return listed("queues", [queue_form(queue) for queue in found])
