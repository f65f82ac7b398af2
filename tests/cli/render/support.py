"""The command in real processes, with and without a terminal around it."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.commands import invoke
from tests.forked import run_holdfast, start_holdfast

FOLDER = Path(__file__).parent
APPLICATION = "application:hold"

PATIENCE = 90.0
"""Seconds: for machines busy with other tests."""

_CODES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07)")


def holdfast(
    *arguments: str, url: str | None = None, folder: Path = FOLDER, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command where the application is, with its output piped."""
    return run_holdfast(*arguments, folder=folder, environment=surroundings(url, **environment), timeout=PATIENCE)


def printed(*arguments: str, url: str) -> str:
    """Run a command that succeeds within this process, where many of them are looked at; return its stdout."""
    answer = invoke(arguments, env={"HOLDFAST_DATABASE_URL": url}, catch_exceptions=False)
    assert (answer.exit_code, answer.stderr) == (0, "")
    return answer.stdout


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "holdfast", *arguments]


def surroundings(url: str | None, **more: str) -> dict[str, str]:
    """Return an environment in which nothing but the test decides about settings, colours and sizes."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        kept.pop(name, None)
    return kept | {"TERM": "xterm-256color"} | ({"HOLDFAST_DATABASE_URL": url} if url else {}) | more


class Screen:
    """A terminal, and what was printed on it."""

    def __init__(self, *, columns: int, lines: int) -> None:
        self._master, self._slave = pty.openpty()
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.said = ""

    @property
    def text(self) -> str:
        """What was printed so far, without colours and movements of the cursor."""
        return _CODES.sub("", self.said).replace("\r\n", "\n")

    def _read(self, patience: float) -> bool:
        """Read what there is; False after the end."""
        ready, _, _ = select.select([self._master], [], [], patience)
        if not ready:
            return True
        try:
            data = os.read(self._master, 1 << 16)
        except OSError as error:  # Linux reports this when no process has the other end open
            if error.errno != errno.EIO:
                raise
            return False
        self.said += data.decode(errors="replace")
        return bool(data)


class Terminal(Screen):
    """The command with a terminal for its stdout, and for its stderr too unless that is piped.

    ``with Terminal("watch", url=url) as terminal: terminal.until("running"); terminal.interrupt()``
    """

    def __init__(
        self, *arguments: str, url: str | None = None, columns: int = 80, lines: int = 24, **environment: str
    ) -> None:
        super().__init__(columns=columns, lines=lines)
        try:
            self.process = subprocess.Popen(
                command(*arguments),
                stdin=self._slave,
                stdout=self._slave,
                stderr=self._slave,
                cwd=FOLDER,
                env=surroundings(url, **environment),
                start_new_session=True,
            )
        finally:
            os.close(self._slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)

    @property
    def frames(self) -> list[list[str]]:
        """The screens it has drawn, each as its lines."""
        _, *drawn = self.said.split("\x1b[H")
        return [[line.rstrip() for line in _CODES.sub("", one).replace("\r", "").split("\n")] for one in drawn]

    def until(self, words: str | Callable[[], bool]) -> None:
        """Read until it has printed something."""
        happened = words if callable(words) else (lambda: words in self.text)
        give_up = time.monotonic() + PATIENCE
        while not happened():
            assert time.monotonic() < give_up, f"not seen: {words!r} in {self.text}"
            assert self._read(0.1) or happened(), f"it ended without {words!r}: {self.text}"

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def leave(self) -> int:
        """Read until it has ended; return its exit code."""
        give_up = time.monotonic() + PATIENCE
        while self._read(0.1):
            assert time.monotonic() < give_up, self.text
        return self.process.wait(PATIENCE)


class Finished(Screen):
    """A command that has run to its end in a terminal, in a forked process, without an interrupt."""

    def __init__(self, *arguments: str, url: str, columns: int, lines: int, environment: dict[str, str]) -> None:
        super().__init__(columns=columns, lines=lines)
        process = start_holdfast(
            *arguments,
            folder=FOLDER,
            environment=surroundings(url, **environment),
            files=[os.ttyname(self._slave)] * 3,
        )
        try:
            give_up = time.monotonic() + PATIENCE
            while process.exitcode is None:
                self._read(0.02)
                assert time.monotonic() < give_up, self.text
            # Our own end of it was open so far, so that the command could begin before there is an end.
            os.close(self._slave)
            while self._read(0.1):
                assert time.monotonic() < give_up, self.text
            self.code = process.exitcode
        finally:
            process.kill()
            os.close(self._master)


def in_terminal(*arguments: str, url: str, columns: int = 80, lines: int = 24, **environment: str) -> Finished:
    """Run the command in a terminal to its end; return what it looked like."""
    return Finished(*arguments, url=url, columns=columns, lines=lines, environment=environment)


@contextmanager
def worker(url: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Keep a worker of the application beside a block; it drains at its end."""
    arguments = command("worker", APPLICATION, "--quiet", *options)
    with subprocess.Popen(arguments, text=True, cwd=FOLDER, env=surroundings(url)) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE)
            finally:
                process.kill()


def until(happened: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait for something a process does."""
    give_up = time.monotonic() + PATIENCE
    while not happened():
        assert process.poll() is None, "the process ended"
        assert time.monotonic() < give_up
        time.sleep(0.02)
