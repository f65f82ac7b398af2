"""``holdfast workers``: the workers, and how much of their leases is left."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.live import show_live
from holdfast.cli.options import AsJson, DatabaseUrl, Watch
from holdfast.cli.render.worker_list import FLEXIBLE, WORKER_COLUMNS, worker_rows
from holdfast.cli.store_session import command, opened
from holdfast.cli.terminal import print_json, print_table, table
from holdfast.model.task import JsonValue
from holdfast.service.forms import listed
from holdfast.service.worker_list import WorkerList


@command
async def workers(
    *,
    dead: Annotated[bool, typer.Option("--dead", help="Also dead workers, as long as they are kept.")] = False,
    stay: Watch = False,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List the workers that are alive. A silent one has not renewed its lease: others may take its tasks."""
    async with opened(database_url) as service:

        async def look() -> WorkerList:
            return await service.workers(dead=dead)

        if stay:
            views = service.follow(look)
            await show_live(
                views,
                lambda workers: table(WORKER_COLUMNS, worker_rows(workers), flexible=FLEXIBLE),
                _form,
                as_json=as_json,
            )
            return
        workers = await look()
        if as_json:
            print_json(_form(workers))
        else:
            empty = "no worker is alive; start one: holdfast worker MODULE:HOLDFAST"
            print_table(WORKER_COLUMNS, worker_rows(workers), empty=empty, flexible=FLEXIBLE)


def _form(workers: WorkerList) -> JsonValue:
    return listed("workers", [member.to_json() for member in workers.members])
