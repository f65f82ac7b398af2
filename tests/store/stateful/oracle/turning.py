"""Turns of the tasks of fair queues."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta

from holdfast.model.task import Task, rank
from tests.store.stateful.oracle.tables import NOT_READY, Tables, TaskRow

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOOKED_AT = 10

Lane = tuple[str | None, int, bool]


def fair_by(tables: Tables, queue: str) -> str | None:
    settings = tables.queues.get(queue)
    return None if settings is None else settings.fair_by


def waits_for_turn(tables: Tables, row: TaskRow) -> bool:
    return row.turn is None and row.ready != NOT_READY and fair_by(tables, row.task.queue) is not None


def begin_again(tables: Tables, queue: str) -> None:
    """Forget all turns of a queue."""
    for row in list(tables.tasks.values()):
        if row.task.queue == queue:
            tables.change_row(row.task.id, turn=None)
    tables.last_turns = {key: last for key, last in tables.last_turns.items() if key[0] != queue}
    if fair_by(tables, queue) is None:
        tables.turns.pop(queue, None)


def give_turns(tables: Tables, queues: Collection[str]) -> None:
    """Give turns to the tasks of these queues that have none."""
    for queue in queues:
        fresh = [row for row in tables.tasks.values() if row.task.queue == queue and waits_for_turn(tables, row)]
        before = [row for row in tables.tasks.values() if row.task.queue == queue and row.ready != NOT_READY]
        last: dict[Lane, int] = {}
        for row in sorted(fresh, key=place):
            lane = _lane(tables, row.task)
            if lane not in last:
                last[lane] = _last_turn(tables, queue, lane, before)
            turn = max(_first_turn(tables, row, before), last[lane] + 1)
            last[lane] = turn
            tables.change_row(row.task.id, turn=turn)
        tables.last_turns |= {(queue, lane): turn for lane, turn in last.items()}


def _lane(tables: Tables, task: Task) -> Lane:
    label = fair_by(tables, task.queue)
    return task.labels.get(label or ""), task.priority, task.fence > 0


def _last_turn(tables: Tables, queue: str, lane: Lane, before: Iterable[TaskRow]) -> int:
    reached = tables.turns.get(queue, 0)
    had_it = tables.last_turns.get((queue, lane), -1) >= reached
    there = [row.turn for row in before if row.turn is not None and _lane(tables, row.task) == lane]
    return max([*there, reached if had_it else -1])


def _first_turn(tables: Tables, task: TaskRow, before: Iterable[TaskRow]) -> int:
    alike = [
        row.turn + 1
        for row in before
        if row.turn is not None
        and (row.task.name, row.ready) == (task.task.name, task.ready)
        and not row.task.limits
        and row.task.id not in tables.pauses
    ]
    return min([*alike, tables.turns.get(task.task.queue, 0)])


def go_on(tables: Tables, task_id: str) -> None:
    """Let the turn of a queue be that of the task that is claimed, if it is higher."""
    row = tables.tasks[task_id]
    if row.turn is not None and fair_by(tables, row.task.queue) is not None:
        tables.turns[row.task.queue] = max(row.turn, tables.turns.get(row.task.queue, 0))


def place(row: TaskRow) -> tuple[datetime, str]:
    """Where the task stands in its queue."""
    return _rank(row) if row.turn is None else _EPOCH + timedelta(microseconds=row.turn), row.task.id


def in_order(rows: Iterable[TaskRow]) -> list[TaskRow]:
    """Sort what may be claimed: each queue in its own order, and the queues by how old their next tasks are."""
    queues: dict[str, list[TaskRow]] = {}
    for row in sorted(rows, key=place):
        queues.setdefault(row.task.queue, []).append(row)
    merged: list[TaskRow] = []
    while any(queues.values()):
        heads = [(_age(of_queue), place(of_queue[0]), queue) for queue, of_queue in queues.items() if of_queue]
        queue = min(heads)[-1]
        merged.append(queues[queue].pop(0))
    return merged


def _age(rows: list[TaskRow]) -> datetime:
    return min(map(_rank, rows[:_LOOKED_AT]))


def _rank(row: TaskRow) -> datetime:
    assert row.task.available_at is not None
    return rank(row.task.available_at, row.task.priority)
