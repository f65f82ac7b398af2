"""Run the whole suite on every version of Python that Holdfast supports, one after the other: `make test-all`.

An interpreter is taken from PATH, from pyenv, or from uv, which may download it. What this machine does not have is
named at the beginning and again at the end, and is no failure: a failure is a test that fails, or that nothing could be
run. Arguments go to pytest: `make test-all TESTS="tests/engine -x"`.
"""

# ruff: noqa: S603 - it runs what the developer's own machine has

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
        # Without a download first; a host that cannot be reached is no reason to stop.
        for command in (["find"], ["install", "--quiet"], ["find"]):
            said = subprocess.run([uv, "python", *command, version], capture_output=True, text=True, check=False)
            if command == ["find"] and said.returncode == 0:
                yield Path(said.stdout.strip())


def _patch(python: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in python.parent.parent.name.split(".") if part.isdigit())


def _version_of(python: Path) -> str | None:
    """Ask it: what pyenv puts on the PATH is there for versions that are not switched on, too."""
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        said = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False, cwd="/")
    except OSError:
        return None
    return said.stdout.strip() if said.returncode == 0 else None


def run_suite(version: str, python: Path, arguments: Sequence[str]) -> str | None:
    """Run the tests in an environment of their own; return what went wrong, or None."""
    environment = ROOT / f".venv-{version}"
    make = ["make", "--no-print-directory", f"VENV={environment.name}", f"PYTHON={python}", "setup"]
    if subprocess.run(make, cwd=ROOT, check=False).returncode:
        return "its environment could not be made"
    own = environment / "bin" / "python"
    for missing in subprocess.check_output([own, "-c", _SERVERS], cwd=ROOT, text=True).splitlines():
        _announce(f"Python {version}: {missing}; the tests that need it are SKIPPED")
    processes = os.environ.get("TEST_PROCESSES", "6")
    tests = [str(own), "-m", "pytest", f"--numprocesses={processes}", *arguments]
    return "tests failed" if subprocess.run(tests, cwd=ROOT, check=False).returncode else None


def main(arguments: Sequence[str], versions: Sequence[str] = PYTHONS) -> int:
    """Run all of them, whatever fails, and sum up."""
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
