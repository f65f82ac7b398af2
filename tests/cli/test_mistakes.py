"""What people type wrong: each mistake is one line on stderr, and an exit code.

The command runs in the test's own process here, which makes a long table cheap.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.cli import main
from tests.cli.support import APPLICATION, FOLDER, PATIENCE, holdfast
from tests.forked import run_holdfast


@dataclass
class Command:
    """``holdfast`` in the application's folder, with every module of it imported afresh."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str) -> tuple[int, str]:
        self.monkeypatch.setattr(sys, "argv", ["holdfast", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = self.capsys.readouterr()
        assert printed.out == ""
        assert isinstance(ended.value.code, int)
        return ended.value.code, printed.err


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    monkeypatch.chdir(FOLDER)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", f"sqlite:///{tmp_path}/hold.db")
    for module in ("application", "broken", "broken.several", "broken.raising"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return Command(monkeypatch, capsys)


@pytest.mark.parametrize(
    ("application", "words"),
    [
        ("nowhere:hold", "there is no module 'nowhere'"),
        ("broken.nowhere:hold", "there is no module 'broken.nowhere'"),
        ("application.py:hold", "name the module: application:hold"),
        ("application:hlod", "has no 'hlod'; write application:hold"),
        ("application:greet", "is not a Holdfast object but a TaskDefinition; write application:hold"),
        ("json", "has no Holdfast object"),
        ("broken.several", "write broken.several:one or broken.several:other"),
        ("broken.several:one", "defines no tasks"),
        (":hold", "is not a module name"),
    ],
)
def test_a_wrong_application(command: Command, application: str, words: str) -> None:
    code, said = command("worker", application)
    assert (code, said.count("\n")) == (2, 1)
    assert words in said


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--database-url", "mysql://x"), 2, "names no store"),
        (("--database-url", "memory://"), 2, "lives inside one process"),
        (("--database-url", "postgresql://me:secret@127.0.0.1:1/x"), 1, "cannot connect"),
        (("--lease", "0"), 2, "a lease of 0.0 s is out of range"),
        (("--queues", "a\tb"), 2, "cannot be printed"),
        (("--quiet", "--verbose"), 2, "exclude each other"),
    ],
)
def test_a_wrong_setting_of_a_worker(command: Command, options: tuple[str, ...], code: int, words: str) -> None:
    answered, said = command("worker", APPLICATION, *options)
    assert (answered, said.count("\n")) == (code, 1)
    assert words in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("gret",), "it has: greet"),
        (("greet",), "takes (name: str, times: int = 1); give it with --input TEXT"),
        (("greet", "--args", '["a", 1, 2]'), "too many positional arguments"),
        (("greet", "--args", '{"unknown": 1}'), "missing a required argument"),
        (("greet", "--args", "[3]"), "arguments of task 'greet': name: does not fit str"),
        (("double", "--args", '[{"item": "bolt", "count": 1}]'), "order.at: does not fit"),
        (("greet", "--args", "['a']"), "--args: is not JSON"),
        (("greet", "--args", '"a"'), "neither an array nor an object"),
        (("greet", "--args", '["a"]', "--timeout", "3"), "add --wait"),
        (("greet", "--args", '["a"]', "--delay", "-1"), "--delay is '-1'; write seconds"),
        (("greet", "--args", '["a"]', "--at", "tomorrow"), "--at is 'tomorrow'; write a moment such as 2026-12-01T07:"),
        (
            ("greet", "--args", '["a"]', "--at", "2026-12-01T07:00"),
            "no time zone; add it, as in 2026-12-01T07:00+01:00",
        ),
        (("greet", "--args", '["a"]', "--at", "2026-12-01T07:00Z", "--delay", "5m"), "give one of them"),
        (("greet", "--args", '["a"]', "--if-exists", "replace"), "give a key="),
        (("greet", "--args", '["a"]', "--key", "k", "--if-exists", "x"), "choose one of 'return', 'replace', 'reject'"),
        (("greet", "--args", '["a"]', "--key", "k", "--debounce", "9", "--debounce-max", "1"), "less than debounce"),
        (("greet", "--args", '["a"]', "--label", "tenant"), "--label 'tenant' has no value"),
        (("greet", "--args", '["a"]', "--priority", "10000000"), "priority is 10000000"),
        (("greet", "--args", '["a"]', "--database-url", "memory://"), "ends with this command"),
    ],
)
def test_what_cannot_be_submitted(command: Command, arguments: tuple[str, ...], words: str) -> None:
    code, said = command("submit", APPLICATION, *arguments)
    assert (code, said.count("\n")) == (2, 1)
    assert words in said


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("demo", "--database-url", "mysql://x"), 2, "names no store"),
        (("demo", "--database-url", "memory://"), 2, "two worker processes"),
        (("migrate", "--database-url", "postgresql://ann@127.0.0.1:1/x"), 1, "cannot connect"),
    ],
)
def test_a_store_that_does_not_do(command: Command, arguments: tuple[str, ...], code: int, words: str) -> None:
    answered, said = command(*arguments)
    assert (answered, said.count("\n")) == (code, 1)
    assert words in said
    assert said.startswith("holdfast: ")


def test_a_bad_url_is_a_one_line_error_although_the_module_opens_it() -> None:
    answer = holdfast("worker", APPLICATION, url="nonsense")
    assert (answer.returncode, answer.stderr.count("\n")) == (2, 1)
    assert "names no store" in answer.stderr


def test_an_error_in_the_module_is_one_line_that_says_where() -> None:
    answer = holdfast("worker", "broken.raising:hold")
    assert (answer.returncode, answer.stderr.count("\n")) == (1, 1)
    assert "importing broken.raising fails at raising.py:" in answer.stderr
    assert "ModuleNotFoundError: No module named 'missing_library'" in answer.stderr
    assert "Traceback" in holdfast("worker", "broken.raising:hold", "--debug").stderr


def test_a_line_that_python_cannot_read_is_where_the_error_is(tmp_path: Path) -> None:
    (tmp_path / "unreadable.py").write_text("from holdfast import Holdfast\n\nhold = Holdfast(\n")
    answer = run_holdfast("worker", "unreadable:hold", folder=tmp_path, environment=os.environ, timeout=PATIENCE)
    assert (answer.returncode, answer.stderr.count("\n")) == (1, 1)
    assert "importing unreadable fails at unreadable.py:3: SyntaxError: '(' was never closed" in answer.stderr
