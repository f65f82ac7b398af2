"""Run the whole suite on every version of Python that Holdfast supports, one after the other: `make test-all`.

An interpreter is taken from PATH, from pyenv, or from uv, which may download it. Versions that are missing on this
machine are named at the beginning and at the end. They are not a failure: a failure is a test that fails, or that no
version could be run. Arguments are passed to pytest: `make test-all TESTS="tests/engine -x"`.
"""

# ruff: noqa: S603 - it runs programs of the developer's own machine

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
ROOT = Path(__file__).parent.parent
_SERVERS = """
from tests.pgbouncer import PROGRAM
from tests.postgres_server import ServerUnavailable, _find_programs
for version in (15, 16, 18):
    try:
        _find_programs(version)
    except ServerUnavailable as missing:
        print(missing)
if not PROGRAM.exists():
    print("PgBouncer is not installed")
"""
"""Prints which servers the tests would skip."""


def find_python(version: str) -> Path | None:
    """Return an interpreter of this version that runs, or None."""
    return next((found for found in _candidates(version) if _version_of(found) == version), None)


def _candidates(version: str) -> Iterator[Path]:
    if on_path := shutil.which(f"python{version}"):
        yield Path(on_path)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python"), key=_patch, reverse=True)
    if uv := shutil.which("uv"):
        # First without a download; a host that cannot be reached must not stop the run.
        for command in (["find"], ["install", "--quiet"], ["find"]):
            answer = subprocess.run([uv, "python", *command, version], capture_output=True, text=True, check=False)
            if command == ["find"] and answer.returncode == 0:
                yield Path(answer.stdout.strip())


def _patch(python: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in python.parent.parent.name.split(".") if part.isdigit())


def _version_of(python: Path) -> str | None:
    """Return the version that it reports: pyenv puts programs on the PATH even for versions that are not enabled."""
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        answer = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False, cwd="/")
    except OSError:
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def run_suite(version: str, python: Path, arguments: Sequence[str]) -> str | None:
    """Run the tests in a separate environment; return what went wrong, or None."""
    environment = ROOT / f".venv-{version}"
    make = ["make", "--no-print-directory", f"VENV={environment.name}", f"PYTHON={python}", "setup"]
    if subprocess.run(make, cwd=ROOT, check=False).returncode:
        return "its environment could not be made"
    own = environment / "bin" / "python"
    for missing in subprocess.check_output([own, "-c", _SERVERS], cwd=ROOT, text=True).splitlines():
        _announce(f"Python {version}: {missing}; the tests that need it are SKIPPED")
    processes = os.environ.get("TEST_PROCESSES", "8")
    tests = [str(own), "-m", "pytest", f"--numprocesses={processes}", *arguments]
    return "tests failed" if subprocess.run(tests, cwd=ROOT, check=False).returncode else None


def main(arguments: Sequence[str], versions: Sequence[str] = PYTHONS) -> int:
    """Run all versions, even if one fails, and print a summary."""
    found = {version: find_python(version) for version in versions}
    for version, python in found.items():
        _announce(f"Python {version}: {python or 'NOT ON THIS MACHINE, and skipped'}")
    summary: dict[str, str] = {}
    for version, python in found.items():
        if python is None:
            summary[version] = "SKIPPED: not on this machine"
            continue
        began = time.monotonic()
        trouble = run_suite(version, python, arguments)
        summary[version] = f"{trouble or 'passed'} ({(time.monotonic() - began) / 60:.0f} min)"
    for version, words in summary.items():
        _announce(f"Python {version}: {words}")
    ran = [words for version, words in summary.items() if found[version] is not None]
    return 0 if ran and all(words.startswith("passed") for words in ran) else 1


def _announce(words: str) -> None:
    print(f"test-all: {words}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
