"""Bringing failed tasks back: resume goes on where it stopped, retry starts over."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.engine.attempt.journal import RESERVED, RESUMED, Journal, ended_by, reopened
from holdfast.engine.effects import compensation
from holdfast.engine.manage.message import spoken
from holdfast.engine.runtime import log
from holdfast.model.commit import Commit, Expect, Refusal, Verdict
from holdfast.model.deadline import Deadline, new_deadline
from holdfast.model.errors import Conflict
from holdfast.model.failure import Failure
from holdfast.model.operations import Move, Operation, WriteStep
from holdfast.model.queries import Loaded
from holdfast.model.state_size import MESSAGE_BYTES, check_size
from holdfast.model.step import Step, StepState
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore


async def resume(
    store: StateStore,
    task_id: str,
    *,
    by: str,
    accept_stale: bool = False,
    message: str | None = None,
    deadline: float | timedelta | datetime | None = None,
) -> None:
    """Put a failed task back into its queue, in the same round: completed steps replay, the one that ended it runs.

    A task that has not ended, or is completed, is left as it is. Raises Conflict if it was cancelled: that is final.
    Raises Conflict too if its deadline has passed and no new ``deadline`` is given: it would fail again at once.
    With ``accept_stale`` the journal says that somebody looked at it today, and what it knows counts as fresh.
    ``message`` is said to an agent, which reads it first.
    """
    loaded = await store.load(task_id)
    if loaded.task.state is TaskState.CANCELLED:
        raise Conflict(f"task {task_id} was cancelled, which is final; submit it anew")
    if loaded.task.state is not TaskState.FAILED:
        if message is not None:
            raise Conflict(f"task {task_id} is {loaded.task.state}, not failed; talk to it with hold.send(task, text)")
        return
    journal = Journal(task_id, loaded.task.round, loaded.steps)
    is_undoing = compensation.begun(journal) is not None
    until = await _deadline(store, loaded.task, deadline, "resume", is_needed=not is_undoing)
    again: list[Operation] = [
        WriteStep(reopened(step)) for step in ended_by(Failure.from_json(loaded.task.error).steps, journal.get)
    ]
    if message is not None:
        again.append(spoken(task_id, message, by=by))
    now = await store.now()
    again.append(WriteStep(_noted(loaded, RESUMED, now, after=1)))
    if accept_stale:
        again.append(WriteStep(_noted(loaded, "accepted", now, after=2)))
    move = Move(to=TaskState.PENDING, reason=f"resumed by {by}", deadline=until)
    if (verdict := await _revive(store, task_id, by, *again, move)).refusal is Refusal.CONFLICT:
        if message is not None:
            raise Conflict(f"somebody else has resumed task {task_id} already; talk to it with hold.send(task, text)")
        return  # somebody else was faster
    verdict.require()


def _noted(loaded: Loaded, kind: str, now: datetime, *, after: int) -> Step:
    """Return a line that says what a person has done, behind all that are there."""
    return Step(
        key=f"{RESERVED}{kind}:{loaded.task.revision}",
        kind=kind,
        position=max((step.position for step in loaded.steps if step.round == loaded.task.round), default=0) + after,
        state=StepState.COMPLETED,
        round=loaded.task.round,
        fence=loaded.task.fence,
        started_at=now,
        finished_at=now,
    )


async def retry(
    store: StateStore,
    task_id: str,
    *,
    by: str,
    feedback: str | None = None,
    deadline: float | timedelta | datetime | None = None,
) -> None:
    """Put a failed task back into its queue in a new round: its steps run again, with ``feedback`` for them.

    Raises Conflict unless it has failed, and if its deadline has passed and no new ``deadline`` is given.
    """
    if feedback is not None:
        check_size("the feedback", feedback, MESSAGE_BYTES)
    task = await store.get(task_id)
    until = None
    if task is not None and task.state is TaskState.FAILED:
        until = await _deadline(store, task, deadline, "retry")
    move = Move(to=TaskState.PENDING, reason=f"retried by {by}", new_round=True, feedback=feedback, deadline=until)
    verdict = await _revive(store, task_id, by, move)
    verdict.require()


async def _deadline(
    store: StateStore,
    task: Task,
    wanted: float | timedelta | datetime | None,
    verb: str,
    *,
    is_needed: bool = True,
) -> datetime | None:
    """Return the new deadline, None if the task keeps its own.

    Raises Conflict if its own has passed. ``is_needed`` is False for a task that goes on undoing its steps: no deadline
    ends that.
    """
    if wanted is None and task.deadline is None:
        return None
    now = await store.now()
    if wanted is not None:
        return new_deadline(task.id, wanted, now)
    if is_needed and task.deadline is not None and (own := Deadline(task.deadline, f"task {task.id}")).passed(now):
        raise Conflict(
            f"{own.message(now)}, and it would fail again at once; give it a new deadline: "
            f"hold.{verb}({task.id!r}, deadline=...)"
        )
    return None


async def _revive(store: StateStore, task_id: str, by: str, *operations: Operation) -> Verdict:
    guard = Expect(states=frozenset({TaskState.FAILED}))
    [verdict] = await store.commit([Commit(task_id=task_id, guard=guard, operations=operations, actor=by)])
    if verdict.applied:
        log.moved_by_hand(task_id, TaskState.PENDING, next(op.reason for op in operations if isinstance(op, Move)))
    return verdict
