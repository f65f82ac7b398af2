"""``holdfast worker``: work on an application's tasks until a signal asks to stop.

The first SIGTERM or SIGINT drains: nothing new is claimed, and what runs gets its grace to finish before it is handed
back. The second one hands everything back at once. A third one ends the process.
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

from holdfast.cli.exits import SIGNALLED, ExitCode
from holdfast.cli.logs import log_to_stderr
from holdfast.cli.options import Application, OtherUrl, not_empty
from holdfast.cli.signals import StopSignals
from holdfast.cli.terminal import print_message
from holdfast.cli.times import read_seconds
from holdfast.model.checks import check_name
from holdfast.model.errors import InvalidValue
from holdfast.redaction import make_logger
from holdfast.service.service import Service
from holdfast.service.session import find_application
from holdfast.settings import SETTINGS, current_settings

_EXIT_TIMEOUT, _FORCED_EXIT_TIMEOUT = 5.0, 1.0
"""Seconds the process may take to end once its worker has stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The worker that was asked for, as ``hold.worker`` takes it."""

    queues: Sequence[str]
    concurrency: int
    residents: int
    lease: float
    grace: float
    label: str


def _default(name: str) -> str:
    """Return the default of a setting, for the help."""
    return str(next(setting.default for setting in SETTINGS if setting.name == f"worker.{name}"))


def work(
    application: Application = None,
    *,
    queues: Annotated[
        list[str] | None,
        typer.Option(
            metavar="A,B",
            help="Where to take tasks from; by default the queues of the defined tasks.",
            callback=not_empty,
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, help="How many tasks to run at the same time.", show_default=_default("concurrency")),
    ] = None,
    residents: Annotated[
        int | None,
        typer.Option(
            min=0, help="How many more may only wait on it for something outside.", show_default=_default("residents")
        ),
    ] = None,
    lease: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="How long it may be silent before its tasks go to other workers: seconds, or 5m.",
            show_default=_default("lease"),
        ),
    ] = None,
    grace: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="How long its tasks may take to finish once it is to stop: seconds, or 5m.",
            show_default=_default("grace"),
        ),
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Its name, for people.", show_default=_default("label"), callback=not_empty)
    ] = None,
    database_url: OtherUrl = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings and errors only.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show what the application itself logs, too.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write each line of the log as a JSON object.")] = False,
) -> None:
    """Work on the tasks an application defines, until SIGTERM or Ctrl-C.

    The first signal drains: tasks finish, or go back after their grace. A second one hands them back at once.
    """
    if quiet and verbose:
        raise InvalidValue("--quiet and --verbose exclude each other; give one of them")
    service = find_application(application, database_url, role="worker")
    settings = current_settings()
    if not service.definitions.names:
        raise InvalidValue(f"{application or settings['application']} defines no tasks; let it import those that do")
    log_to_stderr(quiet=quiet, verbose=verbose, as_json=as_json)
    wanted = Wanted(
        queues=_listed(queues) or settings["worker.queues"] or service.definitions.queues,
        concurrency=settings["worker.concurrency"] if concurrency is None else concurrency,
        residents=settings["worker.residents"] if residents is None else residents,
        lease=settings["worker.lease"] if lease is None else read_seconds(lease, what="--lease"),
        grace=settings["worker.grace"] if grace is None else read_seconds(grace, what="--grace"),
        label=label or settings["worker.label"],
    )
    raise typer.Exit(
        asyncio.run(
            _work(service, wanted, print_message=_print_nothing if quiet else _log if as_json else print_message)
        )
    )


def _listed(queues: Sequence[str] | None) -> list[str]:
    """Read ``--queues a,b --queues c``."""
    names = [name.strip() for given in queues or () for name in given.split(",")]
    listed = [check_name("queue", name) for name in dict.fromkeys(names) if name]
    if queues and not listed:
        raise InvalidValue(f"--queues is {','.join(queues)!r}, which names none; write A,B, or leave it out")
    return listed


async def _work(service: Service, wanted: Wanted, *, print_message: Callable[[str], None]) -> int:
    """Work until a signal stops it; return the exit code."""
    forced_by: signal.Signals | None = None

    def drain(number: signal.Signals) -> None:
        left = f"; {_tasks(worker.running)} may take {wanted.grace:g} s to finish" if worker.running else ""
        worker.drain()  # first: writing to stderr fails if its reader is gone
        print_message(f"{number.name}: stopping{left}")

    def force(number: signal.Signals) -> None:
        nonlocal forced_by
        forced_by = number
        running = _tasks(worker.running)
        worker.force()
        print_message(f"{number.name}: handing back {running} now")

    async with service:
        if not service.is_durable:
            raise InvalidValue(
                f"{service.shown_url} lives inside one process; no other process can submit a task to this worker"
            )
        async with service.worker(**asdict(wanted)) as worker:
            with StopSignals(drain, force):
                print_message(_introduction(service, wanted))
                await worker.join()
    if forced_by is not None:
        return _exit_within(_FORCED_EXIT_TIMEOUT, SIGNALLED + forced_by)
    return _exit_within(_EXIT_TIMEOUT, ExitCode.OK)


def _introduction(service: Service, wanted: Wanted) -> str:
    return (
        f"worker {wanted.label!r} (pid {os.getpid()}) works on {service.shown_url}; "
        f"queues: {', '.join(wanted.queues)}; tasks: {', '.join(service.definitions.names)}"
    )


def _tasks(count: int) -> str:
    return "1 running task" if count == 1 else f"{count} running tasks"


def _exit_within(seconds: float, code: int) -> int:
    """Return the exit code, and make sure that the process ends.

    Its end waits for threads and coroutines, and tasks that were handed back may have left some that cannot be stopped.
    """
    deadline = threading.Timer(seconds, _exit_at_once, (code,))
    deadline.daemon = True
    deadline.start()
    return code


def _exit_at_once(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _print_nothing(words: str) -> None:
    del words


def _log(words: str) -> None:
    make_logger("holdfast.worker").info(words)
