"""The contract every store keeps: a few domain verbs, in four groups.

Work     submit, register, heartbeat, drain, retire, claim, acquire, owned, sweep, commit, load, emit, transact
Reads    get, find, count, summary, queues, queued, ids, history, steps, effects, ... : nothing here changes anything
Keeping  artifacts, memory facts, evidence, prune
Notice   listen: hints that something changed; polling stays the truth

Rules that hold for every verb of every store:

* A verb is atomic. It raises before it changes anything, or everything it says is durable when it returns. (A very
  long batch of Commits may be several transactions; each Commit is whole.)
* ``StoreUnavailable`` from a writing verb means *unknown*: the write may have happened. Every writing verb is safe to
  send again: submissions by id or key, claims by number, Commits by sequence or request, events by key. (Not so
  ``transact``, which runs somebody's SQL; see there.)
* Time is the store's: the database's clock on PostgreSQL, the machine's elsewhere. Tests pass a ManualClock.
* Fences are checked under the row's lock: a worker that slept through its lease can change nothing.

``holdfast.testing.contract`` is this page as tests; a fifth store is done when it passes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Protocol, Self, TypeVar

from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.commit import Commit, Verdict
from holdfast.model.effect import Effect, EffectState, Evidence
from holdfast.model.errors import InvalidValue
from holdfast.model.memory import Subject
from holdfast.model.queries import Loaded, Noun, Page, Pruned, QueueCounts, Summary, TaskFilter, Vitals
from holdfast.model.records import Account, Artifact, ArtifactLink, Checkpoint, Event, MemoryFact, PatchRecord
from holdfast.model.step import Step
from holdfast.model.task import SCOPED_KEYS, JsonValue, NewTask, Submitted, Task
from holdfast.model.transitions import TaskState, Transition
from holdfast.model.worker import Claim, Claimed, Heartbeat, Lease, NewWorker, Swept, Worker
from holdfast.store.outage import Outage
from holdfast.store.task_store import TaskStore
from holdfast.store.transaction import Work

T = TypeVar("T")

ANYTHING = "*"
"""The topic of a hint that cannot say what changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What sets one store apart from another; printed in the docs and used by tests instead of silent skips."""

    durable: bool
    """What it acknowledged survives a power cut."""
    multi_process: bool
    """Several processes may open it at once."""
    multi_machine: bool
    """Workers on several machines may share it."""
    precise_hints: bool
    """Hints from other processes name their topic, instead of ANYTHING."""
    transactions: bool = False
    """It keeps tables of anybody's, and changes them together with a task: the verb ``transact``."""


class Listener(Protocol):
    """Hints, coalesced. Topics: ``queue:<name>`` (something became claimable), ``task:<id>``, ``channel:<name>``."""

    async def wait(self, timeout: float | None = None) -> frozenset[str]:
        """Return the topics noted since the last call, as soon as there are any; empty when the time is up.

        A hint may come for nothing and, where a connection was lost, may be missing: poll as well.
        """


class WorkVerbs(ABC):
    """The verbs the engine works with."""

    @abstractmethod
    async def submit(self, tasks: Sequence[NewTask]) -> list[Submitted]:
        """Store these tasks in one transaction; answer each in order.

        A task whose id, or whose (name, key), is already stored is not stored again: with the same name and input it
        is answered with that task's id, with other input as a conflict. Its first Transition is (None -> state).
        ``budget`` opens an account under the task's id.
        """

    @abstractmethod
    async def register(self, worker: NewWorker) -> Worker:
        """Enter a fresh incarnation; its lease runs from now. Registering the same id again is answered, not renewed.

        Raises WorkerDead where that incarnation is over.
        """

    @abstractmethod
    async def heartbeat(self, worker_id: str) -> Heartbeat:
        """Renew the worker's one lease, which covers all its tasks. Raises WorkerDead: abandon everything."""

    @abstractmethod
    async def drain(self, worker_id: str) -> None:
        """Let the worker keep its tasks and claim no more. Raises WorkerDead."""

    @abstractmethod
    async def retire(self, worker_id: str) -> list[str]:
        """End the incarnation in good order: its tasks are handed back (no death is counted); returns their ids.

        Retiring a dead or unknown worker does nothing.
        """

    @abstractmethod
    async def claim(self, claim: Claim) -> list[Claimed]:
        """Lease up to ``limit`` ready tasks by rank, then id: pending ones become running, those in review stay so.

        Only the named queues and names; no task whose deadline has passed (unless it must undo), and none whose keys
        have a form above ``key_form``, which becomes the form of a task that is claimed for the first time.

        Raises WorkerDead; a draining worker, or one whose lease ran out unnoticed, gets nothing. A repeated number
        returns what is still held of that claim.
        """

    @abstractmethod
    async def has_suspect(self, claim: Claim) -> bool:
        """Say whether a suspect is ready in the queues, of the names and with the keys of this claim."""

    @abstractmethod
    async def acquire(self, task_id: str, worker_id: str, *, key_form: int = SCOPED_KEYS) -> Claimed:
        """Lease this very task without moving it. Raises NotFound, LeaseHeld, WorkerDead, and Conflict.

        Conflict: it has ended, or its keys have a form above ``key_form``. A first lease sets that, as a claim does.
        A task the worker already holds is answered as it stands.
        """

    @abstractmethod
    async def owned(self, worker_id: str) -> list[Lease]:
        """List what the worker holds, by task id: how it finds a claim whose answer was lost."""

    @abstractmethod
    async def sweep(self, limit: int = 100) -> Swept:
        """Do what time alone made true, at most ``limit`` of each kind. Whoever claims calls it; there is no reaper.

        Dead workers lose their tasks (running -> pending, or failed as poison; review stays; fence + 1), due timers
        wake their task, delayed tasks become ready, passed deadlines fail tasks nobody holds (those that must undo
        are woken instead), approvals expire. Nobody is declared dead right after the database itself was away.
        """

    @abstractmethod
    async def commit(self, commits: Sequence[Commit]) -> list[Verdict]:
        """Make these Commits durable in one transaction, as if applied one after the other; answer each in order.

        What could not mean anything raises InvalidValue at the door, before anything is applied. A refused Commit
        changes nothing and spoils no other. A Commit already applied is answered as a duplicate, before owner and state
        are looked at. A terminal Move closes the task's open approvals, counts its
        unsettled reservations as spent and wakes a parent whose join it completes. A Commit that leaves its task
        waiting for something that is already true moves it on to pending.
        """

    @abstractmethod
    async def load(self, task_id: str, *, after: int = 0) -> Loaded:
        """Read a task with all a worker needs to go on, in one round trip at one moment. Raises NotFound.

        Steps of the current round with a position above ``after``, and steps of earlier rounds that have an effect.
        Effects and approvals of all rounds, however many.
        """

    @abstractmethod
    async def emit(self, channel: str, payload: JsonValue, *, key: str | None = None, actor: str = "emit") -> Event:
        """Append an event and wake the tasks that wait for it. The same key again returns the first event."""


class Reads(ABC):
    """Questions. Listings are in order of (created_at, id) unless they say otherwise."""

    @abstractmethod
    async def get(self, task_id: str) -> Task | None:
        """Return the task, or None."""

    async def standing(self, task_id: str) -> Task | None:
        """Return the task without its input, or None: ``user_input`` is None, and the rest is as ``get`` returns it.

        For those who wait for its end and look after every change. A store that can leave a large input unread should.
        """
        task = await self.get(task_id)
        return None if task is None else replace(task, user_input=None)

    @abstractmethod
    async def revisions(self, task_ids: Collection[str]) -> dict[str, int]:
        """Return the revision of each task, which grows with every change; one that does not exist is absent.

        For whoever watches many: nothing else need be read to see that nothing happened.
        """

    @abstractmethod
    async def find(
        self,
        where: TaskFilter | None = None,
        *,
        limit: int = 50,
        after: str | None = None,
        newest_first: bool = True,
    ) -> Page[Task]:
        """Return one page of tasks; ``after`` is the ``next`` of the page before. A cursor nobody issued is refused."""

    @abstractmethod
    async def count(self, where: TaskFilter | None = None) -> dict[TaskState, int]:
        """Count tasks by state; states without any are absent."""

    @abstractmethod
    async def summary(self) -> Summary:
        """Count everything a person wants to see first."""

    @abstractmethod
    async def queues(self) -> list[QueueCounts]:
        """Count the tasks that have not ended, queue by queue, by name; a queue without any is absent."""

    @abstractmethod
    async def queued(self, *, queue: str | None = None, limit: int = 50, after: str | None = None) -> Page[Task]:
        """Return one page of what waits to be claimed, in the order in which it comes up: pending tasks nobody holds.

        First those that are due, whether or not a sweep has seen it, by rank, then id, as ``claim`` takes them; then
        the delayed ones, by when they become due. All queues together are one ranking. Left out is what no claim
        takes: a task whose deadline has passed (unless it must undo).

        ``after`` is the ``next`` of the page before; a cursor nobody issued is refused. What is due is decided by the
        time of the first page, so that nothing moves merely because time passes from page to page.
        """

    @abstractmethod
    async def ids(self, noun: Noun, part: str, *, limit: int = 10) -> list[str]:
        """Return, sorted, ids that begin with ``part``; if there are none, those whose end is or begins with it.

        For people who type a few characters of an id: its beginning tells when it was made, its end is random, and its
        last eight characters are what they are shown. Nothing in ``part`` is a pattern.
        """

    @abstractmethod
    async def vitals(self, *, thorough: bool = False) -> Vitals:
        """Say how the store is doing. What this user may not see is left out.

        ``thorough`` looks through the whole file for damage, where the store is one (SQLite); it takes its time.
        """

    @abstractmethod
    async def history(self, task_id: str) -> list[Transition]:
        """Return every move of the task, first to last."""

    @abstractmethod
    async def steps(self, task_id: str) -> list[Step]:
        """Return the whole journal of all rounds, by position."""

    @abstractmethod
    async def step(self, task_id: str, key: str, *, of_round: int) -> Step | None:
        """Return the line under one key of the journal, or None. A long journal is not read for it."""

    @abstractmethod
    async def last_steps(self, task_ids: Collection[str]) -> dict[str, Step]:
        """Return the newest line of each task's journal, without its payloads; a task that has none is absent."""

    @abstractmethod
    async def effects(
        self,
        *,
        task_id: str | None = None,
        effect_id: str | None = None,
        states: Collection[EffectState] | None = None,
        limit: int = 100,
    ) -> list[Effect]:
        """Return effects by (task id, effect id): of one task, or across all, such as those that need a human.

        An effect id alone finds its effect, whichever task it belongs to.
        """

    @abstractmethod
    async def evidence(self, task_id: str, effect_id: str) -> list[Evidence]:
        """Return what fenced workers reported late, oldest first."""

    @abstractmethod
    async def patches(self, task_id: str, *, after: int = 0) -> list[PatchRecord]:
        """Return the patches with a version above ``after``, in order."""

    @abstractmethod
    async def checkpoints(self, task_id: str) -> list[Checkpoint]:
        """Return all checkpoints by number, damaged ones included."""

    @abstractmethod
    async def approvals(
        self, *, task_id: str | None = None, states: Collection[ApprovalState] | None = None, limit: int = 100
    ) -> list[Approval]:
        """Return approvals by id."""

    @abstractmethod
    async def approval(self, approval_id: str) -> Approval | None:
        """Return one approval, or None."""

    @abstractmethod
    async def accounts(self, account: str) -> list[Account]:
        """Return the meters of a budget account, by meter."""

    @abstractmethod
    async def workers(self) -> list[Worker]:
        """Return all workers still kept, by id."""

    @abstractmethod
    async def events(self, channel: str, *, after: int = 0, limit: int = 100) -> list[Event]:
        """Return the channel's events with a number above ``after``, in order."""

    @abstractmethod
    async def position(self, channel: str, *, before_task: str | None = None) -> int:
        """Return the number of the channel's last event (from before the submission of this task); 0 without any.

        It is where a reader starts who wants only what comes later (or what came since the submission). Where all kept
        events are later, it is right in front of the first of them; where nothing is kept, it is the channel's last
        number: a prune takes no reader back.

        Which event came first is no matter of time: a clock may step back. An event whose emit had returned when the
        submission began is from before it; an event whose emit was under way is later. In one Commit, and in one batch
        of them, the order in which they stand decides. Raises NotFound where there is no such task.
        """


class Keeping(ABC):
    """What lives outside one task: artifacts, memory, evidence; and how old things go."""

    @abstractmethod
    async def put_artifact(
        self, content: bytes | AsyncIterable[bytes], *, media_type: str = "application/octet-stream"
    ) -> Artifact:
        """Store bytes under their SHA-256; the same bytes again are the same artifact, stored once and young again.

        A stream is stored as it comes, and an artifact when it has ended. One that fails or is cut leaves nothing to
        be read; what a dead process leaves goes with a prune. Only whole bytes can be sent again.
        """

    @abstractmethod
    async def artifact(self, artifact_id: str) -> Artifact | None:
        """Describe an artifact, or None."""

    @abstractmethod
    async def read_artifact(self, artifact_id: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Read a range of it without touching the rest. Raises NotFound."""

    @abstractmethod
    async def artifact_links(self, task_id: str) -> list[ArtifactLink]:
        """Return what the task uses, by artifact id."""

    @abstractmethod
    async def remember(self, *facts: MemoryFact, seen: Subject | None = None) -> list[MemoryFact]:
        """Store facts of one subject, or replace them by their ids, all or none; return them with their dates.

        With ``seen``, only if nobody changed the subject since it was read; raises Conflict otherwise. A fact that has
        the id of one about something else is refused with InvalidValue. The store keeps no other rules about facts:
        what follows from what is decided by ``holdfast.model.memory``.
        """

    @abstractmethod
    async def fact(self, fact_id: str) -> MemoryFact | None:
        """Return one fact, or None."""

    @abstractmethod
    async def subject(
        self, entity: str, attribute: str, *, other: str | None = None, also: Collection[str] = ()
    ) -> Subject:
        """Read a subject to change it: its mark and its live facts, at one moment, oldest first.

        ``other`` names the other entity of a relation; ``also`` are ids of facts of the subject that are read as well,
        if they are there, be they superseded or not.
        """

    @abstractmethod
    async def recall(
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
        """Return the facts that fit every given part, newest first: by (created_at, id), from ``after`` on.

        ``other`` asks for relations that lead there, ``live`` for what is not superseded, ``contested`` for live facts
        that are not alone on their subject (relations never are contested).
        """

    @abstractmethod
    async def search(self, text: str, *, limit: int = 100) -> list[MemoryFact]:
        """Return live facts that have words of ``text`` in entity, attribute or value, be it as their beginning.

        For each word of the text a fact gets a point if one of its words begins with it, and another if one is that
        very word. Most points first; then the one last said or verified, then the higher id. Any text will do: nothing
        in it is syntax.
        """

    @abstractmethod
    async def forget(self, fact_id: str) -> bool:
        """Delete a fact; say whether there was one."""

    @abstractmethod
    async def add_evidence(self, evidence: Evidence) -> None:
        """Keep what a fenced worker learned too late. Changes no state."""

    @abstractmethod
    async def prune(self, older_than: timedelta, *, limit: int = 1000) -> Pruned:
        """Delete tasks that ended longer ago than this, with all their rows, at most ``limit``.

        Children go only with their parent, and a tree of tasks only if all of it ended as long ago, nothing is reserved
        on an account of its tasks and none of their effects is in doubt. Also goes: events as old, artifacts as old
        that no task uses, uploads as long without a new piece, and workers as long dead. Events on a channel
        ``<word>:<id>`` stay while the task with that id is open, or the effect with that id is stored.
        """


class StateStore(WorkVerbs, Reads, Keeping, TaskStore):
    """A place where tasks survive. Open one by URL: ``async with open_store("sqlite:///agents.db") as store``.

    This is everything that engine, agents and commands need. What a program needs that drives its tasks by hand, and
    what a small store of your own has to implement for it, are the four methods of TaskStore.
    """

    capabilities: Capabilities

    @cached_property
    def outage(self) -> Outage:
        """What the log says about times in which this store cannot be used; its users and the store itself report."""
        return Outage()

    @abstractmethod
    async def open(self) -> Self:
        """Connect, check the schema and migrate where this store migrates by itself. Opening twice is refused."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of everything. Closing twice is fine; any verb afterwards raises StoreClosed."""

    @abstractmethod
    def listen(self) -> AbstractAsyncContextManager[Listener]:
        """Listen for hints until the block ends."""

    @abstractmethod
    async def now(self) -> datetime:
        """Return the time this store goes by."""

    def check_place(self) -> None:
        """Raise StoreReplaced if another store stands at the path than the one that is open. Any thread may ask.

        Asked right before a call is sent that must not be sent twice, so it takes microseconds. A store on a server
        has nothing to look at.
        """

    async def transact(self, work: Work[T], *, timeout: float) -> tuple[T, Verdict | None]:  # noqa: ARG002 - not here
        """Do ``work``, and apply the Commit it returns, in one transaction of the database: all of it or nothing.

        Returns the result of the work and the verdict on its Commit, which has to be a worker's. A Commit that is
        refused undoes the work as well, and so does whatever the work raises. A number that was applied before is
        refused as out of order: the SQL that came with it was other SQL.

        For as long as the work takes the transaction is open, and on SQLite nobody else can write; after ``timeout``
        seconds it is rolled back and DeadlineExceeded is raised. A caller who is cancelled leaves nothing open.

        With a Commit, StoreUnavailable means that nothing was written: an outcome that is unknown is asked for, by
        task, fence and number, for as long as it takes. (If the task went to another worker meanwhile, the Commit
        counts as superseded, and only the journal knows.) Without a Commit it means that it may have been written.

        For stores with the capability ``transactions``; others raise InvalidValue.
        """
        raise InvalidValue(
            f"a {type(self).__name__} keeps no tables but Holdfast's own, so there is no transaction to share with it; "
            "use sqlite:/// or postgresql://"
        )

    async def __aenter__(self) -> Self:
        """Open."""
        return await self.open()

    async def __aexit__(self, *exception: object) -> None:
        """Close."""
        await self.close()
