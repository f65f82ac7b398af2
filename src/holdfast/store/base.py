"""The contract every store keeps: a few domain verbs, in groups.

Work     submit, register, heartbeat, drain, retire, claim, acquire, owned, sweep, commit, load, emit, transact,
         submission_on
Flow     pause, unpause, pauses, set_queue, queue_settings
Reads    get, find, count, summary, queues, queued, ids, history, steps, effects, ... : nothing here changes anything
Feed     read_feed, set_feed_retention, feed_retention: everything that happens, in order
Times    put_schedule, delete_schedule, schedule, schedules, due_schedules: what is submitted again and again
Keeping  artifacts, memory facts, evidence, prune
Notice   listen: hints that something changed; polling stays the truth

Rules that hold for every verb of every store:

* A verb is atomic. It raises before it changes anything, or everything it says is durable when it returns. (A very
  long batch of Commits may be several transactions; each Commit is whole.)
* ``StoreUnavailable`` from a writing verb means *unknown*: the write may have happened. Every writing verb is safe to
  send again: submissions by id or key, claims by number, Commits by sequence or request, events by key. (Not so
  ``transact`` and ``submission_on``, which share a transaction with SQL of the user; see there.)
* Time is the store's: the database's clock on PostgreSQL, the machine's elsewhere. Tests pass a ManualClock.
* Fences are checked under the row's lock: a worker that slept through its lease can change nothing.

What could not mean anything is refused at the door, with InvalidValue, when the verb is called: here, once, and so by
every store alike. Behind the door stands the Backend of a database (backend.py).

``holdfast.testing.contract`` is this page as tests; a fifth store is done when it passes them.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Self, TypeVar

from holdfast.model.commit import Verdict
from holdfast.model.errors import InvalidValue
from holdfast.store.backend import Backend, Listener, Pending
from holdfast.store.checks import check_timeout
from holdfast.store.feed_verbs import FeedVerbs
from holdfast.store.flow_verbs import FlowVerbs
from holdfast.store.keep_verbs import KeepVerbs
from holdfast.store.outage import Outage
from holdfast.store.read_verbs import ReadVerbs
from holdfast.store.schedule_verbs import ScheduleVerbs
from holdfast.store.task_store import TaskStore
from holdfast.store.transaction import Work, refuse_inside
from holdfast.store.work_verbs import WorkVerbs

__all__ = ["ANYTHING", "Capabilities", "Listener", "StateStore"]

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
    """It keeps users' own tables, and changes them together with a task: the verb ``transact``."""


class StateStore(WorkVerbs, FlowVerbs, ReadVerbs, FeedVerbs, ScheduleVerbs, KeepVerbs, TaskStore):
    """A place where tasks survive. Open one by URL: ``async with open_store("sqlite:///agents.db") as store``.

    This is everything that engine, agents and commands need. What a program needs that drives its tasks by hand, and
    what a small store of your own has to implement for it, are the four methods of TaskStore.
    """

    capabilities: Capabilities
    outage: Outage
    """What the log says about times in which this store cannot be used; its users and the store itself report."""

    def __init__(self, backend: Backend) -> None:
        """Let this database do what passes the door."""
        self._backend = backend
        self.outage = backend.outage

    async def open(self) -> Self:
        """Connect, check the schema and migrate where this store migrates by itself. Opening twice is refused."""
        await self._backend.open()
        return self

    async def close(self) -> None:
        """Let go of everything. Closing twice is fine; any verb afterwards raises StoreClosed."""
        await self._backend.close()

    def listen(self) -> AbstractAsyncContextManager[Listener]:
        """Listen for hints until the block ends."""
        return self._backend.listen()

    def now(self) -> Pending[datetime]:
        """Return the time this store goes by."""
        return self._backend.now()

    def check_place(self) -> None:
        """Raise StoreReplaced if another store stands at the path than the one that is open. Any thread may ask.

        Asked right before a call is sent that must not be sent twice, so it takes microseconds. A store on a server
        has nothing to look at.
        """
        self._backend.check_place()

    async def transact(self, work: Work[T], *, timeout: float) -> tuple[T, Verdict | None]:
        """Do ``work``, and apply the Commit it returns, in one transaction of the database: all of it or nothing.

        Returns the result of the work and the verdict on its Commit, which has to be a worker's. A Commit that is
        refused undoes the work as well, and so does whatever the work raises. A number that was applied before is
        refused as out of order: the SQL that came with it was other SQL.

        What the work submits (``tx.submit``) is part of it, and can be claimed after the COMMIT.

        The transaction is open as long as the work takes, and on SQLite no other process can write meanwhile. After
        ``timeout`` seconds it is rolled back and DeadlineExceeded is raised. A cancelled caller leaves nothing open.

        With a Commit, StoreUnavailable means that nothing was written: an outcome that is unknown is asked for, by
        task, fence and number, for as long as it takes. (If the task went to another worker meanwhile, the Commit
        counts as superseded, and only the journal knows.) Without a Commit it means that it may have been written.

        For stores with the capability ``transactions``; others raise InvalidValue.
        """
        if not self.capabilities.transactions:
            raise InvalidValue(
                f"a {type(self).__name__} keeps no tables but Holdfast's own, so there is no transaction to share with "
                "it; use sqlite:/// or postgresql://"
            )
        check_timeout(timeout)
        refuse_inside("another transaction")
        return await self._backend.transact(work, timeout)

    async def __aenter__(self) -> Self:
        """Open."""
        return await self.open()

    async def __aexit__(self, *exception: object) -> None:
        """Close."""
        await self.close()
