"""The command in real processes, with and without a terminal."""

from __future__ import annotations

import asyncio
import os
import pty
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast import Handle, Holdfast, Task, TaskState
from tests.cli.commands.workshop import define
from tests.forked import run_holdfast, start_holdfast

FOLDER = Path(__file__).parent
PATIENCE = 60.0
"""Seconds: for machines busy with other tests."""
INTERRUPT = "\x03"
"""Ctrl-C, as a terminal sends it."""

TERMINAL = {TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED}


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    said: str


def holdfast(*arguments: str, url: str, stdin: str = "") -> Answer:
    """Run the command as a script does: there is no person to ask."""
    done = run_holdfast(*arguments, folder=FOLDER, environment=_environment(url), stdin=stdin, timeout=PATIENCE)
    return Answer(done.returncode, done.stdout, done.stderr)


def at_terminal(*arguments: str, url: str, types: str | None, columns: int = 100, whole: bool = False) -> Answer:
    """Run the command with a person at stdin and stderr, who types something as soon as they are asked.

    With ``whole`` stdout is the terminal, too, and what was printed there is in ``said``.
    """
    ours, theirs = pty.openpty()
    terminal = os.ttyname(theirs)
    with tempfile.NamedTemporaryFile(prefix="holdfast-out-") as out:
        process = start_holdfast(
            *arguments,
            folder=FOLDER,
            environment=_environment(url) | {"COLUMNS": str(columns), "TERM": "xterm-256color"},
            files=[terminal, terminal if whole else out.name, terminal],
            takes_terminal=True,
        )
        try:
            said = _converse(ours, theirs, types, process.sentinel)
            process.join()
            assert process.exitcode is not None
            return Answer(process.exitcode, out.read().decode(), said)
        finally:
            process.kill()
            os.close(ours)


@contextmanager
def watching(*arguments: str, url: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command that stays; it is gone after the block."""
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=FOLDER,
        env=_environment(url),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _converse(ours: int, theirs: int, types: str | None, ended: int) -> str:
    """Read until the command has ended; type when the question is there. Return what was read."""
    said, give_up, waited_for = b"", time.monotonic() + PATIENCE, [ours, ended]
    typed_at = float("inf")
    while time.monotonic() < give_up:
        ready, _, _ = select.select(waited_for, [], [], 0.1)
        if types == INTERRUPT and ended in waited_for and time.monotonic() > typed_at + 5:
            os.write(ours, types.encode())  # Python may lose one: an interrupt that hits a finalizer is only reported
            typed_at = time.monotonic()
        if ended in ready:  # only now: before it has opened the terminal, there would be no other end
            waited_for.remove(ended)
            os.close(theirs)
        if ours not in ready:
            continue
        try:
            read = os.read(ours, 65_536)
        except OSError:  # Linux reports this when no process has the other end open
            read = b""
        if not read:
            assert types is None or b"Go on?" in said, f"it never asked: {said!r}"
            return said.decode().replace("\r\n", "\n")
        asked_before, said = b"Go on?" in said, said + read
        if types is not None and b"Go on?" in said and not asked_before:
            os.write(ours, types.encode())
            typed_at = time.monotonic()
    raise AssertionError(f"it did not end; it said {said!r}")


def _environment(url: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return kept | {"HOLDFAST_DATABASE_URL": url, "HOLDFAST_USER": "tess"}


@asynccontextmanager
async def workshop(url: str) -> AsyncIterator[Holdfast]:
    """Open the store with the tasks of the workshop."""
    async with define(Holdfast(url)) as hold:
        yield hold


async def bring(url: str, name: str, *args: Any, to: TaskState, **options: Any) -> str:  # noqa: ANN401
    """Submit a task and let a worker bring it to a state; return its id. No worker is left."""
    async with workshop(url) as hold:
        handle: Handle[Any] = await hold.submit(name, *args, **options)
        if to is not TaskState.PENDING:
            async with hold.worker(queues=["default", "elsewhere"]):
                await _reaches(handle, to)
        return handle.id


async def work_off(url: str, task_id: str, to: TaskState = TaskState.COMPLETED) -> Task:
    """Let a worker go on with a task until it is in a state, and return it."""
    async with workshop(url) as hold, hold.worker(queues=["default", "elsewhere"]):
        return await _reaches(hold.handle(task_id), to)


async def look(url: str, *task_ids: str) -> list[Task]:
    """Read tasks back from the store."""
    async with Holdfast(url) as hold:
        return [await hold.handle(task_id).task() for task_id in task_ids]


async def states(url: str, *task_ids: str) -> list[str]:
    """Read back in which state tasks are."""
    return [str(task.state) for task in await look(url, *task_ids)]


async def _reaches(handle: Handle[Any], state: TaskState) -> Task:
    give_up = time.monotonic() + PATIENCE
    while (task := await handle.task()).state is not state:
        assert task.state not in TERMINAL, f"it ended as {task.state}: {task.error}"
        assert time.monotonic() < give_up, f"it is still {task.state}"
        await asyncio.sleep(0.02)
    return task


def only(members: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return some members of a JSON object."""
    return {name: members[name] for name in names}
