"""``holdfast submit``: store a task for the workers, and wait for its result if asked to."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.cli.opening import command, command_line
from holdfast.cli.options import AsJson, OtherUrl
from holdfast.cli.tasks import (
    After,
    Args,
    Deadline,
    Input,
    Key,
    Priority,
    Queue,
    Words,
    choose,
    print_result,
    submit_chosen,
)
from holdfast.cli.terminal import print_json, say
from holdfast.engine.handle import Handle
from holdfast.model.errors import DeadlineExceeded, InvalidValue, TaskCancelled, TaskFailed
from holdfast.service.forms import task_form
from holdfast.service.service import Service


@command
async def submit(
    words: Words,
    *,
    args: Args = None,
    text: Input = None,
    key: Key = None,
    priority: Priority = None,
    queue: Queue = None,
    deadline: Deadline = None,
    delay: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="It does not begin before.", show_default=False)
    ] = None,
    after: After = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end, and print the result as JSON.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="With --wait: wait no longer. The task goes on.", show_default=False),
    ] = None,
    as_json: AsJson = False,
    database_url: OtherUrl = None,
) -> None:
    """Submit a task for the workers and print its id.

    With --wait print its result instead; the exit code is 5 if it failed or was cancelled, and 124 after --timeout.
    """
    if timeout is not None and not wait:
        raise InvalidValue("--timeout limits the waiting; add --wait")
    chosen = choose(words, args, text, database_url)
    options = {"key": key, "priority": priority, "queue": queue, "deadline": deadline, "delay": delay}
    async with chosen.hold:
        if not chosen.hold.store.capabilities.durable:
            url = chosen.hold.url
            raise InvalidValue(f"{url} ends with this command, and the task with it; submit to a store that lasts")
        handle = await submit_chosen(chosen, Service(chosen.hold), after=after, **options)
        if wait:
            say(f"task {handle.id}: waiting until a worker has done it")
            await _wait(handle, timeout, as_json=as_json)
        elif as_json:
            print_json(task_form(await handle.task()))
        else:
            say(f"submitted; look at it with: {command_line('show', handle.id, chosen.hold.url)}")
            typer.echo(handle.id)


async def _wait(handle: Handle[Any], timeout: float | None, *, as_json: bool) -> None:
    try:
        await handle.result(timeout)
    except (TaskFailed, TaskCancelled, DeadlineExceeded):
        if as_json:
            print_json(task_form(await handle.task()))
        raise
    print_result(await handle.task(), as_json=as_json)
