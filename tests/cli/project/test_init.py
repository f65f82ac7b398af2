"""``holdfast init``: the project it writes works, and nothing is ever overwritten."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast import HoldfastError
from holdfast.cli.commands.init import init
from tests.cli.project.support import PATIENCE, clean_environment, contents, holdfast, refusal

FILES = ["agents.py", "holdfast.toml", ".gitignore"]


def test_it_writes_a_project_and_says_what_next(tmp_path: Path) -> None:
    answer = holdfast(tmp_path, "init", "shop", check=True)
    assert answer.stdout.splitlines() == [str(Path("shop") / name) for name in FILES]
    assert sorted(contents(tmp_path / "shop")) == sorted(FILES)
    lines = [line.strip() for line in answer.stderr.splitlines()]
    assert lines[:2] == ["Next:", "cd shop"]
    assert [line.split("  ")[0] for line in lines[2:]] == [
        'holdfast run devops --input "Is the disk full?"',
        "holdfast worker",
        "holdfast show TASK",
    ]
    assert max(map(len, answer.stderr.splitlines())) <= 80


def test_here_and_as_json(tmp_path: Path) -> None:
    answer = holdfast(tmp_path, "init", "--json", check=True)
    document = json.loads(answer.stdout)
    assert document["folder"] == str(tmp_path)
    assert document["files"] == FILES
    assert document["next"][0].startswith("holdfast run devops")
    assert answer.stderr == ""


def test_elsewhere_and_as_json(tmp_path: Path) -> None:
    """The folder is named without detours, and the first thing to do is to go there."""
    (tmp_path / "here").mkdir()
    document = json.loads(holdfast(tmp_path / "here", "init", "../shop", "--json", check=True).stdout)
    assert document["folder"] == str(tmp_path / "shop")
    assert document["next"][0] == "cd ../shop"


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_there_is_named_and_nothing_is_written(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine", encoding="utf-8")
    for options in ([], ["--yes"]):
        line = refusal(holdfast(tmp_path, "init", *options), 4)
        assert f"{name} is there already in {tmp_path}; nothing was written" in line
    assert list(contents(tmp_path)) == [name]
    assert (tmp_path / name).read_text(encoding="utf-8") == "mine"


def test_a_link_that_leads_nowhere_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "agents.py").symlink_to(tmp_path / "elsewhere.py")
    assert "agents.py is there already" in refusal(holdfast(tmp_path, "init"), 4)
    assert [path.name for path in tmp_path.iterdir()] == ["agents.py"]


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "shop").write_text("mine", encoding="utf-8")
    assert "shop is a file" in refusal(holdfast(tmp_path, "init", "shop"), 4)


def test_what_cannot_be_written_whole_is_not_written_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, refused = Path.open, []

    def open_until_full(path: Path, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        if path.name == ".gitignore":
            refused.append(path)
            raise OSError(28, "No space left on device", str(path))
        return opened(path, *args, **options)

    monkeypatch.setattr(Path, "open", open_until_full)
    with pytest.raises(HoldfastError, match=r"\.gitignore cannot be written: No space left on device"):
        init(tmp_path / "shop")
    assert refused
    assert contents(tmp_path / "shop") == {}


def test_it_does_not_write_among_other_files_unasked(tmp_path: Path) -> None:
    (tmp_path / "theirs.txt").write_text("mine", encoding="utf-8")
    line = refusal(holdfast(tmp_path, "init"), 2)
    assert "has other files in it" in line
    assert line.endswith("add --yes; nothing was changed")
    assert list(contents(tmp_path)) == ["theirs.txt"]
    holdfast(tmp_path, "init", "--yes", check=True)
    assert sorted(contents(tmp_path)) == sorted([*FILES, "theirs.txt"])


def test_the_project_runs(tmp_path: Path) -> None:
    holdfast(tmp_path, "init", check=True)
    answer = holdfast(tmp_path, "run", "devops", "--input", "Is the disk full?", check=True)
    assert json.loads(answer.stdout).startswith("I have looked: ")
    (task,) = json.loads(holdfast(tmp_path, "list", "--json", check=True).stdout)["tasks"]
    assert (task["name"], task["state"], task["user_input"]) == ("devops", "completed", ["Is the disk full?"])
    shown = holdfast(tmp_path, "show", task["id"][-6:], check=True)
    assert "check_disk" in shown.stdout


def test_a_worker_of_the_project_does_what_is_submitted(tmp_path: Path) -> None:
    """Also from a folder below: all of them use the same holdfast.toml."""
    holdfast(tmp_path, "init", check=True)
    below = tmp_path / "below"
    below.mkdir()
    said = tmp_path / "said.txt"
    with (
        said.open("w", encoding="utf-8") as file,
        subprocess.Popen(
            [sys.executable, "-m", "holdfast", "worker"], stderr=file, cwd=tmp_path, env=clean_environment()
        ) as worker,
    ):
        try:
            give_up = time.monotonic() + PATIENCE
            while "works on" not in said.read_text(encoding="utf-8"):
                assert worker.poll() is None, said.read_text(encoding="utf-8")
                assert time.monotonic() < give_up
                time.sleep(0.02)
            answer = holdfast(below, "submit", "devops", "--args", '["Is it full?"]', "--wait", "--timeout", "60")
            assert answer.returncode == 0, answer.stderr
            assert json.loads(answer.stdout).startswith("I have looked: ")
            found = json.loads(holdfast(tmp_path, "doctor", "--json", check=True).stdout)
            levels = {finding["check"]: finding["level"] for finding in found["findings"]}
            assert (levels["workers"], levels["queues"], levels["application"]) == ("ok", "ok", "ok")
        finally:
            worker.kill()


def test_what_git_should_ignore_is_all_that_a_run_leaves_behind(tmp_path: Path) -> None:
    holdfast(tmp_path, "init", check=True)
    holdfast(tmp_path, "run", "devops", "--input", "Is the disk full?", check=True)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    shown = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=all"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert sorted(line.split()[1] for line in shown.stdout.splitlines()) == sorted(FILES)
