"""The short way for what nearly every Commit is: a worker writes steps, or ends its task, or both, and nothing else.

Such Commits of different tasks cannot see one another: each reads and writes only what belongs to its own task. So
the tasks of a whole stretch of them are read first, and then each table is written in one go. Inside BEGIN IMMEDIATE
nothing moves between the two.

Nothing is refused here. A Commit whose guard does not hold, whose task waits, or whose end concerns anybody else is
left to the general path, which applies or refuses it in its own words. That path may wake waiting tasks and nobody
else, and the short way touches no waiting task: in which order the two come makes no difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.model.commit import Commit, Held, Verdict
from holdfast.model.operations import Move, WriteStep
from holdfast.model.step import Step
from holdfast.model.transitions import TaskState
from holdfast.store.records import Row, payload_or_none
from holdfast.store.sqlite.records import step_values
from holdfast.store.sqlite.transaction import Transaction

_ENDS = (TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED)
_ADVANCING = {state.value: state for state in TaskState if state is not TaskState.WAITING}
"""Where steps are written without another look: what a waiting task waits for may be true by now."""
_ENDING = frozenset({TaskState.RUNNING.value, TaskState.REVIEW.value})
"""From where a worker may move its task to any end."""


class Short(NamedTuple):
    """A Commit that fits: the lease it names, the steps it writes, and how it ends its task, if it does."""

    task_id: str
    held: Held
    steps: list[Step]
    end: Move | None
    actor: str


def stretches(commits: Sequence[Commit]) -> Iterator[tuple[Sequence[Commit], list[Short]]]:
    """Cut the batch, in order, into stretches of Commits that fit and name each task once; others stand alone."""
    stretch: list[Commit] = []
    fitting: dict[str, Short] = {}
    for commit in commits:
        short = _fit(commit)
        if stretch and (short is None or commit.task_id in fitting):
            yield stretch, list(fitting.values())
            stretch, fitting = [], {}
        if short is None:
            yield (commit,), []
        else:
            stretch.append(commit)
            fitting[commit.task_id] = short
    if stretch:
        yield stretch, list(fitting.values())


def apply_short(tx: Transaction, stretch: Sequence[Short]) -> dict[str, Verdict]:
    """Apply what is plainly fine of a stretch; return the verdicts by task. Who has none goes the general way."""
    verdicts: dict[str, Verdict] = {}
    if advancing := [short for short in stretch if short.end is None]:
        _advance(tx, advancing, verdicts)
    if ending := [short for short in stretch if short.end is not None]:
        _end(tx, ending, verdicts)
    applied = [short for short in stretch if short.task_id in verdicts]
    tx.run_many("put_step", [step_values(short.task_id, step) for short in applied for step in short.steps])
    return verdicts


def _fit(commit: Commit) -> Short | None:
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
    return Short(commit.task_id, guard, steps, end, commit.actor)


def _changes_more(end: Move) -> bool:
    return end.new_round or end.counts_attempt or end.feedback is not None


def _advance(tx: Transaction, stretch: list[Short], verdicts: dict[str, Verdict]) -> None:
    """Count one Commit on each task that is held as the Commit says."""
    heads = {row[0]: row for row in tx.all_many("task_head", [(short.task_id,) for short in stretch])}
    changed = []
    for task_id, held, _, _, _ in stretch:
        head = heads.get(task_id)
        if head is None or not _is_next(held, head) or (state := _ADVANCING.get(head[4])) is None:
            continue
        changed.append((task_id, held.sequence, tx.now))
        verdicts[task_id] = _verdict(head, held, state, owner=held.owner)
    tx.run_many("advance", changed)


def _end(tx: Transaction, stretch: list[Short], verdicts: dict[str, Verdict]) -> None:
    """End each task that is held as the Commit says and whose end concerns nobody else."""
    heads = {row[0]: row for row in tx.all_many("ending_head", [(short.task_id,) for short in stretch])}
    changed, transitions, outcomes, forgotten = [], [], [], []
    for task_id, held, _, end, actor in stretch:
        head = heads.get(task_id)
        if head is None or end is None or not _is_next(held, head) or head[4] not in _ENDING:
            continue
        moves, has_outcome, has_loose_ends = head[8:]
        if has_loose_ends:
            continue
        changed.append((task_id, held.sequence, end.to, tx.now))
        transitions.append((task_id, moves + 1, head[4], end.to, end.reason, actor, held.fence, tx.now))
        if end.result is not None or end.error is not None:
            outcomes.append((task_id, payload_or_none(end.result), payload_or_none(end.error)))
        elif has_outcome:
            forgotten.append((task_id,))
        tx.hints.add(f"task:{task_id}")
        verdicts[task_id] = _verdict(head, held, end.to, owner=None)
    tx.run_many("end", changed)
    tx.run_many("insert_transition", transitions)
    tx.run_many("put_outcome", outcomes)
    tx.run_many("delete_outcome", forgotten)


def _is_next(held: Held, head: Row) -> bool:
    """Say whether the lease stands on the row and the Commit is the next one under it."""
    return bool(head[1] == held.owner and head[2] == held.fence and head[3] == held.sequence - 1)


def _verdict(head: Row, held: Held, state: TaskState, *, owner: str | None) -> Verdict:
    return Verdict(
        task_id=head[0],
        state=state,
        fence=held.fence,
        sequence=held.sequence,
        revision=head[5] + 1,
        version=head[6],
        owner=owner,
        cancel_requested=head[7],
    )
