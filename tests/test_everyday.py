"""What `make test` leaves out is counted, is run by HOLDFAST_FULL=1, and has a sibling that is run every day."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.testing.contract._support import row
from tests.everyday import LONELY

ROOT = Path(__file__).parent.parent

CONFTEST = """
from tests import everyday
from tests.processes import pytest_addoption, pytest_runtestloop
def pytest_collection_modifyitems(config, items):
    everyday.leave_out(config, items)
def pytest_terminal_summary(terminalreporter, config):
    terminalreporter.write_line(f"lonely: {config.stash.get(everyday.LONELY, [])}")
    terminalreporter.write_line(everyday.describe(config) or "everything")
"""
TESTS = """
import pytest
full = pytest.mark.full
@pytest.mark.parametrize("store", ["sqlite", pytest.param("memory", marks=full), pytest.param("json", marks=full)])
def test_a_rule(store):
    pass
"""
LOST = """
@full(instead="test_rules.py")
def test_done_elsewhere():
    pass
@full(instead="test_gone.py")
def test_done_nowhere():
    pass
@full
def test_lost():
    pass
"""
INI = "[pytest]\nmarkers =\n    full: left out\naddopts = --strict-markers\n"


def run(folder: Path, *arguments: str, full: bool = False) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTEST_"))}
    environment |= {"PYTHONPATH": str(ROOT)} | ({"HOLDFAST_FULL": "1"} if full else {})
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False).stdout


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(INI)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_rules.py").write_text(TESTS)
    for arguments, full, summary in (
        (["-n", "2"], False, "1 passed, 2 deselected"),
        (["-n", "2"], True, "3 passed"),
        (["test_rules.py::test_a_rule[json]"], False, "1 passed"),
    ):
        with row(*arguments, f"full: {full}"):
            said = run(tmp_path, *arguments, full=full)
            assert f" {summary} in " in said.splitlines()[-1], said
            assert ("2 tests were left to `make test-all`" in said) == ("deselected" in summary)
            assert "lonely: []" in said
    (tmp_path / "test_rules.py").write_text(TESTS + LOST)
    alone = run(tmp_path)
    assert "lonely: ['test_rules.py::test_done_nowhere', 'test_rules.py::test_lost']" in alone
    assert " 1 passed, 5 deselected in " in alone.splitlines()[-1]


def test_nothing_is_left_out_whose_sibling_is_not_run(request: pytest.FixtureRequest) -> None:
    """Of the tests that this very run has collected."""
    assert request.config.stash.get(LONELY, []) == []


def test_a_soak_selects_the_randomised_tests() -> None:
    said = run(ROOT, "-m", "soak", "--collect-only", "-q", "tests/proof/program_fuzz")
    assert "test_programs.py::test_random_programs[sqlite]" in said
    assert "test_judge.py" not in said
