"""Listings whose WHERE clause depends on the question: tasks, effects, approvals, facts."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import apsw

from holdfast.model.approval import ApprovalState
from holdfast.model.effect import UNKNOWN_OUTCOME, EffectState
from holdfast.model.queries import TaskFilter
from holdfast.model.records import MemoryFact
from holdfast.store.cursor import from_cursor
from holdfast.store.records import COLUMNS
from holdfast.store.sqlite.rows import micros, micros_or_none
from holdfast.store.where import Where, leading_label

_TASK = ", ".join(f"t.{column}" for column in COLUMNS["task"])
_EFFECT, _APPROVAL, _FACT = (", ".join(COLUMNS[kind]) for kind in ("effect", "approval", "fact"))

_IN_DOUBT = "state IN ('armed', 'in_doubt', 'needs_human')"
"""The condition of the index effects_in_doubt, for queries that imply it: SQLite does not see by itself that
a shorter list is part of a longer one."""


def _where() -> Where:
    return Where(numbered=False)


def _in_states(clause: Where, states: Collection[str] | None, column: str = "state") -> None:
    """Ask for one of these states, unless it is None.

    They are spelled out, as in the partial indexes: only then does SQLite see that the index of these very states
    will do.
    """
    if states is None:
        return
    spelled = [apsw.format_sql_value(str(state)) for state in sorted(states)]
    clause.add(f"{column} = {spelled[0]}" if len(spelled) == 1 else f"{column} IN ({', '.join(spelled)})")


def tasks_where(where: TaskFilter, leader: tuple[str, str] | None = None) -> Where:
    """Say which tasks ``t`` fit; ``leader`` is the label whose rows ``l`` of the index lead to them."""
    clause = _where()
    _labelled(clause, where, leader)
    _in_states(clause, where.states, "t.state")
    if _are_open(where):
        clause.add("t.finished_at IS NULL")  # implied, and what lets SQLite use the index of open tasks
    for column in ("queue", "name", "agent_id", "parent_id", "owner", "key"):
        clause.equal(f"t.{column}", getattr(where, column))
    if where.resting is not None:
        resting = "SELECT r.id FROM tasks r WHERE r.owner IS NOT NULL AND r.resting = r.fence"
        clause.add(f"t.id {'IN' if where.resting else 'NOT IN'} ({resting})")
    age = _age_of(leader)
    if where.created_after is not None:
        clause.add(f"{age} > ?", micros(where.created_after))
    if where.created_before is not None:
        clause.add(f"{age} < ?", micros(where.created_before))
    if where.ended_before is not None:
        clause.add("t.finished_at < ?", micros(where.ended_before))
    if where.text:
        clause.add("instr(t.search, ?) > 0", where.text.casefold())
    return clause


def _labelled(clause: Where, where: TaskFilter, leader: tuple[str, str] | None) -> None:
    if leader is not None:
        clause.add("l.name = ? AND l.value = ?", *leader)
        if _are_open(where):
            clause.add("l.is_open = 1")  # the condition of the index task_labels_open
    for label in where.labels.items():
        if label != leader:
            clause.add(
                "EXISTS (SELECT 1 FROM task_labels o WHERE o.task_id = t.id AND o.name = ? AND o.value = ?)", *label
            )


def _are_open(where: TaskFilter) -> bool:
    return where.states is not None and not any(state.is_terminal for state in where.states)


def _age_of(leader: tuple[str, str] | None) -> str:
    return "t.created_at" if leader is None else "l.created_at"


def _source(table: str, leader: tuple[str, str] | None) -> str:
    """Return where the tasks ``t`` come from. CROSS JOIN is read in the order in which it is written."""
    return f"{table} t" if leader is None else f"task_labels l CROSS JOIN {table} t ON t.id = l.task_id"


def page_query(where: TaskFilter, *, after: str | None, newest_first: bool, limit: int) -> tuple[str, list[Any]]:
    """Return the SQL and values for one page, with one task more than asked to see whether there is a next one."""
    leader = leading_label(where)
    clause = tasks_where(where, leader)
    age, task_id = _age_of(leader), "t.id" if leader is None else "l.task_id"
    if after is not None:
        created_at, last_id = from_cursor(after)
        clause.add(f"({age}, {task_id}) {'<' if newest_first else '>'} (?, ?)", micros(created_at), last_id)
    order = "DESC" if newest_first else "ASC"
    sql = (
        f"SELECT {_TASK} FROM {_source('shown_tasks', leader)} {clause} "  # noqa: S608 - parts of our own
        f"ORDER BY {age} {order}, {task_id} {order} LIMIT ?"
    )
    return sql, [*clause.values, limit + 1]


def count_query(where: TaskFilter) -> tuple[str, list[Any]]:
    """Return the SQL and values that count tasks by state."""
    leader = leading_label(where)
    clause = tasks_where(where, leader)
    sql = f"SELECT t.state, count(*) FROM {_source('tasks', leader)} {clause} GROUP BY t.state"  # noqa: S608 - as above
    return sql, clause.values


def effects_query(
    *, task_id: str | None, effect_id: str | None, states: Collection[EffectState] | None, limit: int
) -> tuple[str, list[Any]]:
    """Return the SQL and values for effects of one task or of all."""
    clause = _where()
    clause.equal("task_id", task_id)
    clause.equal("effect_id", effect_id)
    _in_states(clause, states)
    if task_id is effect_id is None and states is not None and UNKNOWN_OUTCOME.issuperset(states):
        clause.add(_IN_DOUBT)
    return f"SELECT {_EFFECT} FROM effects {clause} ORDER BY task_id, effect_id LIMIT ?", [*clause.values, limit]  # noqa: S608


def approvals_query(
    *, task_id: str | None, states: Collection[ApprovalState] | None, limit: int
) -> tuple[str, list[Any]]:
    """Return the SQL and values for approvals of one task or of all."""
    clause = _where()
    clause.equal("task_id", task_id)
    _in_states(clause, states)
    return f"SELECT {_APPROVAL} FROM approvals {clause} ORDER BY id LIMIT ?", [*clause.values, limit]  # noqa: S608


def facts_query(
    *,
    entity: str | None,
    attribute: str | None,
    other: str | None,
    live: bool,
    contested: bool,
    after: MemoryFact | None,
    limit: int,
) -> tuple[str, list[Any]]:
    """Return the SQL and values for facts, newest first."""
    clause = _where()
    clause.equal("entity", entity)
    clause.equal("attribute", attribute)
    if other is not None:
        clause.add("other = ? AND other <> ''", other)  # the condition of the index facts_by_other
    if live or contested:
        clause.add("superseded_by IS NULL")
    if contested:
        clause.add(
            "other = '' AND EXISTS (SELECT 1 FROM facts f WHERE f.entity = r.entity AND f.attribute = r.attribute "
            "AND f.other = '' AND f.superseded_by IS NULL AND f.id <> r.id)"
        )
    if after is not None:
        clause.add("(created_at, id) < (?, ?)", micros_or_none(after.created_at), after.id)
    sql = f"SELECT {_FACT} FROM fact_records r {clause} ORDER BY created_at DESC, id DESC LIMIT ?"  # noqa: S608
    return sql, [*clause.values, limit]
