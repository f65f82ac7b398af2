"""Listings whose WHERE clause depends on the question: tasks, effects, approvals, facts."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.model.approval import ApprovalState
from holdfast.model.effect import UNKNOWN_OUTCOME, EffectState
from holdfast.model.queries import TaskFilter
from holdfast.model.records import MemoryFact
from holdfast.store.cursor import from_cursor
from holdfast.store.records import COLUMNS
from holdfast.store.where import Where, leading_label

_TASK = ", ".join(f"t.{column}" for column in COLUMNS["task"])
_EFFECT, _APPROVAL, _FACT = (", ".join(COLUMNS[kind]) for kind in ("effect", "approval", "fact"))

_IN_DOUBT = "state IN ('armed', 'in_doubt', 'needs_human')"
"""The condition of the index effects_in_doubt, for queries that imply it: the planner cannot see what a
parameter will hold."""


def _where() -> Where:
    return Where(numbered=True)


def _in_states(clause: Where, states: Collection[str] | None, column: str = "state") -> None:
    """Ask for one of these states, unless it is None."""
    if states is not None:
        clause.add(f"{column} = ANY (?::text[])", sorted(map(str, states)))


def tasks_where(where: TaskFilter, leader: tuple[str, str] | None = None) -> Where:
    """Say which tasks ``t`` fit; ``leader`` is the label whose rows ``l`` of the index lead to them."""
    clause = _where()
    _labelled(clause, where, leader)
    _in_states(clause, where.states, "t.state")
    if _are_open(where):
        clause.add("t.finished_at IS NULL")  # implied, and what lets the planner use the index of open tasks
    for column in ("queue", "name", "agent_id", "parent_id", "owner", "key"):
        clause.equal(f"t.{column}", getattr(where, column))
    if where.resting is not None:
        resting = "SELECT FROM {schema}.tasks r WHERE r.id = t.id AND r.owner IS NOT NULL AND r.resting = r.fence"
        clause.add(f"{'EXISTS' if where.resting else 'NOT EXISTS'} ({resting})")
    age = _age_of(leader)
    if where.created_after is not None:
        clause.add(f"{age} > ?", where.created_after)
    if where.created_before is not None:
        clause.add(f"{age} < ?", where.created_before)
    if where.ended_before is not None:
        clause.add("t.finished_at < ?", where.ended_before)
    if where.text:
        clause.add(
            "EXISTS (SELECT FROM {schema}.inputs s WHERE s.task_id = t.id AND strpos(s.search, ?) > 0)",
            where.text.casefold(),
        )
    return clause


def _labelled(clause: Where, where: TaskFilter, leader: tuple[str, str] | None) -> None:
    if leader is not None:
        clause.add("l.name = ? AND l.value = ?", *leader)
        if _are_open(where):
            clause.add("l.is_open")  # the condition of the index task_labels_open
    for label in where.labels.items():
        if label != leader:
            clause.add(
                "EXISTS (SELECT FROM {schema}.task_labels o WHERE o.task_id = t.id AND o.name = ? AND o.value = ?)",
                *label,
            )


def _are_open(where: TaskFilter) -> bool:
    return where.states is not None and not any(state.is_terminal for state in where.states)


def _age_of(leader: tuple[str, str] | None) -> str:
    return "t.created_at" if leader is None else "l.created_at"


def page_query(where: TaskFilter, *, after: str | None, newest_first: bool, limit: int) -> tuple[str, list[object]]:
    """Return the SQL and values for one page, with one task more than asked to see whether there is a next one."""
    leader = leading_label(where)
    clause = tasks_where(where, leader)
    source, task_id = "{schema}.shown_tasks t", "t.id"
    if leader is not None:
        # The LIMIT 1 has each task looked up by its id, in the order of the label's index.
        one = "SELECT * FROM {schema}.shown_tasks s WHERE s.id = l.task_id LIMIT 1"
        source, task_id = f"{{schema}}.task_labels l, LATERAL ({one}) AS t", "l.task_id"
    age = _age_of(leader)
    if after is not None:
        clause.add(f"({age}, {task_id}) {'<' if newest_first else '>'} (?, ?)", *from_cursor(after))
    order = "DESC" if newest_first else "ASC"
    sql = f"SELECT {_TASK} FROM {source} {clause} ORDER BY {age} {order}, {task_id} {order}"  # noqa: S608 - parts of our own
    return f"{sql} LIMIT {limit + 1}", clause.values


def count_query(where: TaskFilter) -> tuple[str, list[object]]:
    """Return the SQL and values that count tasks by state."""
    leader = leading_label(where)
    clause = tasks_where(where, leader)
    by_age = leader is None and (where.created_after is not None or where.created_before is not None)
    source = (
        f"{{schema}}.{'shown_tasks' if by_age else 'tasks'} t"  # the age of a task stands beside it, and costs a join
    )
    if leader is not None:
        source = f"{{schema}}.task_labels l JOIN {source} ON t.id = l.task_id"
    return f"SELECT t.state, count(*) FROM {source} {clause} GROUP BY t.state", clause.values  # noqa: S608 - as above


def effects_query(
    *, task_id: str | None, effect_id: str | None, states: Collection[EffectState] | None, limit: int
) -> tuple[str, list[object]]:
    """Return the SQL and values for effects of one task or of all."""
    clause = _where()
    clause.equal("task_id", task_id)
    clause.equal("effect_id", effect_id)
    _in_states(clause, states)
    if task_id is effect_id is None and states is not None and UNKNOWN_OUTCOME.issuperset(states):
        clause.add(_IN_DOUBT)
    sql = f"SELECT {_EFFECT} FROM {{schema}}.effects {clause} ORDER BY task_id, effect_id LIMIT {limit}"  # noqa: S608 - as above
    return sql, clause.values


def approvals_query(
    *, task_id: str | None, states: Collection[ApprovalState] | None, limit: int
) -> tuple[str, list[object]]:
    """Return the SQL and values for approvals of one task or of all."""
    clause = _where()
    clause.equal("task_id", task_id)
    _in_states(clause, states)
    sql = f"SELECT {_APPROVAL} FROM {{schema}}.approvals {clause} ORDER BY id LIMIT {limit}"  # noqa: S608 - as above
    return sql, clause.values


def facts_query(
    *,
    entity: str | None,
    attribute: str | None,
    other: str | None,
    live: bool,
    contested: bool,
    after: MemoryFact | None,
    limit: int,
) -> tuple[str, list[object]]:
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
            "other = '' AND EXISTS (SELECT FROM {schema}.facts f WHERE f.entity = r.entity "
            "AND f.attribute = r.attribute AND f.other = '' AND f.superseded_by IS NULL AND f.id <> r.id)"
        )
    if after is not None:
        clause.add("(created_at, id) < (?, ?)", after.created_at, after.id)
    sql = f"SELECT {_FACT} FROM {{schema}}.fact_records r {clause} ORDER BY created_at DESC, id DESC"  # noqa: S608 - as above
    return f"{sql} LIMIT {limit}", clause.values
