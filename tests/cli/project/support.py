"""The command in real processes, each in a folder of its own."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from tests.forked import run_holdfast

PATIENCE = 120.0
"""Seconds: for machines busy with other tests."""


def holdfast(
    folder: Path, *arguments: str, check: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder, with no settings but these. No error has a traceback."""
    answer = run_holdfast(*arguments, folder=folder, environment=clean_environment(**environment), timeout=PATIENCE)
    assert "Traceback" not in answer.stderr
    assert not check or answer.returncode == 0, answer.stderr
    return answer


def clean_environment(**settings: str) -> dict[str, str]:
    """Return this process's environment with no settings but these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "_HOLDFAST"))}
    return kept | settings


def contents(folder: Path) -> dict[str, str]:
    """Return every file below a folder with the hash of its bytes."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in sorted(folder.rglob("*"))
    }


def refusal(answer: subprocess.CompletedProcess[str], code: int) -> str:
    """Return the one line with which a command refused."""
    assert answer.returncode == code, (answer.returncode, answer.stdout, answer.stderr)
    assert answer.stdout == ""
    (line,) = answer.stderr.splitlines()
    assert line.startswith("holdfast: ")
    return line
