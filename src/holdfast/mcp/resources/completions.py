"""Completing ids in templates and prompts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.mcp.access import CallerAccess
from holdfast.model.queries import Noun, TaskFilter

MOST = 100
"""The protocol allows no more."""

_LOOKED_INTO = 20
"""Tasks whose artifacts are looked through, one after the other, the newest ones."""

_LOOKED_AT = 500
"""Tasks or facts whose names are looked through, the newest ones."""


async def complete(  # noqa: PLR0911 - one for each argument
    access: CallerAccess, name: str, begun: str, chosen: Mapping[str, str]
) -> list[str]:
    """Return the values of an argument that begin like this; ``chosen`` are the arguments before it."""
    match name:
        case "task_id":
            return await _task_ids(access, begun, chosen.get("agent_id"))
        case "agent_id":
            tasks = (await access.service.tasks(TaskFilter(), limit=_LOOKED_AT)).items
            return _beginning(begun, (task.agent_id for task in tasks))
        case "queue":
            return _beginning(begun, (queue.name for queue in await access.service.queues()))
        case "number":
            return await _checkpoints(access, begun, chosen.get("task_id"))
        case "artifact_id":
            return await _artifact_ids(access, begun)
        case "entity":
            facts = await access.service.facts(live=False, limit=_LOOKED_AT)
            return _beginning(begun, (fact.entity for fact in facts))
    return []


async def _task_ids(access: CallerAccess, begun: str, agent_id: str | None) -> list[str]:
    """Offer the tasks of the agent that was chosen, the newest first; or any that have these characters."""
    if agent_id or not begun:
        tasks = (await access.service.tasks(TaskFilter(agent_id=agent_id or None), limit=_LOOKED_AT)).items
        return _beginning(begun, (task.id for task in tasks))
    return list(await access.service.ids(Noun.TASK, begun, limit=MOST))


async def _checkpoints(access: CallerAccess, begun: str, task_id: str | None) -> list[str]:
    saved = await access.service.checkpoints(task_id) if task_id else []
    return _beginning(begun, (str(one.number) for one in reversed(saved)))


async def _artifact_ids(access: CallerAccess, begun: str) -> list[str]:
    tasks = (await access.service.tasks(TaskFilter(), limit=_LOOKED_INTO)).items
    links = [link for task in tasks for link in await access.service.artifact_links(task.id)]
    return _beginning(begun, (link.artifact_id for link in links))


def _beginning(begun: str, values: Iterable[str]) -> list[str]:
    return [value for value in dict.fromkeys(values) if value.startswith(begun)][:MOST]
