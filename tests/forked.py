"""The command in processes of its own, each forked from one that has imported it already.

A real process with its own arguments, environment, working directory and pipes, for a third of the time: on a small
machine Python takes most of a second to import everything. Tests of signals, and of terminals that a person watches,
start the command as a shell does.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import typer.main

from holdfast.cli import main
from tests.commands import get_command
from tests.forkserver import CONTEXT, preload

preload("holdfast.cli.application", "holdfast.store.sqlite", "tests.forked", "holdfast.agent", "holdfast.service")
# What the command imports when it is needed, and nearly every test needs.
preload("pydantic.main", "typer._adapters", "typer.rich_utils", "rich.table")


def run_holdfast(
    *arguments: str, folder: Path, environment: Mapping[str, str], stdin: str = "", timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run ``holdfast`` with these arguments, and return how it ended and what it wrote."""
    with tempfile.TemporaryDirectory(prefix="holdfast-forked-") as place:
        files = [Path(place) / name for name in ("stdin", "stdout", "stderr")]
        for file in files:
            file.write_text(stdin if file.name == "stdin" else "", encoding="utf-8")
        process = start_holdfast(*arguments, folder=folder, environment=environment, files=list(map(str, files)))
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(
                ["holdfast", *arguments], timeout, *(file.read_bytes() for file in files[1:])
            )
        out, err = (file.read_text(encoding="utf-8", errors="replace") for file in files[1:])
        return subprocess.CompletedProcess(["holdfast", *arguments], process.exitcode, out, err)


def start_holdfast(
    *arguments: str, folder: Path, environment: Mapping[str, str], files: Sequence[str], takes_terminal: bool = False
) -> ForkServerProcess:
    """Start ``holdfast`` with these files, or one terminal three times, for stdin, stdout and stderr.

    If it ``takes_terminal``, the one at its stdin becomes its own: Ctrl-C there interrupts it.
    """
    process = CONTEXT.Process(
        target=_run, args=(arguments, str(folder), dict(environment), list(files), takes_terminal)
    )
    process.start()
    return process


def _run(
    arguments: tuple[str, ...], folder: str, environment: dict[str, str], files: list[str], takes_terminal: bool
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(folder)
    for number, file in enumerate(files):
        opened = os.open(file, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_APPEND)
        os.dup2(opened, number)
        os.close(opened)
    if takes_terminal:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    letters = environment.get("PYTHONIOENCODING", "utf-8")
    sys.stdout = open(1, "w", encoding=letters, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1)  # noqa: SIM115
    sys.argv = ["holdfast", *arguments]
    typer.main.get_command = get_command  # a fork has them from its parent
    main()
