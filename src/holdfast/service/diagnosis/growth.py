"""Whether the store grows too large."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from holdfast.service.diagnosis.evidence import KEPT, Inside
from holdfast.service.diagnosis.finding import Finding, Level
from holdfast.service.diagnosis.workers import counted

MANY: Final = 1_000
"""Ended tasks that are worth a prune."""
OLD_SNAPSHOT: Final = 3_600.0
"""Seconds. Every row that was changed since then is still there, and every index still leads to it."""

_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB")


def check_size(seen: Inside) -> Iterator[Finding]:
    """Report how large the store is, and whether much of it ended long ago."""
    rows = seen.vitals.rows
    about = "" if seen.vitals.exact_rows else "about "
    size = f"{in_bytes(seen.vitals.bytes)}, {about}{counted(rows.get('tasks', 0), 'task')} and " + counted(
        rows.get("steps", 0), "step"
    )
    if seen.prunable >= MANY:
        words = f"{size}; {seen.prunable:,} tasks ended more than {KEPT.days} days ago"
        yield Finding("growth", Level.NOTE, words, f"holdfast prune --older-than {KEPT.days}d")
    else:
        yield Finding("growth", Level.OK, size)


def check_snapshot(seen: Inside) -> Iterator[Finding]:
    """Find a transaction on PostgreSQL that keeps VACUUM from cleaning up."""
    age = seen.vitals.oldest_snapshot_seconds
    if age is not None and age > OLD_SNAPSHOT:
        yield Finding(
            "vacuum",
            Level.WARNING,
            f"a transaction has been open for {age / 3600:,.1f} h: nothing deleted since then can be cleaned up",
            "psql -c 'SELECT pid, xact_start, state, query FROM pg_stat_activity ORDER BY xact_start LIMIT 3', "
            "and end that session",
        )


def in_bytes(size: float) -> str:
    """Return a size in a readable unit."""
    for unit in _UNITS[:-1]:
        if size < 1000:  # noqa: PLR2004 - where the next unit begins
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:,.0f} {_UNITS[-1]}"
