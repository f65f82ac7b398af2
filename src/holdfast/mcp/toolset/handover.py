"""Taking a task over, working on it under a lease, and handing it back; engine/outside/lease_holder.py writes it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from holdfast.mcp.access import CallerAccess
from holdfast.mcp.forms import detail_of, line_of, shared_of, steps_of, uri_of
from holdfast.model.task import DEFAULT_QUEUE, JsonValue
from holdfast.service.identify import short
from holdfast.service.outside import LONGEST, SHORTEST, USUAL, ClaimedTask, Written

LeaseText = Annotated[str, Field(description="The lease claim_task gave you, exactly as it was.")]
LeaseSeconds = Annotated[
    float,
    Field(ge=SHORTEST, le=LONGEST, description="How long you may stay silent before the task goes to another agent."),
]
Facts = Annotated[
    list[dict[str, Any]] | None,
    Field(description='What you found out: [{"key": "disk", "value": "92%", "source": "df -h"}].'),
]


_LONGEST_WAIT = 55.0
"""Seconds. Many clients give up on a call after a minute."""

_NOTES = 3
"""How many of the last notes are shown."""


class HandoverTools:
    """The hand-over."""

    def __init__(self, access: CallerAccess) -> None:
        """``access`` belongs to the request."""
        self._access = access

    async def claim_task(
        self,
        *,
        task_id: Annotated[
            str | None, Field(description="This very task; leave out for the next one that waits.")
        ] = None,
        queues: Annotated[
            list[str] | None, Field(description="Where to look; the queue 'default' if left out.")
        ] = None,
        lease_seconds: LeaseSeconds = USUAL,
        wait_seconds: Annotated[
            float, Field(ge=0, le=_LONGEST_WAIT, description="How long to wait for work, if there is none.")
        ] = 0,
    ) -> dict[str, Any]:
        """Take a task to work on it. No other agent gets it while your lease lasts.

        Call it when you are ready to work, or to go on with a task another agent left. "task" null means that there is
        no work for you now; ask again later ("elsewhere": other queues with work). Otherwise you get the task, its
        state as the last agent left it (plan, facts, completed steps: do not do those again), "notes", answers of
        people, and a "lease". Pass it to complete_step after every step, to report_progress while a step takes long,
        and to finish_task, ask_human or release_task at the end. Every such call renews it. An error that says that the
        lease is over means: stop, the task is not yours any more.
        """
        whole = None if task_id is None else await self._access.service.task_id(task_id)
        looked_at = queues or [DEFAULT_QUEUE]

        taken = await self._access.agent.claim(
            names=self._access.claimable, queues=looked_at, task_id=whole, lease=lease_seconds, patience=wait_seconds
        )
        if taken is not None:
            return taken_form(taken)
        counts = await self._access.service.queues()
        elsewhere = {one.name: one.ready for one in counts if one.ready and one.name not in looked_at}
        return {"task": None, "elsewhere": elsewhere}

    async def report_progress(
        self,
        *,
        lease: LeaseText,
        message: Annotated[str, Field(max_length=2000, description="What you are doing, for people who watch.")],
        percent: Annotated[float | None, Field(ge=0, le=100, description="How far you are.")] = None,
    ) -> dict[str, Any]:
        """Report how far you are, and keep your lease.

        Call it while a step takes long, well before the lease ends. Changes nothing else. "cancel_requested" in the
        answer means that the task is to be cancelled: release it.
        """
        return _standing_form(await self._access.agent.holder(lease).report(message, percent))

    async def complete_step(
        self,
        *,
        lease: LeaseText,
        key: Annotated[
            str, Field(min_length=1, max_length=200, description="A name for the step, unique in the task.")
        ],
        output: Annotated[
            JsonValue, Field(description="What came of it, as JSON; small. Large outputs: add_artifact.")
        ] = None,
        facts: Facts = None,
        plan_step: Annotated[str | None, Field(description="The line of the plan that is done now.")] = None,
        next_step: Annotated[str | None, Field(description="The line of the plan that comes now.")] = None,
    ) -> dict[str, Any]:
        """Record that a step is done, so that no agent does it again.

        Call it right after every step that has an effect. The same key with the same output again changes nothing
        ("replayed" true), so a call whose answer was lost can be repeated; with another output it is refused.
        """
        standing = await self._access.agent.complete_step(
            lease, key, output, facts=facts, done=plan_step, following=next_step
        )
        return {"replayed": standing.replayed} | _standing_form(standing)

    async def ask_human(
        self,
        *,
        lease: LeaseText,
        question: Annotated[
            str, Field(min_length=1, max_length=4000, description="One question, with all that is needed to answer it.")
        ],
    ) -> dict[str, Any]:
        """Ask a person something only they can decide or know.

        Call it when you must not go on without an answer. The task is handed back and waits; your lease ends. Once a
        person has answered (it may take days), the task is pending again: wait_for_task with until="pending", then
        claim_task with its id; the answer is in "answers". You cannot answer yourself, and no tool can.
        """
        approval = await self._access.agent.holder(lease).ask(question)
        task = await self._access.service.task(approval.task_id)
        how = f"a person answers with: holdfast answer {short(approval.id)} ANSWER"
        return {"question_id": approval.id, "question": question, "how": how} | line_of(task)

    async def finish_task(
        self,
        *,
        lease: LeaseText,
        result: Annotated[JsonValue, Field(description="The result, as JSON.")] = None,
        failed: Annotated[
            str | None, Field(max_length=4000, description="Instead of a result: why it cannot be done.")
        ] = None,
    ) -> dict[str, Any]:
        """End a task you hold: with its result, or with why it cannot be done. Your lease ends.

        Call it once, when all is done. "state" is "completed" or "failed"; "review" means that the task's own verifier
        looks at the result first.
        """
        holding = self._access.agent.holder(lease)
        standing = await (holding.finish(result) if failed is None else holding.give_up(failed))
        return {"replayed": standing.replayed} | detail_of(standing.task)

    async def release_task(
        self,
        *,
        lease: LeaseText,
        note: Annotated[str, Field(max_length=2000, description="What the next agent should know first.")] = "",
        facts: Facts = None,
    ) -> dict[str, Any]:
        """Hand a task back unfinished, for another agent to go on with. Your lease ends.

        Call it when you cannot or should not go on. What you recorded stays. A task that was to be cancelled is
        cancelled now.
        """
        return line_of((await self._access.agent.release(lease, note, facts=facts)).task)


def taken_form(taken: ClaimedTask) -> dict[str, JsonValue]:
    """Return a task that was claimed."""
    return {
        "task_id": taken.task.id,
        "uri": uri_of(taken.task),
        "lease": str(taken.lease),
        "lease_seconds": taken.seconds,
        "task": detail_of(taken.task),
        **shared_of(taken.task, taken.state),
        "steps": steps_of(taken.steps),
        "notes": list(taken.notes[-_NOTES:]),
        "answers": [answer.to_json() for answer in taken.answers],
    }


def _standing_form(standing: Written) -> dict[str, JsonValue]:
    task = standing.task
    form: dict[str, JsonValue] = {"task_id": task.id, "state": str(task.state), "version": task.version}
    if task.cancel_requested is not None:
        form["cancel_requested"] = task.cancel_requested
    return form
