"""``holdfast run``: submit a task and work on it in this process, with everything that happens on the screen."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import redirect_stdout
from typing import Annotated, Any

import typer

from holdfast.cli.exits import ExitCode
from holdfast.cli.finding import find_holdfast
from holdfast.cli.logs import tell_troubles
from holdfast.cli.opening import command
from holdfast.cli.options import AsJson, OtherUrl
from holdfast.cli.progress import show_progress
from holdfast.cli.signals import StopSignals
from holdfast.cli.tasks import After, Args, Chosen, Deadline, Input, Key, choose, print_result, submit_chosen
from holdfast.cli.terminal import print_json, say
from holdfast.engine.handle import Handle
from holdfast.engine.holdfast import Holdfast
from holdfast.engine.settings import current_settings
from holdfast.model.errors import InvalidValue, StoreError, TaskCancelled, TaskFailed
from holdfast.model.worker import NewWorker
from holdfast.service.forms import task_form
from holdfast.service.identify import short
from holdfast.service.service import Service
from holdfast.service.working import run_family


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
    after: After = None,
    existing: Annotated[
        str | None,
        typer.Option("--id", metavar="TASK", help="Go on with a task that exists instead.", show_default=False),
    ] = None,
    lease: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Should this process die, others may take over then.", show_default=False),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress, only the result.")] = False,
    as_json: AsJson = False,
    database_url: OtherUrl = None,
) -> None:
    """Submit a task, work on it here until it has ended, and print its result as JSON.

    Whatever happens to this process, nothing is lost: run it again with the same --key, or with --id, and it goes on.
    The exit code is 5 if the task failed or was cancelled, 130 after Ctrl-C; the task is handed back then.
    """
    tell_troubles()
    chosen = _chosen(words or [], args, text, existing, database_url)
    hold = chosen if isinstance(chosen, Holdfast) else chosen.hold
    lease = current_settings()["worker.lease"] if lease is None else lease
    NewWorker(lease=lease)  # refuses a lease that makes no sense before anything is stored
    async with hold:
        service = Service(hold)
        if isinstance(chosen, Holdfast):
            handle = hold.handle((await service.task(existing or "")).id)
        else:
            handle = await submit_chosen(chosen, service, after=after, key=key, deadline=deadline)
        before = await service.overview(handle.id)
        working = asyncio.create_task(run_family(hold, handle, lease=lease))
        interrupted: list[signal.Signals] = []

        def stop(number: signal.Signals) -> None:
            interrupted.append(number)
            working.cancel()

        try:
            with StopSignals(stop), redirect_stdout(sys.stderr):  # stdout is for the result, whatever the task prints
                try:
                    await show_progress(service, before, working, quiet=quiet)
                    await working
                finally:  # the store is about to be closed, and what still works on the task has to hand it back first
                    working.cancel()
                    await asyncio.gather(working, return_exceptions=True)
        except asyncio.CancelledError:
            if not interrupted:
                raise
            application = f" {words[0]}" if words and len(words) > 1 else ""
            say(f"{await _left(handle)}. Go on with: holdfast run{application} --id {short(handle.id)}")
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except (TaskFailed, TaskCancelled):
            if as_json:
                print_json(task_form(await handle.task()))
            raise
        print_result(await handle.task(), as_json=as_json)


async def _left(handle: Handle[Any]) -> str:
    """Say how a task was left that was stopped in the middle."""
    try:
        is_held = (await handle.task()).owner is not None
    except StoreError:
        is_held = True
    if is_held:
        return f"stopped; task {short(handle.id)} could not be handed back, and is free when the lease is over"
    return f"stopped; task {short(handle.id)} was handed back"


def _chosen(
    words: list[str], args: str | None, text: str | None, existing: str | None, database_url: str | None
) -> Chosen | Holdfast:
    """Return the task to begin with; the application alone where there is one already."""
    if existing is None:
        if not words:
            raise InvalidValue("nothing is named; give the name of a task, or --id for one that exists")
        return choose(words, args, text, database_url)
    if len(words) > 1 or args is not None or text is not None:
        raise InvalidValue("--id goes on with a task that has its name and arguments; leave those out")
    return find_holdfast(words[0] if words else None, database_url)
