"""Submitting and cancelling."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from holdfast.mcp.access import CallerAccess
from holdfast.mcp.forms import detail_of, line_of
from holdfast.mcp.toolset.handover import LeaseSeconds, taken_form
from holdfast.mcp.toolset.inspection import TaskId
from holdfast.model.errors import InvalidValue
from holdfast.model.task import HANDOVER, JsonValue
from holdfast.service.access import AccessScope
from holdfast.service.outside import USUAL, QueueTerms


def _arguments(goal: str | None, arguments: list[JsonValue] | None) -> list[JsonValue]:
    if (goal is None) == (arguments is None):
        raise InvalidValue("with a name give either a goal, which is then its one argument, or arguments")
    return [goal] if arguments is None else arguments


class SubmissionTools:
    """Submitting and cancelling tasks."""

    def __init__(self, access: CallerAccess) -> None:
        """``access`` belongs to the request."""
        self._access = access
        self._service = access.service

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
        labels: Annotated[
            dict[str, str] | None,
            Field(description="Names with values, by which list_tasks finds it: {'tenant': 'acme'}."),
        ] = None,
        agent_id: Annotated[
            str | None,
            Field(description="Only without name: a name to find it by, part of its URI; any agent may claim it."),
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

        Call it to delegate work, or with take=true to make your own work durable before you begin. Returns the
        task's id and URI (and your lease with take=true); it does not wait: wait_for_task has the result. Pass a key if
        you might call it twice; "created" false means that the task was there already. "why" says what it waits for.
        """
        terms = QueueTerms(
            queue=queue, priority=priority, key=key, delay=delay_seconds, deadline=deadline_seconds, labels=labels
        )
        if name is not None:
            if take or details is not None:
                raise InvalidValue("take and details are for tasks without a name; leave them, or the name, out")
            if agent_id is not None:
                # An agent's memory is stored under its id: a caller that chose the id could speak for another agent.
                raise InvalidValue(f"agent_id is for tasks without a name; {name!r} has an id of its own")
            return await self._submit_named(name, _arguments(goal, arguments), terms, plan=plan, state=state)
        if arguments is not None or not goal:
            raise InvalidValue("without a name it takes a goal, and no arguments; what belongs to it goes into details")
        if take and (follow or delay_seconds):
            raise InvalidValue("with take=true you begin now: leave out follow and delay_seconds")
        if take:
            self._access.check(AccessScope.WORK)
        agent, existed = self._access.agent, await self._service.has_key(HANDOVER, key)
        task = await agent.offer(goal, terms, plan=plan, state=state, details=details, agent_id=agent_id)
        if not take:
            return {"created": not existed} | line_of(task)
        taken = await agent.claim(names=self._access.claimable, task_id=task.id, lease=lease_seconds)
        return {"created": not existed} | ({} if taken is None else taken_form(taken))

    async def _submit_named(
        self,
        name: str,
        arguments: list[JsonValue],
        terms: QueueTerms,
        *,
        plan: list[str] | None,
        state: dict[str, Any] | None,
    ) -> dict[str, Any]:
        """Submit for Holdfast's own workers."""
        if name == HANDOVER:
            raise InvalidValue(f"work for whichever agent claims it has no name; leave out name={HANDOVER!r}")
        existed = await self._service.has_key(name, terms.key)
        task_id = await self._access.agent.submit(name, arguments, terms, plan=plan, state=state)
        overview = await self._service.overview(task_id)
        return {"created": not existed, "why": overview.situation.why} | line_of(overview.task)

    async def cancel_task(
        self,
        *,
        task_id: TaskId,
        reason: Annotated[str, Field(min_length=1, max_length=500, description="Why; it is kept with the task.")],
    ) -> dict[str, Any]:
        """Stop a task and its children.

        Call it when the work is not wanted any more. "state" is "cancelled" if no worker or agent had the
        task. Otherwise its holder gets the request, and stops at the next step. A task that has ended stays as it is.
        """
        task = await self._service.task(task_id)
        await self._access.agent.cancel(task.id, reason)
        return detail_of(await self._service.task(task.id))
