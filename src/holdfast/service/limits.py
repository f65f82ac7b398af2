"""Limits, as far as a task waits for one: which of its keys, and why that has no place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime

from holdfast.engine.api.holdfast import Holdfast
from holdfast.engine.attempt.journal import LIMIT, RESERVED
from holdfast.engine.attempt.limit_line import limits_in
from holdfast.model.flow_limit import LimitUse, limit_name
from holdfast.model.pause import Pause, pause_of_limit
from holdfast.model.queries import TaskFilter
from holdfast.model.step import Step, StepState
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore

_LOOKED_AT = 20


def keys_waited_for(task: Task, steps: Collection[Step]) -> list[str]:
    """Return the keys of limits that a task, or a step of it, waits for."""
    if task.state is TaskState.PENDING:
        return [] if task.waits_for is None else [task.waits_for]
    line = next((one for one in steps if one.key == f"{RESERVED}{LIMIT}" and one.round == task.round), None)
    return [] if line is None or line.state is not StepState.PENDING else limits_in(line)


async def read_uses(hold: Holdfast, keys: Sequence[str]) -> list[LimitUse]:
    """Return how these keys stand."""
    names = dict.fromkeys(limit_name(key) for key in keys)
    return [use for name in names for use in await hold.limits(name) if use.key in keys]


async def limits_of_resting(store: StateStore, worker_id: str) -> dict[str, int]:
    """Return for which keys the resting tasks of a worker wait, and how many of them. Only the first are looked at."""
    counts: Counter[str] = Counter()
    page = await store.find(TaskFilter(owner=worker_id, resting=True), limit=_LOOKED_AT, newest_first=False)
    for task in page.items:
        line = await store.step(task.id, f"{RESERVED}{LIMIT}", of_round=task.round)
        counts.update(keys_waited_for(task, [] if line is None else [line]))
    return dict(counts)


def about_use(key: str, use: LimitUse | None, pauses: Sequence[Pause], now: datetime) -> tuple[str, datetime | None]:
    """Return why a key has no place, as far as that is known, and when it opens by itself."""
    pause = pause_of_limit(pauses, key)
    if pause is not None:
        return f"it is paused by {pause.by}{f': {pause.reason}' if pause.reason else ''}", None
    if use is not None and use.closed_until is not None and use.closed_until > now:
        return "its provider asked for a pause", use.closed_until
    return "" if use is None else _what_is_used(use), None


def _what_is_used(use: LimitUse) -> str:
    """Return what of a key is used up; how many wait for it, if nothing seems to be."""
    limit = use.limit
    time = "" if limit.per is None else f" in {limit.per.total_seconds():g} s"
    most = None if limit.rate is None else limit.rate + limit.burst
    for used, allowed, what in (
        (use.taken, limit.concurrency, "taken"),
        (use.calls, most, f"calls{time} used"),
        (use.tokens, limit.tokens, f"tokens{time} used"),
    ):
        if allowed is not None and used >= allowed:
            return f"{used:,} of {allowed:,} {what}"
    return f"{use.waiting:,} wait for it" if use.waiting > 1 else ""
