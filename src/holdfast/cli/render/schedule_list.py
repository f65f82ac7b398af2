"""Schedules, one line for each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from rich.text import Text

from holdfast.cli.render.words import state_text
from holdfast.cli.times import age, local, span
from holdfast.model.schedule import UTC_ZONE, Schedule
from holdfast.service.identify import short

COLUMNS = ("schedule", "task", "when", "next", "last run", "its task", "overlap", "catch up")
FLEXIBLE = frozenset({"schedule", "task", "when"})
"""The columns that are cut first."""


def schedule_rows(schedules: Sequence[Schedule], now: datetime) -> list[list[str | Text]]:
    """Return one line for each schedule."""
    return [
        [
            one.name,
            one.task,
            when(one),
            following(one, now),
            age(one.fired_at, now),
            last_task(one),
            str(one.overlap),
            str(one.catch_up),
        ]
        for one in schedules
    ]


def when(schedule: Schedule) -> str:
    """Return its times, in short."""
    if schedule.every is not None:
        words = f"every {span(schedule.every.total_seconds())}"
    else:
        words = f"{schedule.cron or '?'}"
        if schedule.timezone != UTC_ZONE:
            words += f" {schedule.timezone}"
    return f"{words} +{span(schedule.jitter.total_seconds())}" if schedule.jitter > timedelta() else words


def following(schedule: Schedule, now: datetime) -> str | Text:
    """Return when its next task is submitted, or why none is."""
    if schedule.trouble is not None:
        return Text("cannot fire", "bold red")
    if schedule.paused_at is not None:
        return Text("paused", "yellow")
    if schedule.is_gone:
        return Text("not declared", "yellow")
    if not schedule.next:
        return Text("no worker yet", "yellow")
    if schedule.next[0] <= now:
        return Text("due", "cyan")
    return f"{local(schedule.next[0], now)}, in {span((schedule.next[0] - now).total_seconds())}"


def last_task(schedule: Schedule) -> Text:
    """Return its last task, with its state."""
    if schedule.last_task_id is None:
        return Text()
    if schedule.last_state is None:
        return Text(short(schedule.last_task_id), "dim")
    return Text.assemble(f"{short(schedule.last_task_id)} ", state_text(schedule.last_state))
