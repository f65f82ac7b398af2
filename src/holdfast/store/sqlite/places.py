"""Places: how many tasks of a queue may be at work at the same time, over all workers together.

A task has a slot while a worker holds it and it does not rest. The trigger task_takes_or_leaves_a_slot counts the slots
of each queue that has settings, whatever gives or takes them. Inside BEGIN IMMEDIATE nothing moves between a look at
the count and the write that follows it.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from holdfast.model.errors import NoPlace
from holdfast.store.sqlite.rows import TaskRow, has_slot, task_row
from holdfast.store.sqlite.write_transaction import WriteTransaction


def free_places(tx: WriteTransaction, queues: Collection[str]) -> dict[str, int]:
    """Return how many more tasks may begin, for those of the queues that have a limit."""
    return {str(name): int(free) for name, free in tx.all("free_places", json.dumps(list(queues)))}


def refusal(tx: WriteTransaction, row: TaskRow) -> NoPlace | None:
    """Return why the task, which has no slot, may not get one now; None: it may. All of what it needs, or nothing."""
    found = tx.first("places_of_queue", row.queue)
    if found is None:
        return None
    concurrency, working = found
    others = working - has_slot(task_row(row.stored))  # this transaction may have taken its slot away
    return NoPlace(row.id, row.queue, concurrency) if others >= concurrency else None
