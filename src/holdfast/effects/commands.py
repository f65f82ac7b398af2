"""Running a command, with marks on disk that record whether it was started and how it ended.

    <effect id>.started   made before the command starts; locked while a process of the command lives
    <effect id>.done      how it ended: its exit code and the ends of its output; written whole

The lock is the kernel's, on an open file that the command inherits. It shows for certain whether the command still
runs, even after the worker died, and even if another process has the process id by then.
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
    """The end of a command that did its work."""

    exit_code: int
    output: str
    """What it wrote; if that is long, its beginning and its end."""
    errors: str
    """What it wrote to standard error, in the same way."""


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
    longer. ``env`` is added to the worker's environment. An exit code in ``refusals`` means that the command did
    nothing; a code in neither list leaves the effect in doubt.

    ``markers`` is a directory that all workers share and that outlives them: if the mark of a start is lost, the tool
    no longer knows of that start. It is created when it is first needed. A mark may be deleted with its task.

    If a command was started and its end is unknown, ``probe`` or a person has to decide. ``probe`` is called with the
    effect id and the arguments, and only when no process of the command is left.
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
        """Run it and return how it ended; also if it ended earlier, under the same effect id."""
        whole = [*self.program, *_checked(arguments)]
        with Marks(self.folder, effect_id) as marks:
            try:
                is_ours = marks.claim()
            except OSError as error:
                raise CommandRefused(f"no mark can be left in {self.folder}, so nothing is started: {error}") from error
            # Read while holding the lock: an earlier holder wrote its mark before it released the lock.
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
            return Unknown(f"{self.folder} does not exist: it was removed, or it is on another machine")
        if not marks.is_started:
            return Absent()
        is_running = marks.is_held()
        end = marks.read()  # after the check of the lock: a command that ended in between has left its mark
        outcome = self._judge(end)
        if is_running and not isinstance(outcome, Happened):
            return Unknown(f"it may still be running ({marks.owner})")
        return self.probe(effect_id, *arguments) if self.probe and isinstance(outcome, Unknown) else outcome

    def _judge(self, end: End | None) -> Outcome:
        """Return what its end means."""
        if end is None:
            return Unknown("it was started, and its end was not recorded")
        if end.exit_code in self.successes:
            return Happened(CommandResult(exit_code=end.exit_code or 0, output=end.output, errors=end.errors))
        if end.exit_code is None or end.exit_code in self.refusals:
            return Absent()
        return Unknown(f"it ended with exit code {end.exit_code}")

    def _result(self, name: str, end: End) -> CommandResult:
        """Return how it ended, or raise the matching error."""
        outcome = self._judge(end)
        if isinstance(outcome, Happened):
            return cast("CommandResult", outcome.result)
        written = (end.errors or end.output).strip()[-_SHOWN:]
        message = f"{name} ended with exit code {end.exit_code}: {written}"
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
    """Start the command, or prove that it was not started."""
    process = None
    try:
        marks.forget_end()
        # Into files: a pipe to a worker that dies would break, and end the command too.
        with marks.output.open("wb") as output, marks.errors.open("wb") as errors:
            process = subprocess.Popen(  # noqa: S603 - this tool exists to run the caller's command
                whole, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, cwd=cwd, env=environment, **_apart(marks)
            )
    except (OSError, ValueError) as error:
        if process is None:  # otherwise it runs, and only the closing of our file failed
            marks.write_end(End(None, errors=str(error)))
            raise CommandRefused(f"{whole[0]} was not started: {error}") from error
    marks.name_owner(process.pid)
    return process


def _apart(marks: Marks) -> dict[str, Any]:
    """Give the command its own process group, and the lock, which it holds until it ends."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True, "pass_fds": marks.inherited}


def _wait(marks: Marks, process: subprocess.Popen[bytes], timeout: float) -> End:
    """Wait for its end and record it, or kill it."""
    try:
        exit_code = process.wait(timeout)
    except subprocess.TimeoutExpired:
        _kill(process)
        raise CommandTimedOut(
            f"process {process.pid} did not end within {timeout:g} s, and was killed with all that it had started"
        ) from None
    end = End(exit_code, output=marks.excerpt(marks.output), errors=marks.excerpt(marks.errors))
    marks.write_end(end)
    return end


def _kill(process: subprocess.Popen[bytes]) -> None:
    # It was not waited for yet, so no other process can have its id.
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()  # not its children: Windows has no group to kill
        else:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
