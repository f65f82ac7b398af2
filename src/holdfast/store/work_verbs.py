"""The verbs the engine works with, and what is refused at their door."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.checks import check_integer, check_name
from holdfast.model.commit import Commit, Verdict
from holdfast.model.queries import Loaded
from holdfast.model.records import Event
from holdfast.model.task import SCOPED_KEYS, JsonValue, NewTask, Submitted
from holdfast.model.worker import Claim, Claimed, Heartbeat, Lease, NewWorker, Swept, Worker
from holdfast.store.backend import Backend, Pending, UserSubmission
from holdfast.store.checks import (
    check_claim,
    check_commits,
    check_event_key,
    check_key_form,
    check_limit,
    check_payload,
    check_sought,
    check_submission,
)


class WorkVerbs:
    """The verbs the engine works with."""

    _backend: Backend

    def submit(self, tasks: Sequence[NewTask]) -> Pending[list[Submitted]]:
        """Store these tasks in one transaction; answer each in order.

        A task whose id, or whose (name, key), is already stored is not stored again: with the same name and input it
        is answered with that task's id, with other input as a conflict. Its first Transition is (None -> state).
        ``budget`` opens an account under the task's id. QueueFull: a queue would have more pending tasks than it may.
        NotFound, or InvalidValue: one of its ``limits`` is the key of no limit that was ever set.
        """
        check_submission(tasks)
        return self._backend.submit(tasks)

    def submission_on(self, connection: object, tasks: Sequence[NewTask]) -> Pending[UserSubmission]:
        """Prepare to store these tasks as ``submit`` does, but in the open transaction of a connection of the caller's.

        The tasks are there when the caller commits, and never if not. What cannot be done leaves that transaction as it
        was. The connection has to lead to the database of this store, which only a store in PostgreSQL can share. No
        hint is sent: a worker that polls finds them.
        """
        check_submission(tasks)
        return self._backend.submission_on(connection, tasks)

    def register(self, worker: NewWorker) -> Pending[Worker]:
        """Enter a fresh incarnation; its lease runs from now. Registering the same id again is answered, not renewed.

        Raises WorkerDead where that incarnation is over.
        """
        check_payload("worker details", dict(worker.details))
        return self._backend.register(worker)

    def heartbeat(self, worker_id: str) -> Pending[Heartbeat]:
        """Renew the worker's one lease, which covers all its tasks. Raises WorkerDead: abandon everything."""
        check_sought("worker id", worker_id)
        return self._backend.heartbeat(worker_id)

    def drain(self, worker_id: str) -> Pending[None]:
        """Let the worker keep its tasks and claim no more. Raises WorkerDead."""
        check_sought("worker id", worker_id)
        return self._backend.drain(worker_id)

    def retire(self, worker_id: str) -> Pending[list[str]]:
        """End the incarnation in good order: its tasks are handed back (no death is counted); returns their ids.

        Retiring a dead or unknown worker does nothing.
        """
        check_sought("worker id", worker_id)
        return self._backend.retire(worker_id)

    def claim(self, claim: Claim) -> Pending[list[Claimed]]:
        """Lease up to ``limit`` ready tasks by rank, then id: pending ones become running, those in review stay so.

        A task with ``limits`` only if each of its keys has a place and is not closed or paused; it takes these places.
        Only the named queues and names, without those that are paused; no task that is paused itself, or whose deadline
        has passed (unless it must undo), and none whose keys have a form above ``key_form``, which becomes the form of
        a task that is claimed for the first time.

        Raises WorkerDead; a draining worker, or one whose lease ran out unnoticed, gets nothing. A repeated number
        returns what is still held of that claim.
        """
        check_claim(claim)
        return self._backend.claim(claim)

    def has_suspect(self, claim: Claim) -> Pending[bool]:
        """Say whether this claim could get a suspect: one is ready in its queues, of its names, and not paused."""
        check_claim(claim)
        return self._backend.has_suspect(claim)

    def acquire(self, task_id: str, worker_id: str, *, key_form: int = SCOPED_KEYS) -> Pending[Claimed]:
        """Lease this very task without moving it. Raises NotFound, LeaseHeld, WorkerDead, and Conflict.

        Conflict: it has ended, it is paused (itself, or by its name or queue), one of its limits has no place, or its
        keys have a form above ``key_form``. A first lease sets that, as a claim does.
        A task the worker already holds is answered as it stands.
        """
        check_sought("task id", task_id)
        check_sought("worker id", worker_id)
        check_key_form(key_form)
        return self._backend.acquire(task_id, worker_id, key_form)

    def owned(self, worker_id: str) -> Pending[list[Lease]]:
        """List what the worker holds, by task id: how it finds a claim whose answer was lost."""
        check_sought("worker id", worker_id)
        return self._backend.owned(worker_id)

    def sweep(self, limit: int = 100) -> Pending[Swept]:
        """Apply what time alone made true, at most ``limit`` of each kind. Workers call it; there is no reaper.

        Dead workers lose their tasks (running -> pending, or failed as poison; review stays; fence + 1), due timers
        wake their task, delayed tasks become ready, passed deadlines fail tasks that no worker holds (those that
        must undo are woken instead), approvals expire. No worker is declared dead right after the database was away.
        About once a minute for each queue with a ``retention`` it deletes ended tasks that are kept no longer.
        """
        check_limit(limit)
        return self._backend.sweep(limit)

    def commit(self, commits: Sequence[Commit]) -> Pending[list[Verdict]]:
        """Make these Commits durable in one transaction, as if applied one after the other; answer each in order.

        What could not mean anything raises InvalidValue at the door, before anything is applied. A refused Commit
        changes nothing and spoils no other. A Commit already applied is answered as a duplicate, before owner and state
        are looked at. A terminal Move closes the task's open approvals, counts its
        unsettled reservations as spent and wakes a parent whose join it completes. A Commit that leaves its task
        waiting for something that is already true moves it on to pending.
        """
        check_commits(commits)
        return self._backend.commit(commits)

    def load(self, task_id: str, *, after: int = 0) -> Pending[Loaded]:
        """Read a task with all a worker needs to go on, in one round trip at one moment. Raises NotFound.

        Steps of the current round with a position above ``after``, and steps of earlier rounds that have an effect.
        Effects and approvals of all rounds, however many.
        """
        check_sought("task id", task_id)
        check_integer("after", after)
        return self._backend.load(task_id, after)

    def emit(self, channel: str, payload: JsonValue, *, key: str | None = None, actor: str = "emit") -> Pending[Event]:
        """Append an event and wake the tasks that wait for it. The same key again returns the first event."""
        check_name("channel", channel)
        check_sought("actor", actor)
        check_event_key(key)
        check_payload("payload", payload)
        return self._backend.emit(channel, payload, key, actor)
