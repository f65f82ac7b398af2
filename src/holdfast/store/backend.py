"""Backend: what a database has to do for a store. The store has checked every argument at its door.

The verbs mean what the store's verbs of the same names mean (work_verbs.py, flow_verbs.py, read_verbs.py,
feed_verbs.py, schedule_verbs.py, keep_verbs.py); only the arguments are all given. A fifth store is a Backend and a
StateStore made of it.
"""

# ruff: noqa: D102 - the verbs are explained once, in the classes of the store

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeAlias, TypeVar

from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.commit import Commit, Verdict
from holdfast.model.effect import Effect, EffectState, Evidence
from holdfast.model.errors import InvalidValue
from holdfast.model.feed import FeedPage, FeedRetention
from holdfast.model.flow_limit import Limit, LimitUse, PermitAnswer, PermitRequest, PermitReturn
from holdfast.model.memory import Subject
from holdfast.model.pause import Pause
from holdfast.model.queries import Loaded, Noun, Page, Pruned, QueueCounts, Summary, TaskFilter, Vitals
from holdfast.model.queue_settings import QueueChange, QueueSettings
from holdfast.model.records import Account, Artifact, ArtifactLink, Checkpoint, Event, MemoryFact, PatchRecord
from holdfast.model.schedule import StoredSchedule
from holdfast.model.step import Step
from holdfast.model.task import JsonValue, NewTask, Submitted, Task
from holdfast.model.transitions import TaskState, Transition
from holdfast.model.worker import Claim, Claimed, Heartbeat, Lease, NewWorker, Swept, Worker
from holdfast.store.outage import Outage
from holdfast.store.transaction import Work
from holdfast.store.upload import Uploads

T = TypeVar("T")

Pending: TypeAlias = Coroutine[Any, Any, T]
"""What a verb returns, to be awaited. Its arguments are checked when it is called, and what it does begins when it is
awaited: so no coroutine of the door stands between its caller and the database."""


class Listener(Protocol):
    """Hints, coalesced. Topics: ``queue:<name>`` (something became claimable), ``task:<id>``, ``channel:<name>``."""

    async def wait(self, timeout: float | None = None) -> frozenset[str]:
        """Return the topics noted since the last call, as soon as there are any; empty when the time is up.

        A hint may come for nothing and, where a connection was lost, may be missing: poll as well.
        """


class UserSubmission(Protocol):
    """Tasks on their way into an open transaction of the caller's, who commits it or rolls it back."""

    async def write(self) -> list[Submitted]:
        """Store the tasks, with a connection that does not block."""

    def write_blocking(self) -> list[Submitted]:
        """Store the tasks in this thread, with a connection that blocks."""


class Backend(Uploads):
    """One database, with a function for every verb."""

    outage: Outage
    """Times in which the database cannot be used, as this process noticed them."""

    # Opening, time and hints

    @abstractmethod
    async def open(self) -> None: ...  # explained in StateStore, as are those that follow

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def now(self) -> datetime: ...

    @abstractmethod
    def listen(self) -> AbstractAsyncContextManager[Listener]: ...

    def check_place(self) -> None:
        return

    # Work

    @abstractmethod
    async def submit(self, tasks: Sequence[NewTask]) -> list[Submitted]: ...

    async def submission_on(self, connection: object, tasks: Sequence[NewTask]) -> UserSubmission:
        del connection, tasks
        raise InvalidValue(
            "connection= is for stores in PostgreSQL; in SQLite, no second connection may be open on the file in this "
            "process. Write your rows and submit the task in one transaction of Holdfast's: hold.transaction(work), "
            "with tx.execute and tx.submit"
        )

    @abstractmethod
    async def register(self, worker: NewWorker) -> Worker: ...

    @abstractmethod
    async def heartbeat(self, worker_id: str) -> Heartbeat: ...

    @abstractmethod
    async def drain(self, worker_id: str) -> None: ...

    @abstractmethod
    async def retire(self, worker_id: str) -> list[str]: ...

    @abstractmethod
    async def claim(self, claim: Claim) -> list[Claimed]: ...

    @abstractmethod
    async def has_suspect(self, claim: Claim) -> bool: ...

    @abstractmethod
    async def acquire(self, task_id: str, worker_id: str, key_form: int) -> Claimed: ...

    @abstractmethod
    async def owned(self, worker_id: str) -> list[Lease]: ...

    @abstractmethod
    async def sweep(self, limit: int) -> Swept: ...

    @abstractmethod
    async def commit(self, commits: Sequence[Commit]) -> list[Verdict]: ...

    @abstractmethod
    async def load(self, task_id: str, after: int) -> Loaded: ...

    @abstractmethod
    async def emit(self, channel: str, payload: JsonValue, key: str | None, actor: str) -> Event: ...

    @abstractmethod
    async def pause(self, subject: str, by: str, reason: str | None) -> Pause: ...

    @abstractmethod
    async def unpause(self, subject: str) -> bool: ...

    @abstractmethod
    async def pauses(self) -> list[Pause]: ...

    @abstractmethod
    async def set_queue(self, name: str, change: QueueChange) -> QueueSettings: ...

    @abstractmethod
    async def queue_settings(self) -> list[QueueSettings]: ...

    @abstractmethod
    async def set_limit(self, limit: Limit) -> Limit: ...

    @abstractmethod
    async def limits(self) -> list[Limit]: ...

    @abstractmethod
    async def limit_uses(self, name: str | None, limit: int) -> list[LimitUse]: ...

    @abstractmethod
    async def take_permits(self, requests: Sequence[PermitRequest]) -> list[PermitAnswer]: ...

    @abstractmethod
    async def return_permits(self, returned: Sequence[PermitReturn]) -> None: ...

    @abstractmethod
    async def close_limit(self, keys: Sequence[str], until: datetime) -> None: ...

    @abstractmethod
    async def transact(self, work: Work[T], timeout: float) -> tuple[T, Verdict | None]: ...

    # Reads

    @abstractmethod
    async def get(self, task_id: str) -> Task | None: ...

    @abstractmethod
    async def standing(self, task_id: str) -> Task | None: ...

    @abstractmethod
    async def revisions(self, task_ids: Collection[str]) -> dict[str, int]: ...

    @abstractmethod
    async def find(self, where: TaskFilter, limit: int, after: str | None, *, newest_first: bool) -> Page[Task]: ...

    @abstractmethod
    async def count(self, where: TaskFilter) -> dict[TaskState, int]: ...

    @abstractmethod
    async def summary(self) -> Summary: ...

    @abstractmethod
    async def queues(self) -> list[QueueCounts]: ...

    @abstractmethod
    async def queued(self, queue: str | None, limit: int, after: str | None) -> Page[Task]: ...

    @abstractmethod
    async def ids(self, noun: Noun, part: str, limit: int) -> list[str]: ...

    @abstractmethod
    async def vitals(self, *, thorough: bool) -> Vitals: ...

    @abstractmethod
    async def history(self, task_id: str) -> list[Transition]: ...

    @abstractmethod
    async def steps(self, task_id: str) -> list[Step]: ...

    @abstractmethod
    async def step(self, task_id: str, key: str, of_round: int) -> Step | None: ...

    @abstractmethod
    async def last_steps(self, task_ids: Collection[str]) -> dict[str, Step]: ...

    @abstractmethod
    async def effects(
        self, task_id: str | None, effect_id: str | None, states: Collection[EffectState] | None, limit: int
    ) -> list[Effect]: ...

    @abstractmethod
    async def evidence(self, task_id: str, effect_id: str) -> list[Evidence]: ...

    @abstractmethod
    async def patches(self, task_id: str, after: int) -> list[PatchRecord]: ...

    @abstractmethod
    async def checkpoints(self, task_id: str) -> list[Checkpoint]: ...

    @abstractmethod
    async def approvals(
        self, task_id: str | None, states: Collection[ApprovalState] | None, limit: int
    ) -> list[Approval]: ...

    @abstractmethod
    async def approval(self, approval_id: str) -> Approval | None: ...

    @abstractmethod
    async def accounts(self, account: str) -> list[Account]: ...

    @abstractmethod
    async def workers(self) -> list[Worker]: ...

    @abstractmethod
    async def events(self, channel: str, after: int, limit: int) -> list[Event]: ...

    @abstractmethod
    async def position(self, channel: str, before_task: str | None) -> int: ...

    # The feed

    @abstractmethod
    async def read_feed(self, after: str | None, limit: int) -> FeedPage: ...

    @abstractmethod
    async def set_feed_retention(self, retention: FeedRetention) -> None: ...

    @abstractmethod
    async def feed_retention(self) -> FeedRetention: ...

    # Schedules

    @abstractmethod
    async def put_schedule(
        self, schedule: StoredSchedule, seen: int, tasks: Sequence[NewTask]
    ) -> list[Submitted] | None: ...

    @abstractmethod
    async def delete_schedule(self, name: str, seen: int) -> bool: ...

    @abstractmethod
    async def schedule(self, name: str) -> StoredSchedule | None: ...

    @abstractmethod
    async def schedules(self) -> list[StoredSchedule]: ...

    @abstractmethod
    async def due_schedules(self, limit: int) -> list[StoredSchedule]: ...

    # Keeping

    @abstractmethod
    async def artifact(self, artifact_id: str) -> Artifact | None: ...

    @abstractmethod
    async def read_artifact(self, artifact_id: str, offset: int, length: int | None) -> bytes: ...

    @abstractmethod
    async def artifact_links(self, task_id: str) -> list[ArtifactLink]: ...

    @abstractmethod
    async def remember(self, facts: Sequence[MemoryFact], seen: Subject | None) -> list[MemoryFact]: ...

    @abstractmethod
    async def fact(self, fact_id: str) -> MemoryFact | None: ...

    @abstractmethod
    async def subject(self, entity: str, attribute: str, other: str | None, also: Collection[str]) -> Subject: ...

    @abstractmethod
    async def recall(
        self,
        entity: str | None,
        attribute: str | None,
        other: str | None,
        *,
        live: bool,
        contested: bool,
        after: MemoryFact | None,
        limit: int,
    ) -> list[MemoryFact]: ...

    @abstractmethod
    async def search(self, text: str, limit: int) -> list[MemoryFact]: ...

    @abstractmethod
    async def forget(self, fact_id: str) -> bool: ...

    @abstractmethod
    async def add_evidence(self, evidence: Evidence) -> None: ...

    @abstractmethod
    async def prune(self, older_than: timedelta, limit: int) -> Pruned: ...
