"""Applying Commits: each alone, all in one transaction, none of it where one part is refused."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from holdfast.model.commit import Commit, Held, Refusal, Verdict, judge
from holdfast.model.errors import InvalidValue
from holdfast.model.operations import Emit, Move, Release, RequestCancel, SubmitChild
from holdfast.model.task import Submitted
from holdfast.model.transitions import KEEPS_LEASE, TaskState
from holdfast.store.sqlite import flow, lifecycle
from holdfast.store.sqlite.database import MANY, Database
from holdfast.store.sqlite.operations import Refused, apply_operation
from holdfast.store.sqlite.plain import apply_plain, split_batch
from holdfast.store.sqlite.rows import TaskRow, micros, micros_or_none, task_row
from holdfast.store.sqlite.submission import has_many_waiting, stored
from holdfast.store.sqlite.write_transaction import WriteTransaction

LARGE_BYTES = 1 << 20
"""More than this at once is not copied, and not written to the disk, on the event loop."""

_REFUSED_BY_THE_DATABASE = (
    *(apsw.ConstraintError, apsw.TooBigError, apsw.MismatchError),
    *(UnicodeEncodeError, OverflowError),
)


async def commit(db: Database, commits: Sequence[Commit]) -> list[Verdict]:
    """See WorkVerbs."""
    items = await _items_of(db, commits)
    try:
        return await db.write(lambda tx: apply_all(tx, commits), items=items)
    except (apsw.ConstraintError, InvalidValue):
        # Something the database itself refuses: send them again, each behind a savepoint of its own.
        return await db.write(lambda tx: apply_all(tx, commits, one_by_one=True), items=items)


async def _items_of(db: Database, commits: Sequence[Commit]) -> int:
    """Say how much work the Commits are: they may be large, and an event wakes every task that waits for it."""
    # The door has counted them.
    if sum(commit.known_size or 0 for commit in commits) > LARGE_BYTES:
        return MANY
    for channel in {op.channel for commit in commits for op in commit.operations if type(op) is Emit}:
        if await db.read(lambda reader, channel=channel: has_many_waiting(reader, channel)):  # type: ignore[misc]
            return MANY
    return len(commits)


def apply_all(tx: WriteTransaction, commits: Sequence[Commit], *, one_by_one: bool = False) -> list[Verdict]:
    """Apply the Commits in order. With ``one_by_one``, what the database itself refuses also spoils only its Commit."""
    if one_by_one:
        return [_apply_alone(tx, commit) for commit in commits]
    verdicts: list[Verdict] = []
    for part, fitting in split_batch(commits):
        plain = apply_plain(tx, fitting)
        verdicts += [plain.get(commit.task_id) or _judge_and_apply(tx, commit) for commit in part]
    return verdicts


def _apply_alone(tx: WriteTransaction, commit: Commit) -> Verdict:
    hints = set(tx.hints)
    tx.statement("SAVEPOINT lone")
    try:
        (verdict,) = apply_all(tx, [commit])
    except _REFUSED_BY_THE_DATABASE as error:
        tx.statement("ROLLBACK TO lone")
        tx.hints = hints
        verdict = _verdict(tx.task(commit.task_id), commit, Refusal.CONFLICT, f"the database refused it: {error}")
    tx.statement("RELEASE lone")
    return verdict


def _judge_and_apply(tx: WriteTransaction, commit: Commit) -> Verdict:
    row = tx.task(commit.task_id)
    if row is not None and _is_duplicate(tx, commit, row):
        return _verdict(row, commit, duplicate=True, children=_children_of(tx, commit))
    refusal = judge(row, commit)
    if refusal is not None or row is None:
        return _verdict(row, commit, *(refusal or (Refusal.NOT_FOUND, "")))
    stored, hints = row.stored, set(tx.hints)
    tx.statement("SAVEPOINT one")
    try:
        children = _apply_operations(tx, commit, row)
    except Refused as refused:
        tx.statement("ROLLBACK TO one")
        tx.hints = hints
        tx.statement("RELEASE one")
        return _verdict(task_row(stored), commit, refused.refusal, refused.detail, cause=refused)
    tx.statement("RELEASE one")
    return _verdict(row, commit, children=children)


def _is_duplicate(tx: WriteTransaction, commit: Commit, row: TaskRow) -> bool:
    match commit.guard:
        case Held(_, fence, sequence):
            return row.fence == fence and sequence <= row.sequence
        case expect:
            return tx.first("request_seen", commit.task_id, expect.request) is not None


def _children_of(tx: WriteTransaction, commit: Commit) -> tuple[Submitted, ...]:
    """Find the children of a Commit that was applied before: some may be older tasks that held their key."""
    submitted = [op.task for op in commit.operations if isinstance(op, SubmitChild)]
    found = [stored(tx, task) for task in submitted]
    return tuple(Submitted(task_id=child[0], created=False) for child in found if child is not None)


def _verdict(
    row: TaskRow | None,
    commit: Commit,
    refusal: Refusal | None = None,
    detail: str = "",
    *,
    duplicate: bool = False,
    children: tuple[Submitted, ...] = (),
    cause: Refused | None = None,
) -> Verdict:
    if row is None:
        return Verdict(task_id=commit.task_id, refusal=refusal, detail=detail)
    return Verdict(
        task_id=row.id,
        refusal=refusal,
        detail=detail,
        duplicate=duplicate,
        children=children,
        budget=None if cause is None else cause.budget,
        full=None if cause is None else cause.full,
        no_place=None if cause is None else cause.no_place,
        state=row.state,
        fence=row.fence,
        sequence=row.sequence,
        revision=row.revision,
        version=row.version,
        owner=row.owner,
        cancel_requested=row.cancel_requested,
        paused=bool(row.held & flow.PAUSED),
    )


def _apply_operations(tx: WriteTransaction, commit: Commit, row: TaskRow) -> tuple[Submitted, ...]:
    children = []
    with lifecycle.changing(tx, row):
        if isinstance(commit.guard, Held):
            row.sequence = commit.guard.sequence
        else:
            tx.run("insert_request", row.id, commit.guard.request)
        for op in commit.operations:
            child = apply_operation(tx, commit, row, op)
            if child is not None:
                children.append(child)
        if commit.move is not None:
            _move(tx, commit, row, commit.move)
        if any(isinstance(op, Release) for op in commit.operations):
            lifecycle.give_back(tx, row)
        if any(isinstance(op, RequestCancel) for op in commit.operations):
            lifecycle.make_due(tx, row)
        lifecycle.go_on_if_due(tx, row, actor=commit.actor)
    return tuple(children)


def _requeue(tx: WriteTransaction, row: TaskRow, change: Move, actor: str) -> None:
    if row.state is TaskState.FAILED:
        row.cancel_requested = None  # it came too late, and is not meant for the task that was revived
        row.undoing = 0  # it starts again: whatever has to be undone later, nothing is being undone now
    if change.deadline is not None:
        row.deadline = micros(change.deadline)
    due = micros_or_none(change.available_at) if row.cancel_requested is None else None
    lifecycle.requeue(tx, row, reason=change.reason, actor=actor, available_at=due)


def _move(tx: WriteTransaction, commit: Commit, row: TaskRow, change: Move) -> None:
    if isinstance(commit.guard, Held) and change.to not in KEEPS_LEASE:
        lifecycle.give_back(tx, row)
    if change.new_round:
        row.round, row.deaths, row.lone_deaths = row.round + 1, 0, 0
    row.attempts += change.counts_attempt
    if change.feedback is not None:
        row.feedback = change.feedback
    reason, actor = change.reason, commit.actor
    if change.to is TaskState.PENDING:
        _requeue(tx, row, change, actor)
    elif change.to.is_terminal:
        awaited = lifecycle.end(tx, row, change.to, reason=reason, actor=actor)
        lifecycle.write_outcome(tx, row.id, change.result, change.error)
        if awaited:
            lifecycle.notify_parents(tx, row.id, actor=actor)
    else:
        lifecycle.move(tx, row, change.to, reason=reason, actor=actor)
        if change.to is TaskState.REVIEW:
            lifecycle.write_outcome(tx, row.id, change.result, change.error)
        elif change.to is TaskState.WAITING:
            lifecycle.start_waiting(tx, row, change.waits)
            if row.cancel_requested is not None and not row.undoing:  # that is why it undoes its steps
                lifecycle.requeue(tx, row, reason=lifecycle.CANCEL_REQUESTED, actor=actor)
