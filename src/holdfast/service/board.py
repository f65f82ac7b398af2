"""Everything at a glance: queues, workers, what runs, what waits for people, what went wrong last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from holdfast.engine.api.holdfast import Holdfast
from holdfast.model.approval import Approval
from holdfast.model.doubt import Doubt
from holdfast.model.pause import Pause
from holdfast.model.queries import QueueCounts, Summary, TaskFilter
from holdfast.model.step import Step, StepState
from holdfast.model.task import JsonValue, Task
from holdfast.model.transitions import TaskState
from holdfast.service import forms
from holdfast.service.next_events import Upcoming, about_try, is_retried, last_error, next_look
from holdfast.service.situation import SLEEP, current_steps
from holdfast.service.worker_list import WorkerList, read_workers
from holdfast.store.base import StateStore

_MOST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledTask:
    """A task that waits for a time: for the next try of a step, or until a call in doubt has settled."""

    task: Task
    then: Upcoming
    why: str

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON form."""
        return {"task_id": self.task.id, "name": self.task.name, **self.then.to_json(), "why": self.why}


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One look at a store."""

    at: datetime
    summary: Summary
    queues: Sequence[QueueCounts]
    workers: WorkerList
    """Those that are not dead."""
    running: Sequence[Task]
    """The oldest of them."""
    doing: Mapping[str, Step]
    """The newest line of each running task's journal, by the task's id."""
    approvals: Sequence[Approval]
    doubts: Sequence[Doubt]
    """Those that a person can decide now."""
    failed: Sequence[Task]
    """The newest ones."""
    coming: Sequence[ScheduledTask] = ()
    """What happens by itself, the nearest first."""
    pauses: Sequence[Pause] = ()
    """Everything that is paused."""

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON form."""
        return {
            "at": forms.moment(self.at),
            "tasks": {str(state): count for state, count in self.summary.tasks.items()},
            "queues": [forms.queue_form(queue) for queue in self.queues],
            "pauses": [forms.pause_form(pause) for pause in self.pauses],
            "workers": [member.to_json() for member in self.workers.members],
            "running": [
                forms.task_form(task) | {"step": self.doing[task.id].key if task.id in self.doing else None}
                for task in self.running
            ],
            "approvals": [forms.approval_form(approval) for approval in self.approvals],
            "doubts": [forms.doubt_form(doubt) for doubt in self.doubts],
            "coming": [one.to_json() for one in self.coming],
            "failed": [forms.task_form(task) for task in self.failed],
        }


async def read_board(hold: Holdfast, *, queue: str | None = None, most: int = _MOST) -> Board:
    """Look at everything, or at one queue; of each list, at the first ``most``."""
    store = hold.store
    running = await _find(store, queue, TaskState.RUNNING, TaskState.REVIEW, most=most, newest_first=False)
    waiting = await _find(store, queue, TaskState.WAITING, most=most)
    doing = await store.last_steps([task.id for task in (*running, *waiting)])
    approvals, doubts = await _decisions(hold, queue, most)
    at = await store.now()
    return Board(
        at=at,
        summary=Summary(tasks=await store.count(TaskFilter(queue=queue))) if queue else await store.summary(),
        queues=[counts for counts in await store.queues() if queue in {None, counts.name}],
        pauses=await store.pauses(),
        workers=await read_workers(store, queue=queue, most=most),
        running=running,
        doing={task.id: doing[task.id] for task in running if task.id in doing},
        approvals=approvals,
        doubts=[doubt for doubt in doubts if doubt.decisions],
        failed=await _find(store, queue, TaskState.FAILED, most=most),
        coming=await _coming(store, [*running, *waiting], doing, doubts, at),
    )


async def _coming(
    store: StateStore, tasks: Sequence[Task], doing: Mapping[str, Step], doubts: Sequence[Doubt], at: datetime
) -> list[ScheduledTask]:
    """Return what happens by itself to these tasks, as far as their newest steps and their doubts show."""
    by_id = {task.id: task for task in tasks}
    found = [
        ScheduledTask(task=by_id[doubt.effect.task_id], then=then, why=doubt.effect.note or "")
        for doubt in doubts
        if doubt.effect.task_id in by_id and (then := next_look(doubt, at)) is not None
    ]
    in_doubt = {doubt.effect.effect_id for doubt in doubts}
    for task in tasks:
        step = doing.get(task.id)
        if step is None or step.state is not StepState.PENDING or step.retry_at is None or step.kind == SLEEP:
            continue
        # The newest lines come without their errors.
        found += [
            ScheduledTask(task=task, then=about_try(whole)[1], why=last_error(whole))
            for whole in current_steps(await store.steps(task.id))
            if is_retried(whole) and whole.effect_id not in in_doubt
        ]
    return sorted(found, key=lambda one: one.then.at)


async def _decisions(hold: Holdfast, queue: str | None, most: int) -> tuple[list[Approval], list[Doubt]]:
    """Return what waits for people: everywhere, or in those tasks of a queue that wait the longest."""
    if queue is None:
        return await hold.approvals(limit=most), await hold.doubts(limit=most)
    approvals: list[Approval] = []
    doubts: list[Doubt] = []
    for task in await _find(hold.store, queue, TaskState.WAITING, most=most, newest_first=False):
        approvals += await hold.approvals(task.id)
        doubts += await hold.doubts(task.id)
    return approvals, doubts


async def _find(
    store: StateStore, queue: str | None, *states: TaskState, most: int, newest_first: bool = True
) -> Sequence[Task]:
    where = TaskFilter(states=frozenset(states), queue=queue)
    return (await store.find(where, limit=most, newest_first=newest_first)).items
