"""Limits, one line for each key."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.text import Text

from holdfast.cli.render.worker_list import number
from holdfast.cli.times import age, local, span
from holdfast.model.flow_limit import Limit, LimitUse
from holdfast.model.glyphs import show_text
from holdfast.model.pause import Pause, pause_of_limit

COLUMNS = ("key", "taken", "waiting", "calls", "tokens", "per", "state")


def limit_rows(uses: Sequence[LimitUse], pauses: Sequence[Pause], now: datetime) -> list[list[str | Text]]:
    """Return one line for each key; of a limit for each key that has none in use, one line."""
    return [
        [
            f"{use.key}:*" if use.limit.each and use.key == use.limit.name else use.key,
            _of(use.taken, use.limit.concurrency),
            number(use.waiting),
            _of(use.calls, None if use.limit.rate is None else use.limit.rate + use.limit.burst),
            _of(use.tokens, use.limit.tokens),
            "" if use.limit.per is None else span(use.limit.per.total_seconds()),
            _state(use, pauses, now),
        ]
        for use in uses
    ]


def limit_words(limit: Limit) -> str:
    """Return what a limit allows, in words."""
    time = "" if limit.per is None else f" in {span(limit.per.total_seconds())}"
    parts = [
        *([] if limit.concurrency is None else [f"{limit.concurrency:,} at once"]),
        *([] if limit.rate is None else [f"{limit.rate:,} calls{time}"]),
        *([f"{limit.burst:,} more in a burst"] if limit.burst else []),
        *([] if limit.tokens is None else [f"{limit.tokens:,} tokens{time}"]),
    ]
    return (", ".join(parts) or "nothing is limited") + (f", for each {limit.name}:KEY apart" if limit.each else "")


def _of(amount: int, most: int | None) -> Text:
    if most is None:
        return Text("" if not amount else f"{amount:,}", "dim")
    return Text(f"{amount:,} of {most:,}", "yellow" if amount >= most else "")


def _state(use: LimitUse, pauses: Sequence[Pause], now: datetime) -> Text:
    pause = pause_of_limit(pauses, use.key)
    if pause is not None:
        return Text(f"paused {age(pause.at, now)} by {show_text(pause.by)}", "bold yellow")
    if use.closed_until is not None and use.closed_until > now:
        return Text(f"closed until {local(use.closed_until, now)}", "bold yellow")
    return Text("open", "green")
