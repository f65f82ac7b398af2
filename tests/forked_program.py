"""Python programs in processes of their own, each forked from one that has imported what they need.

To the outside it is a process like that of ``subprocess.Popen([sys.executable, "-m", module, ...])``: with an id,
signals and an exit code, its own arguments, folder, environment and files. It is there at once; Python alone would
import for half a second.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.forkserver import CONTEXT, preload

preload("runpy", "tests.forked_program")


@dataclass(frozen=True, kw_only=True)
class _Start:
    """What the process begins with."""

    program: str
    is_file: bool
    arguments: tuple[str, ...]
    folder: str
    environment: dict[str, str]
    files: list[str]
    own_group: bool


class ForkedProgram:
    """A running program: a module by its name, or a file by its path."""

    def __init__(
        self,
        program: str | Path,
        *arguments: str,
        folder: Path,
        stdout: Path | None = None,
        stderr: Path | None = None,
        environment: Mapping[str, str] | None = None,
        own_group: bool = False,
    ) -> None:
        """Start it. What it writes is appended to files; ``own_group``: it leads a process group."""
        start = _Start(
            program=program if isinstance(program, str) else str(program.resolve()),
            is_file=isinstance(program, Path),
            arguments=arguments,
            folder=str(folder),
            environment=dict(os.environ if environment is None else environment),
            files=[os.devnull if file is None else str(file.resolve()) for file in (stdout, stderr)],
            own_group=own_group,
        )
        self._process = CONTEXT.Process(target=_run, args=(start,), daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Return its exit code; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code when it has ended."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wait()


def _run(start: _Start) -> None:
    if start.own_group:
        os.setsid()
    os.environ.clear()
    os.environ.update(start.environment)
    time.tzset()
    os.chdir(start.folder)
    for number, file in enumerate([os.devnull, *start.files]):
        opened = os.open(file, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1)  # noqa: SIM115
    sys.argv = [start.program, *start.arguments]
    if start.is_file:
        runpy.run_path(start.program, run_name="__main__")
    else:
        sys.modules.pop(start.program, None)  # imported by what this process was forked from
        runpy.run_module(start.program, run_name="__main__", alter_sys=True)
