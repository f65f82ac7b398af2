"""``holdfast schedules``: list them."""

from __future__ import annotations

from holdfast.cli.options import AsJson, DatabaseUrl
from holdfast.cli.render.schedule_list import COLUMNS, FLEXIBLE, schedule_rows
from holdfast.cli.store_session import command, opened
from holdfast.cli.terminal import print_json, print_message, print_table
from holdfast.service.forms import listed, schedule_form


@command
async def list_schedules(*, as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """List the schedules: when each submits its next task, and what became of the last one."""
    async with opened(database_url) as service:
        found, now = await service.schedules(), await service.now()
    if as_json:
        print_json(listed("schedules", [schedule_form(one) for one in found]))
        return
    empty = "there is no schedule; make one with hold.schedule, or with @hold.task(cron=...)"
    print_table(COLUMNS, schedule_rows(found, now), empty=empty, flexible=FLEXIBLE)
    for one in found:
        if one.trouble is not None:
            print_message(f"{one.name} cannot fire: {one.trouble}")
