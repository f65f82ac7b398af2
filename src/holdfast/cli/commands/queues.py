"""``holdfast queues``: what every queue holds; ``holdfast queue``: the settings of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated

import typer

from holdfast.cli.live import show_live
from holdfast.cli.options import AsJson, DatabaseUrl, Watch
from holdfast.cli.render.worker_list import FLEXIBLE, QUEUE_COLUMNS, pause_line, queue_rows
from holdfast.cli.store_session import command, opened
from holdfast.cli.terminal import print_json, print_message, print_table, table
from holdfast.cli.times import read_span, span
from holdfast.model.errors import InvalidValue
from holdfast.model.glyphs import show_text
from holdfast.model.pause import Pause
from holdfast.model.queries import QueueCounts
from holdfast.model.queue_settings import KEEP, Keep, QueueChange, QueueSettings
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
            if limits := limits_of(queue):
                print_message(f"{show_text(queue.name)}: {', '.join(limits)}")
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
    concurrency: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER|none",
            help="How many of its tasks may be at work at the same time, over all workers together.",
            show_default=False,
        ),
    ] = None,
    retention: Annotated[
        str | None,
        typer.Option(
            metavar="STATE=SPAN,...|none",
            help="How long its tasks are kept after their end: completed=30d,failed=90d,cancelled=7d.",
            show_default=False,
        ),
    ] = None,
    fair_by: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL|none",
            help="The label by whose values its tasks take turns, such as tenant.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Change the settings of a queue, for every process and worker, or show them."""
    change = QueueChange(
        max_pending=_limit("--max-pending", max_pending),
        concurrency=_limit("--concurrency", concurrency),
        retention=_retention(retention),
        fair_by=KEEP if fair_by is None else None if fair_by == "none" else fair_by,
    )
    async with opened(database_url) as service:
        settings = await service.set_queue(name, change)
    if as_json:
        print_json(queue_settings_form(settings))
    most = "any number" if settings.max_pending is None else f"at most {settings.max_pending:,}"
    others = limits_of(replace(settings, max_pending=None))
    print_message("; ".join([f"queue {show_text(name)}: {settings.pending:,} pending, of {most}", *others]))


def limits_of(queue: QueueSettings) -> list[str]:
    """Return in words what the queue limits, and how much of it is used; how long it keeps tasks, and their order."""
    limits = []
    if queue.max_pending is not None:
        limits.append(f"{queue.pending:,} of at most {queue.max_pending:,} pending")
    if queue.concurrency is not None:
        limits.append(f"{queue.working:,} of at most {queue.concurrency:,} at work")
    kept = (queue.retention or {}).items()
    limits += [f"{state} tasks are kept for {span(kept_for.total_seconds())}" for state, kept_for in kept]
    if queue.fair_by is not None:
        limits.append(f"tasks take turns by {show_text(queue.fair_by)}")
    return limits


def _limit(option: str, text: str | None) -> int | Keep | None:
    if text is None:
        return KEEP
    if text == "none":
        return None
    if not text.isdecimal():
        raise InvalidValue(f"{option} is {text!r}; give a whole number, or none for no limit")
    return int(text)


def _retention(text: str | None) -> dict[str, timedelta] | Keep | None:
    if text is None:
        return KEEP
    if text == "none":
        return None
    kept: dict[str, timedelta] = {}
    for part in text.split(","):
        state, equals, kept_for = (piece.strip() for piece in part.partition("="))
        if not equals or state in kept:
            raise InvalidValue(f"--retention is {text!r}; write each state once: completed=30d,failed=90d; or none")
        kept[state] = read_span(kept_for, what=f"--retention {state}", needs_unit=True)
    return kept
