"""A bash for one page: variables and folders stay from command to command, and nothing of it outlives the page."""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from tests.docs.forked_commands import ForkedCommands, available

LONGEST = 180.0
"""Seconds one command may take. Only what hangs takes as long."""

_LOOP = """
while IFS= read -r -d '' command; do
    eval "$command" </dev/null
    printf '%s %d %d\\n' "$0" "$?" "${!:-0}"
done
"""
"""Commands come in over stdin, each with a NUL behind it. Behind the output of each stands the mark that is $0, its
exit code, and the process it left in the background."""


class Hangs(AssertionError):
    """A command that did not end."""


class ShellGone(AssertionError):
    """The shell itself ended: a command said ``exit``, or killed it."""


class Shell:
    """``with Shell(folder) as shell: code, text = shell.run("holdfast --version")``."""

    def __init__(self, folder: Path, *, longest: float = LONGEST, forked: bool = False) -> None:
        self._longest = longest
        self._mark = f"end-{uuid.uuid4().hex}"
        self._backgrounds: list[int] = []
        variables = environment()
        self._forked = ForkedCommands(variables["PATH"], longest) if forked and available() else None
        if self._forked is not None:
            variables["PATH"] = f"{self._forked.folder}{os.pathsep}{variables['PATH']}"
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-c", _LOOP, self._mark],
            cwd=folder,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # as people see it: both, in the order in which they were written
            start_new_session=True,
        )
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._commands, self._heard = self._bash.stdin, self._bash.stdout.fileno()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, command: str) -> tuple[int, str]:
        """Run a command to its end; return its exit code and its output."""
        code, _, text = self._do(command)
        return code, text

    def start(self, command: str, output: Path) -> int:
        """Start a command that ends in ``&``, in a process group of its own; return the group's number."""
        target = shlex.quote(str(output))
        _, group, _ = self._do(f"exec 8>&1 9>&2 >{target} 2>&1\nset -m\n{command}\nset +m\nexec >&8 2>&9 8>&- 9>&-")
        self._backgrounds.append(group)
        return group

    def stop_backgrounds(self) -> None:
        """Ask what runs in the background to stop, and wait until it has. Raises Hangs if it does not."""
        for group in self._backgrounds:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGTERM)
        until = time.monotonic() + self._longest
        while any(is_running(group) for group in self._backgrounds):
            if time.monotonic() > until:
                raise Hangs(f"a background command did not stop within {self._longest:g} s of SIGTERM")
            time.sleep(0.02)
        self._backgrounds.clear()  # their numbers may belong to other processes by the time we close

    def close(self) -> None:
        """Leave nothing behind: whatever is still there is killed."""
        for group in (*self._backgrounds, self._bash.pid):
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        with suppress(BrokenPipeError):
            self._commands.close()
        self._bash.wait()
        assert self._bash.stdout is not None
        self._bash.stdout.close()
        if self._forked is not None:
            self._forked.close()

    def _do(self, command: str) -> tuple[int, int, str]:
        """Return the exit code, the last background process and the output."""
        with suppress(BrokenPipeError):  # the shell has ended: reading reports that
            self._commands.write(command.encode() + b"\0")
            self._commands.flush()
        until = time.monotonic() + self._longest
        heard = b""
        while f"{self._mark} ".encode() not in heard or not heard.endswith(b"\n"):
            readable, _, _ = select.select([self._heard], [], [], max(0.0, until - time.monotonic()))
            if not readable:
                raise Hangs(f"no end after {self._longest:g} s; so far it said:\n{heard.decode(errors='replace')}")
            piece = os.read(self._heard, 65536)
            if not piece:
                raise ShellGone(f"the shell ended; it said:\n{heard.decode(errors='replace')}")
            heard += piece
        text, _, numbers = heard.decode(errors="replace").rpartition(f"{self._mark} ")
        code, process = numbers.split()
        return int(code), int(process), text


def is_running(group: int) -> bool:
    """Say whether a process of the group lives. One that is dead and not yet collected does not."""
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                return True
    return False


def environment() -> dict[str, str]:
    """Return the variables of a reader who has set none of ours, with this environment's programs first on PATH."""
    programs = Path(sys.executable).parent
    if not (programs / "holdfast").exists():
        raise AssertionError(f"{programs} has no holdfast command; install the project there: pip install -e '.[dev]'")
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "OPENAI_", "PYTEST"))
    }
    return kept | {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONUNBUFFERED": "1",  # lines come when they are printed, and in order, though nothing here is a terminal
    }
