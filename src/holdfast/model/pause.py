"""Pauses: queues, task names, limits, schedules and tasks of which nothing new begins until they are unpaused."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from holdfast.model.checks import check_name
from holdfast.model.errors import InvalidValue, NotFound
from holdfast.model.flow_limit import limit_name

QUEUE: Final = "queue"
TASK: Final = "task"
SCHEDULE: Final = "schedule"
"""A schedule keeps its pause in its own row: no pause of this kind is stored as one."""

LIMIT: Final = "limit"
"""Of a limit with all its keys, or of one key: ``limit:tenant``, ``limit:tenant:acme``."""

KINDS: Final = (QUEUE, TASK, LIMIT, SCHEDULE)
"""What a subject can begin with, before a colon and a name. A subject that begins otherwise is the id of a task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """One pause: of ``queue:<name>``, ``task:<name>`` (a name), ``limit:<name>``, ``schedule:<name>``, or a task."""

    subject: str
    at: datetime
    by: str
    reason: str | None = None


def kind_of(subject: str) -> str | None:
    """Return what kind of subject this is; None for a single task."""
    kind, colon, _ = subject.partition(":")
    return kind if colon and kind in KINDS else None


def check_subject(subject: str) -> str:
    """Return the subject if something can be paused under it; otherwise raise InvalidValue."""
    check_name("subject of a pause", subject)
    kind = kind_of(subject)
    if kind is not None:
        check_name(f"name after {kind}:", subject.removeprefix(f"{kind}:"))
    if kind == SCHEDULE:
        raise InvalidValue(f"the pause of {subject!r} is a part of the schedule; use hold.pause, or put_schedule")
    return subject


def pause_of(pauses: Collection[Pause], *, task_id: str, name: str, queue: str) -> Pause | None:
    """Return the pause that keeps a task from being claimed, if one of these does: its own comes first."""
    by_subject = {pause.subject: pause for pause in pauses}
    subjects = (task_id, f"{TASK}:{name}", f"{QUEUE}:{queue}")
    return next((by_subject[subject] for subject in subjects if subject in by_subject), None)


def pause_of_limit(pauses: Collection[Pause], key: str) -> Pause | None:
    """Return the pause of a key of a limit, or of the whole limit, if one of these is it."""
    subjects = {f"{LIMIT}:{key}", f"{LIMIT}:{limit_name(key)}"}
    return next((pause for pause in pauses if pause.subject in subjects), None)


def paused_message(task_id: str, subject: str) -> str:
    """Return why a task cannot be leased now."""
    what = "" if subject == task_id else f", because {subject} is"
    return f"task {task_id} is paused{what}; unpause it first: hold.unpause({subject!r}), or holdfast unpause {subject}"


def nothing_to_pause(subject: str) -> NotFound:
    """Return the error for a subject that is the id of no task."""
    named = " or ".join(f"{kind}:<name>" for kind in KINDS)
    return NotFound("task", subject, where=f"in this store; pause {named}, or a task by its id")
