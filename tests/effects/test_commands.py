"""run_command with real processes."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BufferedWriter, FileIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from holdfast import CodecError, InvalidValue
from holdfast.effects import (
    CommandFailed,
    CommandRefused,
    CommandResult,
    CommandTimedOut,
    Impossible,
    Probed,
    StillRunning,
    run_command,
)
from holdfast.effects.marks import OUTPUT_KEPT
from holdfast.model.codec import round_trip
from holdfast.model.doubt import Absent, Happened, Outcome, Unknown
from holdfast.model.errors import NotHappened

ID = "0f8b7c9e-1111-5222-8333-444455556666"
PATIENCE = 60.0


@pytest.fixture
def markers(tmp_path: Path) -> Path:
    return tmp_path / "state" / "markers"


def shell(script: str, markers: Path, **options: Any) -> Probed[..., CommandResult]:  # noqa: ANN401
    return run_command(["sh", "-c", script, "sh"], markers=markers, **options)


def ask(tool: Probed[..., CommandResult], *arguments: str) -> Outcome:
    assert tool.reconcile is not None
    outcome = tool.reconcile(ID, *arguments)
    assert isinstance(outcome, Happened | Absent | Unknown)
    return outcome


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up_at, what
        time.sleep(0.01)


# What it does


def test_a_command_runs_and_reconcile_knows_its_result(markers: Path) -> None:
    tool = shell('echo "$1 $HOLDFAST_EFFECT_ID"; echo hm >&2', markers)
    result = tool("hello", effect_id=ID)
    assert result == CommandResult(exit_code=0, output=f"hello {ID}\n", errors="hm\n")
    assert round_trip(result, CommandResult)[1] == result
    assert ask(tool, "hello") == Happened(result)
    assert sorted(path.name for path in markers.iterdir()) == [f"{ID}.done", f"{ID}.started"]


def test_there_is_no_shell(markers: Path) -> None:
    words = ["$HOME; exit 1", "`false`", "*", "a b", ""]
    result = run_command([sys.executable, "-c", "import sys; print(sys.argv[1:])"], markers=markers)(
        *words, effect_id=ID
    )
    assert result.output == f"{words}\n"


def test_environment_and_directory_are_its_own(markers: Path, tmp_path: Path) -> None:
    tool = shell('echo "$SHELL_OF_MINE $PWD"', markers, cwd=tmp_path, env={"SHELL_OF_MINE": "x"})
    assert tool(effect_id=ID).output == f"x {tmp_path}\n"


def test_a_credential_that_the_command_repeats_is_not_recorded(markers: Path) -> None:
    code = "import os, sys; print(os.environ['SOME_TOKEN'], sys.argv); print(os.environ['SOME_TOKEN'], file=sys.stderr)"
    words = [sys.executable, "-c", code, "--password", "word-0123456789abcdef"]
    ended = run_command(words, markers=markers, env={"SOME_TOKEN": "env-0123456789abcdef"})(effect_id=ID)
    assert "0123456789" not in f"{ended} {[file.read_bytes() for file in markers.iterdir()]}"
    assert (ended.output.count("***"), ended.errors) == (2, "***\n")
    assert markers.stat().st_mode & 0o777 == 0o700 or os.name == "nt"


def test_it_leads_a_group_of_its_own_and_reads_nothing(markers: Path) -> None:
    code = "import os, sys; print(os.getpgrp() == os.getsid(0) == os.getpid(), repr(sys.stdin.read()))"
    assert run_command([sys.executable, "-c", code], markers=markers)(effect_id=ID).output == "True ''\n"


def test_of_much_output_both_ends_are_kept(markers: Path) -> None:
    code = "print('begin' + 'x' * 10_000_000 + 'end')"
    output = run_command([sys.executable, "-c", code], markers=markers)(effect_id=ID).output
    assert output.startswith("beginx")
    assert output.endswith("xend\n")
    assert len(output) < OUTPUT_KEPT + 100


def test_binary_output_is_kept_as_far_as_it_is_text(markers: Path) -> None:
    result = run_command(["printf", r"a\0\377b"], markers=markers)(effect_id=ID)
    assert result.output == "a\ufffd\ufffdb"


def test_what_is_done_is_not_done_again(markers: Path, tmp_path: Path) -> None:
    tool = shell(f"echo ran >> {tmp_path}/ran; echo out", markers)
    assert tool(effect_id=ID) == tool(effect_id=ID)
    assert (tmp_path / "ran").read_text() == "ran\n"
    tool(effect_id="another")
    assert (tmp_path / "ran").read_text() == "ran\nran\n"


# Proof that nothing happened


def not_executable(folder: Path) -> list[str]:
    (folder / "plain").write_text("echo no")
    return [str(folder / "plain")]


@pytest.mark.parametrize("command", [lambda _: ["/no/such/program"], lambda _: ["no-such-program"], not_executable])
def test_a_program_that_cannot_be_started_is_proof(
    markers: Path, tmp_path: Path, command: Callable[[Path], list[str]]
) -> None:
    tool = run_command(command(tmp_path), markers=markers)
    with pytest.raises(CommandRefused, match="not started") as caught:
        tool(effect_id=ID)
    assert isinstance(caught.value, NotHappened)
    assert ask(tool) == Absent()


def test_so_is_a_directory_that_is_not_there(markers: Path, tmp_path: Path) -> None:
    tool = shell("true", markers, cwd=tmp_path / "nowhere")
    with pytest.raises(CommandRefused):
        tool(effect_id=ID)
    assert ask(tool) == Absent()


def test_so_is_an_exit_code_that_was_declared(markers: Path, tmp_path: Path) -> None:
    tool = shell(f"echo 'not today' >&2; exit $(cat {tmp_path}/code)", markers, refusals={75})
    (tmp_path / "code").write_text("75")
    with pytest.raises(CommandRefused, match=r"75: not today"):
        tool(effect_id=ID)
    assert ask(tool) == Absent()
    (tmp_path / "code").write_text("0")
    assert tool(effect_id=ID).exit_code == 0
    assert isinstance(ask(tool), Happened)


def test_without_a_mark_nothing_is_started(markers: Path, tmp_path: Path) -> None:
    markers.parent.write_text("in the way")
    tool = shell(f"echo ran > {tmp_path}/ran", markers)
    with pytest.raises(CommandRefused, match="no mark"):
        tool(effect_id=ID)
    assert not (tmp_path / "ran").exists()
    assert isinstance(ask(tool), Unknown)


@pytest.mark.parametrize("wrong", ["nul\0", 5])
def test_what_cannot_be_an_argument_is_refused(markers: Path, wrong: Any) -> None:  # noqa: ANN401
    with pytest.raises(Impossible):
        shell("true", markers)(wrong, effect_id=ID)
    with pytest.raises(InvalidValue):
        run_command(["true", wrong], markers=markers)


def test_what_cannot_work_is_refused_when_the_tool_is_made(markers: Path) -> None:
    with pytest.raises(InvalidValue, match="empty"):
        run_command([], markers=markers)
    with pytest.raises(InvalidValue, match="absolute path"):
        run_command(["true"], markers="markers")


def test_the_mark_of_a_start_is_on_disk_before_the_command_runs(
    markers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bool]] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        inode = os.fstat(descriptor).st_ino
        named = [markers.parent, markers, *markers.iterdir()]
        synced.extend((path.name, (tmp_path / "ran").exists()) for path in named if path.stat().st_ino == inode)
        fsync(descriptor)

    monkeypatch.setattr("os.fsync", record)
    shell(f"touch {tmp_path}/ran", markers)(effect_id=ID)
    assert synced == [
        ("state", False),
        (f"{ID}.started", False),
        ("markers", False),
        (f"{ID}.tmp", True),
        ("markers", True),
    ]


# In doubt


def test_a_bad_end_leaves_it_open_what_was_done(markers: Path) -> None:
    tool = shell("echo half of it; exit 3", markers)
    with pytest.raises(CommandFailed, match=r"3: half of it") as caught:
        tool(effect_id=ID)
    assert not isinstance(caught.value, NotHappened)
    assert caught.value.exit_code == 3
    assert ask(tool) == Unknown("it ended with exit code 3")


def test_so_does_a_signal(markers: Path) -> None:
    with pytest.raises(CommandFailed) as caught:
        shell("kill -9 $$", markers)(effect_id=ID)
    assert caught.value.exit_code == -9


def test_other_codes_may_be_successes(markers: Path) -> None:
    tool = shell("exit 3", markers, successes={0, 3})
    assert tool(effect_id=ID).exit_code == 3
    assert isinstance(ask(tool), Happened)


def test_a_probe_is_asked_what_the_marks_do_not_tell(markers: Path) -> None:
    asked: list[tuple[str, ...]] = []

    def probe(*question: str) -> Outcome:
        asked.append(question)
        return Absent()

    tool = shell("exit 3", markers, probe=probe)
    assert ask(tool, "x") == Unknown(f"{markers} does not exist: it was removed, or it is on another machine")
    with pytest.raises(CommandFailed):
        tool("x", effect_id=ID)
    assert ask(tool, "x") == Absent()
    assert asked == [(ID, "x")]


def test_a_probe_is_not_asked_what_they_do_tell(markers: Path) -> None:
    tool = shell("exit $1", markers, refusals={75}, probe=lambda *_: Unknown("asked in vain"))
    tool("0", effect_id=ID)
    assert isinstance(ask(tool, "0"), Happened)
    with pytest.raises(CommandRefused):
        tool("75", effect_id="refused")
    assert tool.reconcile is not None
    assert tool.reconcile("refused", "75") == Absent()


def test_a_lost_directory_is_not_a_proof_and_an_empty_one_is(markers: Path) -> None:
    tool = shell("true", markers)
    assert isinstance(ask(tool), Unknown)
    markers.mkdir(parents=True)
    assert ask(tool) == Absent()


def test_a_mark_that_cannot_be_read_tells_nothing(markers: Path) -> None:
    tool = shell("true", markers)
    tool(effect_id=ID)
    (markers / f"{ID}.done").write_text("{")
    with pytest.raises(CodecError):
        ask(tool)
    with pytest.raises(CodecError) as caught:
        tool(effect_id=ID)
    assert not isinstance(caught.value, NotHappened)


def test_a_timeout_kills_everything_the_command_started(markers: Path, tmp_path: Path) -> None:
    tool = shell(f"sleep 1000 & echo $! $$ > {tmp_path}/pids; wait", markers, timeout=5)
    with pytest.raises(CommandTimedOut) as caught:
        tool(effect_id=ID)
    assert isinstance(caught.value, TimeoutError)
    assert not isinstance(caught.value, NotHappened)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2
    wait_for("both are dead", lambda: not any(map(_lives, pids)))
    wait_for("and let go of the lock", lambda: ask(tool) == Unknown("it was started, and its end was not recorded"))


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_an_error_after_the_start_is_not_taken_for_proof(
    markers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file system over the network, closing a file may fail for what the command itself wrote into it."""

    class Unlucky(BufferedWriter):
        def close(self) -> None:
            if not self.closed:
                super().close()
                failed.append(self)
                raise OSError(errno.EDQUOT, "no room")

    failed: list[Unlucky] = []
    opened = Path.open

    def open_(path: Path, mode: str = "r") -> Any:  # noqa: ANN401
        return Unlucky(FileIO(path, "w")) if path.suffix == ".output" else opened(path, mode)

    monkeypatch.setattr(Path, "open", open_)
    assert shell(f"touch {tmp_path}/ran", markers)(effect_id=ID).exit_code == 0
    assert failed
    assert (tmp_path / "ran").exists()


# The worker is killed, the command goes on

WORKER = """
import sys
from holdfast.effects import run_command
run_command(["sh", "-c", sys.argv[1]], markers=sys.argv[2], refusals={75})(effect_id=sys.argv[3])
"""


def start_in_a_worker_and_kill_that(script: str, markers: Path, begun: Path) -> None:
    """The command, which creates ``begun``, goes on. Its worker lives long enough to note which process it is."""
    with subprocess.Popen([sys.executable, "-c", WORKER, script, markers, ID]) as worker:

        def is_noted() -> bool:
            with suppress(ValueError):  # half written
                return bool(json.loads((markers / f"{ID}.started").read_text())["process"] != worker.pid)
            return False

        try:
            wait_for("the command has begun", begun.exists)
            wait_for("its process is noted", is_noted)
        finally:
            worker.kill()


@pytest.fixture
def goes_on(tmp_path: Path) -> Iterator[str]:
    """A command that goes on until the file ``enough`` is there, and then prints more.

    After the test the whole folder is deleted, perhaps before the command looks: then it ends too.
    """
    yield (
        f"touch {tmp_path}/begun; while [ -d {tmp_path} ] && [ ! -e {tmp_path}/enough ]; do sleep 0.02; done; "
        f"echo still here && echo finished > {tmp_path}/finished"
    )
    (tmp_path / "enough").touch()


def test_a_command_that_outlives_its_worker_is_left_in_peace(markers: Path, tmp_path: Path, goes_on: str) -> None:
    probed: list[str] = []

    def probe(effect_id: str) -> Outcome:
        probed.append(effect_id)
        return Happened("found")

    start_in_a_worker_and_kill_that(goes_on, markers, tmp_path / "begun")
    tool = shell(goes_on, markers, probe=probe)
    outcome = ask(tool)
    assert isinstance(outcome, Unknown)
    assert "still be running (process " in outcome.why
    with pytest.raises(StillRunning):
        tool(effect_id=ID)
    assert not probed, "while it runs, what is not there yet may still come"
    (tmp_path / "enough").touch()
    wait_for("it comes to its end", lambda: ask(tool) == Happened("found"))
    # With a pipe for its output, it would have died at its first word after the worker's death.
    assert (tmp_path / "finished").read_text() == "finished\n"
    assert probed == [ID]
    assert ask(shell(goes_on, markers)) == Unknown("it was started, and its end was not recorded")


def test_the_end_of_an_earlier_start_is_not_taken_for_that_of_a_later_one(
    markers: Path, tmp_path: Path, goes_on: str
) -> None:
    """First it refuses; started again under the same effect id it works, and its worker dies."""
    first = shell("exit 75", markers, refusals={75})
    with pytest.raises(CommandRefused):
        first(effect_id=ID)
    assert ask(first) == Absent()
    start_in_a_worker_and_kill_that(goes_on, markers, tmp_path / "begun")
    assert isinstance(ask(first), Unknown)
    (tmp_path / "enough").touch()
    wait_for("it comes to its end", (tmp_path / "finished").exists)
    assert isinstance(ask(first), Unknown)


def test_two_at_once_run_it_once(markers: Path, tmp_path: Path, goes_on: str) -> None:
    tool = shell(f"echo ran >> {tmp_path}/ran; {goes_on}", markers)
    results: list[CommandResult] = []
    first = threading.Thread(target=lambda: results.append(tool(effect_id=ID)))
    first.start()
    wait_for("it has started", (tmp_path / "begun").exists)
    with pytest.raises(StillRunning):
        tool(effect_id=ID)
    assert isinstance(ask(tool), Unknown)
    (tmp_path / "enough").touch()
    first.join()
    assert results == [tool(effect_id=ID)]
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_what_it_leaves_running_does_not_hide_that_it_is_done(markers: Path, tmp_path: Path, goes_on: str) -> None:
    """A command that starts a service: the service has the lock, and the end of the command is recorded."""
    tool = shell(f"({goes_on}) & echo started", markers)
    result = tool(effect_id=ID)
    assert result.output == "started\n"
    wait_for("the service runs", (tmp_path / "begun").exists)
    assert ask(tool) == Happened(result)
    assert tool(effect_id=ID) == result


def test_where_there_are_no_locks_it_may_always_still_be_running(
    markers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = shell("exit 3", markers, probe=lambda *_: Absent())
    with pytest.raises(CommandFailed):
        tool(effect_id=ID)
    assert ask(tool) == Absent()
    monkeypatch.setattr("holdfast.effects.marks.sys", SimpleNamespace(platform="win32"))
    assert isinstance(ask(tool), Unknown)


def test_a_mark_that_cannot_be_made_starts_nothing(markers: Path, tmp_path: Path) -> None:
    """A directory has its name."""
    (markers / f"{ID}.started").mkdir(parents=True)
    with pytest.raises(CommandRefused):
        shell(f"touch {tmp_path}/ran", markers)(effect_id=ID)
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="counts file descriptors")
def test_no_file_stays_open(markers: Path) -> None:
    tool = shell("exit $1", markers)
    tool("0", effect_id="first")
    before = psutil.Process().num_fds()
    for number in range(10):
        with suppress(CommandFailed):
            tool(str(number % 2), effect_id=f"effect-{number}")
        assert tool.reconcile is not None
        tool.reconcile(f"effect-{number}")
    assert psutil.Process().num_fds() == before
