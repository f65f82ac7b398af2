"""A fresh clone, in a folder of its own, with an environment of its own: the two commands of the README work there."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WHOLE = os.environ.get("HOLDFAST_FRESH_CLONE") == "whole"
"""`make test-fresh-clone`: the clone runs all of its tests, this one left out."""

A_FEW = ["tests/model/test_transitions.py", "tests/test_exports.py", "tests/docs/test_links.py"]
"""Otherwise some that are quick: what runs here already is not run a second time."""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clone") / "holdfast"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    return folder


def make(clone: Path, target: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run make as in a fresh clone: without our environment, nor that of the runner of our tests."""
    ours = ("HOLDFAST_", "PYTEST_", "VIRTUAL_ENV", "UV_PROJECT")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return subprocess.run(
        ["make", "--no-print-directory", target],
        cwd=clone,
        env=environment | more,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


# Left to `make test-all`: its environment takes half a minute of processor time, and `.ci/run` begins with one, too.
@pytest.mark.full(instead="tests/cli/demo/test_run.py")
@pytest.mark.skipif(shutil.which("git") is None or not (ROOT / ".git").exists(), reason="there is nothing to clone")
class TestFreshClone:
    def test_make_demo(self, clone: Path) -> None:
        done = make(clone, "demo")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "SIGKILL" in done.stdout
        assert (clone / ".venv/bin/python").exists(), "it made an environment of its own"

    def test_make_test(self, clone: Path) -> None:
        chosen = "--deselect tests/test_fresh_clone.py" if WHOLE else " ".join(A_FEW)
        done = make(clone, "test", PYTEST_ADDOPTS=chosen)
        assert done.returncode == 0, done.stdout + done.stderr
        assert " passed" in done.stdout

    def test_nothing_is_left_that_git_would_see(self, clone: Path) -> None:
        """What the two commands make is either ignored or outside of the clone."""
        seen = subprocess.run(
            ["git", "status", "--porcelain"], cwd=clone, capture_output=True, text=True, check=True
        ).stdout
        assert seen == ""
