"""The command as it can be typed: in a clone it is not on PATH."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from holdfast.cli.own_command import own_command


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone with an environment of its own, that this process runs in."""
    folder = tmp_path / "my clone" / ".venv" / "bin"
    folder.mkdir(parents=True)
    for name in ("python", "holdfast"):
        (folder / name).touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.chdir(tmp_path / "my clone")
    return folder


def test_by_its_path_where_the_shell_finds_none(bin_folder: Path) -> None:
    del bin_folder
    assert own_command() == ".venv/bin/holdfast"


def test_by_its_name_where_the_shell_finds_it(bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{bin_folder}{os.pathsep}{os.defpath}")
    assert own_command() == "holdfast"


def test_by_its_path_where_the_shell_finds_another(
    bin_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "holdfast").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(other))
    assert own_command() == ".venv/bin/holdfast"
    monkeypatch.chdir(other)
    assert own_command() == f"'{bin_folder}/holdfast'"


def test_by_its_name_where_there_is_no_script(bin_folder: Path) -> None:
    (bin_folder / "holdfast").unlink()
    assert own_command() == "holdfast"
