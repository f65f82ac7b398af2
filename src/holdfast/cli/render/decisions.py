"""What waits for a person: approvals, questions, and effects in doubt."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from holdfast.cli.render.exact import Exact, exact_json, exact_text, in_ascii
from holdfast.cli.render.table_fit import FittingTable
from holdfast.cli.render.words import counted_down, safe, value
from holdfast.cli.times import age, local_with_age
from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.canonical import parse
from holdfast.model.doubt import Decision, Doubt
from holdfast.service.decisions import MEANING
from holdfast.service.identify import short
from holdfast.service.next_events import next_look, shorter

APPROVAL_COLUMNS = (
    *("id", "task", "kind", "state", "question", "risk", "arguments", "asked", "expires", "may decide"),
)
DOUBT_COLUMNS = ("id", "task", "step", "state", "arguments", "since", "decisions", "then", "question")

_EXACT = frozenset({"asks", "arguments", "in ASCII"})
"""Fields that a person decides about: they are broken where the line ends, not at blanks."""

_WIDE = 200
_WHOLE = 100_000
"""A person who decides sees the whole text; beyond this many characters, how many more there are."""


def approval_rows(approvals: Sequence[Approval], now: datetime) -> list[list[str]]:
    """Return one line for each, with everything in columns of their own: for programs."""
    return [
        [
            short(approval.id),
            short(approval.task_id),
            approval.kind,
            str(approval.state),
            _on_one_line(approval.question),
            approval.risk or "",
            _arguments(approval, _WIDE),
            age(approval.created_at, now),
            age(approval.expires_at, now),
            _deciders(approval),
        ]
        for approval in approvals
    ]


def approvals_table(approvals: Sequence[Approval], now: datetime) -> RenderableType:
    """Return the same for people: the question in the middle, as wide as the terminal lets it be."""
    if not approvals:
        return Text("no open questions", "dim")
    made = FittingTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for column in ("id", "task", "asks", "risk", "asked"):
        made.add_column(column, no_wrap=column != "asks", overflow="fold")
    for approval in approvals:
        asks: list[RenderableType] = [Text(_on_one_line(approval.question))]
        if arguments := _arguments(approval, _WIDE):
            asks.append(Exact(arguments, "dim"))
        if names := _deciders(approval):
            asks.append(Text(f"for {names}", "dim"))
        when = [Text(age(approval.created_at, now))]
        if approval.state is not ApprovalState.OPEN:
            when.append(Text(str(approval.state), "dim"))
        elif approval.expires_at is not None:
            when.append(Text(f"ends {age(approval.expires_at, now)}", "yellow"))
        made.add_row(
            Group(Text(short(approval.id), "cyan"), Text(approval.kind, "dim")),
            Text(short(approval.task_id)),
            Group(*asks),
            Text(approval.risk or ""),
            Group(*when),
        )
    return made


def approval_page(approval: Approval, now: datetime) -> RenderableType:
    """Return exactly what would be decided."""
    by_default = f", and then counts as {approval.default}" if approval.expires_at else ""
    return _facts(
        ("asks", exact_text(approval.question, _WHOLE)),
        ("task", approval.task_id),
        ("risk", approval.risk or ""),
        ("arguments", _arguments(approval, _WHOLE)),
        ("in ASCII", in_ascii(approval.arguments, _WHOLE)),
        ("asked", f"{local_with_age(approval.created_at, now)} by {safe(approval.requested_by)}"),
        ("ends", f"{local_with_age(approval.expires_at, now)}{by_default}"),
        ("may decide", _deciders(approval)),
    )


def doubt_rows(doubts: Sequence[Doubt], now: datetime) -> list[list[str]]:
    """Return one line for each effect in doubt: for programs."""
    return [
        [
            short(doubt.effect.effect_id),
            short(doubt.effect.task_id),
            safe(doubt.effect.step_key),
            str(doubt.effect.state),
            exact_json(doubt.arguments, _WIDE),
            age(doubt.effect.updated_at, now),
            ",".join(doubt.decisions or doubt.early),
            "" if (then := next_look(doubt, now)) is None else counted_down(then, now),
            _on_one_line(doubt.question),
        ]
        for doubt in doubts
    ]


def doubt_page(doubt: Doubt, now: datetime, *decisions: Decision) -> RenderableType:
    """Return what is in doubt, what is known about it, and what each of ``decisions`` would mean; by default all."""
    effect = doubt.effect
    head = Text.assemble((short(effect.effect_id), "cyan"), "  ", exact_text(doubt.question, _WHOLE))
    known = _facts(
        ("effect", effect.effect_id),
        ("task", f"{effect.task_id}  {doubt.task_name}"),
        ("state", str(effect.state)),
        ("since", local_with_age(effect.updated_at, now)),
        ("arguments", exact_json(doubt.arguments, _WHOLE)),
        ("in ASCII", in_ascii(doubt.arguments, _WHOLE)),
        ("note", "" if effect.note and effect.note in doubt.question else safe(effect.note or "")),
        *(("evidence", _evidence(one.body, one.at, one.fence, now)) for one in doubt.evidence),
    )
    possible = decisions or doubt.decisions or doubt.early
    choices = _facts(*((str(one), MEANING[one]) for one in possible), name_style="cyan")
    if not doubt.decisions:
        pending = f"  nothing to decide yet: {doubt_waits_for(doubt, now)}"
        hint = f"\n  {words}" if (words := shorter(doubt, now)) else ""
        better = "\n  if you know better:" if doubt.early else ""
        choices = Group(Text(f"{pending}{hint}{better}", "dim"), *([choices] if doubt.early else []))
    return Group(head, known, choices, Text())


def doubt_waits_for(doubt: Doubt, now: datetime) -> str:
    """Return what a doubt waits for before a person can decide."""
    if (then := next_look(doubt, now)) is not None:
        return f"the call may still arrive; {counted_down(then, now)}"
    return "a worker is finding out by itself; if it cannot, it will ask"


def _facts(*facts: tuple[str, str], name_style: str = "dim") -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for name, words in facts:
        if words:
            grid.add_row(Text(f"  {name}", name_style), Exact(words) if name in _EXACT else Text(words))
    return grid


def _arguments(approval: Approval, longest: int) -> str:
    return "" if approval.arguments is None else exact_json(approval.arguments, longest)


def _on_one_line(question: str) -> str:
    return exact_text(question, _WIDE).replace("\n", "\\n")


def _deciders(approval: Approval) -> str:
    return safe(", ".join(approval.deciders))


def _evidence(body: bytes, at: datetime | None, fence: int, now: datetime) -> str:
    return safe(f"{local_with_age(at, now)}, under fence {fence}: {value(parse(body), _WIDE)}")
