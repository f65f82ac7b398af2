"""One event of the feed, on one line."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rich.text import Text

from holdfast.cli.render.words import safe, state_text, value, who
from holdfast.cli.times import local
from holdfast.model.feed import FeedEvent
from holdfast.service.identify import short

_NAMED_BY_KIND = frozenset({"from", "actor", "state", "number", "label"})
"""Values that the line says in another way, or that say nothing to a person."""


def feed_line(event: FeedEvent, now: datetime) -> Text:
    """Return when, what, about which task, and the few values of the event."""
    line = Text(local(event.at, now), "dim")
    line.append("  ")
    line.append(f"{event.kind:<17}", state_text(event.kind.rpartition(".")[2]).style)
    if event.task_id is not None:
        line.append(f"  {short(event.task_id)}")
        line.append(f"  {safe(event.name or '')}", "bold")
    for part in _parts(event.data):
        line.append(f"  {safe(part)}")
    return line


def _parts(data: Mapping[str, Any]) -> list[str]:
    parts = []
    for name, one in data.items():
        if one is None or name in _NAMED_BY_KIND or (name == "attempts" and one == 1):
            continue
        if name in {"by", "worker_id", "approval_id", "effect_id"}:
            parts.append(f"{name.removesuffix('_id')} {who(str(one)) if name == 'by' else short(str(one))}")
        elif name in {"key", "reason", "message", "schedule"}:
            parts.append(value(one))
        else:
            parts.append(f"{name} {value(one)}")
    return parts
