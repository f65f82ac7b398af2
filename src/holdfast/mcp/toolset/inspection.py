"""Looking at tasks."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Annotated, Any, Literal

from pydantic import Field

from holdfast.mcp.access import CallerAccess
from holdfast.mcp.addresses import read_address
from holdfast.mcp.excerpts import MAX_ANSWER, text_of
from holdfast.mcp.forms import detail_of, line_of, outcome_of, shared_of, steps_of, without_empty
from holdfast.mcp.resources.content import read
from holdfast.model.errors import NotFound
from holdfast.model.queries import TaskFilter
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState
from holdfast.service import forms
from holdfast.service.outside import notes_of

TaskId = Annotated[str, Field(description="The task's id, or enough of its characters to be the only one.")]
_LONGEST_WAIT, _USUAL_WAIT = 55.0, 25.0
"""Seconds. Many clients give up on a call after a minute."""

_EVENTS, _NOTES = 5, 3


class InspectionTools:
    """Reads of tasks."""

    def __init__(self, access: CallerAccess) -> None:
        """``access`` belongs to the request."""
        self._access = access
        self._service = access.service

    async def get_task(self, *, task_id: TaskId) -> dict[str, Any]:
        """Look at one task: where it stands, why, its plan, facts, open questions, last steps and result.

        Call it to find out how a task is doing, or before you go on with one. "version" is what patch_state asks for.
        "why" says what it waits for, or why it is as it is; "then" says what happens next by itself, and when;
        "questions" are open ones that a person has to answer. What is empty is left out: no "result" means that there
        is none yet, no "agent_state" that no agent keeps one.
        """
        overview = await self._service.overview(task_id)
        task = overview.task
        return detail_of(task) | without_empty(
            {
                "now": overview.situation.now,
                "why": overview.situation.why,
                "then": [upcoming.to_json() for upcoming in overview.situation.then],
                **shared_of(task, overview.state),
                "questions": [{"id": one.id, "kind": one.kind, "question": one.question} for one in overview.approvals],
                "doubts": [one.question for one in overview.doubts],
                "progress": [one.payload for one in overview.events[-_EVENTS:]],
                "notes": notes_of(overview.steps)[-_NOTES:],
                "steps": steps_of(overview.steps),
                "children": {str(state): count for state, count in overview.children.items()},
            }
        )

    async def list_tasks(
        self,
        *,
        state: Annotated[
            Literal["pending", "running", "waiting", "review", "completed", "failed", "cancelled"] | None,
            Field(description="Only tasks in this state."),
        ] = None,
        queue: Annotated[str | None, Field(description="Only tasks of this queue.")] = None,
        agent_id: Annotated[str | None, Field(description="Only tasks of this agent.")] = None,
        text: Annotated[
            str | None, Field(description="Only tasks with this text in name, agent, key or input.")
        ] = None,
        labels: Annotated[
            dict[str, str] | None, Field(description="Only tasks with all of these labels: {'tenant': 'acme'}.")
        ] = None,
        limit: Annotated[int, Field(ge=1, le=50, description="How many at most.")] = 20,
        cursor: Annotated[str | None, Field(description="'next_cursor' of the page before.")] = None,
    ) -> dict[str, Any]:
        """List tasks, the newest first; the filters combine.

        Call it to find a task, or to see what is going on. An empty list means that no task fits. "next_cursor" is null
        on the last page.
        """
        where = TaskFilter(
            states=None if state is None else frozenset({TaskState(state)}),
            queue=queue,
            agent_id=agent_id,
            text=text,
            labels=labels or {},
        )
        while True:
            page = await self._service.tasks(where, limit=limit, after=cursor)
            answer: dict[str, Any] = {"tasks": [line_of(task) for task in page.items], "next_cursor": page.next}
            if limit == 1 or len(text_of(answer)) <= MAX_ANSWER:
                return answer
            limit = max(1, limit // 2)  # a shorter page, whose cursor leads to the rest

    async def wait_for_task(
        self,
        *,
        task_id: TaskId,
        timeout_seconds: Annotated[
            float, Field(ge=0, le=_LONGEST_WAIT, description="How long to wait before answering anyway.")
        ] = _USUAL_WAIT,
        until: Annotated[
            Literal["ended", "pending", "changed"],
            Field(description="Wait for its end, until it can be claimed, or for its next change of state."),
        ] = "ended",
    ) -> dict[str, Any]:
        """Wait until a task has ended, can be claimed, or has changed its state.

        Call it after submit_task for the result, or after ask_human for the answer. "done" false means that the time is
        up and nothing happened: call it again, the task goes on meanwhile. "result" is there if it was completed,
        "error" if it failed.
        """
        found = await self._service.task(task_id)
        began, last = found.state, found

        def is_over(task: Task) -> bool:
            wanted = {"pending": task.state is TaskState.PENDING, "changed": task.state is not began}
            return task.state.is_terminal or wanted.get(until, False)

        async def look() -> Task:
            return await self._service.task(found.id)

        try:
            async with (
                asyncio.timeout(timeout_seconds),
                aclosing(self._service.follow(look, task_id=found.id)) as views,
            ):
                async for view in views:
                    last = view.seen
                    if is_over(last):
                        break
        except TimeoutError:
            pass  # "done" is false then
        reports = await self._service.last_reports(found.id, _EVENTS)
        progress = [forms.event_form(event)["payload"] for event in reports]
        return {"done": is_over(last)} | outcome_of(last) | without_empty({"progress": progress})

    async def read_resource(
        self,
        *,
        uri: Annotated[
            str, Field(max_length=2000, description="As other answers name it: state://..., artifact://..., fact://...")
        ],
    ) -> dict[str, Any]:
        """Read a resource of this server, if your client does not offer its resources to you.

        Call it for what other answers point to: an artifact, the journal of a task (its URI with /steps), the rest of
        something that was cut. "text" is its content; if it is not text, you get only its type and size.
        """
        address = read_address(uri)
        if address is None:
            raise NotFound("resource", uri[:200], where="here; use a URI that another answer named")
        content = await read(self._access, address)
        if content.text is None:
            size = len(content.blob or "") * 3 // 4
            return {"uri": uri, "mime_type": content.mime_type, "text": f"[no text: about {size} bytes]"}
        return {"uri": uri, "mime_type": content.mime_type, "text": content.text}
