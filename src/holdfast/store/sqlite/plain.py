"""The Commits of every day: a worker writes steps, or ends its task, or both, and nothing else.

Such Commits of different tasks cannot see one another: each reads and writes only what belongs to its own task. So
the tasks of a whole run of them are read first, and then each table is written in one go. Inside BEGIN IMMEDIATE
nothing moves between the two.

Nothing is refused here. A Commit whose guard does not hold, whose task waits or is paused, or whose end concerns
another task is left to the general path, which applies or refuses it in its own words. That path wakes only waiting
tasks, and the short way touches no waiting task. So the order of the two makes no difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.model.commit import Commit, Held, Verdict
from holdfast.model.operations import Move, WriteStep
from holdfast.model.step import Step
from holdfast.model.transitions import TaskState
from holdfast.store.records import Row, payload_or_none
from holdfast.store.sqlite.records import step_values
from holdfast.store.sqlite.write_transaction import WriteTransaction

_ENDS = (TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED)
_ADVANCING = {state.value: state for state in TaskState if state is not TaskState.WAITING}
"""Where steps are written without another look: what a waiting task waits for may be true by now."""
_ENDING = frozenset({TaskState.RUNNING.value, TaskState.REVIEW.value})
"""From where a worker may move its task to any end."""


class PlainCommit(NamedTuple):
    """A Commit that is plain: the lease it names, the steps it writes, and how it ends its task, if it does."""

    task_id: str
    held: Held
    steps: list[Step]
    end: Move | None
    actor: str


def split_batch(commits: Sequence[Commit]) -> Iterator[tuple[Sequence[Commit], list[PlainCommit]]]:
    """Cut the batch, in order, into parts whose Commits fit and name each task once; others stand alone."""
    part: list[Commit] = []
    fitting: dict[str, PlainCommit] = {}
    for commit in commits:
        plain = _fit(commit)
        if part and (plain is None or commit.task_id in fitting):
            yield part, list(fitting.values())
            part, fitting = [], {}
        if plain is None:
            yield (commit,), []
        else:
            part.append(commit)
            fitting[commit.task_id] = plain
    if part:
        yield part, list(fitting.values())


def apply_plain(tx: WriteTransaction, part: Sequence[PlainCommit]) -> dict[str, Verdict]:
    """Apply what is simple in a part; return the verdicts by task. The other Commits are applied one by one."""
    verdicts: dict[str, Verdict] = {}
    if advancing := [plain for plain in part if plain.end is None]:
        _advance(tx, advancing, verdicts)
    transitions: list[Row] = []
    if ending := [plain for plain in part if plain.end is not None]:
        transitions = _end(tx, ending, verdicts)
    applied = [plain for plain in part if plain.task_id in verdicts]
    if applied:
        tx.last_task = applied[-1].task_id, verdicts[applied[-1].task_id].revision
    tx.run_many("put_step", [step_values(plain.task_id, step) for plain in applied for step in plain.steps])
    tx.run_many("insert_transition", transitions)  # behind the steps, as the feed tells it
    return verdicts


def _fit(commit: Commit) -> PlainCommit | None:
    guard = commit.guard
    if not isinstance(guard, Held):
        return None
    steps, end = [], None
    for op in commit.operations:
        if isinstance(op, WriteStep):
            steps.append(op.step)
        elif isinstance(op, Move) and op.to in _ENDS and not _changes_more(op):
            end = op
        else:
            return None
    return PlainCommit(commit.task_id, guard, steps, end, commit.actor)


def _changes_more(end: Move) -> bool:
    return end.new_round or end.counts_attempt or end.feedback is not None


def _advance(tx: WriteTransaction, part: list[PlainCommit], verdicts: dict[str, Verdict]) -> None:
    """Count one Commit on each task that is held as the Commit says."""
    by_task = {plain.task_id: plain for plain in part}
    changed = []
    for task_id, owner, fence, sequence, state, is_held, *shown in tx.all_many(
        "task_head", [(task_id,) for task_id in by_task]
    ):
        held = by_task[task_id].held
        if is_held or not _is_next(held, owner, fence, sequence) or state not in _ADVANCING:
            continue
        changed.append((task_id, held.sequence, tx.now))
        verdicts[task_id] = _verdict(task_id, held, _ADVANCING[state], held.owner, *shown)
    tx.run_many("advance", changed)


def _end(tx: WriteTransaction, part: list[PlainCommit], verdicts: dict[str, Verdict]) -> list[Row]:
    """End each task that is held as the Commit says and whose end concerns no other task; return the moves."""
    by_task = {plain.task_id: plain for plain in part}
    changed, changed_limited, transitions = list[Row](), list[Row](), list[Row]()
    outcomes, forgotten = [], []
    freed = Counter[str]()
    for (
        moves,
        awaiting,
        limits,
        has_slot,
        has_outcome,
        has_unfinished,
        task_id,
        owner,
        fence,
        sequence,
        state,
        is_held,
        *shown,
    ) in tx.all_many("ending_head", [(task_id,) for task_id in by_task]):
        _, held, _, end, actor = by_task[task_id]
        if has_unfinished or is_held or end is None or state not in _ENDING:
            continue
        if not _is_next(held, owner, fence, sequence):
            continue
        (changed_limited if limits and has_slot else changed).append((task_id, held.sequence, end.to, tx.now))
        transitions.append((task_id, moves + 1, state, end.to, end.reason, actor, held.fence, tx.now))
        if end.result is not None or end.error is not None:
            outcomes.append((task_id, payload_or_none(end.result), payload_or_none(end.error)))
        elif has_outcome:
            forgotten.append((task_id,))
        tx.hints.add(f"task:{task_id}")
        if awaiting is not None:
            tx.hints.add(f"queue:{awaiting}")
        if limits is not None and has_slot:
            freed.update(tx.note_free(limits))
        verdicts[task_id] = _verdict(task_id, held, end.to, None, *shown)
    tx.run_many("end", changed)
    tx.run_many("end_limited", changed_limited)
    tx.run_many("give_places_back", sorted(freed.items()))
    tx.run_many("put_outcome", outcomes)
    tx.run_many("delete_outcome", forgotten)
    return transitions


def _is_next(held: Held, owner: str | None, fence: int, sequence: int) -> bool:
    """Say whether the lease stands on the row and the Commit is the next one under it."""
    return owner == held.owner and fence == held.fence and sequence == held.sequence - 1


def _verdict(  # noqa: PLR0917 - the last three are the last columns of the queries
    task_id: str,
    held: Held,
    state: TaskState,
    owner: str | None,
    revision: int,
    version: int,
    cancel_requested: str | None,
) -> Verdict:
    return Verdict(
        task_id=task_id,
        state=state,
        fence=held.fence,
        sequence=held.sequence,
        revision=revision + 1,
        version=version,
        owner=owner,
        cancel_requested=cancel_requested,
    )
