"""What an agent outside does to tasks, under its name: offer, claim, work under a lease, share what it knows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from holdfast.engine.api.holdfast import Holdfast
from holdfast.engine.api.new_task import submit_task
from holdfast.engine.api.start import patch_of
from holdfast.engine.outside.claim import ClaimedTask, claim
from holdfast.engine.outside.lease_holder import LeaseHolder, Written
from holdfast.engine.outside.lease_token import LONGEST, SHORTEST, USUAL, LeaseToken
from holdfast.engine.outside.lines import notes_of, shown_steps, their_key
from holdfast.engine.outside.offer import details_of, first_state, offer
from holdfast.engine.outside.shared_state import SharedState, add_artifact, append, checked_patch, patch_state
from holdfast.engine.outside.start import checked_start
from holdfast.engine.outside.sweep import sweep, tidy
from holdfast.model.agent_state import ArtifactRef
from holdfast.model.errors import InvalidValue
from holdfast.model.patch import StatePatch
from holdfast.model.task import DEFAULT_QUEUE, JsonValue, Task
from holdfast.model.worker import Lease, WorkerState
from holdfast.store.base import StateStore

__all__ = [
    "LONGEST",
    "SHORTEST",
    "USUAL",
    "ClaimedTask",
    "OutsideAgent",
    "QueueTerms",
    "Written",
    "details_of",
    "first_state",
    "held_outside",
    "notes_of",
    "shown_steps",
    "sweep",
    "their_key",
    "tidy",
]

_LOOK_EVERY = 1.0
"""Seconds between two looks for work where no hint comes."""

_LABEL = "mcp:"
"""The beginning of the label of every worker that was made for a claim from outside: see ``Caller.actor``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTerms:
    """How a new task is to be queued."""

    queue: str | None = None
    priority: int = 0
    key: str | None = None
    delay: float = 0.0
    deadline: float | None = None
    """Seconds from now."""
    labels: Mapping[str, str] | None = None


class OutsideAgent:
    """One caller from outside. Its front end checks what it may do."""

    def __init__(self, hold: Holdfast, by: str) -> None:
        """``by`` is its name in histories."""
        self._hold = hold
        self._by = by

    # New tasks

    async def offer(
        self,
        goal: str,
        terms: QueueTerms,
        *,
        plan: Sequence[str] | None = None,
        state: Mapping[str, JsonValue] | None = None,
        details: JsonValue = None,
        agent_id: str | None = None,
    ) -> Task:
        """Store a task for whichever agent claims it; return it."""
        given = await patch_of(self._hold.store, checked_start(state, plan, self._by))
        deadline = None if terms.deadline is None else await self._hold.store.now() + timedelta(seconds=terms.deadline)
        return await offer(
            self._hold,
            goal,
            by=self._by,
            plan=given.replace_plan or (),
            details=details,
            start=replace(given, replace_plan=None),
            agent_id=agent_id,
            queue=terms.queue,
            priority=terms.priority,
            key=terms.key,
            delay=terms.delay,
            deadline=deadline,
            labels=terms.labels,
        )

    async def submit(
        self,
        name: str,
        arguments: Sequence[JsonValue],
        terms: QueueTerms,
        *,
        plan: Sequence[str] | None = None,
        state: Mapping[str, JsonValue] | None = None,
    ) -> str:
        """Store a task for Holdfast's own workers; return its id. Its definition is known if its application is."""
        definitions = self._hold.definitions
        is_known = definitions.get(name) is not None
        if not is_known and definitions.names:
            raise InvalidValue(f"there is no task {name!r} here; there are: {', '.join(definitions.names)}")
        handle = await submit_task(
            self._hold.services,
            name,
            arguments,
            start=checked_start(state, plan, self._by),
            key=terms.key,
            queue=terms.queue or (None if is_known else DEFAULT_QUEUE),
            priority=terms.priority or None,
            deadline=terms.deadline,
            delay=terms.delay or None,
            labels=terms.labels,
            by=self._by,
        )
        return handle.id

    async def cancel(self, task_id: str, reason: str) -> None:
        """Stop a task and its children."""
        await self._hold.cancel(task_id, reason, by=self._by)

    # Working on a task

    async def claim(
        self,
        *,
        names: Sequence[str],
        queues: Sequence[str] = (),
        task_id: str | None = None,
        lease: float,
        patience: float = 0.0,
    ) -> ClaimedTask | None:
        """Take a task: this one, or the next of these queues. None if there is none within ``patience`` seconds."""

        async def look() -> ClaimedTask | None:
            return await claim(self._hold, by=self._by, names=names, queues=queues, task_id=task_id, seconds=lease)

        if not patience:
            return await look()
        clock = asyncio.get_running_loop().time
        until = clock() + patience
        async with self._hold.store.listen() as listener:
            while (taken := await look()) is None and (left := until - clock()) > 0:
                await listener.wait(timeout=min(left, _LOOK_EVERY))
        return taken

    def holder(self, lease: str) -> LeaseHolder:
        """Return what the holder of a lease may do; ``lease`` is the text that the claim gave out."""
        return LeaseHolder(self._hold, LeaseToken.read(lease), by=self._by)

    async def complete_step(
        self,
        lease: str,
        key: str,
        output: JsonValue,
        *,
        facts: Sequence[Any] | None = None,
        done: str | None = None,
        following: str | None = None,
    ) -> Written:
        """Record that a step is done. ``done`` and ``following`` are lines of the plan."""
        given: dict[str, object] = {"append_facts": facts} if facts else {}
        if done:
            given["complete_steps"] = [done]
        if following:
            given["current_step"] = following
        patch = checked_patch(given, self._by) if given else StatePatch()
        await self._check_plan(LeaseToken.read(lease).task_id, [line for line in (done, following) if line])
        return await self.holder(lease).complete_step(key, output, patch)

    async def _check_plan(self, task_id: str, lines: Sequence[str]) -> None:
        """Refuse a text that is not a line of the plan: after a typing error the plan would stay undone for ever."""
        task = await self._hold.store.get(task_id)
        if not lines or task is None or not task.version:
            return
        plan = (await self._hold.state(task_id)).plan
        if plan and (unknown := [line for line in lines if line not in plan]):
            raise InvalidValue(
                f"{unknown[0]!r} is not a line of the plan; nothing was recorded. The plan is: {'; '.join(plan)[:1000]}"
            )

    async def release(self, lease: str, note: str, *, facts: Sequence[Any] | None = None) -> Written:
        """Hand a task back, with what the next agent should know."""
        patch = checked_patch({"append_facts": facts}, self._by) if facts else StatePatch()
        return await self.holder(lease).release(note, patch)

    # Sharing what is known

    async def patch_state(self, task_id: str, patch: dict[str, Any], *, version: int, reason: str) -> SharedState:
        """Change the state of a task if it is still at ``version``. Raises StateConflict."""
        read = checked_patch(patch, self._by)
        return await patch_state(self._hold, task_id, read, version=version, by=self._by, reason=reason)

    async def append_facts(self, task_id: str, facts: Sequence[Any], *, lease: str | None) -> SharedState:
        """Add facts to the state of a task."""
        patch = checked_patch({"append_facts": facts}, self._by)
        return await append(self._hold, task_id, patch, by=self._by, lease=_token(lease))

    async def add_artifact(
        self,
        task_id: str,
        content: bytes,
        *,
        name: str,
        media_type: str | None,
        summary: str,
        lease: str | None,
    ) -> ArtifactRef:
        """Keep bytes with a task."""
        return await add_artifact(
            self._hold,
            task_id,
            content,
            name=name,
            media_type=media_type,
            summary=summary,
            by=self._by,
            lease=_token(lease),
        )


def _token(lease: str | None) -> LeaseToken | None:
    return None if lease is None else LeaseToken.read(lease)


async def held_outside(store: StateStore, by: str | None = None) -> list[Lease]:
    """Return the leases of agents outside: of one of them, or of all."""
    workers = [one for one in await store.workers() if one.state is not WorkerState.DEAD]
    outside = [one for one in workers if (one.label == by if by else one.label.startswith(_LABEL))]
    return [lease for worker in outside for lease in await store.owned(worker.id)]
