"""The verbs of the engine, apart from commit and load: each is one call of one function in the schema."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg

from holdfast.model.canonical import canonical
from holdfast.model.checks import check_name, check_text
from holdfast.model.commit import Commit, Verdict
from holdfast.model.errors import SchemaMismatch, StoreError, WorkerDead
from holdfast.model.records import Event
from holdfast.model.size import check_submission_size
from holdfast.model.task import SCOPED_KEYS, JsonValue, NewTask, Submitted
from holdfast.model.worker import Claim, Claimed, Heartbeat, Lease, NewWorker, Swept, Worker, WorkerState
from holdfast.redaction import make_logger
from holdfast.store.checks import check_commits, check_limit
from holdfast.store.postgres.batch import encode_tasks, lone_task
from holdfast.store.postgres.commit import Committing
from holdfast.store.postgres.errors import is_refused, lease_refused
from holdfast.store.postgres.journals import Journals
from holdfast.store.postgres.migration import newest_version
from holdfast.store.postgres.parameters import TextArray
from holdfast.store.postgres.rows import RECORDS
from holdfast.store.records import Row

_log = make_logger(__name__)


class Working(Committing, Journals):
    """See WorkVerbs."""

    async def submit(self, tasks: Sequence[NewTask]) -> list[Submitted]:
        """See WorkVerbs."""
        if not tasks:
            return []
        check_submission_size(tasks)
        answers = (await self._submit_one(tasks[0]) if len(tasks) == 1 else None) or await self._submit_many(tasks)
        created = [task for task, answer in zip(tasks, answers, strict=True) if answer.created]
        self._publish({f"queue:{task.queue}" for task in created} | {f"task:{task.id}" for task in created})
        return answers

    async def _submit_one(self, task: NewTask) -> list[Submitted] | None:
        """Take the short way for a lone task; None: not possible, or its id is taken."""
        values = lone_task(task)
        if values is None:
            return None
        try:
            stored = await self._fetch("submit_one", self._at(), *values)
        except StoreError as error:
            if is_refused(error.__cause__):
                return None  # submit meets the same refusal, or finds who was faster
            raise
        return [Submitted(task_id=task.id, created=True)] if stored else None

    async def _submit_many(self, tasks: Sequence[NewTask]) -> list[Submitted]:
        document, payloads = encode_tasks(tasks)
        found = await self._fetch("submit", document, payloads, _meet_each_other(tasks), self._at())
        others = {n: Submitted(task_id=task_id, created=False, conflict=conflict) for n, task_id, _, conflict in found}
        return [others.get(n) or Submitted(task_id=task.id, created=True) for n, task in enumerate(tasks)]

    async def register(self, worker: NewWorker) -> Worker:
        """See WorkVerbs."""
        details = canonical(dict(worker.details), name="worker details")
        [row] = await self._fetch("register", worker.id, worker.label, worker.lease, details, self._at())
        record = RECORDS.worker(row)
        if record.state is WorkerState.DEAD:
            raise WorkerDead(worker.id)
        [(oldest, newest)] = await self._fetch("versions")
        self._note_versions(oldest, newest)
        return record

    async def heartbeat(self, worker_id: str) -> Heartbeat:
        """See WorkVerbs."""
        [(cancel_requested, suspects, oldest, newest)] = await self._fetch("heartbeat", worker_id, self._at())
        self._note_versions(oldest, newest)
        return Heartbeat(cancel_requested=frozenset(cancel_requested), suspects=suspects)

    def _note_versions(self, oldest: int, newest: int) -> None:
        """Notice that a newer program has migrated the schema, and whether workers of this one may still claim."""
        known = newest_version()
        if newest <= max(known, self._newest_seen):
            return
        self._newest_seen = newest
        migrated = f"a newer version of Holdfast has migrated {self._where} to schema {newest}; this one knows {known}"
        if oldest <= known:
            _log.warning("%s, and may go on beside it; restart it with the newer version soon", migrated)
            return
        self._outdated = f"{migrated}. It claims no more tasks: restart it with the newer version"
        _log.error("%s", self._outdated)

    async def drain(self, worker_id: str) -> None:
        """See WorkVerbs."""
        await self._fetch("drain", worker_id)

    async def retire(self, worker_id: str) -> list[str]:
        """See WorkVerbs."""
        [(handed_back, hints)] = await self._fetch("retire", worker_id, self._at())
        self._publish(hints)
        return list(handed_back)

    async def claim(self, claim: Claim) -> list[Claimed]:
        """See WorkVerbs. Raises SchemaMismatch once a newer program has migrated, unless this one may go on.

        What is held already can be finished: every write passes through the functions of the newer schema.
        """
        if self._outdated is not None:
            raise SchemaMismatch(self._outdated)
        found = await self._fetch(
            "claim",
            *(claim.worker_id, claim.number, claim.limit, list(claim.queues), list(claim.names), claim.alone),
            *(self._at(), claim.key_form),
        )
        return await self._read_claimed(found, claim.worker_id)

    async def has_suspect(self, claim: Claim) -> bool:
        """See WorkVerbs."""
        [(found,)] = await self._fetch("has_suspect", list(claim.queues), list(claim.names), claim.key_form)
        return bool(found)

    async def acquire(self, task_id: str, worker_id: str, *, key_form: int = SCOPED_KEYS) -> Claimed:
        """See WorkVerbs."""
        try:
            [row] = await self._fetch("acquire", worker_id, task_id, self._at(), key_form)
        except StoreError as error:
            cause = error.__cause__
            if isinstance(cause, psycopg.Error) and (refused := lease_refused(cause, task_id, key_form)):
                raise refused from None
            raise
        claimed = await self._read_claimed([row], worker_id)
        if not claimed:  # taken back between the two statements
            raise WorkerDead(worker_id)
        return claimed[0]

    async def _read_claimed(self, leased: list[Row], worker_id: str) -> list[Claimed]:
        """Read the tasks that were just leased, apart from the statement that leased them: claim() says why."""
        if not leased:
            return []
        how = {task_id: (fresh, alone) for task_id, fresh, alone in leased}
        found = await self._fetch("held_tasks", TextArray(how), worker_id)
        tasks = [RECORDS.task(row) for row in found]
        return [Claimed(task=task, fresh=how[task.id][0], alone=how[task.id][1]) for task in tasks]

    async def owned(self, worker_id: str) -> list[Lease]:
        """See WorkVerbs."""
        return [RECORDS.lease(row) for row in await self._fetch("owned", worker_id)]

    async def sweep(self, limit: int = 100) -> Swept:
        """See WorkVerbs."""
        check_limit(limit)
        connections = self._open_connections()

        def values() -> tuple[object, ...]:
            at = self._at()  # a clock of the test's: it knows no outages
            return limit, at, connections.answering_for if at is None else None

        [row] = await self._fetch_anew("sweep", values)
        recovered, poisoned, woken, due, failed, expired, more, next_due, hints = row
        self._publish(hints)
        return Swept(
            recovered=tuple(recovered),
            poisoned=tuple(poisoned),
            woken=tuple(woken),
            due=due,
            failed=tuple(failed),
            expired=tuple(expired),
            more=more,
            next_due=next_due,
        )

    async def commit(self, commits: Sequence[Commit]) -> list[Verdict]:
        """See WorkVerbs."""
        check_commits(commits)
        return await self._commit(commits)

    async def emit(self, channel: str, payload: JsonValue, *, key: str | None = None, actor: str = "emit") -> Event:
        """See WorkVerbs."""
        check_name("channel", channel)
        check_text("actor", actor)
        body = canonical(payload, name="payload")
        # Without a key, an event whose answer was lost cannot be told from one that never arrived.
        [row] = await self._fetch("emit", channel, key, body, actor, self._at(), repeatable=key is not None)
        self._publish(row[-1])
        return RECORDS.event(row)


def _meet_each_other(tasks: Sequence[NewTask]) -> bool:
    """Say whether two of the tasks share an id or a key, so that the later one must find the earlier one."""
    ids = {task.id for task in tasks}
    keys = [(task.name, task.key) for task in tasks if task.key is not None]
    return len(ids) < len(tasks) or len(set(keys)) < len(keys)
