"""Which fields of a Task a program that drives it by hand may change with ``save``. The rest is the store's own.

Nothing is dropped silently: a value that would not be stored is refused in words. A copy that was read before the last
change may hold old values of the store's own fields. Those fields stay as they are.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import Any

from holdfast.model.errors import InvalidValue
from holdfast.model.task import Task

_COUNTED = frozenset({"round", "attempts", "deaths", "lone_deaths", "fence", "revision", "version", "key_form"})
"""These never become less, so an old copy never has more than the store."""

_OWN = (
    *("created_at", "updated_at", "started_at", "finished_at"),
    *("round", "deaths", "lone_deaths", "cancel_requested", "must_undo", "owner", "fence", "sequence", "revision"),
    *("version", "key_form", "resting"),
)
_SPECS = {spec.name: spec for spec in fields(Task)}


def name_set_by_store(task: Task) -> str | None:
    """Return the first field that has a value which only a stored task has; None if there is none."""
    names = (*_OWN, "attempts", "feedback")
    return next((name for name in names if getattr(task, name) != _default(_SPECS[name])), None)


def check_new(task: Task) -> None:
    """Refuse to store a task for the first time with values that the store sets itself."""
    if name := name_set_by_store(task):
        raise InvalidValue(
            f"{name} of task {task.id} is {getattr(task, name)!r}, and the task is not stored yet: the store sets "
            f"{name} itself. Leave it out when you save a new task"
        )


def check_kept(before: Task, after: Task) -> None:
    """Refuse a change that ``save`` would not store. ``before`` is the stored task."""
    _check_attempts(before, after)
    _check_feedback(before, after)
    for name in (*_OWN, "available_at"):
        if _was_changed(name, before, after):
            raise InvalidValue(
                f"{name} of task {before.id} is the store's own ({getattr(before, name)!r}), and "
                f"{getattr(after, name)!r} would not be stored; leave it as it was read"
            )


def _was_changed(name: str, before: Task, after: Task) -> bool:
    """Say whether the program has changed a field that is the store's own."""
    stored, given = getattr(before, name), getattr(after, name)
    if given == stored:
        return False
    if after.revision == before.revision or (name in _COUNTED and given > stored):
        return True  # not an old copy, or one of a kind that cannot be old
    return after.revision == 0 and given != _default(_SPECS[name])  # a Task that the program made itself


def _check_attempts(before: Task, after: Task) -> None:
    grown = after.attempts - before.attempts
    if grown > 1 or (grown == 1 and after.state is before.state):
        raise InvalidValue(
            f"attempts of task {before.id} is {before.attempts}, and {after.attempts} cannot be stored: it grows by "
            "one, together with a change of state, when a try has ended badly"
        )
    if grown < 0 and _was_changed("attempts", before, after):
        raise InvalidValue(f"attempts of task {before.id} is {before.attempts} and never becomes less")


def _check_feedback(before: Task, after: Task) -> None:
    if after.feedback == before.feedback:
        return
    if after.feedback is None and after.revision != before.revision:
        return  # an old copy, or one that was made by hand
    if after.feedback is None or after.state is before.state:
        raise InvalidValue(
            f"feedback of task {before.id} says why its work was rejected: it is stored together with a change of "
            "state, and replaced by the next one"
        )


def _default(spec: Field[Any]) -> object:
    return None if spec.default is MISSING else spec.default
