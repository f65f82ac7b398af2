"""Queues and workers, one line for each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.text import Text

from holdfast.cli.render.words import state_text
from holdfast.cli.times import age, span
from holdfast.model.glyphs import show_text
from holdfast.model.pause import QUEUE, Pause
from holdfast.model.queries import QueueCounts
from holdfast.model.worker import WorkerState
from holdfast.service.identify import short
from holdfast.service.worker_list import ListedWorker, WorkerList

QUEUE_COLUMNS = ("queue", "ready", "delayed", "running", "waiting", "review", "oldest ready")
WORKER_COLUMNS = ("id", "worker", "state", "lease", "holds", "process", "queues")
FLEXIBLE = frozenset({"worker", "process", "queues"})
"""The columns that are cut first."""

_BAR = 8
_LOW = 1 / 3
"""A worker renews its lease each third of it: with less than a third left it missed more than one renewal."""


def queue_rows(queues: Sequence[QueueCounts], at: datetime, pauses: Sequence[Pause] = ()) -> list[list[str | Text]]:
    """Return one line for each queue; the name of one that is paused says so."""
    paused = {pause.subject for pause in pauses}
    return [
        [
            Text.assemble(queue.name, ("  paused", "bold yellow")) if f"{QUEUE}:{queue.name}" in paused else queue.name,
            *(number(count) for count in (queue.ready, queue.delayed, queue.running, queue.waiting, queue.review)),
            "" if queue.oldest_ready_at is None else span((at - queue.oldest_ready_at).total_seconds()),
        ]
        for queue in queues
    ]


def pause_line(pause: Pause, at: datetime) -> str:
    """Return what is paused, since when, by whom, and why."""
    why = f": {show_text(pause.reason)}" if pause.reason else ""
    return f"paused: {show_text(pause.subject)}, {age(pause.at, at)} by {show_text(pause.by)}{why}"


def worker_rows(workers: WorkerList) -> list[list[str | Text]]:
    """Return one line for each worker."""
    return [
        [
            short(member.worker.id),
            member.worker.label,
            standing(member),
            lease_bar(member),
            holding(member),
            process(member),
            ", ".join(map(str, member.worker.details.get("queues") or ())),
        ]
        for member in workers.members
    ]


def standing(member: ListedWorker) -> Text:
    """Return the state of a worker, as far as the store knows it."""
    return Text("silent", "bold red") if member.is_silent else state_text(member.worker.state)


def lease_bar(member: ListedWorker) -> Text:
    """Return how much of its lease a worker has left, or for how long it has been over."""
    if member.worker.state is WorkerState.DEAD:
        return Text()
    if member.lease_left <= 0:
        return Text.assemble(("░" * _BAR, "dim"), (f" over for {span(-member.lease_left)}", "red"))
    share = min(1.0, member.lease_left / member.worker.lease)
    full = max(1, round(_BAR * share))
    colour = "green" if share > _LOW else "yellow"
    return Text.assemble(("█" * full, colour), ("░" * (_BAR - full), "dim"), f" {span(member.lease_left)}")


def holding(member: ListedWorker) -> str:
    """Return how many tasks a worker works on, of how many it takes; their names if it is full; how many only wait."""
    concurrency = member.worker.details.get("concurrency")
    working = member.held - member.resting
    parts = [f"{working} of {concurrency}" if concurrency else str(working)]
    if member.holders:
        most_first = sorted(member.holders.items(), key=lambda one: (-one[1], one[0]))
        parts[0] += f": {', '.join(f'{name} {count}' for name, count in most_first)}"
    if member.resting:
        waits = ", ".join(f"limit {key} {count}" for key, count in sorted(member.waits_for.items()))
        parts.append(f"{member.resting} resting{f' ({waits})' if waits else ''}")
    return "; ".join(parts)


def process(member: ListedWorker) -> str:
    """Return where a worker runs."""
    host, pid = member.worker.details.get("host"), member.worker.details.get("pid")
    return f"{host}/{pid}" if host and pid else str(host or pid or "")


def number(count: int) -> Text:
    """Return a count; a zero is dimmed."""
    return Text(f"{count:,}", "" if count else "dim", justify="right")
