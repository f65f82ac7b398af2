"""An agent's state, for people; its history, and what changed in it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from holdfast import AppliedPatch
from holdfast.cli.render.words import safe, value, who
from holdfast.cli.terminal import one_line
from holdfast.cli.times import age
from holdfast.model.agent_state import AgentState
from holdfast.model.patch import StatePatch
from holdfast.model.state_diff import Change, ChangeKind

_SIGNS = {ChangeKind.ADDED: ("+", "green"), ChangeKind.REMOVED: ("-", "red"), ChangeKind.CHANGED: ("~", "yellow")}
_LONGEST = 2_000

PATCH_COLUMNS = ("version", "when", "by", "step", "what", "why")
PATCH_FLEXIBLE = frozenset({"by", "step", "what", "why"})


def page(state: AgentState, at: datetime) -> RenderableType:
    """Return the whole state; what is empty is left out."""
    parts: list[RenderableType] = [Text.assemble(("goal  ", "dim"), (safe(state.goal), "bold"))]
    for title, part in (
        ("Plan", _plan(state)),
        ("Known facts", _facts(state, at)),
        ("Open questions", _lines("? ", "magenta", state.open_questions)),
        ("Artifacts", _artifacts(state)),
        ("Risk flags", _lines("! ", "red", state.risk_flags)),
        ("Constraints", _constraints(state)),
        ("Budget", _budget(state)),
    ):
        if part is not None:
            parts += [Text(), Text(title, "bold"), Padding(part, (0, 0, 0, 2))]
    return Group(*parts)


def patch_rows(history: Sequence[AppliedPatch], now: datetime) -> list[list[str | Text]]:
    """Return one line for each change of a state."""
    return [
        [
            str(applied.version),
            age(applied.at, now),
            who(applied.author),
            applied.step_key or "",
            summary_of(applied.patch),
            " ".join(applied.reason.split()),
        ]
        for applied in history
    ]


def summary_of(patch: StatePatch) -> str:
    """Return what a patch does, in a few words."""
    return safe(", ".join(_changes_in(patch))) or "nothing"


def changes(found: Sequence[Change]) -> RenderableType:
    """Return the differences, one line for each."""
    return Group(*map(_change, found))


def _change(change: Change) -> Text:
    sign, style = _SIGNS[change.kind]
    sides = {
        ChangeKind.ADDED: [change.new],
        ChangeKind.REMOVED: [change.old],
        ChangeKind.CHANGED: [change.old, change.new],
    }[change.kind]
    words = " -> ".join(json.dumps(side, ensure_ascii=False) for side in sides)
    return Text.assemble((f"{sign} {safe(change.path)}: ", style), safe(words))


def _plan(state: AgentState) -> RenderableType | None:
    if not state.plan:
        return None
    done, lines = set(state.completed_steps), []
    for text in state.plan:
        is_current = text == state.current_step
        mark, style = ("✓", "green") if text in done else ("▶", "yellow") if is_current else ("·", "dim")
        lines.append(Text.assemble((f"{mark} ", style), safe(text)))
    return Group(*lines)


def _facts(state: AgentState, at: datetime) -> RenderableType | None:
    rows = []
    for fact in state.known_facts:
        sure = "" if fact.confidence is None else f", {fact.confidence:.0%} sure"
        words = safe(f"from {fact.source}{sure}")
        rows.append((fact.key, value(fact.value, _LONGEST), Text(words, "dim"), Text(age(fact.at, at), "dim")))
    return _grid(rows)


def _artifacts(state: AgentState) -> RenderableType | None:
    return _grid(
        [
            (one.artifact_id[:12], one.summary, Text(safe(one.type), "dim"), Text(f"{one.bytes:,} bytes", "dim"))
            for one in state.artifacts
        ]
    )


def _constraints(state: AgentState) -> RenderableType | None:
    human = state.constraints.human_in_the_loop
    if human is None or not human.required_for_risk_levels:
        return None
    return Text(f"a person decides about {', '.join(human.required_for_risk_levels)}")


def _budget(state: AgentState) -> RenderableType | None:
    limits = state.budget.to_json()
    return Text(", ".join(f"{name} {limit}" for name, limit in limits.items())) if limits else None


def _lines(mark: str, style: str, texts: Sequence[str]) -> RenderableType | None:
    return Group(*(Text.assemble((mark, style), safe(text)) for text in texts)) if texts else None


def _grid(rows: Sequence[tuple[str, str, Text, Text]]) -> RenderableType | None:
    if not rows:
        return None
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column()  # gives way
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    for name, words, *more in rows:
        grid.add_row(Text(safe(name)), one_line(words), *more)
    return grid


def _changes_in(patch: StatePatch) -> Iterator[str]:
    if patch.goal is not None:
        yield f"goal: {value(patch.goal)}"
    if patch.replace_plan is not None:
        yield f"plan of {len(patch.replace_plan)} steps"
    yield from (f"done: {step}" for step in patch.complete_steps)
    if patch.current_step:
        yield f"now: {patch.current_step}"
    yield from (f"{fact.key} = {value(fact.value)}" for fact in patch.append_facts)
    yield from (f"asks: {question}" for question in patch.add_questions)
    yield from (f"answered: {question}" for question in patch.resolve_questions)
    yield from (f"artifact: {one.summary}" for one in patch.add_artifacts)
    yield from (f"flag: {flag}" for flag in patch.set_flags)
    yield from (f"no flag: {flag}" for flag in patch.clear_flags)
    if patch.constraints is not None:
        yield "constraints"
    if patch.budget is not None:
        yield "budget"
