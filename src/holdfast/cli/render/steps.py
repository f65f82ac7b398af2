"""Steps as people see them: without the lines that the engine writes for itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rich.text import Text

from holdfast.cli.render.words import safe, state_text
from holdfast.model.step import Step, StepState
from holdfast.service.step_names import shown_name

_HIDDEN = frozenset({"attempt", "accepted", "fork", "progress", "now", "draw"})
"""Kinds of lines whose content is shown elsewhere."""

_MARKS = {StepState.COMPLETED: "✓", StepState.RUNNING: "▶", StepState.FAILED: "✗", StepState.PENDING: "…"}


def visible(steps: Iterable[Step]) -> list[Step]:
    """Return the steps that are work, or a wait."""
    return [step for step in steps if step.kind not in _HIDDEN]


def step_name(step: Step) -> str:
    """Return the name under which a step is shown. A user may type it as well."""
    return safe(shown_name(step))


def mark_of(step: Step) -> str:
    """Return a sign for how a step stands."""
    return "↶" if step.undone_at is not None else _MARKS[step.state]


def waits_how(step: Step, in_doubt: Collection[str]) -> str:
    """Return what a pending step does at its time: ``in_doubt`` are the ids of effects whose outcome is unknown."""
    if step.effect_id in in_doubt:
        return "settles"  # then it is checked: it is not called again
    return "again" if step.error else "until"


def step_text(step: Step) -> Text:
    """Return the name of a step in the colour of its state, with its tries if there were several."""
    tries = f" (try {step.attempts})" if step.attempts > 1 else ""
    return Text(f"{step_name(step)}{tries}", state_text(step.state).style)
