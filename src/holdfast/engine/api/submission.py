"""Storing one task: its arguments, its start, and the handle that waits for its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.engine.api.definition import TaskDefinition
from holdfast.engine.api.handle import Handle
from holdfast.engine.api.new_task import continuing, new_task, was_submitted_before
from holdfast.engine.api.start import Start, as_state, link_artifacts, starting
from holdfast.engine.runtime.services import Services
from holdfast.model.errors import KeyConflict
from holdfast.model.patch import StatePatch
from holdfast.model.task import NewTask, Submitted


async def submit_task(
    services: Services,
    task: Any,  # noqa: ANN401 - a definition, with its arguments or without, or a name
    args: Sequence[Any],
    *,
    start: Start,
    after: str | None = None,
    **options: Any,  # noqa: ANN401
) -> Handle[Any]:
    """Store a task; return its handle. ``after`` is the id of what it goes on from; ``options``: see ``new_task``.

    Raises KeyConflict if there is another task under its key.
    """
    store, definitions = services.store, services.definitions
    args, start = as_state(definitions, task, tuple(args), start)
    given = StatePatch()
    if not start.is_empty:
        [task], given = await starting(store, definitions, task, [args], start)
        args = ()
    if after is not None:
        task, args = await continuing(store, definitions, task, args, after), ()
    new, definition = new_task(definitions, task, args, now=services.time.now(), **options)
    handle = await handle_of(services, new, await services.submitter.put(new), definition)
    await link_artifacts(store, [handle.id], given, by=new.actor)
    return handle


async def handle_of(
    services: Services, new: NewTask, answer: Submitted, definition: TaskDefinition[..., Any] | None
) -> Handle[Any]:
    """Return the handle of a task as the store answered. Raises KeyConflict."""
    if answer.conflict and not await was_submitted_before(services.store, services.definitions, new, answer.task_id):
        raise KeyConflict(new.name, new.key or new.id, answer.task_id)
    services.note_due(new.available_at)
    return Handle(services, answer.task_id, Any if definition is None else definition.returns)
