"""Incomplete settings, passwords that are not escaped, modules that fail: one line, and no secret in it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from holdfast import InvalidURL, make_store
from holdfast.redaction import without_password
from tests.cli.project.support import contents, holdfast, refusal
from tests.cli.terminal.support import FOLDER

SECRETS = ("S3c", "r3t", "X7z")


@pytest.mark.parametrize(
    "url",
    [
        "host=127.0.0.1 port=1 password=S3cr3t",
        "postgresql://bob:S3c@r3t@127.0.0.1:1/x",
        "postgresql://bob:S3c@r3t@/X7z@127.0.0.1:1/x",
        "postgresql://bob:S3c/r3t@127.0.0.1:1/x",
        "postgresql://bob:S3c?r3t@127.0.0.1:1/x",
        "postgresql://bob:S3c#r3t@127.0.0.1:1/x",
        "postgresql://bob:S3c[r3t@127.0.0.1:1/x",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_its_password(tmp_path: Path, url: str) -> None:
    with pytest.raises(InvalidURL) as refused:
        make_store(url)
    assert not _leaks(f"{refused.value} {without_password(url)}")
    for command, code in (("list", 2), ("config", 0), ("doctor", 1)):
        answer = holdfast(tmp_path, command, HOLDFAST_DATABASE_URL=url)
        assert answer.returncode == code, answer.stderr
        assert not _leaks(answer.stdout + answer.stderr)
        assert "defect of Holdfast" not in answer.stderr
    (tmp_path / "holdfast.toml").write_text(f"database_url = {json.dumps(url)}\n")
    assert not _leaks(refusal(holdfast(tmp_path, "list"), 2))


def _leaks(text: str) -> bool:
    return any(secret in text for secret in SECRETS)


def test_a_project_has_one_store_wherever_in_it_one_stands(tmp_path: Path) -> None:
    (tmp_path / "application.py").write_text((FOLDER / "application.py").read_text())
    (tmp_path / "holdfast.toml").write_text('application = "application:hold"\n')
    below = tmp_path / "deep" / "down"
    below.mkdir(parents=True)
    holdfast(below, "run", "echo", "--input", "hi", check=True)
    for place in (below, tmp_path):
        [task] = json.loads(holdfast(place, "list", "--json", check=True).stdout)["tasks"]
        assert task["result"] == "hi"
    assert (tmp_path / "holdfast.db").exists()
    assert contents(below) == {}


def test_who_only_looks_runs_no_code_that_another_user_may_have_named(tmp_path: Path) -> None:
    """A holdfast.toml is looked for in the folders above, too, and every user can write to some of those."""
    code = (FOLDER / "application.py").read_text()
    (tmp_path / "application.py").write_text(f"{code}\nimport sys\nprint('CODE RAN', file=sys.stderr)\n")
    file = tmp_path / "holdfast.toml"
    file.write_text('application = "application:hold"\n')
    below = tmp_path / "deep"
    below.mkdir()
    holdfast(tmp_path, "run", "echo", "--input", "hi", check=True)
    file.chmod(0o666)
    for place in (tmp_path, below):
        for words in (["list"], ["show"], ["migrate"]):
            said = refusal(holdfast(place, *words), 2)
            assert "every user can write that file" in said
            assert "HOLDFAST_APPLICATION=application:hold" in said
    if os.geteuid() == 0:
        file.chmod(0o600)
        os.chown(file, 12345, -1)
        assert "belongs to another user" in refusal(holdfast(tmp_path, "list"), 2)
    trusted = holdfast(tmp_path, "list", HOLDFAST_APPLICATION="application:hold", check=True)
    assert "CODE RAN" in trusted.stderr
    assert "CODE RAN" not in holdfast(tmp_path, "list", "--database-url", "sqlite:///holdfast.db", check=True).stderr


@pytest.mark.parametrize("kind", ["dangling link", "loop", "folder"])
def test_a_settings_file_that_cannot_be_read_is_an_error_and_not_skipped(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "holdfast.toml"
    match kind:
        case "folder":
            file.mkdir()
        case "loop":
            file.symlink_to(file)
        case _:
            file.symlink_to(tmp_path / "nowhere")
    for command in ("config", "list"):
        line = refusal(holdfast(tmp_path, command), 2)
        assert f"{file} cannot be read" in line
        assert line.endswith("or remove it")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise SystemExit(7)", "it exits with 7"),
        ('raise ValueError("two\\nlines")', "ValueError: two lines"),
        ("import a_module_that_is_not_there", "ModuleNotFoundError: No module named 'a_module_that_is_not_there'"),
        ("def broken(:", "SyntaxError"),
        ("from holdfast import Holdfast\nHoldfast().task('no function')", "InvalidValue"),
    ],
)
@pytest.mark.parametrize("command", [("run", "mine", "echo"), ("worker", "mine"), ("submit", "mine", "echo")])
def test_a_module_that_breaks_is_one_line(tmp_path: Path, code: str, words: str, command: tuple[str, ...]) -> None:
    (tmp_path / "mine.py").write_text(f"{code}\n")
    line = refusal(holdfast(tmp_path, *command), 1)
    assert line.startswith("holdfast: importing mine fails")
    assert words in line
    assert line.endswith("fix it there, or see more of it with --debug")
