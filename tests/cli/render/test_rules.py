"""Rules for every command: where output goes, what errors look like, which characters a terminal does not get."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from pathlib import Path

import pytest

from tests.cli.render.museum import Museum
from tests.cli.render.support import (
    APPLICATION,
    FOLDER,
    PATIENCE,
    Terminal,
    command,
    holdfast,
    in_terminal,
    printed,
    surroundings,
)

READS = ["list", "show", "steps", "history", "state", "queues", "workers"]


def arguments(museum: Museum, name: str) -> list[str]:
    return [name] if name in {"list", "queues", "workers", "watch"} else [name, museum.ids["agent"]]


@pytest.mark.parametrize("name", READS)
def test_a_pipe_gets_no_escape_codes(museum: Museum, name: str) -> None:
    answer = holdfast(*arguments(museum, name), url=museum.url)
    assert answer.returncode == 0
    assert answer.stdout
    assert "\x1b" not in answer.stdout + answer.stderr


@pytest.mark.parametrize("name", READS)
def test_no_color_is_honoured(museum: Museum, name: str) -> None:
    plain = in_terminal(*arguments(museum, name), url=museum.url, NO_COLOR="1")
    assert plain.code == 0
    colours = {code for codes in re.findall(r"\x1b\[([0-9;]*)m", plain.said) for code in codes.split(";")}
    assert not colours & {str(code) for code in [*range(30, 38), *range(40, 48), *range(90, 98)]}


@pytest.mark.parametrize("name", READS)
def test_json_is_one_document_and_nothing_else(museum: Museum, name: str) -> None:
    document = printed(*arguments(museum, name), "--json", url=museum.url)
    assert isinstance(json.loads(document), dict)
    assert document.count("\n") == 1


@pytest.mark.parametrize("name", ["list", "show"])
def test_a_reader_that_has_read_enough(museum: Museum, name: str) -> None:
    with subprocess.Popen(
        command(*arguments(museum, name)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=FOLDER,
        env=surroundings(museum.url),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()  # before anything is written: `| head -0`
        assert process.stderr.read() == ""
        assert process.wait(PATIENCE) == 0


def test_head_gets_its_line(museum: Museum) -> None:
    line = " ".join(command("list"))
    answer = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line} | head -1"],
        capture_output=True,
        text=True,
        check=False,
        cwd=FOLDER,
        env=surroundings(museum.url),
        timeout=PATIENCE,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.split()[:2] == ["id", "task"]


@pytest.mark.parametrize("words", [["list"], ["show", "x"], ["steps", "x"], ["diff", "x", "1"], ["watch"], ["workers"]])
def test_a_store_that_is_not_there_is_not_made(tmp_path: Path, words: list[str]) -> None:
    url = f"sqlite:///{tmp_path}/missing.db"
    answer = holdfast(*words, url=url)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr.startswith(f"holdfast: there is no store at {url}")
    assert answer.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_debug_shows_a_traceback(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/missing.db"
    answer = holdfast("--debug", "list", url=url)
    assert answer.returncode == 1
    assert "Traceback (most recent call last)" in answer.stderr
    assert "NotAStore" in answer.stderr


def test_a_database_that_cannot_be_reached_is_one_line() -> None:
    with socket.socket() as taken:  # bound, and not listening
        taken.bind(("127.0.0.1", 0))
        url = f"postgresql://me:secret@127.0.0.1:{taken.getsockname()[1]}/nowhere"
        answer = holdfast("list", url=url)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr.count("\n") == 1
    assert answer.stderr.startswith("holdfast: ")
    assert "secret" not in answer.stderr


def test_memory_has_nothing_to_look_at() -> None:
    answer = holdfast("list", "--database-url", "memory://")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "lives inside one process" in answer.stderr


@pytest.mark.parametrize("name", ["list", "watch"])
def test_what_a_task_stored_does_not_reach_the_terminal_as_it_is(museum: Museum, name: str) -> None:
    with Terminal(*arguments(museum, name), url=museum.url, columns=120, lines=40) as terminal:
        terminal.until("no luck")
        if name == "watch":
            terminal.interrupt()
        terminal.leave()
    assert "\x1b]0" not in terminal.said
    assert "\x07" not in terminal.said
    assert "�[31mred" in terminal.text


def test_neither_does_an_error_nor_a_log(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/hold.db"
    answer = holdfast("run", APPLICATION, "fail", url=url)
    assert answer.returncode == 5
    assert "ValueError: no luck �[31mred" in answer.stderr
    assert "\x1b" not in answer.stderr


# The application that holdfast.toml names


def test_the_application_may_stand_in_the_settings(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text(
        f'application = "my_app:hold"\ndatabase_url = "sqlite:///{tmp_path}/hold.db"\n', encoding="utf-8"
    )
    (tmp_path / "my_app.py").write_text((FOLDER / "application.py").read_text(encoding="utf-8"), encoding="utf-8")
    submitted = holdfast("submit", "greet", "--input", "you", folder=tmp_path)
    assert submitted.returncode == 0, submitted.stderr
    assert holdfast("run", "--id", submitted.stdout.strip()[-8:], "--quiet", folder=tmp_path).stdout == '"hello you"\n'
    assert holdfast("run", "greet", "-i", "me", "--quiet", folder=tmp_path).stdout == '"hello me"\n'
    listed = json.loads(holdfast("list", "--json", folder=tmp_path).stdout)["tasks"]
    assert [task["state"] for task in listed] == ["completed", "completed"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["submit", "greet"], "no application is named; give MODULE:HOLDFAST"),
        (["worker"], "no application is named; give MODULE:HOLDFAST"),
        (["run"], "nothing is named; give the name of a task, or --id"),
        (["run", APPLICATION], "names an application; the name of a task goes behind it"),
        (["submit", APPLICATION, "gret"], "there is no task 'gret' in this application; it has: greet"),
        (["run", APPLICATION, "greet", "x"], "is too much: give MODULE:HOLDFAST and TASK"),
        (["run", APPLICATION, "greet", "--id", "x"], "--id goes on with a task that has its name, arguments and state"),
        (["run", APPLICATION, "greet", "-i", "x", "--args", "[]"], "--args and --input exclude each other"),
        (["state", "x", "--at", "1", "--history"], "give one of them"),
    ],
)
def test_what_is_missing_or_too_much_is_exit_code_2(tmp_path: Path, words: list[str], said: str) -> None:
    answer = holdfast(*words, url=f"sqlite:///{tmp_path}/hold.db")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert said in answer.stderr
