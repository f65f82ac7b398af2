"""Who works: the workers, with what each of them holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.model.queries import TaskFilter
from holdfast.model.task import JsonValue
from holdfast.model.worker import Worker, WorkerState
from holdfast.service import forms
from holdfast.service.limits import limits_of_resting
from holdfast.service.situation import is_silent
from holdfast.store.base import StateStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedWorker:
    """One worker, at one moment."""

    worker: Worker
    held: int
    """How many tasks it holds."""
    resting: int = 0
    """How many of them only wait, and have no slot."""
    waits_for: Mapping[str, int] = field(default_factory=dict)
    """For which keys of limits the first of these wait, and how many. Empty where that was not looked at."""
    holders: Mapping[str, int] = field(default_factory=dict)
    """Which tasks have the slots of a full worker: how many of each name."""
    is_silent: bool
    """It counts as alive, and has been silent for longer than its lease."""
    lease_left: float
    """Seconds until its tasks may be taken back; 0 or less: they may be now."""

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON form."""
        return forms.worker_form(self.worker) | {
            "held": self.held,
            "resting": self.resting,
            "waits_for": dict(self.waits_for),
            "holders": dict(self.holders),
            "silent": self.is_silent,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerList:
    """The workers, at one moment."""

    at: datetime
    members: Sequence[ListedWorker]
    """The silent ones first, then by when they started."""
    unseen: int = 0
    """How many more there are."""


async def read_workers(
    store: StateStore,
    *,
    dead: bool = False,
    queue: str | None = None,
    most: int | None = None,
    with_limits: bool = False,
) -> WorkerList:
    """Look at the workers: those of one queue, or all; with ``dead`` also those that are gone and still kept.

    What each of them holds is counted by one query per worker. A caller that looks often limits it with ``most``.
    ``with_limits`` also reads for which limits their resting tasks wait.
    """
    at = await store.now()
    workers = [
        worker
        for worker in await store.workers()
        if (dead or worker.state is not WorkerState.DEAD) and (queue is None or _takes_from(worker, queue))
    ]
    workers.sort(key=lambda one: (not is_silent(one, at), one.state is WorkerState.DEAD, one.started_at))
    members = [await _look_at(store, worker, at, with_limits=with_limits) for worker in workers[:most]]
    return WorkerList(at=at, members=members, unseen=len(workers) - len(members))


def _takes_from(worker: Worker, queue: str) -> bool:
    queues = worker.details.get("queues")
    return queues is None or queue in queues


async def _look_at(store: StateStore, worker: Worker, at: datetime, *, with_limits: bool) -> ListedWorker:
    held = await _count(store, TaskFilter(owner=worker.id))
    resting = await _count(store, TaskFilter(owner=worker.id, resting=True)) if held else 0
    holders: dict[str, int] = {}
    if held - resting >= worker.details.get("concurrency", float("inf")):
        for name in worker.details.get("tasks", ()):
            if count := await _count(store, TaskFilter(owner=worker.id, name=name, resting=False)):
                holders[name] = count
    left = 0.0 if worker.state is WorkerState.DEAD else worker.lease - (at - worker.seen_at).total_seconds()
    return ListedWorker(
        worker=worker,
        held=held,
        resting=resting,
        waits_for=await limits_of_resting(store, worker.id) if resting and with_limits else {},
        holders=holders,
        is_silent=is_silent(worker, at),
        lease_left=left,
    )


async def _count(store: StateStore, where: TaskFilter) -> int:
    return sum((await store.count(where)).values())
