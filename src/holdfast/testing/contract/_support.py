"""Helpers for the tests: a task, a worker, an attempt with numbered Commits, a Commit from outside.

``options`` are always the fields of the record that is made, which checks them itself.
"""

# ruff: noqa: ANN401 - typing the options here would repeat every field of every record

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from holdfast.model.commit import Commit, Expect, Held, Verdict
from holdfast.model.operations import Move, Operation
from holdfast.model.step import Step, StepState
from holdfast.model.task import NewTask, Task
from holdfast.model.transitions import TaskState, Transition
from holdfast.model.worker import Claim, Claimed, NewWorker
from holdfast.store.base import StateStore

NAME = "job"
"""The default name of tasks."""

LEASE = 30.0
"""The default lease of workers, in seconds."""


@contextmanager
def row(*name: object) -> Iterator[None]:
    """Name the row of a test's table in the failure, if the test fails in this row."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the row: {', '.join(map(str, name))}")
        raise


def new_task(task_id: str = "task", **options: Any) -> NewTask:
    """Describe a task to submit."""
    options = {"name": NAME} | options
    return NewTask(id=task_id, **options)


async def submit_one(store: StateStore, task_id: str = "task", **options: Any) -> Task:
    """Submit a task and return it as stored."""
    [answer] = await store.submit([new_task(task_id, **options)])
    assert answer.created
    return await stored(store, task_id)


async def stored(store: StateStore, task_id: str = "task") -> Task:
    """Return a task that must exist."""
    task = await store.get(task_id)
    assert task is not None
    return task


async def enter(store: StateStore, worker_id: str = "worker", *, lease: float = LEASE) -> str:
    """Register a worker; return its id."""
    await store.register(NewWorker(id=worker_id, lease=lease))
    return worker_id


async def claim(store: StateStore, worker_id: str = "worker", number: int = 1, **options: Any) -> list[Claimed]:
    """Claim up to ten tasks of the usual name."""
    given: dict[str, Any] = {"limit": 10, "names": (NAME,)} | options
    return await store.claim(Claim(worker_id=worker_id, number=number, **given))


async def claimed_ids(store: StateStore, worker_id: str = "worker", number: int = 1, **options: Any) -> list[str]:
    """Claim, and return only the ids, in the order of the answer."""
    return [claimed.task.id for claimed in await claim(store, worker_id, number, **options)]


@dataclass
class Attempt:
    """A task leased to a worker, and the numbered Commits of that attempt."""

    store: StateStore
    claimed: Claimed
    sequence: int = 0

    @property
    def task(self) -> Task:
        """The task as it was when it was leased."""
        return self.claimed.task

    @property
    def worker_id(self) -> str:
        """The worker that holds it."""
        assert self.task.owner is not None
        return self.task.owner

    def guard(self, sequence: int) -> Held:
        """Return the guard of the Commit with this number."""
        return Held(owner=self.worker_id, fence=self.task.fence, sequence=sequence)

    def commit(self, *operations: Operation) -> Commit:
        """Make the next Commit, without sending it."""
        self.sequence += 1
        return Commit(
            task_id=self.task.id, guard=self.guard(self.sequence), operations=operations, actor=self.worker_id
        )

    async def send(self, *operations: Operation) -> Verdict:
        """Send the next Commit and return its verdict."""
        return await send(self.store, self.commit(*operations))

    async def apply(self, *operations: Operation) -> Verdict:
        """Send the next Commit, which must be applied."""
        verdict = await self.send(*operations)
        assert verdict.applied, verdict
        return verdict


async def send(store: StateStore, commit: Commit) -> Verdict:
    """Send one Commit alone."""
    [verdict] = await store.commit([commit])
    return verdict


def outside(task_id: str, *operations: Operation, actor: str = "person", **expect: Any) -> Commit:
    """Make a Commit from outside any lease, without sending it."""
    return Commit(task_id=task_id, guard=Expect(**expect), operations=operations, actor=actor)


async def apply_outside(store: StateStore, task_id: str, *operations: Operation) -> Verdict:
    """Send a Commit from outside any lease, which must be applied."""
    verdict = await send(store, outside(task_id, *operations))
    assert verdict.applied, verdict
    return verdict


async def running_task(
    store: StateStore,
    task_id: str = "task",
    worker_id: str = "worker",
    **options: Any,
) -> Attempt:
    """Submit a task to its own queue, register a new worker and let it claim the task."""
    options = {"queue": f"queue of {task_id}"} | options
    await submit_one(store, task_id, **options)
    await enter(store, worker_id)
    return await claimed_by(store, worker_id, queues=(options["queue"],))


async def claimed_by(store: StateStore, worker_id: str, number: int = 1, **options: Any) -> Attempt:
    """Let the worker claim the only task for it."""
    [claimed] = await claim(store, worker_id, number, **options)
    return Attempt(store, claimed)


async def acquired_by(store: StateStore, task_id: str, worker_id: str) -> Attempt:
    """Let the worker lease this task, in any state."""
    return Attempt(store, await store.acquire(task_id, worker_id))


def move(to: TaskState, **options: Any) -> Move:
    """Describe a Move, with a fixed reason."""
    options = {"reason": "the test says so"} | options
    return Move(to=to, **options)


COMPLETE = move(TaskState.COMPLETED)
CANCEL = move(TaskState.CANCELLED)


def step(key: str = "collect", position: int = 1, **options: Any) -> Step:
    """Describe a completed step."""
    options = {"kind": "step", "state": StepState.COMPLETED} | options
    return Step(key=key, position=position, **options)


def without_detail(verdict: Verdict) -> Verdict:
    """Remove the detail text, which is for people and may differ between stores."""
    return replace(verdict, detail="")


async def last_move(store: StateStore, task_id: str = "task") -> Transition:
    """Return the newest line of the task's history."""
    return (await store.history(task_id))[-1]
