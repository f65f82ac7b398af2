"""``holdfast bench``: how fast a store is on this machine."""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated

import typer
from rich.text import Text

from holdfast.cli.exits import SIGNALLED
from holdfast.cli.options import AsJson, DatabaseUrl
from holdfast.cli.signals import StopSignals
from holdfast.cli.store_session import command
from holdfast.cli.terminal import print_json, print_message, print_table
from holdfast.service.benchmark import MANY_TASKS, Figures, measure
from holdfast.settings import current_settings

COLUMNS = ("what", "figure", "to the raw limit")


@command
async def bench(
    *,
    seconds: Annotated[float, typer.Option(min=0.1, max=3600, help="How long to measure, about.")] = 10,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Measure how fast SQLite is in this folder, or PostgreSQL where --database-url or the settings name one.

    No store of yours is touched: it happens in a folder or schema of its own, which is removed afterwards.
    """
    url = database_url or current_settings()["database_url"]
    stopped: list[signal.Signals] = []
    measuring = asyncio.ensure_future(
        measure(url, seconds=seconds, report=lambda what: print_message(f"measuring {what} ..."))
    )

    def stop(number: signal.Signals) -> None:
        stopped.append(number)
        measuring.cancel()

    with StopSignals(stop):
        try:
            figures = await measuring
        except asyncio.CancelledError:
            if not stopped:
                raise
            print_message(f"{stopped[0].name}: stopped, and removed what was made for it")
            raise typer.Exit(SIGNALLED + stopped[0]) from None
    if as_json:
        print_json(figures.to_json())
        return
    print_table(COLUMNS, _rows(figures), empty="nothing was measured")
    print_message(
        f"{figures.backend} {figures.version}, one process. The raw limit is one row in a commit of its own, "
        "one after the other; tasks that run at the same time share commits, and come to more than 1 of it"
    )
    print_message(
        "compare figures of one machine and one disk only; `make bench` in a clone compares with other engines"
    )


def _rows(figures: Figures) -> list[list[str | Text]]:
    rates = (
        ("raw limit: one-row commits", figures.raw),
        ("steps of one task", figures.steps),
        (f"steps of {MANY_TASKS} tasks together", figures.crowd_steps),
        ("submits, one by one", figures.submits),
        ("tasks done by one worker", figures.drained),
    )
    rows: list[list[str | Text]] = [[what, f"{rate:,.0f}/s", f"{rate / figures.raw:.2f}"] for what, rate in rates]
    return [
        *rows,
        ["submit to start, median", f"{figures.p50_ms:.1f} ms", ""],
        ["submit to start, 99 of 100", f"{figures.p99_ms:.1f} ms", ""],
    ]
