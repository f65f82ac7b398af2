"""One task on one screen."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from holdfast.cli.render.exact import Exact, exact_json
from holdfast.cli.render.steps import mark_of, step_name, step_text, visible, waits_how
from holdfast.cli.render.words import (
    bar,
    counted_down,
    cut,
    input_of,
    meter_name,
    outcome_of,
    safe,
    standing_of,
    state_text,
    value,
    who,
)
from holdfast.cli.times import age, local, local_with_age, span
from holdfast.model.budget import Ledger, Meter
from holdfast.model.canonical import parse
from holdfast.model.failure import Failure
from holdfast.model.glyphs import show_text
from holdfast.model.pause import kind_of
from holdfast.model.records import Event
from holdfast.model.step import Step, StepState
from holdfast.model.task import JsonValue
from holdfast.model.transitions import TaskState
from holdfast.service.identify import short
from holdfast.service.overview import Overview
from holdfast.service.situation import Advice, current_steps, name_of

_STEPS = 8
_EVENTS = 6
_THEN = 5
_WIDE = 100
_TALL = 45
"""Lines that a page of an agent at work takes."""


def page(seen: Overview, *, height: int | None = None) -> RenderableType:
    """Return the whole page; where there is little ``height``, only the parts that a watching user needs."""
    return Group(*_parts(seen, is_brief=height is not None and height < _TALL))


def _parts(seen: Overview, *, is_brief: bool) -> Iterator[RenderableType]:
    yield _head(seen)
    if not is_brief:
        yield _facts(seen)
    for title, part in (
        ("What next", _advice(seen)),
        ("Decisions", _decisions(seen)),
        ("Plan", _plan(seen)),
        ("Steps", _steps(seen)),
        ("Budget", _budget(seen)),
        ("Errors", None if is_brief else _errors(seen)),
        ("What happened", None if is_brief else _happened(seen)),
    ):
        if part is not None:
            yield Text()
            yield Text(title, "bold")
            yield part


def _head(seen: Overview) -> RenderableType:
    task = seen.task
    standing = standing_of(task, () if seen.pause is None else (seen.pause,))
    title = Text.assemble((task.name, "bold"), "  ", standing, (f"  {task.id}", "dim"))
    lines: list[RenderableType] = [title]
    if asked := input_of(task, _WIDE):
        lines.append(Text(asked))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(width=len("outcome"))
    grid.add_row(Text("now", "dim"), Text(safe(seen.situation.now)))
    if seen.situation.why:
        grid.add_row(Text("why", "dim"), Text(safe(" ".join(seen.situation.why.split()))))
    for number, upcoming in enumerate(seen.situation.then[:_THEN]):
        grid.add_row(Text("" if number else "then", "dim"), Text(safe(counted_down(upcoming, seen.at))))
    outcome = outcome_of(task, 400)
    if outcome.plain and task.state is TaskState.COMPLETED:
        grid.add_row(Text("outcome", "dim"), outcome)
    return _Framed(Group(*lines, grid), str(standing.style))


@dataclass(frozen=True, slots=True)
class _Framed:
    """Something in a frame on a terminal; without one elsewhere."""

    inside: RenderableType
    style: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the frame, if there is a terminal to draw on."""
        del options
        yield Panel(self.inside, box=box.ROUNDED, border_style=self.style) if console.is_terminal else self.inside


def _facts(seen: Overview) -> RenderableType:
    task, now = seen.task, seen.at
    grid = Table.grid(padding=(0, 2))
    rows = [
        ("submitted", local_with_age(task.created_at, now)),
        ("started", local_with_age(task.started_at, now)),
        ("ended", local_with_age(task.finished_at, now)),
        ("deadline", local_with_age(task.deadline, now)),
        ("queue", f"{task.queue}, priority {task.priority}" if task.priority else task.queue),
        ("schedule", task.schedule or ""),
        ("key", task.key or ""),
        ("labels", ", ".join(f"{name}={value}" for name, value in sorted(task.labels.items()))),
        ("limits", ", ".join(task.limits)),
        ("attempts", _attempts(seen)),
        ("lease", _lease(seen)),
        ("parent", short(task.parent_id) if task.parent_id else ""),
        ("children", _children(seen)),
        ("forked from", _origin(seen)),
        ("agent state", f"version {task.version}" if task.version else ""),
        ("artifacts", _artifacts(seen)),
    ]
    for name, words in rows:
        if words:
            grid.add_row(Text(name, "dim"), Text(safe(words)))
    return grid


def _attempts(seen: Overview) -> str:
    task = seen.task
    parts = [f"round {task.round}"] if task.round > 1 else []
    if task.attempts:
        parts.append(f"{task.attempts} ended badly")
    if task.deaths:
        parts.append(f"{task.deaths} {'worker' if task.deaths == 1 else 'workers'} died with it")
    return ", ".join(parts)


def _lease(seen: Overview) -> str:
    worker = seen.worker
    if worker is None:
        return ""
    left = worker.lease - (seen.at - worker.seen_at).total_seconds()
    until = f"{span(left)} left of {worker.lease:g}s" if left > 0 else f"over for {span(-left)}"
    return f"{name_of(worker)}, fence {seen.task.fence}; {until}, renewed {age(worker.seen_at, seen.at)}"


def _children(seen: Overview) -> str:
    named = [f"{short(child.id)} {child.name} {child.state}" for child in seen.family]
    more = sum(seen.children.values()) - len(named)
    return ", ".join([*named, *([f"and {more} more"] if more > 0 else [])])


def _origin(seen: Overview) -> str:
    if seen.origin is None:
        return ""
    after = f", after {seen.origin.step}" if seen.origin.step else ""
    return f"{short(seen.origin.task_id)}{after}"


def _artifacts(seen: Overview) -> str:
    names = [f"{link.name} ({link.bytes:,} bytes)" for link in seen.artifacts]
    return cut(", ".join(names), _WIDE)


def _advice(seen: Overview) -> RenderableType | None:
    if not seen.situation.next:
        return None
    grid = Table.grid(padding=(0, 2))
    for advice in seen.situation.next:
        grid.add_row(Text(command_for(advice), "cyan"), Text(advice.why, "dim"))
    return Padding(grid, (0, 0, 0, 2), expand=False)


def command_for(advice: Advice) -> str:
    """Return what to type to follow an advice."""
    match advice.verb:
        case "worker":
            return "holdfast worker MODULE:HOLDFAST"
        case "resolve":
            return f"holdfast resolve {short(advice.target)} DECISION"
        case "answer":
            return f"holdfast answer {short(advice.target)} ANSWER"
        case "unpause" if kind_of(advice.target) is not None:
            return f"holdfast unpause {shlex.quote(safe(advice.target))}"
        case verb:
            return f"holdfast {verb} {short(advice.target)} {advice.options}".rstrip()


def _decisions(seen: Overview) -> RenderableType | None:
    lines: list[tuple[Text, RenderableType]] = []
    for approval in seen.approvals:
        expiry = f", {approval.default} {age(approval.expires_at, seen.at)}" if approval.expires_at else ""
        risk = f" [{approval.risk}]" if approval.risk else ""
        asked = f"asked {age(approval.created_at, seen.at)}{expiry}"
        question = Text.assemble(show_text(approval.question), (f"{risk}  {asked}", "dim"))
        lines.append((Text("?", "magenta"), question))
        if approval.arguments is not None:
            lines.append((Text(), Exact(exact_json(approval.arguments, _WIDE), "dim")))
    for doubt in seen.doubts:
        words = f"{doubt.effect.step_key}: {doubt.effect.state}"
        is_new = doubt.effect.note and doubt.effect.note not in seen.situation.why  # which is at the top already
        note = f"  {doubt.effect.note}" if is_new else ""
        lines.append((Text("!", "red"), Text.assemble(safe(words), (safe(note), "dim"))))
        lines.append((Text(), Exact(exact_json(doubt.arguments, _WIDE), "dim")))
    return _marked(lines) if lines else None


def _marked(lines: Iterable[tuple[Text, RenderableType]]) -> RenderableType:
    """Return lines behind their marks; a long line is wrapped below its own beginning, not below the mark."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=1)
    for mark, words in lines:
        grid.add_row(mark, words)
    return Padding(grid, (0, 0, 0, 2), expand=False)


def _plan(seen: Overview) -> RenderableType | None:
    if not seen.plan:
        return None
    lines: list[tuple[Text, Text]] = []
    for step in seen.plan:
        mark, style = ("✓", "green") if step.is_done else ("▶", "yellow") if step.is_current else ("·", "dim")
        lines.append((Text(mark, style), Text(safe(step.text), "dim" if step.is_done else "")))
    return _marked(lines)


def _steps(seen: Overview) -> RenderableType | None:
    steps = visible(seen.steps)
    if not steps:
        return None
    under_way = current_steps(steps)
    rest = [step for step in steps if step not in under_way]
    shown = sorted([*rest[-_STEPS:], *under_way[:_STEPS]], key=lambda step: step.position)
    grid = Table.grid(padding=(0, 2))
    for step in shown:
        grid.add_row(f"  {mark_of(step)}", step_text(step), Text(step.kind, "dim"), Text(_timing(seen, step), "dim"))
    hidden = len(steps) - len(shown)
    return Group(grid, *_more(f"{hidden} more: holdfast steps {short(seen.task.id)}" if hidden else ""))


def _more(words: str) -> list[Text]:
    """Return the line below a list that says what is missing from it."""
    return [Text(f"  {words}", "dim")] if words else []


def _timing(seen: Overview, step: Step) -> str:
    if step.state is StepState.PENDING and step.retry_at is not None:
        return f"{waits_how(step, {doubt.effect.effect_id for doubt in seen.doubts})} {age(step.retry_at, seen.at)}"
    if step.started_at is None:
        return ""
    if step.finished_at is None:
        if seen.task.state.is_terminal:
            return "never ended"
        return f"for {span((seen.at - step.started_at).total_seconds())}"
    return f"{local(step.finished_at, seen.at)}, took {span((step.finished_at - step.started_at).total_seconds())}"


def _budget(seen: Overview) -> RenderableType | None:
    """Return the budget of a task that has one, or that used more than time: time passes for every task."""
    lines = seen.budget.lines.items()
    is_used = any(line.limit is not None or (line.spent and meter is not Meter.WALL_TIME_MS) for meter, line in lines)
    return budget_grid(seen.budget) if is_used else None


def budget_grid(ledger: Ledger) -> RenderableType:
    """Return a bar for each meter that has a limit or was used."""
    grid = Table.grid(padding=(0, 2))
    for meter, line in ledger.lines.items():
        if line.limit is not None or line.spent:
            grid.add_row(f"  {meter_name(meter)}", bar(meter, line))
    return grid


def _errors(seen: Overview) -> RenderableType | None:
    failures = [
        (step_name(step), Failure.from_json(parse(step.error)))
        for step in visible(seen.steps)
        if step.error and not step.undone_at
    ]
    lines = [
        Text.assemble((f"  {key}  ", "red"), safe(cut(_error(failure), _WIDE)))
        for key, failure in failures[-3:]
        if failure.message not in seen.situation.why  # which is at the top already
    ]
    if seen.task.error is not None:
        failure = Failure.from_json(seen.task.error)
        if failure.where:
            lines.append(Text.assemble(("  at ", "dim"), safe(failure.where)))
    return Group(*lines) if lines else None


def _error(failure: Failure) -> str:
    return " ".join(f"{failure.type_name.rpartition('.')[2]}: {failure.message}".split())


def _happened(seen: Overview) -> RenderableType | None:
    moments = [
        (
            move.at,
            Text.assemble(
                state_text(move.to_state), f"  {safe(value(move.reason, _WIDE))}", (f"  by {who(move.actor)}", "dim")
            ),
        )
        for move in seen.history
    ]
    moments += [(event.at, Text(safe(f"reported: {event_in_words(event.payload)}"))) for event in seen.events]
    moments += [
        (message.at, Text(safe(f"{_author(message)} said: {event_in_words(message.payload)}")))
        for message in seen.messages
    ]
    moments.sort(key=lambda moment: moment[0])
    grid = Table.grid(padding=(0, 2))
    for at, words in moments[-_EVENTS:]:
        grid.add_row(Text(f"  {local(at, seen.at)}", "dim"), words)
    hidden = len(moments) - len(moments[-_EVENTS:]) + seen.earlier_messages + (seen.earlier_events or 0)
    count = "many" if seen.earlier_events is None else f"{hidden:,}"
    is_whole = not hidden and seen.earlier_events is not None
    return Group(grid, *_more("" if is_whole else f"{count} more; every move: holdfast history {short(seen.task.id)}"))


def _author(message: Event) -> str:
    return str(message.payload.get("by", message.actor)) if isinstance(message.payload, dict) else message.actor


def event_in_words(payload: JsonValue) -> str:
    """Return an event as text: the words of a model or of a report of progress, or its payload."""
    match payload:
        case {"kind": "transition", "machine": str(machine), "from": came_from, "to": str(to), "reason": reason}:
            why = f": {reason}" if reason else ""
            return value(f"{machine} goes {f'from {came_from} ' if came_from else ''}to {to}{why}", _WIDE)
        case {"kind": "progress", "step": step, "total": total, "message": message}:
            count = "" if step is None else f"{step} of {total}" if total is not None else f"{step}"
            return value(": ".join(str(part) for part in (count, message) if part), _WIDE)
        case {"percent": int() | float() as percent, "message": str(text)}:
            return value(f"{percent:g} %: {text}", _WIDE)
        case {"text": str(text)} | {"message": str(text)}:
            return value(text, _WIDE)
    return value(payload, _WIDE)
