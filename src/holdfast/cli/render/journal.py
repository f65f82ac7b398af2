"""The journal of a task, one line for each step."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from holdfast.cli.render.steps import mark_of, step_name, visible, waits_how
from holdfast.cli.render.words import safe, state_text, value
from holdfast.cli.times import age, local, local_with_age, span
from holdfast.model.canonical import parse
from holdfast.model.failure import Failure
from holdfast.model.step import Step, StepState
from holdfast.service.forms import stored
from holdfast.service.identify import short
from holdfast.service.step_names import number_of

FLEXIBLE = frozenset({"step", "output"})
"""The columns that are cut first."""

_COLUMNS = ("#", "", "step", "kind", "state", "tries", "effect", "took", "ended")
_LONGEST = 10_000


def current(steps: Sequence[Step]) -> list[Step]:
    """Return the steps of the newest round that are work, or a wait."""
    newest = max((step.round for step in steps), default=1)
    return [step for step in visible(steps) if step.round == newest]


def columns(*, output: bool) -> tuple[str, ...]:
    """Return the heads of the columns; with ``output`` that column replaces the times."""
    return (*_COLUMNS[:5], "output") if output else _COLUMNS


def rows(
    steps: Sequence[Step], at: datetime, *, output: bool, whole_keys: bool, in_doubt: Collection[str]
) -> list[list[str | Text]]:
    """Return one line for each step; ``whole_keys`` shows also those that the engine made."""
    return [
        [*_identity(step, whole_key=whole_keys), *([_output(step)] if output else _progress_of(step, at, in_doubt))]
        for step in steps
    ]


def _identity(step: Step, *, whole_key: bool) -> list[str | Text]:
    name = safe(step.key) if whole_key else step_name(step)
    state = "undone" if step.undone_at is not None else str(step.state)
    style = state_text(step.state).style
    return [number_of(step), Text(mark_of(step), style), name, step.kind, Text(state, style)]


def _progress_of(step: Step, at: datetime, in_doubt: Collection[str]) -> list[str | Text]:
    return [str(step.attempts), short(step.effect_id or ""), _took(step, at), _ended(step, at, in_doubt)]


def _took(step: Step, at: datetime) -> str:
    if step.started_at is None or step.state is StepState.PENDING:
        return ""
    until = step.finished_at or at
    return span((until - step.started_at).total_seconds())


def _ended(step: Step, at: datetime, in_doubt: Collection[str]) -> str:
    if step.state is StepState.PENDING and step.retry_at is not None:
        return f"{waits_how(step, in_doubt)} {age(step.retry_at, at)}"
    return local(step.finished_at, at)


def one_step(step: Step, at: datetime) -> RenderableType:
    """Return all there is about a step: when, how often, what came of it in full, or the traceback."""
    grid = Table.grid(padding=(0, 2))
    failure = None if step.error is None else Failure.from_json(parse(step.error))
    output = stored(step.output)
    for name, words in (
        ("step", f"{step.key}  ({step.kind}, {step.state}, round {step.round})"),
        ("began", local_with_age(step.started_at, at)),
        ("ended", local_with_age(step.finished_at, at)),
        ("tries", str(step.attempts)),
        ("effect", step.effect_id or ""),
        ("undone", local_with_age(step.undone_at, at)),
        ("output", "" if output is None else json.dumps(output, ensure_ascii=False, indent=2)),
        ("error", "" if failure is None else f"{failure.type_name}: {failure.message}"),
        ("traceback", "" if failure is None else failure.traceback),
    ):
        if words:
            grid.add_row(Text(name, "dim"), Text(safe(words.rstrip())))
    return grid


def _output(step: Step) -> Text:
    if step.error is not None:
        failure = Failure.from_json(parse(step.error))
        return Text(safe(value(f"{failure.type_name}: {failure.message}", _LONGEST)), "red")
    output = stored(step.output)
    return Text() if output is None else Text(safe(value(output, _LONGEST)))
