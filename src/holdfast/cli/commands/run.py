"""``holdfast run``: submit a task and work on it in this process, with everything that happens on the screen."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Annotated, Any

import typer

from holdfast.cli.endpoint import Watch, end, print_unreachable
from holdfast.cli.exits import ExitCode
from holdfast.cli.logs import print_problems
from holdfast.cli.options import AsJson, Labels, LimitKeys, OtherUrl, read_labels
from holdfast.cli.progress import show_progress
from holdfast.cli.signals import StopSignals
from holdfast.cli.start import ArtifactId, Fact, Plan, State, goal_of, read_start
from holdfast.cli.store_session import command, command_line
from holdfast.cli.tasks import After, Args, Chosen, Deadline, Input, Key, choose, print_result, submit_chosen
from holdfast.cli.terminal import print_json, print_message
from holdfast.cli.times import read_seconds
from holdfast.model.errors import InvalidValue, StoreError, TaskCancelled, TaskFailed
from holdfast.model.transitions import TaskState
from holdfast.model.worker import NewWorker
from holdfast.service.forms import task_form
from holdfast.service.identify import short
from holdfast.service.local_run import HEAD_START
from holdfast.service.overview import Overview
from holdfast.service.reach import Unreached
from holdfast.service.service import Service
from holdfast.service.session import find_application
from holdfast.settings import current_settings


@command
async def run(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODULE:HOLDFAST TASK",
            help="The application and the name of one of its tasks or agents; the task alone where holdfast.toml or "
            "HOLDFAST_APPLICATION names the application.",
            show_default=False,
        ),
    ] = None,
    *,
    args: Args = None,
    text: Input = None,
    key: Key = None,
    deadline: Deadline = None,
    label: Labels = None,
    limit: LimitKeys = None,
    after: After = None,
    state: State = None,
    plan: Plan = None,
    fact: Fact = None,
    artifact: ArtifactId = None,
    existing: Annotated[
        str | None,
        typer.Option("--id", metavar="TASK", help="Go on with a task that exists instead.", show_default=False),
    ] = None,
    lease: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="How long after this process has died others may take over: seconds, or 5m.",
            show_default=False,
        ),
    ] = None,
    patience: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="How long to wait for a model that cannot be reached: seconds, or 5m. By default, three tries.",
            show_default=False,
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress, only the result.")] = False,
    as_json: AsJson = False,
    database_url: OtherUrl = None,
) -> None:
    """Submit a task, work on it here until it has ended, and print its result as JSON.

    It runs in this process, also if workers are alive. If this process dies, nothing is lost: run it again with the
    same --key, or with --id, and it goes on. A task that returns nothing prints nothing.
    The exit code is 5 if the task failed or was cancelled, 130 after Ctrl-C; the task is handed back then.
    It is 6 if the task's model was never reached: the command stops within seconds, and the task is kept as it is.
    """
    print_problems()
    start, labels = read_start(state, plan, fact, artifact), read_labels(label)
    chosen = _chosen(words or [], args, text, existing, database_url, start=start)
    service = chosen if isinstance(chosen, Service) else chosen.service
    held_for = current_settings()["worker.lease"] if lease is None else read_seconds(lease, what="--lease")
    NewWorker(lease=held_for)  # refuses an invalid lease before anything is stored
    waits_for = None if patience is None else read_seconds(patience, what="--patience")
    over_in = None if deadline is None else read_seconds(deadline, what="--deadline")
    async with service:
        if isinstance(chosen, Service):
            handle, is_new = service.handle((await service.task(existing or "")).id), False
        else:
            is_new = not await service.has_key(chosen.bound.definition.name, key)
            # Workers that are alive must not be faster than this process.
            options = {
                "key": key,
                "deadline": over_in,
                "labels": labels,
                "limits": limit or [],
                "delay": HEAD_START if is_new else None,
                **start,
            }
            handle = await submit_chosen(chosen, after=after, **options)
        before = await service.overview(handle.id)
        has_ended = before.task.state.is_terminal
        try:
            if has_ended:
                await handle.result()
            else:
                watch = Watch(service, handle.id, before.at, waits_for)
                await _work(service, before, watch, lease=held_for, quiet=quiet, at_once=is_new)
        except _StoppedError:
            again = f"holdfast run{_application(words, existing)} --id {short(handle.id)}"
            print_message(await _left(service, handle.id, again))
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except _UnreachedError as stopped:
            if as_json:
                print_json(task_form(await handle.task()))
            waited = (await service.now() - before.at).total_seconds()
            print_unreachable(
                stopped.found, handle.id, service, application=_application(words, existing), waited=waited
            )
            raise typer.Exit(ExitCode.UNREACHED) from None
        except (TaskFailed, TaskCancelled) as error:
            if as_json:
                print_json(task_form(await handle.task()))
            _add_advice(error, service, had_ended=has_ended)
            raise
        if has_ended and not quiet:
            print_message(f"task {short(handle.id)} was completed before, and is not run again")
        print_result(await handle.task(), as_json=as_json)


class _StoppedError(Exception):
    """A signal asked to stop during the work."""


class _UnreachedError(Exception):
    """The task's model cannot be reached."""

    def __init__(self, found: Unreached) -> None:
        super().__init__(found.message)
        self.found = found


def _application(words: list[str] | None, existing: str | None) -> str:
    """Return the application as it was typed, for commands that need it again; empty if it was not."""
    return f" {words[0]}" if words and (existing is not None or len(words) > 1) else ""


async def _work(service: Service, before: Overview, watch: Watch, *, lease: float, quiet: bool, at_once: bool) -> None:
    """Work on a task until it has ended, and show its progress; raise its failure."""
    task = before.task
    if task.name not in service.definitions.names:
        raise InvalidValue(
            f"task {short(task.id)} is {task.name!r}, which is not defined here; name the application that defines it: "
            f"holdfast run MODULE:HOLDFAST --id {short(task.id)}"
        )
    working = asyncio.create_task(service.run(task.id, lease=lease, at_once=at_once))
    watching = asyncio.create_task(watch.run(working.cancel))
    interrupted: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        interrupted.append(number)
        working.cancel()

    try:
        with StopSignals(stop), redirect_stdout(sys.stderr):  # stdout is for the result alone
            try:
                await show_progress(service, before, working, quiet=quiet)
                await working
            finally:  # before the store is closed, the running task has to be handed back
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
                await end(watching)
    except asyncio.CancelledError:
        if interrupted:
            raise _StoppedError from None
        if watch.given_up is not None:
            raise _UnreachedError(watch.given_up) from None
        raise


def _add_advice(error: TaskFailed | TaskCancelled, service: Service, *, had_ended: bool) -> None:
    """Add to the error what can be done about it."""
    if had_ended:
        error.add_note("that was before, and it is not run again")
    if not service.is_durable:
        return
    error.add_note(f"look at it with: {command_line('show', error.task_id, service.url)}")
    if isinstance(error, TaskFailed):
        error.add_note(f"let it go on with: {command_line('resume', error.task_id, service.url)}")


async def _left(service: Service, task_id: str, again: str) -> str:
    """Return how a task was left that was stopped in the middle, and how to go on with it."""
    name = short(task_id)
    held = f"stopped; task {name} could not be handed back, and is free when the lease is over. Go on with: {again}"
    try:
        seen = await service.overview(task_id)
    except StoreError:
        return held
    shown = command_line("show", task_id, service.url)
    if seen.task.state.is_terminal:
        return f"stopped; task {name} is {seen.task.state}; look at it with: {shown}"
    if seen.task.state is TaskState.WAITING:
        return f"stopped; task {name} waits on, and a worker goes on with it then, or: {again}"
    if seen.task.owner is None:
        return f"stopped; task {name} was handed back. Go on with: {again}"
    if seen.worker is None or service.is_over(seen.worker):
        return held
    return f"stopped; task {name} goes on, on worker {seen.worker.label!r}; follow it: {shown} --follow"


def _chosen(
    words: list[str],
    args: str | None,
    text: str | None,
    existing: str | None,
    database_url: str | None,
    *,
    start: Mapping[str, Any],
) -> Chosen | Service:
    """Return the task to submit; only the application where the task exists already."""
    if existing is None:
        if not words:
            raise InvalidValue("nothing is named; give the name of a task, or --id for one that exists")
        return choose(words, args, text, database_url, goal=goal_of(start))
    if len(words) > 1 or args is not None or text is not None or start:
        raise InvalidValue("--id goes on with a task that has its name, arguments and state; leave those out")
    return find_application(words[0] if words else None, database_url)
