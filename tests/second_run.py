"""A proof that failed is run once more, alone: a rare race is seen by its name, and does not hold everything up.

`.ci/run` has the first run write a record (HOLDFAST_RECORD=file), and when that run has failed it calls

    python -m tests.second_run FILE

Only proofs get a second run, and only a few of them: everything else has to pass at once. The last line of the output
counts every test once, by how it ended. The exit code is 0 if all of them passed, at the latest in the second run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pytest

PROOFS = (
    "tests/proof/*",
    "tests/*/races/*",
    "tests/*test_*races.py",
    "tests/*test_kill*.py",
    "tests/*test_stateful.py",
    "tests/*test_programs.py",
    "tests/process_fork/*",
    "tests/cli/demo/*",
    "tests/cli/terminal/test_signals.py",
    "tests/engine/manage/memory/test_races.py",
    "tests/store/postgres/test_hammer.py",
    "tests/store/test_many_processes.py",
    "tests/store/test_outage.py",
    "tests/store/test_simple_under_fire.py",
)
"""Files whose tests start and kill processes, race against each other, or are made at random."""

FEW = 5
"""More failures than this are not a rare race."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """How a run ended, and each of its tests."""

    exit_code: int
    passed: frozenset[str]
    failed: frozenset[str]
    skipped: frozenset[str]

    @staticmethod
    def of(reporter: pytest.TerminalReporter, exit_code: int) -> Record:
        """Take it from what pytest is about to sum up."""

        def names(*outcomes: str) -> frozenset[str]:
            return frozenset(report.nodeid for outcome in outcomes for report in reporter.stats.get(outcome, ()))

        failed = names("failed", "error")  # a test that passed and could not be cleaned up has failed
        return Record(
            exit_code=exit_code,
            passed=names("passed", "xpassed") - failed,
            failed=failed,
            skipped=names("skipped", "xfailed") - failed,
        )

    def write(self, path: Path) -> None:
        names = {"passed": sorted(self.passed), "failed": sorted(self.failed), "skipped": sorted(self.skipped)}
        path.write_text(json.dumps({"exit_code": self.exit_code, **names}), encoding="utf-8")

    @staticmethod
    def read(path: Path) -> Record | None:
        """Return nothing if the run ended before it could write."""
        if not path.exists() or not path.stat().st_size:
            return None
        said = json.loads(path.read_text(encoding="utf-8"))
        names = {outcome: frozenset(said[outcome]) for outcome in ("passed", "failed", "skipped")}
        return Record(exit_code=said["exit_code"], **names)


def is_proof(test: str) -> bool:
    path, _, name = test.partition("::")
    return bool(name) and any(fnmatch(path, pattern) for pattern in PROOFS)


def why_not(record: Record) -> str | None:
    """Say why a run gets no second one, or None."""
    if record.exit_code != pytest.ExitCode.TESTS_FAILED or not record.failed:
        return "the run did not end by itself"
    if others := sorted(test for test in record.failed if not is_proof(test)):
        return f"{others[0]} is not a proof" + (f", nor are {len(others) - 1} others" if len(others) > 1 else "")
    if len(record.failed) > FEW:
        return f"{len(record.failed)} failures are not a rare race"
    return None


def run_alone(tests: Sequence[str]) -> Record | None:
    """Run these in one process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record.json"
        command = [sys.executable, "-m", "pytest", "--numprocesses=0", *tests]
        subprocess.run(command, env={**os.environ, "HOLDFAST_RECORD": str(path)}, check=False)
        return Record.read(path)


def main(path: Path, run: Callable[[tuple[str, ...]], Record | None] = run_alone) -> int:
    first = Record.read(path)
    if first is None:
        print("No second run: the first one ended before its summary.")
        print("0 passed, 1 failed")
        return 1
    late: frozenset[str] = frozenset()
    if reason := why_not(first):
        print(f"No second run: {reason}.")
    else:
        print(f"\nA second run of the {len(first.failed)} that failed, alone:", flush=True)
        second = run(tuple(sorted(first.failed)))
        if second is not None and second.exit_code == pytest.ExitCode.OK:
            late = first.failed & second.passed
        elif second is not None and second.exit_code == pytest.ExitCode.TESTS_FAILED:
            late = (first.failed & second.passed) - second.failed
    for test in sorted(first.failed - late):
        print(f"FAILED {test}")
    for test in sorted(late):
        print(f"PASSED ONLY IN THE SECOND RUN {test}")
    left = first.failed - late
    words = f"{len(first.passed | late)} passed, {len(left)} failed, {len(first.skipped)} skipped"
    print(f"{words}; only in the second run: {len(late)}" if late else words)
    return 1 if left or first.exit_code != pytest.ExitCode.TESTS_FAILED else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
