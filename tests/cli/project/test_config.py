"""``holdfast config``."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.project.support import holdfast, refusal


def by_name(document: Any) -> dict[str, tuple[Any, str]]:  # noqa: ANN401
    return {one["name"]: (one["value"], one["origin"]) for one in document["settings"]}


def test_every_setting_with_where_it_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text('database_url = "sqlite:///a.db"\nuser = "anna"\n[worker]\nqueues = ["a", "b"]\n', encoding="utf-8")
    inner = tmp_path / "inner"
    inner.mkdir()
    answer = holdfast(inner, "config", "--json", HOLDFAST_USER="bert", HOLDFAST_WORKER_LEASE="5", HOLDFAST_LEASE="6")
    assert answer.returncode == 0
    document = json.loads(answer.stdout)
    assert document["file"] == str(file)
    assert document["unknown_variables"] == {"HOLDFAST_LEASE": "HOLDFAST_WORKER_LEASE"}
    assert by_name(document) == {
        "database_url": (f"sqlite:///{tmp_path}/a.db", str(file)),
        "schema": ("holdfast", "default"),
        "prepare": (None, "default"),
        "listen_url": (None, "default"),
        "application": (None, "default"),
        "user": ("bert", "HOLDFAST_USER"),
        "worker.queues": (["a", "b"], str(file)),
        "worker.concurrency": (100, "default"),
        "worker.residents": (1000, "default"),
        "worker.lease": (5.0, "HOLDFAST_WORKER_LEASE"),
        "worker.grace": (20.0, "default"),
        "worker.label": ("worker", "default"),
        "serve.host": ("127.0.0.1", "default"),
        "serve.port": (8787, "default"),
        "serve.allow_hosts": (None, "default"),
    }
    assert all(one["variable"].startswith("HOLDFAST_") and one["help"] for one in document["settings"])


def test_for_people(tmp_path: Path) -> None:
    answer = holdfast(
        tmp_path, "config", HOLDFAST_DATABASE_URL="postgresql://anna:secret@here/one", HOLDFAST_DATABASE="x"
    )
    assert answer.returncode == 0
    lines = {line.split()[0]: line.split()[1:] for line in answer.stdout.splitlines()}
    assert lines["database_url"] == ["HOLDFAST_DATABASE_URL", "postgresql://anna:***@here/one"]
    assert lines["worker.lease"] == ["default", "30.0"]
    assert "there is no holdfast.toml here or in a folder above" in answer.stderr
    assert "HOLDFAST_DATABASE is set, but it is not a setting; did you mean HOLDFAST_DATABASE_URL?" in answer.stderr


def test_no_password_is_shown_of_a_url_in_a_wrong_setting(tmp_path: Path) -> None:
    for name in ("APPLICATION", "USER", "SCHEMA", "WORKER_QUEUES", "WORKER_LEASE"):
        for command in (("config",), ("config", "--json"), ("doctor",)):
            wrong = {f"HOLDFAST_{name}": "postgresql://anna:opensesame@here/one"}
            answer = holdfast(tmp_path, *command, check=False, **wrong)
            assert "opensesame" not in answer.stdout + answer.stderr, (name, command)
            assert command == ("doctor",) or "***" in answer.stdout + answer.stderr, (name, command)


def test_no_password_is_shown(tmp_path: Path) -> None:
    url = "postgresql://anna:sesame@here/one?sslpassword=sesame"
    for options in ([], ["--json"]):
        answer = holdfast(tmp_path, "config", *options, HOLDFAST_DATABASE_URL=url, HOLDFAST_LISTEN_URL=url)
        assert answer.returncode == 0
        assert "sesame" not in answer.stdout + answer.stderr
        assert "***" in answer.stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('databse_url = "x"', "did you mean database_url?"),
        ("[worker]\nlease = true", "worker.lease in"),
        ("[wroker]\n", "did you mean worker?"),
        ("database_url = ", "is not valid TOML"),
    ],
)
def test_a_mistake_in_the_file_is_one_line(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text(text, encoding="utf-8")
    line = refusal(holdfast(tmp_path, "config"), 2)
    assert words in line
    assert str(tmp_path / "holdfast.toml") in line


def test_a_mistake_in_a_variable_is_one_line(tmp_path: Path) -> None:
    line = refusal(holdfast(tmp_path, "config", "--json", HOLDFAST_WORKER_CONCURRENCY="2.5"), 2)
    assert line == "holdfast: HOLDFAST_WORKER_CONCURRENCY is '2.5'; give a whole number of at least 1"


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="needs rights that can be taken away")
def test_a_file_that_may_not_be_read_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text("", encoding="utf-8")
    file.chmod(0)
    assert "cannot be read: Permission denied" in refusal(holdfast(tmp_path, "config"), 2)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file that not even root can read")
def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").symlink_to("/proc/self/mem")  # nothing is mapped where it begins
    line = refusal(holdfast(tmp_path, "config"), 2)
    assert line.endswith("holdfast.toml cannot be read: Input/output error; fix its permissions, or remove it")


def test_a_worker_a_script_and_the_command_mean_one_store(tmp_path: Path) -> None:
    """From a folder below, each of them finds the store beside holdfast.toml."""
    (tmp_path / "holdfast.toml").write_text('database_url = "sqlite:///a.db"\n', encoding="utf-8")
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "job.py").write_text(
        "from holdfast import Context, Holdfast\nhold = Holdfast()\n"
        "@hold.task\nasync def work(ctx: Context) -> None: ...\n",
        encoding="utf-8",
    )
    task_id = holdfast(inner, "submit", "job:hold", "work", check=True).stdout.strip()
    assert (tmp_path / "a.db").is_file()
    for folder in (inner, tmp_path):
        listed = json.loads(holdfast(folder, "list", "--json", check=True).stdout)
        assert [task["id"] for task in listed["tasks"]] == [task_id]
    assert [path.name for path in inner.glob("*.db")] == []
