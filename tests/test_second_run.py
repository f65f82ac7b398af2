"""A proof that failed gets a second run in `.ci/run`, and is named whatever comes of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

import pytest

from holdfast.testing.contract._support import row
from tests.second_run import FEW, PROOFS, Record, is_proof, main

ROOT = Path(__file__).parent.parent
PROOF = "tests/proof/failover/test_failover.py::test_it[sqlite]"
ANOTHER = "tests/proof/engine/test_kills.py::test_it"
PLAIN = "tests/model/test_task.py::test_it"


def record(*failed: str, passed: Sequence[str] = ("tests/test_a.py::test_a",), exit_code: int = 1) -> Record:
    return Record(
        exit_code=exit_code, passed=frozenset(passed), failed=frozenset(failed), skipped=frozenset({"tests/b.py::b"})
    )


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    assert Record.read(path) is None
    path.touch()
    assert Record.read(path) is None, "mktemp made the file, and no run wrote it"
    record(PROOF).write(path)
    assert Record.read(path) == record(PROOF)


def test_every_pattern_names_tests_that_there_are() -> None:
    tests = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
    for pattern in PROOFS:
        with row(pattern):
            assert any(fnmatch(test, pattern) for test in tests)
    for test, proof in {
        PROOF: True,
        ANOTHER: True,
        PLAIN: False,
        "tests/proof/failover/test_failover.py": False,
    }.items():
        with row(test):
            assert is_proof(test) is proof


def test_only_a_few_proofs_of_a_run_that_ended_are_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "record.json"

    def never(tests: Sequence[str]) -> Record:
        raise AssertionError(f"ran {tests}")

    for name, first, last_line in (
        ("not a proof", record(PROOF, PLAIN), "1 passed, 2 failed, 1 skipped"),
        ("too many", record(*(f"{PROOF}{n}" for n in range(FEW + 1))), f"1 passed, {FEW + 1} failed, 1 skipped"),
        (
            "a file that cannot be imported",
            record("tests/proof/failover/test_failover.py"),
            "1 passed, 1 failed, 1 skipped",
        ),
        ("interrupted", record(PROOF, exit_code=2), "1 passed, 1 failed, 1 skipped"),
        ("an error of pytest's", record(exit_code=3), "1 passed, 0 failed, 1 skipped"),
    ):
        with row(name):
            first.write(path)
            assert main(path, never) == 1
            said = capsys.readouterr().out
            assert said.startswith("No second run: ")
            assert said.splitlines()[-1] == last_line
    path.unlink()
    assert main(path, never) == 1


def test_what_comes_of_the_second_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "record.json"
    record(PROOF, ANOTHER).write(path)
    for name, second, code, last_line in (
        (
            "both pass",
            record(passed=[PROOF, ANOTHER], exit_code=0),
            0,
            "3 passed, 0 failed, 1 skipped; only in the second run: 2",
        ),
        ("one passes", record(ANOTHER, passed=[PROOF]), 1, "2 passed, 1 failed, 1 skipped; only in the second run: 1"),
        ("none passes", record(PROOF, ANOTHER, passed=[]), 1, "1 passed, 2 failed, 1 skipped"),
        ("skipped is not passed", record(passed=[], exit_code=0), 1, "1 passed, 2 failed, 1 skipped"),
        ("none was found", record(passed=[], exit_code=4), 1, "1 passed, 2 failed, 1 skipped"),
        ("it was interrupted", record(passed=[PROOF, ANOTHER], exit_code=2), 1, "1 passed, 2 failed, 1 skipped"),
        ("it died", None, 1, "1 passed, 2 failed, 1 skipped"),
    ):
        with row(name):

            def run(tests: tuple[str, ...], second: Record | None = second) -> Record | None:
                assert tests == (ANOTHER, PROOF)
                return second

            assert main(path, run) == code
            lines = capsys.readouterr().out.splitlines()
            assert lines[-1] == last_line
            late = 0 if second is None or second.exit_code > 1 else len(second.passed)
            assert sum(line.startswith("PASSED ONLY IN THE SECOND RUN tests/") for line in lines) == late
            assert sum(line.startswith("FAILED tests/") for line in lines) == 2 - late


MAKE = """#!/bin/sh
[ "$2" = test ] || exit 0
"{python}" -m pytest --numprocesses=2 || {{ echo "make: *** [Makefile:1: test] Error 1"; exit 2; }}
"""
CONFTEST = """
import os
from pathlib import Path
from tests.processes import pytest_addoption, pytest_runtestloop
from tests.second_run import Record
def pytest_terminal_summary(terminalreporter, exitstatus):
    Record.of(terminalreporter, exitstatus).write(Path(os.environ["HOLDFAST_RECORD"]))
"""
FLAKY = """
from pathlib import Path
import pytest
@pytest.mark.parametrize("count", [1, {failures} + 1])
def test_flaky(count):
    runs = Path(f"runs-{{count}}")
    runs.write_text(runs.read_text() + "." if runs.exists() else ".")
    assert len(runs.read_text()) >= count
"""


@pytest.mark.parametrize(
    ("failures", "code"),
    [pytest.param(0, 0, marks=pytest.mark.full), (1, 0), pytest.param(2, 1, marks=pytest.mark.full)],
)
def test_the_whole_of_it(tmp_path: Path, failures: int, code: int) -> None:
    """With the real `.ci/run`, a make that only runs tests, and a proof that fails so often before it passes."""
    for part in (".ci/run", "tests/processes.py", "tests/second_run.py"):
        target = tmp_path / part
        target.parent.mkdir(exist_ok=True)
        shutil.copy2(ROOT / part, target)
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("make", "pgbouncer"):
        (programs / name).write_text(MAKE.format(python=sys.executable))
        (programs / name).chmod(0o755)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tmp_path / ".venv/bin/python").chmod(0o755)
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\npythonpath = ["."]\ntestpaths = ["tests"]\n')
    (tmp_path / "tests/conftest.py").write_text(CONFTEST)
    (tmp_path / "tests/proof").mkdir()
    (tmp_path / "tests/proof/test_flaky.py").write_text(FLAKY.format(failures=failures))
    ours = ("HOLDFAST_", "PYTEST_", "VENV")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environment["PATH"] = f"{programs}:{environment['PATH']}"
    done = subprocess.run([tmp_path / ".ci/run"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    late = f"PASSED ONLY IN THE SECOND RUN tests/proof/test_flaky.py::test_flaky[{failures + 1}]"
    assert (late in done.stdout) == (failures == 1)
    if failures == 0:
        assert " 2 passed in " in last
    else:
        assert (
            last
            == {
                1: "2 passed, 0 failed, 0 skipped; only in the second run: 1",
                2: "1 passed, 1 failed, 0 skipped",
            }[failures]
        )
