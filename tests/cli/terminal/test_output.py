"""Stdout is for data: JSON that every parser reads, whole lines, whatever the stream and the user's code are like."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.project.support import PATIENCE, clean_environment
from tests.cli.terminal.support import APPLICATION, FOLDER, holdfast, read, run, submit

HALF = "\ud800"
"""Half a character: JSON can write it, UTF-8 cannot."""


def test_half_a_character_in_one_task_does_not_close_the_store_to_programs(url: str) -> None:
    answer = holdfast("run", APPLICATION, "echo", "--args", r'["\ud800"]', url=url)
    assert (answer.returncode, json.loads(answer.stdout)) == (0, HALF)
    assert run("echo", "--args", r'["\ud800"]', url=url)
    assert [task["result"] for task in read("list", url=url)["tasks"]] == [HALF, HALF]
    assert read("show", url=url)["task"]["user_input"] == [HALF]
    assert holdfast("list", url=url).stdout.count("�") == 4  # the input and the outcome of both


def test_half_a_character_can_be_taken_out_of_memory(url: str) -> None:
    submit("echo", "--input", "x", url=url)
    assert holdfast("memory", "store", "e", "a", r'"\ud800"', url=url).returncode == 0
    exported = holdfast("memory", "export", url=url)
    assert [fact["value"] for fact in json.loads(exported.stdout)["facts"]] == [HALF]


@pytest.mark.parametrize("option", [(), ("--json",)])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_a_full_stdout_is_an_error_of_one_line(url: str, option: tuple[str, ...]) -> None:
    submit("echo", "--input", "x", url=url)
    with Path("/dev/full").open("w") as full:
        answer = _write_to(full.fileno(), "list", *option, url=url)
    assert (answer.returncode, answer.stderr) == (1, "holdfast: cannot go on: No space left on device\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_a_task_whose_id_cannot_be_printed_is_named_beside_the_data(url: str) -> None:
    with Path("/dev/full").open("w") as full:
        answer = _write_to(full.fileno(), "submit", APPLICATION, "echo", "--input", "x", url=url)
    [task] = read("list", url=url)["tasks"]
    assert answer.returncode == 1
    assert f"holdfast show {task['id'][-8:]}" in answer.stderr


@pytest.mark.parametrize("option", [(), ("--json",)])
def test_a_closed_stdout_is_an_error_too(url: str, option: tuple[str, ...]) -> None:
    submit("echo", "--input", "x", url=url)
    answer = _write_to(None, "list", *option, url=url)
    assert (answer.returncode, answer.stderr) == (1, "holdfast: cannot go on: Bad file descriptor\n")


def test_a_stdout_without_the_letters_gets_question_marks(url: str) -> None:
    run("echo", "--input", "3 € and ✓", url=url)
    answer = holdfast("show", url=url, PYTHONIOENCODING="latin-1")
    assert answer.returncode == 0
    assert "outcome  3 ? and ?" in answer.stdout


def test_forced_colours_stay_out_of_pipes(url: str) -> None:
    text = "a long text that a table of eighty columns would have to cut, if it were one " * 2
    run("echo", "--input", text, url=url)
    for command in ("list", "show"):
        answer = holdfast(command, url=url, FORCE_COLOR="1")
        assert "\x1b" not in answer.stdout
        assert holdfast(command, url=url).stdout.splitlines()[0] == answer.stdout.splitlines()[0]
    assert text[:50] in holdfast("list", url=url, FORCE_COLOR="1").stdout


@pytest.mark.parametrize("arguments", [("run", APPLICATION, "chat"), ("submit", APPLICATION, "echo")])
def test_what_user_code_prints_goes_to_stderr(url: str, arguments: tuple[str, ...]) -> None:
    answer = holdfast(*arguments, "--input", "x", "--json", url=url)
    assert json.loads(answer.stdout)["user_input"] == ["x"]
    assert "the module speaks" in answer.stderr
    assert ("the task speaks" in answer.stderr) == (arguments[0] == "run")


def test_an_error_of_several_lines_is_one_event(url: str) -> None:
    answer = holdfast("run", APPLICATION, "boom", "--input", "evil\nline2", url=url)
    assert answer.returncode == 5
    assert not any(line.startswith("line2") for line in answer.stderr.splitlines())
    assert "ValueError: evil line2;" in answer.stderr.splitlines()[-1]


def test_a_defect_is_one_line_that_says_how_to_see_more() -> None:
    answer = _broken()
    assert answer.returncode == 1
    assert answer.stderr.splitlines() == [
        "holdfast: ZeroDivisionError: division by zero; that is a defect of Holdfast: report it with what --debug shows"
    ]
    assert "Traceback" in _broken("--debug").stderr


def test_debug_may_stand_anywhere(url: str) -> None:
    submit("echo", "--input", "x", url=url)
    assert holdfast("show", "nothing", url=url).stderr.count("\n") == 1
    for arguments in (("--debug", "show", "nothing"), ("show", "nothing", "--debug")):
        answer = _write_to(subprocess.DEVNULL, *arguments, url=url)
        assert "Traceback" in answer.stderr
        assert "NotFound" in answer.stderr


def _write_to(stdout: int | None, *arguments: str, url: str) -> subprocess.CompletedProcess[str]:
    """Run the command with this for its stdout; None closes it."""
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        cwd=FOLDER,
        env=clean_environment(HOLDFAST_DATABASE_URL=url),
        preexec_fn=(lambda: os.close(1)) if stdout is None else None,  # as a shell does for >&-
        timeout=PATIENCE,
    )


def _broken(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an application with unexpected behaviour."""
    program = "from holdfast.cli.errors import run; run(lambda: 1 / 0)"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False, timeout=PATIENCE
    )


@pytest.mark.parametrize("line", ["config", "config --json", "list --help", "--help", "--version", "list", "queues"])
def test_a_reader_that_has_read_enough_fails_no_command(url: str, line: str) -> None:
    submit("echo", "--input", "x", url=url)
    reading, writing = os.pipe()
    os.close(reading)
    try:
        answer = _write_to(writing, *line.split(), url=url)
    finally:
        os.close(writing)
    assert answer.returncode == 0, answer.stderr
    assert "cannot go on" not in answer.stderr


@pytest.mark.parametrize("arguments", [("watch", "--json"), ("list", "--watch"), ("show", "--follow")])
def test_a_live_view_without_a_reader_ends_without_a_change(url: str, arguments: tuple[str, ...]) -> None:
    submit("echo", "--input", "x", url=url)
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=FOLDER,
        env=clean_environment(HOLDFAST_DATABASE_URL=url),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        try:
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
        assert process.stderr.read() == ""
