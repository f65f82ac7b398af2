"""Submitting and cancelling."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import Field

from holdfast.engine.definition import Bound
from holdfast.engine.submission import new_task
from holdfast.mcp.desk import Desk
from holdfast.mcp.forms import line_of
from holdfast.mcp.tools.handing import LeaseSeconds, taken_form
from holdfast.mcp.tools.looking import TaskId
from holdfast.model.errors import InvalidValue, KeyConflict
from holdfast.model.task import DEFAULT_QUEUE, HANDOVER, JsonValue, Task
from holdfast.service.access import Scope
from holdfast.service.binding import bind_plain
from holdfast.service.handover import claim, offer
from holdfast.service.handover.lease import USUAL


class Submitting:
    """New tasks, and the end of old ones."""

    def __init__(self, desk: Desk) -> None:
        """``desk`` is that of the request."""
        self._desk = desk
        self._service = desk.service

    async def submit_task(
        self,
        *,
        goal: Annotated[str, Field(description="What is to be done, in words that suffice without this conversation.")],
        name: Annotated[
            str | None,
            Field(description="A Holdfast agent or task that should do it; leave out for whichever agent claims it."),
        ] = None,
        arguments: Annotated[
            list[Any] | None, Field(description="Only with name: its arguments, if they are others than the goal.")
        ] = None,
        plan: Annotated[list[str] | None, Field(description="Only without name: the steps you have in mind.")] = None,
        details: Annotated[JsonValue, Field(description="Only without name: any JSON that belongs to it.")] = None,
        queue: Annotated[str | None, Field(description="Where it waits; 'default' if left out.")] = None,
        priority: Annotated[int, Field(ge=-1000, le=1000, description="Higher is sooner.")] = 0,
        key: Annotated[
            str | None,
            Field(description="Idempotency key: the same key with the same input is the same task, however often."),
        ] = None,
        agent_id: Annotated[str | None, Field(description="Whose task it is; part of its URI.")] = None,
        delay_seconds: Annotated[float, Field(ge=0, le=31_536_000, description="Not before this time has passed.")] = 0,
        deadline_seconds: Annotated[
            float | None, Field(gt=0, le=31_536_000, description="It fails if it is not done by then.")
        ] = None,
        take: Annotated[
            bool, Field(description="Only without name: claim it yourself at once; the answer has your lease.")
        ] = False,
        lease_seconds: LeaseSeconds = USUAL,
        follow: Annotated[
            bool,
            Field(
                description="Have the result as the answer of this very call, if your client can follow tasks of the "
                "protocol; however long it takes."
            ),
        ] = False,
    ) -> dict[str, Any]:
        """Have something done, now or later, by another agent or by yourself, so that it survives crashes.

        Call it to delegate work, or with take=true to make your own work durable before you begin. Comes back with the
        task's id and URI (and your lease with take=true); it does not wait: wait_for_task has the result. Pass a key if
        you might call it twice.
        """
        if follow and take:
            raise InvalidValue("follow is for work that others do; leave it out, or take")
        if name is not None:
            if take or plan or details is not None:
                raise InvalidValue(
                    "take, plan and details are for tasks without a name; leave them out, or leave name out"
                )
            task = await self._submit(
                name,
                [goal] if arguments is None else arguments,
                key=key,
                queue=queue,
                priority=priority or None,
                deadline=deadline_seconds,
                delay=delay_seconds or None,
                agent_id=agent_id,
            )
            return {"submitted": True} | line_of(task)
        if arguments is not None:
            raise InvalidValue("arguments are for a task with a name; put what belongs to the goal into details")
        deadline = await self._deadline(deadline_seconds)
        if take:
            self._desk.check(Scope.WORK)
        hold, by = self._service.hold, self._desk.caller.actor
        task = await offer(
            hold,
            goal,
            by=by,
            plan=plan or (),
            details=details,
            agent_id=agent_id,
            queue=queue,
            priority=priority,
            key=key,
            delay=delay_seconds,
            deadline=deadline,
        )
        if not take:
            return {"submitted": True} | line_of(task)
        taken = await claim(hold, by=by, names=self._desk.claimable, queues=(), task_id=task.id, seconds=lease_seconds)
        assert taken is not None  # noqa: S101 - one that is named is claimed, or that is an error
        return {"submitted": True} | taken_form(taken)

    async def _submit(self, name: str, arguments: list[JsonValue], *, queue: str | None, **options: JsonValue) -> Task:
        """Submit for Holdfast's own workers; the definition is known here if the application was loaded."""
        if name == HANDOVER:
            raise InvalidValue(f"work for whichever agent claims it has no name; leave out name={HANDOVER!r}")
        hold = self._service.hold
        definition = hold.definitions.get(name)
        if not hold.definitions.names:
            queue = queue or DEFAULT_QUEUE
        task: Bound[Any] | str = name
        if definition is not None:
            task, arguments = bind_plain(definition, arguments, {}), []
        by, now = self._desk.caller.actor, await self._service.now()
        new, _ = new_task(hold.definitions, task, arguments, now=now, queue=queue, actor=by, **options)
        [answer] = await hold.store.submit([new])
        if answer.conflict:
            raise KeyConflict(new.name, new.key or new.id, answer.task_id)
        return await self._service.task(answer.task_id)

    async def _deadline(self, seconds: float | None) -> datetime | None:
        return None if seconds is None else await self._service.now() + timedelta(seconds=seconds)

    async def cancel_task(
        self,
        *,
        task_id: TaskId,
        reason: Annotated[str, Field(min_length=1, max_length=500, description="Why; it is kept with the task.")],
    ) -> dict[str, Any]:
        """Stop a task and its children.

        Call it when the work is not wanted any more. "state" is "cancelled" if nobody worked on it; otherwise whoever
        does is told, and stops at the next step. A task that has ended stays as it is.
        """
        task = await self._service.task(task_id)
        state = await self._service.hold.cancel(task.id, reason, by=self._desk.caller.actor)
        return line_of(await self._service.task(task.id)) | {"state": str(state), "cancel_requested": reason}
