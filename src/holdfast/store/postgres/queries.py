"""Questions: nothing here changes anything."""

from __future__ import annotations

from collections.abc import Collection

import psycopg

from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.effect import Effect, EffectState, Evidence
from holdfast.model.errors import NotFound
from holdfast.model.queries import Noun, Page, QueueCounts, Summary, TaskFilter
from holdfast.model.records import Account, Checkpoint, Event, PatchRecord
from holdfast.model.step import Step
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState, Transition
from holdfast.model.worker import Worker
from holdfast.store.checks import check_limit, check_queue
from holdfast.store.cursor import from_queue_cursor, queue_page_of, to_cursor
from holdfast.store.idparts import about, check_part
from holdfast.store.postgres.base import PostgresBase
from holdfast.store.postgres.errors import translate
from holdfast.store.postgres.listings import approvals_query, count_query, effects_query, page_query
from holdfast.store.postgres.rows import RECORDS
from holdfast.store.records import Row


class Reading(PostgresBase):
    """See Reads."""

    async def _list(self, query: tuple[str, list[object]]) -> list[Row]:
        sql, values = query
        try:
            return await self._open_connections().fetch(sql.replace("{schema}", f'"{self._schema}"'), values)
        except psycopg.Error as error:
            raise translate(error, self._where) from error

    async def get(self, task_id: str) -> Task | None:
        """See Reads."""
        found = await self._fetch("task", task_id)
        return RECORDS.task(found[0]) if found else None

    async def standing(self, task_id: str) -> Task | None:
        """See Reads."""
        found = await self._fetch("task_standing", task_id)
        return RECORDS.task(found[0]) if found else None

    async def find(
        self,
        where: TaskFilter | None = None,
        *,
        limit: int = 50,
        after: str | None = None,
        newest_first: bool = True,
    ) -> Page[Task]:
        """See Reads."""
        check_limit(limit)
        found = await self._list(page_query(where or TaskFilter(), after=after, newest_first=newest_first, limit=limit))
        items = tuple(RECORDS.task(row) for row in found[:limit])
        last = items[-1] if len(found) > limit else None
        return Page(items=items, next=to_cursor(last.created_at, last.id) if last and last.created_at else None)

    async def count(self, where: TaskFilter | None = None) -> dict[TaskState, int]:
        """See Reads."""
        return {TaskState(state): count for state, count in await self._list(count_query(where or TaskFilter()))}

    async def summary(self) -> Summary:
        """See Reads."""
        [(workers, open_approvals, doubts)] = await self._fetch("summary")
        return Summary(tasks=await self.count(), workers=workers, open_approvals=open_approvals, doubts=doubts)

    async def queues(self) -> list[QueueCounts]:
        """See Reads."""
        return [RECORDS.queue(row) for row in await self._fetch("queues", self._at())]

    async def queued(self, *, queue: str | None = None, limit: int = 50, after: str | None = None) -> Page[Task]:
        """See Reads."""
        check_queue(queue)
        check_limit(limit)
        begin = from_queue_cursor(after)
        values = (begin.as_of or self._at(), queue, *begin.due_after, *begin.delayed_after, limit + 1)
        rows = await self._fetch("queued", *values)
        if not rows:
            return Page(items=(), next=None)
        return queue_page_of([(RECORDS.task(row), row[-2]) for row in rows], limit, as_of=rows[0][-1])

    async def ids(self, noun: Noun, part: str, *, limit: int = 10) -> list[str]:
        """See Reads."""
        check_part(noun, part)
        check_limit(limit)
        for query in ("ids_that_begin", "ids_that_end"):
            if found := await self._list((about(noun, self._queries[query]), [part, limit])):
                return [row[0] for row in found]
        return []

    async def history(self, task_id: str) -> list[Transition]:
        """See Reads."""
        return [RECORDS.transition(row) for row in await self._fetch("history", task_id)]

    async def steps(self, task_id: str) -> list[Step]:
        """See Reads."""
        return [RECORDS.step(row) for row in await self._fetch("steps", task_id)]

    async def revisions(self, task_ids: Collection[str]) -> dict[str, int]:
        """See Reads."""
        return {row[0]: row[1] for row in await self._fetch("revisions", list(task_ids))}

    async def step(self, task_id: str, key: str, *, of_round: int) -> Step | None:
        """See Reads."""
        rows = await self._fetch("step", task_id, of_round, key)
        return RECORDS.step(rows[0]) if rows else None

    async def last_steps(self, task_ids: Collection[str]) -> dict[str, Step]:
        """See Reads."""
        return {row[0]: RECORDS.step(row) for row in await self._fetch("last_steps", list(task_ids))}

    async def effects(
        self,
        *,
        task_id: str | None = None,
        effect_id: str | None = None,
        states: Collection[EffectState] | None = None,
        limit: int = 100,
    ) -> list[Effect]:
        """See Reads."""
        check_limit(limit)
        query = effects_query(task_id=task_id, effect_id=effect_id, states=states, limit=limit)
        return [RECORDS.effect(row) for row in await self._list(query)]

    async def evidence(self, task_id: str, effect_id: str) -> list[Evidence]:
        """See Reads."""
        return [RECORDS.evidence(row) for row in await self._fetch("evidence", task_id, effect_id)]

    async def patches(self, task_id: str, *, after: int = 0) -> list[PatchRecord]:
        """See Reads."""
        return [RECORDS.patch(row) for row in await self._fetch("patches", task_id, after)]

    async def checkpoints(self, task_id: str) -> list[Checkpoint]:
        """See Reads."""
        return [RECORDS.checkpoint(row) for row in await self._fetch("checkpoints", task_id)]

    async def approvals(
        self, *, task_id: str | None = None, states: Collection[ApprovalState] | None = None, limit: int = 100
    ) -> list[Approval]:
        """See Reads."""
        check_limit(limit)
        query = approvals_query(task_id=task_id, states=states, limit=limit)
        return [RECORDS.approval(row) for row in await self._list(query)]

    async def approval(self, approval_id: str) -> Approval | None:
        """See Reads."""
        found = await self._fetch("approval", approval_id)
        return RECORDS.approval(found[0]) if found else None

    async def accounts(self, account: str) -> list[Account]:
        """See Reads."""
        return [RECORDS.account(row) for row in await self._fetch("accounts", account)]

    async def workers(self) -> list[Worker]:
        """See Reads."""
        return [RECORDS.worker(row) for row in await self._fetch("workers")]

    async def events(self, channel: str, *, after: int = 0, limit: int = 100) -> list[Event]:
        """See Reads."""
        found = await self._fetch("events", channel, after, check_limit(limit))
        return [RECORDS.event(row) for row in found]

    async def position(self, channel: str, *, before_task: str | None = None) -> int:
        """See Reads."""
        if before_task is None:
            [(number,)] = await self._fetch("position", channel)
            return int(number)
        found = await self._fetch("position_at_submission", channel, before_task)
        if not found:
            raise NotFound("task", before_task)
        return int(found[0][0])
