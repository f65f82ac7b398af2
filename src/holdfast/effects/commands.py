"""Running a command, with marks on disk that say whether it was started and how it ended.

    <effect id>.started   there before the command is; locked for as long as a process of the command lives
    <effect id>.done      how it ended: its exit code and the ends of its output; written whole

The lock is the kernel's, on an open file that the command inherits. It tells without a doubt whether something is still
running, also after the worker died, and also when the process id belongs to somebody else by then.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from holdfast.effects.declaration import Probed, effect
from holdfast.effects.durable import absolute
from holdfast.effects.errors import CommandFailed, CommandRefused, CommandTimedOut, Impossible, StillRunning
from holdfast.effects.marks import End, Marks
from holdfast.model.doubt import Absent, Happened, Outcome, Unknown
from holdfast.model.errors import InvalidValue
from holdfast.redaction import know_command, know_environment

_SHOWN = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """How a command ended that did what it was to do."""

    exit_code: int
    output: str
    """What it wrote; of much the beginning and the end."""
    errors: str
    """What it wrote to its standard error, likewise."""


def run_command(
    command: Sequence[str],
    *,
    markers: str | os.PathLike[str],
    timeout: float = 240.0,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    successes: Collection[int] = (0,),
    refusals: Collection[int] = (),
    probe: Callable[..., Outcome] | None = None,
) -> Probed[..., CommandResult]:
    """Return a tool that runs the command, with its arguments after those given here, and returns a CommandResult.

    There is no shell. The command finds the effect id in HOLDFAST_EFFECT_ID and leads a process group of its own, which
    is killed as a whole after ``timeout`` seconds; the step's own timeout (five minutes, unless given) has to be
    longer. ``env`` is added to the worker's environment. An exit code in ``refusals`` is the command's word that it did
    nothing; one in neither list leaves the effect in doubt.

    ``markers`` is a directory that all workers share, and that outlives them: where the mark of a start is lost, the
    start is forgotten. It is made when it is first needed. A mark may be deleted when its task is.

    A command that was started, and of whose end nobody knows, is for a person to judge, or for ``probe``: asked with
    the effect id and the arguments, and only when no process of the command is left.
    """
    program = _checked(command)
    if not program:
        raise InvalidValue("the command is empty; name the program and its first arguments")
    know_command(program)
    know_environment(env or {})
    folder = absolute("markers", markers)
    tool = _Command(program, folder, timeout, cwd, dict(env or {}), successes, refusals, probe)
    return effect("once", reconcile=tool.reconcile)(tool.run)


@dataclass(frozen=True, slots=True)
class _Command:
    program: list[str]
    folder: Path
    timeout: float
    cwd: str | os.PathLike[str] | None
    env: Mapping[str, str]
    successes: Collection[int]
    refusals: Collection[int]
    probe: Callable[..., Outcome] | None

    def run(self, *arguments: str, effect_id: str) -> CommandResult:
        """Run it and return how it ended; also if that was earlier, under the same effect id."""
        whole = [*self.program, *_checked(arguments)]
        with Marks(self.folder, effect_id) as marks:
            try:
                is_ours = marks.claim()
            except OSError as error:
                raise CommandRefused(f"no mark can be left in {self.folder}, so nothing is started: {error}") from error
            # Read with the lock in hand: whoever had it before left its mark first.
            earlier = self._judge(marks.read())
            if isinstance(earlier, Happened):
                return cast("CommandResult", earlier.result)
            if not is_ours:
                raise StillRunning(f"{whole[0]} is still running under the same effect id ({marks.owner})")
            environment = {**os.environ, **self.env, "HOLDFAST_EFFECT_ID": effect_id}
            end = _wait(marks, _start(marks, whole, self.cwd, environment), self.timeout)
        return self._result(whole[0], end)

    def reconcile(self, effect_id: str, *arguments: str) -> Outcome:
        """Read the marks."""
        marks = Marks(self.folder, effect_id)
        if not self.folder.is_dir():
            return Unknown(f"{self.folder} is not there: removed since, or on another machine")
        if not marks.is_started:
            return Absent()
        is_running = marks.is_held()
        end = marks.read()  # in this order: what ended in between has left its mark
        outcome = self._judge(end)
        if is_running and not isinstance(outcome, Happened):
            return Unknown(f"it may still be running ({marks.owner})")
        return self.probe(effect_id, *arguments) if self.probe and isinstance(outcome, Unknown) else outcome

    def _judge(self, end: End | None) -> Outcome:
        """Say what its end means."""
        if end is None:
            return Unknown("it was started, and its end was not recorded")
        if end.exit_code in self.successes:
            return Happened(CommandResult(exit_code=end.exit_code or 0, output=end.output, errors=end.errors))
        if end.exit_code is None or end.exit_code in self.refusals:
            return Absent()
        return Unknown(f"it ended with exit code {end.exit_code}")

    def _result(self, name: str, end: End) -> CommandResult:
        """Return how it ended, or raise what that means."""
        outcome = self._judge(end)
        if isinstance(outcome, Happened):
            return cast("CommandResult", outcome.result)
        said = (end.errors or end.output).strip()[-_SHOWN:]
        message = f"{name} ended with exit code {end.exit_code}: {said}"
        if isinstance(outcome, Absent):
            raise CommandRefused(message)
        raise CommandFailed(message, exit_code=end.exit_code or 0)


def _checked(arguments: Sequence[str]) -> list[str]:
    for one in arguments:
        if not isinstance(one, str) or "\0" in one:
            raise Impossible(f"{one!r} cannot be an argument of a command; give text without NUL")
    return list(arguments)


def _start(
    marks: Marks, whole: list[str], cwd: str | os.PathLike[str] | None, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start the command, or prove that it was not."""
    process = None
    try:
        marks.forget_end()
        # Into files: a pipe to a worker that dies would break, and take the command with it.
        with marks.output.open("wb") as output, marks.errors.open("wb") as errors:
            process = subprocess.Popen(  # noqa: S603 - to run what the caller names is what this is for
                whole, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, cwd=cwd, env=environment, **_apart(marks)
            )
    except (OSError, ValueError) as error:
        if process is None:  # otherwise it runs, and only closing a file of ours failed
            marks.write_end(End(None, errors=str(error)))
            raise CommandRefused(f"{whole[0]} was not started: {error}") from error
    marks.name_owner(process.pid)
    return process


def _apart(marks: Marks) -> dict[str, Any]:
    """Give the command a group of its own, and the lock that lives as long as it does."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True, "pass_fds": marks.inherited}


def _wait(marks: Marks, process: subprocess.Popen[bytes], timeout: float) -> End:
    """Wait for its end and write that down, or kill it."""
    try:
        exit_code = process.wait(timeout)
    except subprocess.TimeoutExpired:
        _kill(process)
        raise CommandTimedOut(
            f"process {process.pid} was not over within {timeout:g} s, and was killed with all that it had started"
        ) from None
    end = End(exit_code, output=marks.excerpt(marks.output), errors=marks.excerpt(marks.errors))
    marks.write_end(end)
    return end


def _kill(process: subprocess.Popen[bytes]) -> None:
    # Nobody has waited for it yet, so its number cannot belong to anybody else.
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()  # and not what it started: there is no group to kill
        else:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
