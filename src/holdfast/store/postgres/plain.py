"""The Commits of every day: a worker's, that write steps or complete the task and do nothing else. No I/O.

They are most of what a busy process commits. Sent as flat rows they cost less than half of what they cost in a batch
of anything (batch.py), on both sides of the wire. What makes a Commit plain can be seen here; whether it can be applied
as such, only the database knows, and leaves it alone if not (migrations/0008_plain_commits.sql).

Plain Commits are applied before the rest of their batch. That makes no difference: a plain Commit stands alone on its
task in this batch, changes nothing that the Commit of another task reads, and reads nothing that another one changes.
Others can only see that its task has ended. So a task that is named by a Commit which waits for children, or which
begins one again, is not plain. A task that wants to work again may get the places of one that has ended sooner than in
the order of the batch, never later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.model.commit import Commit, Held, Verdict
from holdfast.model.operations import Move, ReopenChild, UntilChildren, WriteStep
from holdfast.model.step import Step
from holdfast.model.transitions import TaskState
from holdfast.store.postgres.batch import Document, Payloads
from holdfast.store.postgres.parameters import ByteaArray

WORTH_A_TRANSACTION = 20
"""Fewer plain Commits than this stay with the rest of their batch, if there is a rest: taking them out would cost a
second transaction."""

_to_json = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainBatch:
    """Plain Commits of one worker, ready to be sent."""

    held: dict[int, Held]
    """Their guards, by their positions in the batch they were taken from."""
    values: tuple[object, ...]
    """What commit_plain() takes, but for the time."""


def take_plain(commits: Sequence[Commit]) -> PlainBatch | None:
    """Take the plain Commits of one worker out of a batch, if that is worth it."""
    plain = {position: guard for position, commit in enumerate(commits) if (guard := _plain_guard(commit))}
    if not plain:
        return None
    first, guard = next(iter(plain.items()))
    owner, actor = guard.owner, commits[first].actor
    how_many = Counter([commit.task_id for commit in commits])
    named = {child for commit in commits for child in _named_children(commit)}
    held = {
        position: guard
        for position, guard in plain.items()
        if guard.owner == owner
        and (commit := commits[position]).actor == actor
        and how_many[commit.task_id] == 1
        and commit.task_id not in named
    }
    if len(held) < min(len(commits), WORTH_A_TRANSACTION):
        return None
    encoded = _encode((commits[position], guard) for position, guard in held.items())
    return PlainBatch(held=held, values=(owner, actor, *encoded))


def verdict_on(task_id: str, guard: Held, row: Sequence[Any]) -> Verdict:
    """Make the verdict on a plain Commit that was applied."""
    _, revision, version, state, cancel_requested, *_ = row
    return Verdict(
        task_id=task_id,
        state=TaskState(state),
        fence=guard.fence,
        sequence=guard.sequence,
        revision=revision,
        version=version,
        owner=None if state == TaskState.COMPLETED else guard.owner,
        cancel_requested=cancel_requested,
    )


def _plain_guard(commit: Commit) -> Held | None:
    """Return the guard of a Commit that is plain by itself, whatever else stands in the batch."""
    if not isinstance(commit.guard, Held) or not commit.operations:
        return None
    for op in commit.operations:
        match op:
            case WriteStep():
                pass
            case Move(to=TaskState.COMPLETED, error=None, counts_attempt=False, new_round=False, feedback=None):
                pass
            case _:
                return None
    return commit.guard


def _named_children(commit: Commit) -> Iterator[str]:
    for op in commit.operations:
        if isinstance(op, ReopenChild):
            yield op.child_id
        if isinstance(op, Move):
            for wait in op.waits:
                if isinstance(wait, UntilChildren):
                    yield from wait.children


def _encode(commits: Iterable[tuple[Commit, Held]]) -> tuple[str, str | None, ByteaArray]:
    """Return the Commits, their steps and the payloads of both."""
    payloads = Payloads()
    rows: list[Document] = []
    steps: list[Document] = []
    for commit, guard in commits:
        row: Document = {
            "task_id": commit.task_id,
            "fence": guard.fence,
            "sequence": guard.sequence,
            "completes": False,
        }
        written: dict[tuple[int, str], Step] = {}  # of two under one key, the last one counts
        for op in commit.operations:
            if isinstance(op, WriteStep):
                written[op.step.round, op.step.key] = op.step
            elif isinstance(op, Move):
                row.update(completes=True, reason=op.reason, result=payloads.add_value(op.result, "result"))
        rows.append(row)
        steps += [_step(commit.task_id, step, payloads) for step in written.values()]
    return _to_json(rows).decode(), _to_json(steps).decode() if steps else None, payloads.items


def _step(task_id: str, step: Step, payloads: Payloads) -> Document:
    """Return a step as a row; what is missing in the document is NULL, and need not be read."""
    row: Document = {
        "task_id": task_id,
        "round": step.round,
        "key": step.key,
        "kind": step.kind,
        "position": step.position,
        "state": step.state,
        "attempts": step.attempts,
        "fence": step.fence,
        "digest": step.digest,
    }
    if step.output is not None:
        row["output"] = payloads.add(step.output)
    if step.error is not None:
        row["error"] = payloads.add(step.error)
    for name in ("effect_id", "started_at", "finished_at", "retry_at", "undone_at"):
        if (value := getattr(step, name)) is not None:
            row[name] = value
    return row
