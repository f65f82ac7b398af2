"""``holdfast submit``: store a task for the workers, and wait for its result if asked to."""

from __future__ import annotations

import asyncio
import difflib
import json
from typing import Annotated, Any

import typer

from holdfast.cli.arguments import bind_json
from holdfast.cli.finding import find_holdfast
from holdfast.cli.options import Application, DatabaseUrl
from holdfast.engine.definition import Bound, TaskDefinition
from holdfast.engine.handle import Handle
from holdfast.engine.holdfast import Holdfast
from holdfast.model.errors import DeadlineExceeded, InvalidValue, TaskCancelled, TaskFailed
from holdfast.model.task import JsonValue
from holdfast.model.transitions import TaskState


def submit(
    application: Application,
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task's name.", show_default=False)],
    *,
    args: Annotated[
        str, typer.Option(metavar="JSON", help="Its arguments: an array, or an object of named ones.")
    ] = "[]",
    key: Annotated[str | None, typer.Option(help="The same key again is the same task.")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher goes first; by default the task's own.")] = None,
    queue: Annotated[str | None, typer.Option(help="Where to put it; by default the task's own queue.")] = None,
    deadline: Annotated[float | None, typer.Option(metavar="SECONDS", help="It has to be over by then.")] = None,
    delay: Annotated[float | None, typer.Option(metavar="SECONDS", help="It does not begin before.")] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="With --wait: wait no longer. The task goes on.")
    ] = None,
    database_url: DatabaseUrl = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end, and print the result as JSON.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Submit a task and print its id.

    With --wait print its result instead; the exit code is 5 if it failed or was cancelled, and 124 after --timeout.
    """
    if timeout is not None and not wait:
        raise InvalidValue("--timeout limits the waiting; add --wait")
    hold = find_holdfast(application, database_url)
    bound = bind_json(_definition(hold, task), args)
    options = {"key": key, "priority": priority, "queue": queue, "deadline": deadline, "delay": delay}
    asyncio.run(_submit(hold, bound, options, wait=wait, timeout=timeout, as_json=as_json))


def _definition(hold: Holdfast, name: str) -> TaskDefinition[..., Any]:
    definition = hold.definitions.get(name)
    if definition is None:
        names = hold.definitions.names
        close = difflib.get_close_matches(name, names, n=1) or names
        raise InvalidValue(f"there is no task {name!r} in this application; it has: {', '.join(close) or 'none'}")
    return definition


async def _submit(
    hold: Holdfast, bound: Bound[Any], options: dict[str, Any], *, wait: bool, timeout: float | None, as_json: bool
) -> None:
    async with hold:
        if not hold.store.capabilities.durable:
            raise InvalidValue(f"{hold.url} ends with this command, and the task with it; submit to a store that lasts")
        handle = await hold.submit(bound, **options)
        if not wait:
            typer.echo(json.dumps(await _object(handle)) if as_json else handle.id)
            return
        typer.echo(f"holdfast: submitted task {handle.id}; waiting until a worker has done it", err=True)
        try:
            result = _plain(await handle.result(timeout))
        except (TaskFailed, TaskCancelled, DeadlineExceeded):
            if as_json:
                typer.echo(json.dumps(await _object(handle)))
            raise
        typer.echo(json.dumps(await _object(handle) | {"result": result} if as_json else result))


def _plain(result: object) -> JsonValue:
    """Return a typed result as JSON people can read."""
    from pydantic_core import to_jsonable_python  # noqa: PLC0415 - slow to import, and not needed to submit

    return to_jsonable_python(result, bytes_mode="base64")


async def _object(handle: Handle[Any]) -> dict[str, JsonValue]:
    task = await handle.task()
    told: dict[str, JsonValue] = {"id": task.id, "name": task.name, "queue": task.queue, "state": task.state}
    if task.state is TaskState.FAILED:
        told["error"] = task.error
    if task.state is TaskState.CANCELLED:
        told["reason"] = task.cancel_requested
    return told
