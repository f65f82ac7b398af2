"""Turns: the tasks of a fair queue are claimed by turns, which they get here. See decision 0035."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from holdfast.store.records import Row
from holdfast.store.sqlite.write_transaction import WriteTransaction

LOOKED_AT: Final = 10
"""So many tasks of a fair queue say together how old what comes next in it is."""


MOST_HERE: Final = 1000
"""For more tasks, turns are not given on the event loop: each takes some 20 microseconds."""


class _Fresh(NamedTuple):
    """A row of the query tasks_without_turn."""

    id: str
    name: str
    ready: int
    labels: bytes | None
    priority: int
    fence: int


class TooMany(Exception):
    """More tasks have no turn than were to get one here."""


def give_turns(tx: WriteTransaction, queues: Collection[str] | None = None, *, most: int | None = None) -> None:
    """Give turns to the tasks that have none: of these queues, or of all. Or raise TooMany, and give none."""
    among = None if queues is None else json.dumps(list(queues))
    found = tx.all("queues_without_turns", among)
    if most is not None and any(tx.all("has_many_without_turn", queue, most) for queue, _, _ in found):
        raise TooMany
    for queue, label, reached in found:
        _give_turns_in(tx, queue, label, reached)


def _give_turns_in(tx: WriteTransaction, queue: str, label: str, reached: int) -> None:
    """A lane goes on behind its last task; one without tasks begins with the turn that the claims have reached."""
    tx.run("forget_lanes", queue, reached)
    first_turns: dict[tuple[str, int], int] = {}
    last_turns: dict[str, int] = {}
    given = list[Row]()
    fresh = [_Fresh(*row) for row in tx.all("tasks_without_turn", queue)]
    for line in {(task.name, task.ready) for task in fresh}:
        first_turns[line] = _first_turn(tx, queue, *line, reached)
    for task in fresh:
        lane = _lane_of(task, label)
        if lane not in last_turns:
            last_turns[lane] = _last_turn(tx, queue, lane, reached)
        turn = max(first_turns[task.name, task.ready], last_turns[lane] + 1)
        last_turns[lane] = turn
        given.append((task.id, turn, lane))
    tx.run_many("give_turn", given)
    tx.run_many("put_lane", [(queue, lane, turn) for lane, turn in last_turns.items()])


def _lane_of(task: _Fresh, label: str) -> str:
    """Name the lane of a task: those of one tenant and one priority that have begun before, or have not.

    What has begun does not wait behind all that its tenant has submitted since. Nor does what is urgent.
    """
    tenant = json.loads(task.labels).get(label) if task.labels else None
    lane = f"{task.priority} {int(task.fence > 0)}"
    return lane if tenant is None else f"{lane} {tenant}"


def _first_turn(tx: WriteTransaction, queue: str, name: str, ready: int, reached: int) -> int:
    """Return the turn of a lane's first task.

    Tasks of a name that no worker has served for a time have turns that the claims went past. The first task of another
    tenant goes right behind the first of them, not behind them all.
    """
    found = tx.first("first_turn", queue, name, ready)
    return reached if found is None else min(reached, found[0] + 1)


def _last_turn(tx: WriteTransaction, queue: str, lane: str, reached: int) -> int:
    """Return the last turn of a lane: of a task that is there, or the one that it has just had."""
    found = tx.first("last_turn", queue, lane)
    ((is_ahead,),) = tx.all("is_lane_ahead", queue, lane)
    return max(-1 if found is None else found[0], reached if is_ahead else -1)


def in_order_of_ranks(tx: WriteTransaction, rows: Sequence[Row]) -> list[tuple[int, Row]]:
    """Say where the first tasks of a fair queue, by turn, stand among those of other queues.

    Each by the oldest of itself and the next tasks, so that a young task whose turn it is does not hold up older ones
    behind it; and none before one that has an earlier turn.
    """
    of_task: dict[str, int] = dict(tx.all("ranks_of_tasks", json.dumps([row[1] for row in rows])))
    ranks = [of_task[row[1]] for row in rows]
    oldest = (min(ranks[place : place + LOOKED_AT]) for place in range(len(ranks)))
    return list(zip(accumulate(oldest, max), rows, strict=True))


def go_on(tx: WriteTransaction, claimed: Collection[Row], queues: dict[str, str]) -> None:
    """Note the highest turn of what a claim takes; ``queues`` are those of the tasks that have turns."""
    reached: dict[str, int] = {}
    for turn, task_id, _ in claimed:
        if (queue := queues.get(task_id)) is not None:
            reached[queue] = max(turn, reached.get(queue, 0))
    tx.run_many("go_on_to_turn", list(reached.items()))


def begin_again(tx: WriteTransaction, queue: str, *, is_fair: bool) -> None:
    """Give the tasks of a queue their ranks back; if it is fair now, they get their turns before the next claim."""
    tx.run("forget_all_lanes", queue)
    tx.run("take_turns_back", queue, is_fair)
