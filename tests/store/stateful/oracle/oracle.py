"""The verbs of the contract over the tables, without waiting for anything."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.clock import Clock
from holdfast.model.commit import Commit, Verdict
from holdfast.model.effect import Effect, EffectState, Evidence
from holdfast.model.errors import NotFound
from holdfast.model.feed import FeedPage, FeedRetention
from holdfast.model.flow_limit import Limit, LimitUse, PermitAnswer, PermitRequest, PermitReturn
from holdfast.model.memory import Subject
from holdfast.model.pause import Pause
from holdfast.model.queries import Loaded, Noun, Page, Pruned, QueueCounts, Summary, TaskFilter, Vitals
from holdfast.model.queue_settings import QueueChange, QueueSettings
from holdfast.model.records import Account, Artifact, ArtifactLink, Checkpoint, Event, MemoryFact, PatchRecord
from holdfast.model.schedule import StoredSchedule
from holdfast.model.step import Step
from holdfast.model.task import SCOPED_KEYS, JsonValue, NewTask, Submitted, Task
from holdfast.model.transitions import TaskState, Transition
from holdfast.model.worker import Claim, Claimed, Heartbeat, Lease, NewWorker, Swept, Worker
from tests.store.stateful.oracle import (
    committing,
    emitting,
    feeding,
    keeping,
    leasing,
    limiting,
    pausing,
    queueing,
    reading,
    remembering,
    scheduling,
    submitting,
    sweeping,
)
from tests.store.stateful.oracle.tables import Tables


class Oracle:
    """What every store should answer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.tables = Tables()

    def now(self) -> datetime:
        return self._clock.now()

    def _boot(self) -> timedelta:
        """Return the boot clock to the microsecond: sums of floats would not meet again."""
        return timedelta(seconds=self._clock.boot())

    def submit(self, tasks: Sequence[NewTask]) -> list[Submitted]:
        return [submitting.submit_one(self.tables, task, self.now()) for task in tasks]

    def read_feed(self, after: str | None, limit: int) -> FeedPage:
        return feeding.read_feed(self.tables, after, limit)

    def set_feed_retention(self, retention: FeedRetention) -> None:
        self.tables.feed_settings[None] = retention

    def feed_retention(self) -> FeedRetention:
        return self.tables.feed_retention

    def put_schedule(self, schedule: StoredSchedule, seen: int, tasks: Sequence[NewTask]) -> list[Submitted] | None:
        return scheduling.put_schedule(self.tables, schedule, seen, tasks, self.now())

    def delete_schedule(self, name: str, seen: int) -> bool:
        return scheduling.delete_schedule(self.tables, name, seen)

    def schedule(self, name: str) -> StoredSchedule | None:
        stored = self.tables.schedules.get(name)
        return None if stored is None else scheduling.shown(self.tables, stored)

    def schedules(self) -> list[StoredSchedule]:
        return [scheduling.shown(self.tables, self.tables.schedules[name]) for name in sorted(self.tables.schedules)]

    def due_schedules(self, limit: int) -> list[StoredSchedule]:
        return scheduling.due_schedules(self.tables, limit, self.now())

    def register(self, worker: NewWorker) -> Worker:
        return leasing.register(self.tables, worker, self.now(), self._boot())

    def heartbeat(self, worker_id: str) -> Heartbeat:
        return leasing.heartbeat(self.tables, worker_id, self.now(), self._boot())

    def drain(self, worker_id: str) -> None:
        leasing.drain(self.tables, worker_id)

    def retire(self, worker_id: str) -> list[str]:
        return leasing.retire(self.tables, worker_id, self.now())

    def claim(self, claim: Claim) -> list[Claimed]:
        return leasing.claim(self.tables, claim, self.now(), self._boot())

    def acquire(self, task_id: str, worker_id: str, *, key_form: int = SCOPED_KEYS) -> Claimed:
        return leasing.acquire(self.tables, task_id, worker_id, self.now(), self._boot(), key_form=key_form)

    def has_suspect(self, claim: Claim) -> bool:
        return leasing.has_suspect(self.tables, claim)

    def owned(self, worker_id: str) -> list[Lease]:
        return leasing.owned(self.tables, worker_id)

    def pause(self, subject: str, *, by: str, reason: str | None = None) -> Pause:
        return pausing.pause(self.tables, subject, by, reason, self.now())

    def unpause(self, subject: str) -> bool:
        return pausing.unpause(self.tables, subject)

    def pauses(self) -> list[Pause]:
        return [pause for _, pause in sorted(self.tables.pauses.items())]

    def set_queue(self, name: str, change: QueueChange) -> QueueSettings:
        return queueing.set_queue(self.tables, name, change, self.now())

    def queue_settings(self) -> list[QueueSettings]:
        return [queueing.settings_of(self.tables, name) for name in sorted(self.tables.queues)]

    def set_limit(self, limit: Limit) -> Limit:
        return limiting.set_limit(self.tables, limit)

    def limits(self) -> list[Limit]:
        return [limit for _, limit in sorted(self.tables.flow_limits.items())]

    def limit_uses(self, name: str | None = None, *, limit: int = 1000) -> list[LimitUse]:
        return limiting.limit_uses(self.tables, name, limit, self.now())

    def take_permits(self, requests: Sequence[PermitRequest]) -> list[PermitAnswer]:
        return limiting.take_permits(self.tables, requests, self.now())

    def return_permits(self, returned: Sequence[PermitReturn]) -> None:
        limiting.return_permits(self.tables, returned, self.now())

    def close_limit(self, keys: Sequence[str], until: datetime) -> None:
        limiting.close_limit(self.tables, keys, until)

    def sweep(self, limit: int = 100) -> Swept:
        return sweeping.sweep(self.tables, limit, self.now(), self._boot())

    def commit(self, commits: Sequence[Commit]) -> list[Verdict]:
        verdicts = []
        for commit in commits:
            self.tables, verdict = committing.commit_one(self.tables, commit, self.now())
            verdicts.append(verdict)
        return verdicts

    def emit(self, channel: str, payload: JsonValue, *, key: str | None = None, actor: str = "emit") -> Event:
        return emitting.append_event(self.tables, channel, payload, key=key, actor=actor, now=self.now())

    def load(self, task_id: str, *, after: int = 0) -> Loaded:
        return reading.load(self.tables, task_id, after)

    def get(self, task_id: str) -> Task | None:
        return self.tables.task(task_id) if task_id in self.tables.tasks else None

    def find(
        self,
        where: TaskFilter | None = None,
        *,
        limit: int = 50,
        after: str | None = None,
        newest_first: bool = True,
    ) -> Page[Task]:
        return reading.find(self.tables, where, limit, after, newest_first=newest_first)

    def count(self, where: TaskFilter | None = None) -> dict[TaskState, int]:
        return reading.count(self.tables, where)

    def summary(self) -> Summary:
        return reading.summary(self.tables)

    def queues(self) -> list[QueueCounts]:
        return reading.queues(self.tables, self.now())

    def queued(self, *, queue: str | None = None, limit: int = 50, after: str | None = None) -> Page[Task]:
        return reading.queued(self.tables, self.now(), queue, limit, after)

    def ids(self, noun: Noun, part: str, *, limit: int = 10) -> list[str]:
        return reading.ids(self.tables, noun, part)[:limit]

    def vitals(self, *, thorough: bool = False) -> Vitals:  # noqa: ARG002 - it cannot be damaged
        return reading.vitals(self.tables)

    def history(self, task_id: str) -> list[Transition]:
        return list(self.tables.transitions.get(task_id, ()))

    def steps(self, task_id: str) -> list[Step]:
        return reading.steps(self.tables, task_id)

    def standing(self, task_id: str) -> Task | None:
        task = self.get(task_id)
        return None if task is None else replace(task, user_input=None)

    def revisions(self, task_ids: Collection[str]) -> dict[str, int]:
        return {task_id: self.tables.task(task_id).revision for task_id in task_ids if task_id in self.tables.tasks}

    def step(self, task_id: str, key: str, *, of_round: int) -> Step | None:
        lines = reading.steps(self.tables, task_id)
        return next((line for line in lines if (line.round, line.key) == (of_round, key)), None)

    def last_steps(self, task_ids: Collection[str]) -> dict[str, Step]:
        return {
            task_id: replace(steps[-1], output=None, error=None)
            for task_id in task_ids
            if (steps := reading.steps(self.tables, task_id))
        }

    def effects(
        self,
        *,
        task_id: str | None = None,
        effect_id: str | None = None,
        states: Collection[EffectState] | None = None,
        limit: int = 100,
    ) -> list[Effect]:
        return reading.effects(self.tables, task_id=task_id, effect_id=effect_id, states=states)[:limit]

    def evidence(self, task_id: str, effect_id: str) -> list[Evidence]:
        return list(self.tables.evidence.get((task_id, effect_id), ()))

    def patches(self, task_id: str, *, after: int = 0) -> list[PatchRecord]:
        return reading.patches(self.tables, task_id, after)

    def checkpoints(self, task_id: str) -> list[Checkpoint]:
        return reading.checkpoints(self.tables, task_id)

    def approvals(
        self, *, task_id: str | None = None, states: Collection[ApprovalState] | None = None, limit: int = 100
    ) -> list[Approval]:
        return reading.approvals(self.tables, task_id, states)[:limit]

    def approval(self, approval_id: str) -> Approval | None:
        return self.tables.approvals.get(approval_id)

    def accounts(self, account: str) -> list[Account]:
        return reading.accounts(self.tables, account)

    def workers(self) -> list[Worker]:
        return [row.worker for _, row in sorted(self.tables.workers.items())]

    def events(self, channel: str, *, after: int = 0, limit: int = 100) -> list[Event]:
        return [event for event in self.tables.events.get(channel, ()) if event.number > after][:limit]

    def position(self, channel: str, *, before_task: str | None = None) -> int:
        return reading.position(self.tables, channel, before_task)

    def put_artifact(self, content: bytes, *, media_type: str = "application/octet-stream") -> Artifact:
        return keeping.put_artifact(self.tables, content, media_type, self.now())

    def artifact(self, artifact_id: str) -> Artifact | None:
        return self.tables.artifacts[artifact_id][0] if artifact_id in self.tables.artifacts else None

    def read_artifact(self, artifact_id: str, *, offset: int = 0, length: int | None = None) -> bytes:
        if artifact_id not in self.tables.artifacts:
            raise NotFound("artifact", artifact_id)
        content = self.tables.artifacts[artifact_id][1]
        return content[offset:] if length is None else content[offset : offset + length]

    def artifact_links(self, task_id: str) -> list[ArtifactLink]:
        return [link for (task, _), link in sorted(self.tables.links.items()) if task == task_id]

    def remember(self, *facts: MemoryFact, seen: Subject | None = None) -> list[MemoryFact]:
        return remembering.remember(self.tables, facts, seen, self.now())

    def fact(self, fact_id: str) -> MemoryFact | None:
        return self.tables.facts.get(fact_id)

    def subject(self, entity: str, attribute: str, *, other: str | None = None, also: Collection[str] = ()) -> Subject:
        return remembering.subject(self.tables, (entity, attribute, other), also, self.now())

    def recall(
        self,
        entity: str | None = None,
        attribute: str | None = None,
        *,
        other: str | None = None,
        live: bool = False,
        contested: bool = False,
        after: MemoryFact | None = None,
        limit: int = 100,
    ) -> list[MemoryFact]:
        found = remembering.recall(self.tables, entity, attribute, other, live=live, contested=contested)
        return remembering.newest_first(found, after)[:limit]

    def search(self, text: str, *, limit: int = 100) -> list[MemoryFact]:
        return remembering.search(self.tables, text)[:limit]

    def forget(self, fact_id: str) -> bool:
        return remembering.forget(self.tables, fact_id)

    def add_evidence(self, evidence: Evidence) -> None:
        keeping.add_evidence(self.tables, evidence, self.now())

    def prune(self, older_than: timedelta, *, limit: int = 1000) -> Pruned:
        return keeping.prune(self.tables, older_than, limit, self.now())
