"""Questions to a SQLite store, on a connection that only reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import apsw

from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.effect import Effect, EffectState, Evidence
from holdfast.model.errors import NotFound
from holdfast.model.memory import Subject
from holdfast.model.queries import Loaded, Noun, Page, QueueCounts, Summary, TaskFilter, Vitals
from holdfast.model.records import (
    Account,
    Artifact,
    ArtifactLink,
    Checkpoint,
    Event,
    MemoryFact,
    PatchRecord,
)
from holdfast.model.step import Step
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState, Transition
from holdfast.model.words import query_words
from holdfast.model.worker import Claim, Lease, Worker
from holdfast.store.cursor import from_queue_cursor, page_of, queue_page_of
from holdfast.store.idparts import about
from holdfast.store.records import Row
from holdfast.store.sqlite.inherited import keep
from holdfast.store.sqlite.listings import approvals_query, count_query, effects_query, facts_query, page_query
from holdfast.store.sqlite.records import RECORDS
from holdfast.store.sqlite.rows import micros
from holdfast.store.sqlite.transaction import QUERIES
from holdfast.store.sqlite.vitals import look
from holdfast.store.upload import chunks_of, cut_range

T = TypeVar("T")

_MANY_ROWS, _MANY_BYTES = 500, 4 << 20
_MANY_WAITING = 200
"""What takes longer than a few milliseconds is not done on the event loop."""


class Reader:
    """Reads. No transaction stays open between two calls, so no reader ever keeps the WAL from being reset."""

    def __init__(self, connection: apsw.Connection) -> None:
        """Use this connection, from one thread at a time."""
        self._connection = connection

    def _all(self, make: Callable[[Row], T], query: str, *values: Any) -> list[T]:  # noqa: ANN401
        return [make(row) for row in self._connection.execute(QUERIES[query], values)]

    def _first(self, make: Callable[[Row], T], query: str, *values: Any) -> T | None:  # noqa: ANN401
        found = self._all(make, query, *values)
        return found[0] if found else None

    def _number(self, query: str, *values: Any) -> int:  # noqa: ANN401
        return int(self._connection.execute(QUERIES[query], values).get)

    def get(self, task_id: str) -> Task | None:
        """See Reads."""
        return self._first(RECORDS.task, "task_record", task_id)

    def standing(self, task_id: str) -> Task | None:
        """See Reads."""
        return self._first(RECORDS.task, "task_standing", task_id)

    def is_long(self, task_id: str) -> bool:
        """Say whether a load reads so much that the event loop must not wait for it."""
        rows, size = self._connection.execute(QUERIES["journal_size"], (task_id, _MANY_ROWS)).get
        return bool(rows >= _MANY_ROWS or size > _MANY_BYTES)

    def has_many_waiting(self, channel: str) -> bool:
        """Say whether an event on the channel wakes so many that the event loop must not wait for it."""
        return self._number("count_waiting", channel, _MANY_WAITING) >= _MANY_WAITING

    def load(self, task_id: str, after: int) -> Loaded:
        """See WorkVerbs. A savepoint makes all parts be of one moment."""
        with self._connection:
            loaded = self._load(task_id, after)
        return loaded  # noqa: RET504 - apsw's block could swallow an exception, as far as a type checker knows

    def _load(self, task_id: str, after: int) -> Loaded:
        task = self.get(task_id)
        if task is None:
            raise NotFound("task", task_id)
        checkpoint = self._first(RECORDS.checkpoint, "newest_checkpoint", task_id)
        return Loaded(
            task=task,
            steps=tuple(self._all(RECORDS.step, "journal", task_id, task.round, after)),
            effects=tuple(self._all(RECORDS.effect, "task_effects", task_id)),
            patches=tuple(self.patches(task_id, checkpoint.version if checkpoint else 0)),
            checkpoint=checkpoint,
            approvals=tuple(self._all(RECORDS.approval, "task_approvals", task_id)),
            accounts=tuple(self.accounts(task_id)),
            reservations=tuple(self._all(RECORDS.reservation, "task_reservations", task_id)),
        )

    def find(self, where: TaskFilter, *, limit: int, after: str | None, newest_first: bool) -> Page[Task]:
        """See Reads."""
        sql, values = page_query(where, after=after, newest_first=newest_first, limit=limit)
        found = [RECORDS.task(row) for row in self._connection.execute(sql, values)]
        return page_of(found, limit)

    def count(self, where: TaskFilter) -> dict[TaskState, int]:
        """See Reads."""
        sql, values = count_query(where)
        return {TaskState(state): count for state, count in self._connection.execute(sql, values)}

    def summary(self) -> Summary:
        """See Reads."""
        return Summary(
            tasks=self.count(TaskFilter()),
            workers=self._number("count_workers"),
            open_approvals=self._number("count_open_approvals"),
            doubts=self._number("count_doubts"),
        )

    def queues(self, now: datetime) -> list[QueueCounts]:
        """See Reads."""
        return self._all(RECORDS.queue, "queues", micros(now))

    def queued(self, now: datetime, *, queue: str | None, limit: int, after: str | None) -> Page[Task]:
        """See Reads."""
        begin = from_queue_cursor(after)
        as_of = begin.as_of or now
        (due_rank, due_id), (due_at, delayed_id) = begin.due_after, begin.delayed_after
        values = (queue, micros(as_of), micros(due_rank), due_id, micros(due_at or as_of), delayed_id, limit + 1)
        rows = self._connection.execute(QUERIES["queued"], values)
        return queue_page_of([(RECORDS.task(row), bool(row[-1])) for row in rows], limit, as_of)

    def ids(self, noun: Noun, part: str, limit: int) -> list[str]:
        """See Reads."""
        for query in ("ids_that_begin", "ids_that_end"):
            if found := [str(row[0]) for row in self._connection.execute(about(noun, QUERIES[query]), (part, limit))]:
                return found
        return []

    def vitals(self, backend: str, *, file: Path | None = None, thorough: bool) -> Vitals:
        """See Reads."""
        return look(self._connection, backend, file=file, thorough=thorough)

    def history(self, task_id: str) -> list[Transition]:
        """See Reads."""
        return self._all(RECORDS.transition, "transitions", task_id)

    def steps(self, task_id: str) -> list[Step]:
        """See Reads."""
        return self._all(RECORDS.step, "steps", task_id)

    def revisions(self, task_ids: Collection[str]) -> dict[str, int]:
        """See Reads."""
        rows = self._connection.execute(QUERIES["revisions"], (json.dumps(list(task_ids)),))
        return {str(row[0]): int(row[1]) for row in rows}

    def step(self, task_id: str, key: str, of_round: int) -> Step | None:
        """See Reads."""
        found = self._all(RECORDS.step, "step", task_id, of_round, key)
        return found[0] if found else None

    def last_steps(self, task_ids: Collection[str]) -> dict[str, Step]:
        """See Reads."""
        rows = self._connection.execute(QUERIES["last_steps"], (json.dumps(list(task_ids)),))
        return {str(row[0]): RECORDS.step(row) for row in rows}

    def effects(
        self, *, task_id: str | None, effect_id: str | None, states: Collection[EffectState] | None, limit: int
    ) -> list[Effect]:
        """See Reads."""
        sql, values = effects_query(task_id=task_id, effect_id=effect_id, states=states, limit=limit)
        return [RECORDS.effect(row) for row in self._connection.execute(sql, values)]

    def evidence(self, task_id: str, effect_id: str) -> list[Evidence]:
        """See Reads."""
        return self._all(RECORDS.evidence, "evidence", task_id, effect_id)

    def patches(self, task_id: str, after: int) -> list[PatchRecord]:
        """See Reads."""
        return self._all(RECORDS.patch, "patches", task_id, after)

    def checkpoints(self, task_id: str) -> list[Checkpoint]:
        """See Reads."""
        return self._all(RECORDS.checkpoint, "checkpoints", task_id)

    def approvals(self, task_id: str | None, states: Collection[ApprovalState] | None, limit: int) -> list[Approval]:
        """See Reads."""
        sql, values = approvals_query(task_id=task_id, states=states, limit=limit)
        return [RECORDS.approval(row) for row in self._connection.execute(sql, values)]

    def approval(self, approval_id: str) -> Approval | None:
        """See Reads."""
        return self._first(RECORDS.approval, "approval_by_id", approval_id)

    def accounts(self, account: str) -> list[Account]:
        """See Reads."""
        return self._all(RECORDS.account, "accounts", account)

    def workers(self) -> list[Worker]:
        """See Reads."""
        return self._all(RECORDS.worker, "workers")

    def has_suspect(self, claim: Claim) -> bool:
        """See WorkVerbs."""
        queues, names = (json.dumps(list(given)) for given in (claim.queues, claim.names))
        return bool(self._number("any_suspect_of", queues, names, claim.key_form))

    def owned(self, worker_id: str) -> list[Lease]:
        """See WorkVerbs."""
        return self._all(RECORDS.lease, "owned", worker_id)

    def events(self, channel: str, after: int, limit: int) -> list[Event]:
        """See Reads."""
        return self._all(RECORDS.event, "events", channel, after, limit)

    def position(self, channel: str) -> int:
        """See Reads."""
        return self._number("position", channel)

    def position_at_submission(self, channel: str, task_id: str) -> int:
        """See Reads."""
        number = self._first(lambda row: int(row[0]), "position_at_submission", channel, task_id)
        if number is None:
            raise NotFound("task", task_id)
        return number

    def artifact(self, artifact_id: str) -> Artifact | None:
        """See Keeping."""
        return self._first(RECORDS.artifact, "artifact", artifact_id)

    def read_artifact(self, artifact_id: str, offset: int, length: int | None) -> bytes:
        """See Keeping. Touches only the chunks the range lies in."""
        first, last = chunks_of(offset, length)
        chunks = self._all(lambda row: row[0], "chunks", artifact_id, first, last)
        if not chunks:
            raise NotFound("artifact", artifact_id)
        return cut_range(chunks, offset, length)

    def artifact_links(self, task_id: str) -> list[ArtifactLink]:
        """See Keeping."""
        return self._all(RECORDS.link, "artifact_links", task_id)

    def fact(self, fact_id: str) -> MemoryFact | None:
        """See Keeping."""
        return self._first(RECORDS.fact, "fact", fact_id)

    def subject(self, entity: str, attribute: str, other: str | None, also: Collection[str], now: datetime) -> Subject:
        """See Keeping. A savepoint makes mark and facts be of one moment."""
        key = (entity, attribute, other or "")
        with self._connection:
            mark = self._first(lambda row: str(row[0]), "subject_mark", *key)
            facts = self._all(RECORDS.fact, "subject_facts", *key, json.dumps(sorted(set(also))))
        facts.sort(key=lambda fact: (fact.created_at, fact.id))
        return Subject(entity=entity, attribute=attribute, other=other, mark=mark, at=now, facts=tuple(facts))

    def recall(self, **where: Any) -> list[MemoryFact]:  # noqa: ANN401 - those of facts_query
        """See Keeping."""
        sql, values = facts_query(**where)
        return [RECORDS.fact(row) for row in self._connection.execute(sql, values)]

    def search(self, text: str, limit: int) -> list[MemoryFact]:
        """See Keeping."""
        patterns = [pattern for word in query_words(text) for pattern in (f'"{word}"*', f'"{word}"')]
        return self._all(RECORDS.fact, "search", json.dumps(patterns), limit)

    def let_go(self) -> None:
        """Never touch the connection again: this is a forked child, and it is the parent's."""
        self._connection = keep(self._connection)

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()
