"""``holdfast worker``: work on an application's tasks until a signal asks to stop.

The first SIGTERM or SIGINT drains: nothing new is claimed, and what runs gets its grace to finish before it is handed
back. The second one hands everything back at once. A third one ends the process, whatever it does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from holdfast.cli.exits import ExitCode
from holdfast.cli.finding import find_holdfast
from holdfast.cli.logs import log_to_stderr
from holdfast.cli.options import Application, DatabaseUrl
from holdfast.cli.signals import StopSignals
from holdfast.engine.holdfast import DEFAULT_GRACE, DEFAULT_LEASE, Holdfast
from holdfast.model.checks import check_name
from holdfast.model.errors import InvalidValue
from holdfast.store.url import without_password

_SIGNALLED = 128
"""What shells add to the number of the signal that ended a process."""

_TO_LEAVE, _TO_LEAVE_FORCED = 5.0, 1.0
"""Seconds the process may take to end once its worker has stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The worker that was asked for, as ``hold.worker`` takes it."""

    queues: Sequence[str]
    concurrency: int
    lease: float
    grace: float
    label: str


def work(
    application: Application,
    *,
    queues: Annotated[
        list[str] | None,
        typer.Option(metavar="A,B", help="Where to take tasks from; by default the queues of the defined tasks."),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="How many tasks to run at the same time.")] = 100,
    lease: Annotated[
        float, typer.Option(metavar="SECONDS", help="After this long a silence its tasks go to other workers.")
    ] = DEFAULT_LEASE,
    grace: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="How long tasks may finish once it is asked to stop.")
    ] = DEFAULT_GRACE,
    label: Annotated[str, typer.Option(help="Its name, for people.")] = "worker",
    database_url: DatabaseUrl = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say only what somebody should look at.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show what the application itself logs, too.")
    ] = False,
) -> None:
    """Work on the tasks an application defines, until SIGTERM or Ctrl-C.

    The first signal drains: tasks finish, or go back after their grace. A second one hands them back at once.
    """
    if quiet and verbose:
        raise InvalidValue("--quiet and --verbose exclude each other; give one of them")
    hold = find_holdfast(application, database_url)
    if not hold.definitions.names:
        raise InvalidValue(f"{application} defines no tasks; let its module import those that do")
    log_to_stderr(quiet=quiet, verbose=verbose)
    settings = Settings(
        queues=_listed(queues) or hold.definitions.queues,
        concurrency=concurrency,
        lease=lease,
        grace=grace,
        label=label,
    )
    raise typer.Exit(asyncio.run(_work(hold, settings, say=_say_nothing if quiet else _say)))


def _listed(queues: Sequence[str] | None) -> list[str]:
    """Read ``--queues a,b --queues c``."""
    names = [name.strip() for given in queues or () for name in given.split(",")]
    return [check_name("queue", name) for name in dict.fromkeys(names) if name]


async def _work(hold: Holdfast, settings: Settings, *, say: Callable[[str], None]) -> int:
    """Work until told to stop; return the exit code."""
    forced_by: signal.Signals | None = None

    def drain(number: signal.Signals) -> None:
        say(f"{number.name}: stopping; {_tasks(worker.running)} may take {settings.grace:g} s to finish")
        worker.drain()

    def force(number: signal.Signals) -> None:
        nonlocal forced_by
        forced_by = number
        say(f"{number.name}: handing back {_tasks(worker.running)} now")
        worker.force()

    async with hold:
        if not hold.store.capabilities.durable:
            raise InvalidValue(f"{hold.url} lives inside one process; nobody could submit a task to this worker")
        async with hold.worker(**asdict(settings)) as worker:
            with StopSignals(drain, force):
                say(_introduction(hold, settings))
                await worker.join()
    if forced_by is not None:
        return _leave_within(_TO_LEAVE_FORCED, _SIGNALLED + forced_by)
    return _leave_within(_TO_LEAVE, ExitCode.OK)


def _introduction(hold: Holdfast, settings: Settings) -> str:
    return (
        f"worker {settings.label!r} (pid {os.getpid()}) works on {without_password(hold.url)}; "
        f"queues: {', '.join(settings.queues)}; tasks: {', '.join(hold.definitions.names)}"
    )


def _tasks(count: int) -> str:
    return "1 running task" if count == 1 else f"{count} running tasks"


def _leave_within(seconds: float, code: int) -> int:
    """Return the code to leave with, and see to it that the process does.

    Its end waits for threads and coroutines, and what was handed back may have left some that nobody can stop.
    """
    deadline = threading.Timer(seconds, _leave_at_once, (code,))
    deadline.daemon = True
    deadline.start()
    return code


def _leave_at_once(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _say(words: str) -> None:
    typer.echo(f"holdfast: {words}", err=True)


def _say_nothing(words: str) -> None:
    del words
