"""commit: make many Commits durable in one transaction, and answer each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec

from holdfast.model.commit import Commit, Held, Refusal, Verdict
from holdfast.model.errors import StoreError
from holdfast.model.operations import SubmitChild, WriteStep
from holdfast.model.size import batches, commit_size
from holdfast.model.task import Submitted
from holdfast.model.transitions import TaskState
from holdfast.store.postgres.batch import TaskNames, encode_batch, given_other_input
from holdfast.store.postgres.database import Database
from holdfast.store.postgres.errors import is_refused
from holdfast.store.postgres.parameters import TextArray
from holdfast.store.postgres.plain import take_plain, verdict_on
from holdfast.store.postgres.records import RECORDS, step_values
from holdfast.store.postgres.verdicts import topics_of, verdict_of
from holdfast.store.records import Row

MOST_AT_ONCE = 500
"""Commits in one transaction. The server answers before it commits: a longer answer might not fit into the socket of a
client that has stopped reading, and would keep its locks."""

_from_json: Final = msgspec.json.Decoder().decode


async def commit(db: Database, commits: Sequence[Commit]) -> list[Verdict]:
    """See WorkVerbs."""
    if not commits:
        return []
    if len(commits) == 1 and (verdict := await _write_lone_step(db, commits[0])) is not None:
        return [verdict]
    verdicts: list[Verdict] = []
    for some in batches(commits, commit_size, most=MOST_AT_ONCE):
        verdicts += await _commit_some(db, some)
    return verdicts


async def _commit_some(db: Database, commits: Sequence[Commit]) -> list[Verdict]:
    """Commit the plain ones the short way, then the rest, and what turned out not to be plain, in their order."""
    verdicts = await _commit_plain(db, commits)
    left = [position for position in range(len(commits)) if position not in verdicts]
    if left:
        rest = [commits[position] for position in left]
        answered, hints = await _commit_batch(db, rest)
        answered = [
            await _with_children(db, commit, verdict) if verdict.duplicate else verdict
            for commit, verdict in zip(rest, answered, strict=True)
        ]
        db.publish(hints | topics_of(rest, answered))
        verdicts.update(zip(left, answered, strict=True))
    return [verdicts[position] for position in range(len(commits))]


async def _commit_plain(db: Database, commits: Sequence[Commit]) -> dict[int, Verdict]:
    """Commit what is plain; return the verdicts, by position, on what could be applied like that."""
    plain = take_plain(commits)
    if plain is None:
        return {}
    try:
        rows = await db.fetch("commit_plain", *plain.values, db.at())
    except StoreError as error:
        if is_refused(error.__cause__):
            return {}  # commit_batch meets the same refusal, and knows what to make of it
        raise
    by_task = {row[0]: row for row in rows}
    verdicts = {
        position: verdict_on(commits[position].task_id, guard, row)
        for position, guard in plain.held.items()
        if (row := by_task.get(commits[position].task_id)) is not None
    }
    ended = {f"task:{verdict.task_id}" for verdict in verdicts.values() if verdict.owner is None}
    queues = {queue for *_, queue, _ in rows if queue is not None}
    db.publish(ended | queues | {f"limit:{key}" for *_, freed in rows for key in freed or ()})
    return verdicts


async def _write_lone_step(db: Database, commit: Commit) -> Verdict | None:
    """Take the short way for a worker that commits one step; None: not that, or the guard did not hold."""
    guard, operations = commit.guard, commit.operations
    if not isinstance(guard, Held) or len(operations) != 1 or not isinstance(operations[0], WriteStep):
        return None
    values = (
        commit.task_id,
        guard.owner,
        guard.fence,
        guard.sequence,
        db.at(),
        *step_values(operations[0].step),
    )
    try:
        rows = await db.fetch("write_step", *values)
    except StoreError as error:
        if is_refused(error.__cause__):
            return None  # commit_batch meets the same refusal, and knows what to make of it
        raise
    if not rows:
        return None
    state, revision, version, cancel_requested = rows[0]
    return Verdict(
        task_id=commit.task_id,
        state=TaskState(state),
        fence=guard.fence,
        sequence=guard.sequence,
        revision=revision,
        version=version,
        owner=guard.owner,
        cancel_requested=cancel_requested,
    )


async def _commit_batch(db: Database, commits: Sequence[Commit]) -> tuple[list[Verdict], set[str]]:
    """Send the batch. Where the database itself refuses something in it, find out what: halve and try again.

    Sent again after a lost connection it is the very same batch, so that what was applied is recognised.
    """
    children = given_other_input(commits)
    names = names_in(await db.fetch("names_of", TextArray(children))) if children else None
    document, payloads = encode_batch(commits, names)
    try:
        [(text,)] = await db.fetch("commit_batch", document, payloads, db.at())
    except StoreError as error:
        if not is_refused(error.__cause__):
            raise
        if len(commits) > 1:
            middle = len(commits) // 2
            first, first_hints = await _commit_batch(db, commits[:middle])
            second, second_hints = await _commit_batch(db, commits[middle:])
            return first + second, first_hints | second_hints
        return [await refused_by_database(db, commits[0], error)], set()
    return read_answer(commits, text)


async def _with_children(db: Database, commit: Commit, verdict: Verdict) -> Verdict:
    """Find the children of a Commit that was applied before: some may be older tasks that held their key."""
    submitted = [op.task for op in commit.operations if isinstance(op, SubmitChild)]
    found = [await db.fetch("task_by_id_or_key", task.id, task.name, task.key) for task in submitted]
    children = tuple(Submitted(task_id=row[0], created=False) for rows in found for row in rows)
    return replace(verdict, children=children)


async def refused_by_database(db: Database, commit: Commit, error: StoreError) -> Verdict:
    """Return the verdict on a Commit that the database itself does not take."""
    rows = await db.fetch("task", commit.task_id)
    detail = str(error)
    if not rows:
        return Verdict(task_id=commit.task_id, refusal=Refusal.NOT_FOUND, detail=detail)
    task = RECORDS.task(*rows[0])
    return Verdict(
        task_id=task.id,
        refusal=Refusal.CONFLICT,
        detail=detail,
        state=task.state,
        fence=task.fence,
        sequence=task.sequence,
        revision=task.revision,
        version=task.version,
        owner=task.owner,
        cancel_requested=task.cancel_requested,
    )


def names_in(rows: Sequence[Row]) -> dict[str, TaskNames]:
    """Return what the query names_of found, by task."""
    return {task_id: TaskNames(*names) for task_id, *names in rows}


def read_answer(commits: Sequence[Commit], text: str) -> tuple[list[Verdict], set[str]]:
    """Return the verdicts on a batch, and the hints, from what commit_batch() answered."""
    answer = _from_json(text)
    by_position = {one["n"]: one for one in answer["answers"]}
    verdicts = [verdict_of(commit, by_position[position]) for position, commit in enumerate(commits)]
    return verdicts, set(answer["hints"])
