"""``holdfast submit``: store a task for the workers, and wait for its result if asked to."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast import Handle
from holdfast.cli.options import AsJson, Labels, LimitKeys, OtherUrl, read_labels
from holdfast.cli.start import ArtifactId, Fact, Plan, State, goal_of, read_start
from holdfast.cli.store_session import command, command_line, with_store
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
from holdfast.cli.terminal import print_json, print_message
from holdfast.cli.times import read_seconds, read_time
from holdfast.model.deadline import as_seconds
from holdfast.model.errors import DeadlineExceeded, InvalidValue, TaskCancelled, TaskFailed
from holdfast.service.forms import task_form
from holdfast.service.overview import Overview


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
        str | None,
        typer.Option(metavar="SPAN", help="It does not begin before: seconds, or 10m, 2h.", show_default=False),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="It does not begin before this moment, with its zone: 2026-12-01T07:00:00+01:00.",
            show_default=False,
        ),
    ] = None,
    if_exists: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="With --key, if a task has it: return that task, replace it if it was never claimed, or reject.",
            show_default=False,
        ),
    ] = None,
    debounce: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="With --key: begin this long after the last submission, with the arguments of the last one.",
            show_default=False,
        ),
    ] = None,
    debounce_max: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="With --debounce: begin this long after the first one at the latest; by default ten times as long.",
            show_default=False,
        ),
    ] = None,
    label: Labels = None,
    limit: LimitKeys = None,
    after: After = None,
    state: State = None,
    plan: Plan = None,
    fact: Fact = None,
    artifact: ArtifactId = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end, and print the result as JSON.")] = False,
    timeout: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="With --wait: wait no longer than this, seconds or 10m. The task goes on.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
    database_url: OtherUrl = None,
) -> None:
    """Submit a task for the workers and print its id.

    With --wait print its result instead; the exit code is 5 if it failed or was cancelled, and 124 after --timeout.
    """
    if timeout is not None and not wait:
        raise InvalidValue("--timeout limits the waiting; add --wait")
    # Invalid options are refused before anything is stored.
    patience = None if timeout is None else as_seconds(read_seconds(timeout, what="--timeout"), what="--timeout")
    options = {
        "key": key,
        "priority": priority,
        "queue": queue,
        "deadline": None if deadline is None else read_seconds(deadline, what="--deadline"),
        "delay": None if delay is None else read_seconds(delay, what="--delay"),
        "at": None if at is None else read_time(at, what="--at"),
        **({} if if_exists is None else {"if_exists": if_exists}),
        "debounce": None if debounce is None else read_seconds(debounce, what="--debounce"),
        "debounce_max": None if debounce_max is None else read_seconds(debounce_max, what="--debounce-max"),
        "labels": read_labels(label),
        "limits": limit or [],
        **(start := read_start(state, plan, fact, artifact)),
    }
    chosen = choose(words, args, text, database_url, goal=goal_of(start))
    service = chosen.service
    async with service:
        if not service.is_durable:
            raise InvalidValue(
                f"{service.shown_url} ends with this command, and the task with it; submit to a store that lasts"
            )
        handle = await submit_chosen(chosen, after=after, **options)
        if wait:
            print_message(f"task {handle.id}: waiting until a worker has done it")
            application = words[0] if len(words) > 1 else None
            if (missing := _missing_worker(await service.overview(handle.id), application, service.url)) is not None:
                print_message(missing)
            await _wait(handle, patience, as_json=as_json)
        elif as_json:
            print_json(task_form(await handle.task()))
        else:
            print_message(f"submitted; look at it with: {command_line('show', handle.id, service.url)}")
            typer.echo(handle.id)


def _missing_worker(seen: Overview, application: str | None, url: str) -> str | None:
    """Return how to start a worker if the task waits for one and there is none."""
    if all(advice.verb != "worker" for advice in seen.situation.next):
        return None
    line = " ".join(["holdfast worker", *([application] if application else []), "--queues", seen.task.queue])
    return f"{seen.situation.why}; start one: {with_store(line, url)}"


async def _wait(handle: Handle[Any], timeout: float | None, *, as_json: bool) -> None:
    try:
        await handle.result(timeout)
    except (TaskFailed, TaskCancelled, DeadlineExceeded):
        if as_json:
            print_json(task_form(await handle.task()))
        raise
    print_result(await handle.task(), as_json=as_json)
