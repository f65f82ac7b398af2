"""The reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import datetime

from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.effect import Effect, EffectState
from holdfast.model.errors import NotFound
from holdfast.model.queries import Loaded, Noun, Page, QueueCounts, Summary, TaskFilter, Vitals
from holdfast.model.records import Account, Checkpoint, PatchRecord, Reservation
from holdfast.model.step import Step
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState
from holdfast.model.worker import WorkerState
from holdfast.store.cursor import from_cursor, from_queue_cursor, queue_page_of, to_cursor
from tests.store.stateful.oracle.tables import NOT_READY, Tables, TaskRow
from tests.store.stateful.oracle.turning import place

DOUBTS = frozenset({EffectState.IN_DOUBT, EffectState.NEEDS_HUMAN})


def load(tables: Tables, task_id: str, after: int) -> Loaded:
    if task_id not in tables.tasks:
        raise NotFound("task", task_id)
    task = tables.task(task_id)
    usable = [checkpoint for checkpoint in checkpoints(tables, task_id) if checkpoint.damaged is None]
    checkpoint = usable[-1] if usable else None
    return Loaded(
        task=task,
        steps=tuple(step for step in steps(tables, task_id) if _is_needed(step, task, after)),
        effects=tuple(effects(tables, task_id=task_id)),
        patches=tuple(patches(tables, task_id, checkpoint.version if checkpoint else 0)),
        checkpoint=checkpoint,
        approvals=tuple(approvals(tables, task_id, None)),
        accounts=tuple(accounts(tables, task_id)),
        reservations=tuple(
            Reservation(account=account, meter=meter, step_key=step_key, fence=fence, amount=amount)
            for (task, account, meter, step_key, fence), amount in sorted(tables.reservations.items())
            if task == task_id
        ),
    )


def _is_needed(step: Step, task: Task, after: int) -> bool:
    if step.round == task.round:
        return step.position > after
    return step.round < task.round and step.effect_id is not None


def find(tables: Tables, where: TaskFilter | None, limit: int, after: str | None, *, newest_first: bool) -> Page[Task]:
    rows = [row for row in tables.tasks.values() if _fits(row, where or TaskFilter())]
    found = sorted((row.task for row in rows), key=_age, reverse=newest_first)
    if after is not None:
        begin = from_cursor(after)
        found = [task for task in found if (_age(task) < begin if newest_first else _age(task) > begin)]
    more = len(found) > limit
    return Page(items=tuple(found[:limit]), next=to_cursor(*_age(found[limit - 1])) if more else None)


def _age(task: Task) -> tuple[datetime, str]:
    assert task.created_at is not None
    return task.created_at, task.id


def _fits(row: TaskRow, where: TaskFilter) -> bool:
    task = row.task
    assert task.created_at is not None
    columns = ("queue", "name", "agent_id", "parent_id", "owner", "resting", "key")
    return (
        (where.states is None or task.state in where.states)
        and all(getattr(where, column) in {None, getattr(task, column)} for column in columns)
        and (where.created_after is None or task.created_at > where.created_after)
        and (where.created_before is None or task.created_at < where.created_before)
        and (where.ended_before is None or (task.finished_at is not None and task.finished_at < where.ended_before))
        and (where.text is None or where.text.casefold() in row.search)
        and where.labels.items() <= task.labels.items()
    )


def count(tables: Tables, where: TaskFilter | None) -> dict[TaskState, int]:
    return dict(Counter(row.task.state for row in tables.tasks.values() if _fits(row, where or TaskFilter())))


def summary(tables: Tables) -> Summary:
    return Summary(
        tasks=count(tables, None),
        workers=sum(row.worker.state is not WorkerState.DEAD for row in tables.workers.values()),
        open_approvals=sum(approval.state is ApprovalState.OPEN for approval in tables.approvals.values()),
        doubts=sum(effect.state in DOUBTS for effect in tables.effects.values()),
    )


def queues(tables: Tables, now: datetime) -> list[QueueCounts]:
    of_queue: dict[str, list[Task]] = {}
    for row in tables.tasks.values():
        if not row.task.state.is_terminal:
            of_queue.setdefault(row.task.queue, []).append(row.task)
    return [_queue(name, tasks, now) for name, tasks in sorted(of_queue.items())]


def _queue(name: str, tasks: list[Task], now: datetime) -> QueueCounts:
    states = Counter(task.state for task in tasks)
    pending = [task.available_at for task in tasks if task.state is TaskState.PENDING and task.available_at is not None]
    due = [moment for moment in pending if moment <= now]
    return QueueCounts(
        name=name,
        ready=len(due),
        delayed=len(pending) - len(due),
        running=states[TaskState.RUNNING],
        waiting=states[TaskState.WAITING],
        review=states[TaskState.REVIEW],
        oldest_ready_at=min(due, default=None),
    )


def queued(tables: Tables, now: datetime, queue: str | None, limit: int, after: str | None) -> Page[Task]:
    begin = from_queue_cursor(after)
    as_of = begin.as_of or now
    last_delayed = (begin.delayed_after[0] or as_of, begin.delayed_after[1])
    found: list[tuple[bool, datetime, str]] = []
    for row in tables.tasks.values():
        task = row.task
        assert task.available_at is not None
        lost = task.deadline is not None and task.deadline <= as_of and not task.must_undo
        if task.state is not TaskState.PENDING or task.owner is not None or queue not in {None, task.queue}:
            continue
        if lost or task.id in tables.pauses:
            continue
        delayed = row.ready == NOT_READY and task.available_at > as_of
        stands_at = (task.available_at, task.id) if delayed else place(row)
        if stands_at > (last_delayed if delayed else begin.due_after):
            found.append((delayed, *stands_at))
    return queue_page_of([(tables.task(task_id), delayed, at) for delayed, at, task_id in sorted(found)], limit, as_of)


def ids(tables: Tables, noun: Noun, part: str) -> list[str]:
    known: dict[Noun, Collection[str]] = {
        Noun.TASK: tables.tasks,
        Noun.APPROVAL: tables.approvals,
        Noun.EFFECT: {effect_id for _, effect_id in tables.effects},
        Noun.WORKER: tables.workers,
        Noun.FACT: tables.facts,
    }
    begin = sorted(name for name in known[noun] if name.startswith(part))
    return begin or sorted(name for name in known[noun] if name.endswith(part) or name[-8:].startswith(part))


def vitals(tables: Tables) -> Vitals:
    rows = {
        "tasks": len(tables.tasks),
        "steps": len(tables.steps),
        "events": sum(map(len, tables.events.values())),
        "artifacts": len(tables.artifacts),
        "facts": len(tables.facts),
        "workers": len(tables.workers),
    }
    return Vitals(backend="oracle", version="1", schema=1, bytes=0, rows=rows, exact_rows=True)


def steps(tables: Tables, task_id: str) -> list[Step]:
    of_task = [step for (task, _, _), step in tables.steps.items() if task == task_id]
    return sorted(of_task, key=lambda step: step.position)


def effects(
    tables: Tables,
    *,
    task_id: str | None = None,
    effect_id: str | None = None,
    states: Collection[EffectState] | None = None,
) -> list[Effect]:
    return [
        effect
        for (task, own_id), effect in sorted(tables.effects.items())
        if task_id in {None, task} and effect_id in {None, own_id} and (states is None or effect.state in states)
    ]


def patches(tables: Tables, task_id: str, after: int) -> list[PatchRecord]:
    return [patch for patch in tables.patches.get(task_id, ()) if patch.version > after]


def checkpoints(tables: Tables, task_id: str) -> list[Checkpoint]:
    return [checkpoint for (task, _), checkpoint in sorted(tables.checkpoints.items()) if task == task_id]


def approvals(tables: Tables, task_id: str | None, states: Collection[ApprovalState] | None) -> list[Approval]:
    return [
        approval
        for _, approval in sorted(tables.approvals.items())
        if task_id in {None, approval.task_id} and (states is None or approval.state in states)
    ]


def accounts(tables: Tables, account: str) -> list[Account]:
    return [row for (name, _), row in sorted(tables.accounts.items()) if name == account]


def position(tables: Tables, channel: str, before_task: str | None) -> int:
    if before_task is not None and before_task not in tables.tasks:
        raise NotFound("task", before_task)
    last, kept = tables.event_numbers.get(channel, 0), tables.events.get(channel, ())
    if before_task is None or not kept:
        return last
    at_submission = tables.tasks[before_task].events_before.get(channel, 0)
    older = [event.number for event in kept if event.number <= at_submission]
    return max(older, default=min(event.number for event in kept) - 1)
