"""Submitting and cancelling."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Annotated, Any

from pydantic import Field

from holdfast.engine.api.definition import Bound
from holdfast.engine.api.new_task import new_task, was_submitted_before
from holdfast.engine.api.start import Start, link_artifacts, patch_of, starting
from holdfast.engine.outside import claim, offer
from holdfast.engine.outside.lease_token import USUAL
from holdfast.engine.outside.start import checked_start
from holdfast.mcp.desk import Desk
from holdfast.mcp.forms import detail_of, line_of
from holdfast.mcp.toolset.handover import LeaseSeconds, taken_form
from holdfast.mcp.toolset.inspection import TaskId
from holdfast.model.errors import InvalidValue, KeyConflict
from holdfast.model.patch import StatePatch
from holdfast.model.queries import TaskFilter
from holdfast.model.task import DEFAULT_QUEUE, HANDOVER, JsonValue, Task
from holdfast.service.access import Scope


@dataclass(frozen=True, slots=True)
class _Wanted:
    """How a task is to be queued."""

    queue: str | None
    priority: int
    key: str | None
    agent_id: str | None
    delay: float
    deadline: float | None


def _arguments(goal: str | None, arguments: list[JsonValue] | None) -> list[JsonValue]:
    if (goal is None) == (arguments is None):
        raise InvalidValue("with a name give either a goal, which is then its one argument, or arguments")
    return [goal] if arguments is None else arguments


class Submitting:
    """New tasks, and the end of old ones."""

    def __init__(self, desk: Desk) -> None:
        """``desk`` is that of the request."""
        self._desk = desk
        self._service = desk.service

    async def submit_task(
        self,
        *,
        goal: Annotated[
            str | None, Field(description="What is to be done, in words that suffice without this conversation.")
        ] = None,
        name: Annotated[
            str | None,
            Field(description="A Holdfast agent or task that should do it; leave out for whichever agent claims it."),
        ] = None,
        arguments: Annotated[
            list[JsonValue] | None, Field(description="Only with name, instead of a goal: its arguments.")
        ] = None,
        plan: Annotated[list[str] | None, Field(description="For an agent: the steps you have in mind.")] = None,
        state: Annotated[
            dict[str, Any] | None,
            Field(
                description="For an agent: what it knows from the beginning. Any of: known_facts [{key, value, "
                "source?}], open_questions, risk_flags, completed_steps [text], current_step text, artifacts [id]."
            ),
        ] = None,
        details: Annotated[JsonValue, Field(description="Only without name: any JSON that belongs to it.")] = None,
        queue: Annotated[
            str | None, Field(description="Where it waits: by default the task's own queue, or 'default'.")
        ] = None,
        priority: Annotated[int, Field(ge=-1000, le=1000, description="Higher is sooner.")] = 0,
        key: Annotated[
            str | None,
            Field(description="Idempotency key: the same key with the same input is the same task, however often."),
        ] = None,
        agent_id: Annotated[
            str | None,
            Field(description="Only without name: a name to find it by, part of its URI; anybody may claim it."),
        ] = None,
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
                description="Answer this very call with the result, however long it takes, as a task of the protocol."
            ),
        ] = False,
    ) -> dict[str, Any]:
        """Have something done, now or later, by another agent or by yourself, so that it survives crashes.

        Call it to delegate work, or with take=true to make your own work durable before you begin. Comes back with the
        task's id and URI (and your lease with take=true); it does not wait: wait_for_task has the result. Pass a key if
        you might call it twice; "created" false means that the task was there already. "why" says what it waits for.
        """
        wanted = _Wanted(queue, priority, key, agent_id, delay_seconds, deadline_seconds)
        start = checked_start(state, plan, self._desk.caller.actor)
        if name is not None:
            if take or details is not None:
                raise InvalidValue("take and details are for tasks without a name; leave them, or the name, out")
            if agent_id is not None:
                # What an agent remembers stands under its id: a caller who chose one could speak for another agent.
                raise InvalidValue(f"agent_id is for tasks without a name; what {name!r} does stands under its own id")
            return await self._submit_named(name, _arguments(goal, arguments), start, wanted)
        if arguments is not None or not goal:
            raise InvalidValue("without a name it takes a goal, and no arguments; what belongs to it goes into details")
        if take and (follow or delay_seconds):
            raise InvalidValue("with take=true you begin now: leave out follow and delay_seconds")
        if take:
            self._desk.check(Scope.WORK)
        existed = await self._exists(HANDOVER, key)
        task = await self._offer(goal, start, details, wanted)
        if not take:
            return {"created": not existed} | line_of(task)
        hold, by = self._service.hold, self._desk.caller.actor
        taken = await claim(hold, by=by, names=self._desk.claimable, queues=(), task_id=task.id, seconds=lease_seconds)
        return {"created": not existed} | ({} if taken is None else taken_form(taken))

    async def _offer(self, goal: str, start: Start, details: JsonValue, wanted: _Wanted) -> Task:
        now, given = await self._service.now(), await patch_of(self._service.hold.services.store, start)
        return await offer(
            self._service.hold,
            goal,
            by=self._desk.caller.actor,
            plan=given.replace_plan or (),
            details=details,
            start=replace(given, replace_plan=None),
            agent_id=wanted.agent_id,
            queue=wanted.queue,
            priority=wanted.priority,
            key=wanted.key,
            delay=wanted.delay,
            deadline=None if wanted.deadline is None else now + timedelta(seconds=wanted.deadline),
        )

    async def _submit_named(
        self, name: str, arguments: list[JsonValue], start: Start, wanted: _Wanted
    ) -> dict[str, Any]:
        """Submit for Holdfast's own workers; the definition is known here if the application was loaded."""
        if name == HANDOVER:
            raise InvalidValue(f"work for whichever agent claims it has no name; leave out name={HANDOVER!r}")
        definitions = self._service.hold.definitions
        definition, queue = definitions.get(name), wanted.queue
        if definition is None and definitions.names:
            raise InvalidValue(f"there is no task {name!r} here; there are: {', '.join(definitions.names)}")
        task: Bound[Any] | str = name
        store, given = self._service.hold.services.store, StatePatch()
        if not start.is_empty:
            [task], given = await starting(store, definitions, name, [arguments], start)
            arguments = []
        elif definition is None:
            queue = queue or DEFAULT_QUEUE
        else:
            task, arguments = definition.bind(*arguments), []
        existed = await self._exists(name, wanted.key)
        new, _ = new_task(
            definitions,
            task,
            arguments,
            now=await self._service.now(),
            key=wanted.key,
            queue=queue,
            priority=wanted.priority or None,
            deadline=wanted.deadline,
            delay=wanted.delay or None,
            actor=self._desk.caller.actor,
        )
        [answer] = await store.submit([new])
        if answer.conflict and not await was_submitted_before(store, definitions, new, answer.task_id):
            raise KeyConflict(new.name, new.key or new.id, answer.task_id)
        await link_artifacts(store, [answer.task_id], given, actor=new.actor)
        overview = await self._service.overview(answer.task_id)
        return {"created": not existed, "why": overview.situation.why} | line_of(overview.task)

    async def _exists(self, name: str, key: str | None) -> bool:
        if key is None:
            return False
        return bool((await self._service.tasks(TaskFilter(name=name, key=key), limit=1)).items)

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
        await self._service.hold.cancel(task.id, reason, by=self._desk.caller.actor)
        return detail_of(await self._service.task(task.id))
