"""Reading a resource."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote

from holdfast.mcp.access import CallerAccess
from holdfast.mcp.addresses import (
    QUEUE,
    SCHEDULES,
    Address,
    ArtifactAddress,
    CheckpointAddress,
    CurrentAddress,
    FactAddress,
    QueueAddress,
    SchedulesAddress,
    StateAddress,
    StepsAddress,
    TaskAddress,
    artifact_uri,
    state_uri,
)
from holdfast.mcp.excerpts import MAX_RESOURCE, fitted, packed, text_of
from holdfast.mcp.forms import line_of, state_form
from holdfast.model.canonical import parse
from holdfast.model.checkpoints import damage_of
from holdfast.model.errors import NotFound
from holdfast.model.queries import TaskFilter
from holdfast.model.task import JsonValue, Task
from holdfast.model.transitions import TaskState
from holdfast.model.utf8 import decode_anything, drop_cut_end, drop_cut_start, is_text
from holdfast.service import forms

JSON = "application/json"
PAGE = 50
STEPS = 100
_RUNNING = frozenset({TaskState.RUNNING})
_AROUND = 2000
"""Characters of a page beside its items."""

MAX_PART = 128 << 10
"""Bytes of an artifact that are sent at once."""


@dataclass(frozen=True, slots=True)
class Content:
    """What a resource holds: text, or bytes in base64."""

    mime_type: str
    text: str | None = None
    blob: str | None = None


async def read(access: CallerAccess, address: Address) -> Content:  # noqa: PLR0911 - one for each kind
    """Return the content at an address. Raises NotFound."""
    match address:
        case StateAddress():
            return await _state(access, address)
        case StepsAddress():
            return await _steps(access, address)
        case CheckpointAddress():
            return await _checkpoint(access, address)
        case QueueAddress():
            return _json(await queue_form(access, address))
        case CurrentAddress():
            return _json(await current_form(access))
        case SchedulesAddress():
            return _json(await schedules_form(access))
        case ArtifactAddress():
            return await _artifact(access, address)
        case FactAddress(entity):
            return await _facts(access, entity)


async def task_at(access: CallerAccess, address: TaskAddress) -> Task:
    """Return the task of an address: by its whole id, and only under the agent it belongs to. Raises NotFound."""
    task = await access.service.whole_task(address.task_id)
    if task is None or task.agent_id != address.agent_id:
        raise NotFound(
            "task", address.task_id, where=f"of agent {address.agent_id!r}; list_tasks shows which there are"
        )
    return task


async def _state(access: CallerAccess, address: StateAddress) -> Content:
    task = await task_at(access, address)
    state = await access.service.state(task.id) if task.version else None
    return _json(state_form(task, state), rest=f"{state_uri(task.agent_id, task.id)}/steps")


async def _steps(access: CallerAccess, address: StepsAddress) -> Content:
    task = await task_at(access, address)
    steps = [step for step in await access.service.steps(task.id) if step.position > address.after]
    page = packed(map(forms.step_form, steps[:STEPS]), MAX_RESOURCE - _AROUND)
    uri = f"{state_uri(task.agent_id, task.id)}/steps"
    following = f"{uri}?after={steps[len(page) - 1].position}" if len(page) < len(steps) else None
    return _json({"uri": uri, "task_id": task.id, "steps": page, "next": following})


async def _checkpoint(access: CallerAccess, address: CheckpointAddress) -> Content:
    task = await task_at(access, address)
    saved = await access.service.checkpoints(task.id)
    found = next((one for one in saved if one.number == address.number), None)
    if found is None:
        numbers = ", ".join(str(one.number) for one in saved[-10:]) or "none"
        raise NotFound("checkpoint", str(address.number), where=f"of task {task.id}; the last ones are {numbers}")
    damage = found.damaged or damage_of(found)
    return _json(
        {
            "task_id": task.id,
            "number": found.number,
            "position": found.position,
            "version": found.version,
            "created_at": forms.moment(found.created_at),
            "damaged": damage,
            "agent_state": parse(found.body) if damage is None else None,
        }
    )


async def queue_form(access: CallerAccess, address: QueueAddress) -> dict[str, JsonValue]:
    """Return what waits, in the order in which it will be claimed."""
    service = access.service
    counts = [one for one in await service.queues() if address.queue in {None, one.name}]
    page = await service.queued(queue=address.queue, limit=PAGE, after=address.after)
    chosen = [f"queue={quote(address.queue, safe='')}"] if address.queue else []
    following = "&".join([*chosen, f"after={quote(page.next, safe='')}"]) if page.next else None
    return {
        "uri": QUEUE,
        "counts": [forms.queue_form(one) for one in counts],
        "paused": [forms.pause_form(pause) for pause in await service.pauses()],
        "tasks": [line_of(task) for task in page.items],
        "next": f"{QUEUE}?{following}" if following else None,
    }


async def current_form(access: CallerAccess) -> dict[str, JsonValue]:
    """Return what the caller works on, and what else runs: the newest of it, and how many there are."""
    service = access.service
    own = [lease.task_id for lease in await service.held_outside(access.caller.actor)][:PAGE]
    held = [task for task_id in own if (task := await service.whole_task(task_id)) is not None]
    others = [task for task in await running_tasks(access) if task.id not in own]
    count = (await service.count(TaskFilter(states=_RUNNING))).get(TaskState.RUNNING, 0)
    return {
        "caller": access.caller.name,
        "yours": [line_of(task) for task in held],
        "running": [line_of(task) for task in others],
        "running_count": count,
    }


async def schedules_form(access: CallerAccess) -> dict[str, JsonValue]:
    """Return what is submitted again and again."""
    items = map(forms.schedule_form, await access.service.schedules())
    return {"uri": SCHEDULES, "schedules": packed(items, MAX_RESOURCE - _AROUND)}


async def running_tasks(access: CallerAccess) -> Sequence[Task]:
    """Return the tasks that a worker or an agent works on, the newest first."""
    return (await access.service.tasks(TaskFilter(states=_RUNNING), limit=PAGE)).items


async def _artifact(access: CallerAccess, address: ArtifactAddress) -> Content:
    artifacts = access.service.artifacts
    stored = await artifacts.stat(address.artifact_id)
    is_whole = address.offset == 0 and address.length is None
    if is_whole and stored.size > MAX_PART:
        shown = await artifacts.excerpt(stored.id, max_bytes=MAX_PART)
        uri = f"{artifact_uri(stored.id)}?offset=0&length={MAX_PART}"
        return Content("text/plain", text=f"{shown}\n[{stored.size} bytes of {stored.media_type}; parts: {uri}]")
    length = MAX_PART if address.length is None else min(address.length, MAX_PART)
    part = await artifacts.read_range(stored.id, address.offset, length)
    if not is_text(part):
        return Content(stored.media_type, blob=base64.b64encode(part).decode())
    if not is_whole:
        part = drop_cut_start(drop_cut_end(part)) if address.offset else drop_cut_end(part)
    return Content(stored.media_type, text=decode_anything(part))


async def _facts(access: CallerAccess, entity: str) -> Content:
    facts = await access.service.facts(entity, limit=STEPS)
    if not facts:
        raise NotFound("fact about", entity, where="is remembered; recall searches by words")
    form: dict[str, JsonValue] = {"entity": entity, "facts": [forms.fact_form(fact) for fact in facts]}
    return _json(form)


def _json(form: dict[str, JsonValue], *, rest: str = "") -> Content:
    return Content(JSON, text=text_of(fitted(form, MAX_RESOURCE, rest=rest)))


def first_page(address: Address) -> Address:
    """Return an address without its place in a longer listing: what is watched is the resource, not a page of it."""
    match address:
        case StepsAddress():
            return replace(address, after=0)
        case QueueAddress():
            return replace(address, after=None)
    return address
