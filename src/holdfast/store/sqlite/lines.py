"""Lines of tasks that wait for a key of a limit: which of them are let out, so that a claim finds them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from holdfast.store.records import Row, keys_of
from holdfast.store.sqlite.limit_keys import MOST_CANDIDATES, Keys
from holdfast.store.sqlite.write_transaction import WriteTransaction

MOST_KEYS: Final = 100
MOST_TASKS: Final = 1000
"""How many keys one call looks at, and how many tasks it lets out or sends to other lines. The next does the rest."""

MOST_EAGER: Final = 16
"""Tasks of a key that are claimable although they were never in a line."""

_AT_ONCE: Final = 100
"""So many tasks of a line are read at once."""


class _Line(NamedTuple):
    key: str
    queue: str
    name: str
    ready: int


@dataclass(slots=True)
class _Work:
    """How much one call still does, and what it has done."""

    left: int = MOST_TASKS
    out: dict[str, str] = field(default_factory=dict)
    """The queues of the tasks that were let out, by id."""


def room_for_more(tx: WriteTransaction, keys: Collection[str]) -> Counter[str]:
    """Return how many tasks with one of these keys alone may be left to the claims, and need not stand in its line.

    None of a key that has no room, or a line. It need not be right: a claim decides, and holds what it has no room
    for. The number says how many such tasks a key can put in the way of claims.
    """
    if not keys:
        return Counter()
    return Counter(dict(tx.all("room_for_more", json.dumps(sorted(set(keys))), tx.now, MOST_EAGER)))


def let_out(tx: WriteTransaction, keys: Keys) -> dict[str, str]:
    """Look at the keys for which something happened, and make the first tasks of their lines claimable.

    Of each line as many as the key has room for, those that are claimable already among them. Nothing is taken yet: a
    claim decides. Return the queues of these tasks, by id.
    """
    work, looked = _Work(), 0
    while looked < MOST_KEYS and work.left > 0:
        due = [key for (key,) in tx.all("keys_to_look_at", tx.now, MOST_KEYS - looked)]
        if not due:
            break
        keys.load(due)
        for key in due:
            _look_at(tx, keys, key, work)
        looked += len(due)
    return work.out


def follow_clock(tx: WriteTransaction) -> None:
    """Have the lines looked at for which, because the clock was set back, that would come too late."""
    for (key,) in tx.all("lines_of_the_future", tx.now):
        tx.run("look_at", key, 0)


def has_more(tx: WriteTransaction) -> bool:
    """Say whether a key is left that has to be looked at."""
    return bool(tx.all("keys_to_look_at", tx.now, 1))


def _look_at(tx: WriteTransaction, keys: Keys, key: str, work: _Work) -> None:
    """Look at all lines of a key. Its mark stays if there is more to do than this call does."""
    free = min(keys[key].free(tx.now), MOST_CANDIDATES)
    if free > 0:
        for line in tx.all("lines_of_key", key):
            _let_out_of(tx, keys, _Line(key, *line), free, work)
    if work.left > 0:
        ((has_line,),) = tx.all("has_line", key)
        tx.run("look_at", key, keys.next_look(key) if has_line else None)


def _let_out_of(tx: WriteTransaction, keys: Keys, line: _Line, free: int, work: _Work) -> None:
    """Let out the tasks that are among the first of the line and its candidates."""
    waiting = tx.all("first_in_line", *line, tx.now, min(free, _AT_ONCE)) if work.left > 0 else []
    last_allowed = tx.all("candidates", *line, free - 1, 1) if waiting else []
    if not waiting or (last_allowed and tuple(last_allowed[0]) < waiting[0][:2]):
        return
    candidates = tx.all("candidates", *line, 0, free)
    ahead = leaving = 0
    while waiting:
        for rank, task_id, other in _with_other_keys(keys, waiting, line.key):
            while ahead < len(candidates) and tuple(candidates[ahead]) < (rank, task_id):
                ahead += 1
            if ahead + leaving >= free or work.left <= 0:
                return
            work.left -= 1
            if other is not None:
                tx.run("change_line", task_id, other)
                continue
            leaving += 1
            tx.run("let_out", task_id)
            work.out[task_id] = line.queue
        waiting = tx.all("first_in_line", *line, tx.now, _AT_ONCE)


def _with_other_keys(keys: Keys, rows: Sequence[Row], key: str) -> list[tuple[int, str, str | None]]:
    """Add to each task another key of it that is full, if one is."""
    others = [[name for name in keys_of(limits) if name != key] for _, _, limits in rows]
    keys.load(name for names in others for name in names)
    return [(rank, task_id, keys.first_full(names)) for (rank, task_id, _), names in zip(rows, others, strict=True)]
