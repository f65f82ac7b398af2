"""Forked children of the test's own process, which end without a trace."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE = 60.0
PROGRAM = Path(__file__).with_name("family.py")


def fork() -> int:
    """Fork. Python 3.12 and later warn of the threads that this process has: they are what the tests are about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def ask_child(work: Callable[[], Any]) -> Any:  # noqa: ANN401
    """Do the work in a forked child and return what it returned, as JSON has it; an error as "Name: message"."""
    reading, writing = os.pipe()
    pid = fork()
    if pid == 0:
        try:
            answer = work()
        except BaseException as error:  # noqa: BLE001 - sent to the parent
            answer = f"{type(error).__name__}: {error}"
        os.write(writing, json.dumps(answer).encode())
        os._exit(0)
    os.close(writing)
    try:
        if not select.select([reading], [], [], PATIENCE)[0]:
            raise AssertionError("the child hangs")
        with os.fdopen(reading, "rb", closefd=False) as answers:
            return json.loads(answers.read())
    finally:
        os.close(reading)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@contextmanager
def living_child() -> Iterator[int]:
    """Have a forked child that does nothing, for as long as the block lasts."""
    pid = fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def run_family(role: str, url: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program of family.py, in a process of its own; what its children print counts, too."""
    with (folder / "said").open("w+") as said:
        command = [sys.executable, "-W", "ignore::DeprecationWarning", str(PROGRAM), role, url, *arguments]
        ended = subprocess.run(command, cwd=folder, stdout=said, stderr=said, timeout=PATIENCE, check=False)
        said.seek(0)
        return subprocess.CompletedProcess(command, ended.returncode, said.read(), "")
