"""The peers, in their own environment: made on demand, kept for the next run, and never mixed with ours."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.processes import ROOT, answer_of

_DRIVERS = Path(__file__).parent / "peers"
_REQUIREMENTS = _DRIVERS / "requirements.txt"
_ENVIRONMENT = ROOT / ".bench-venv"


class PeersUnavailable(Exception):
    """The peers cannot be installed here; the message is the reason."""


class Peers:
    """Runs drivers of peers."""

    def __init__(self) -> None:
        """Install the peers, unless this exact list of them is installed already."""
        stamp = _ENVIRONMENT / f"installed-{hashlib.sha256(_REQUIREMENTS.read_bytes()).hexdigest()[:16]}"
        self.python = _ENVIRONMENT / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
        if stamp.exists():
            return
        shutil.rmtree(_ENVIRONMENT, ignore_errors=True)
        _run(sys.executable, "-m", "venv", _ENVIRONMENT)
        (_ENVIRONMENT / ".gitignore").write_text("*\n")
        _run(self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", _REQUIREMENTS)
        stamp.touch()

    def version(self, peer: str) -> str:
        """Return the version that is installed."""
        listed = _REQUIREMENTS.read_text(encoding="utf-8").splitlines()
        return next(line.removeprefix(f"{peer}==") for line in listed if line.startswith(f"{peer}=="))

    def measure(self, peer: str, url: str, **sizes: object) -> float:
        """Return what the driver of that name prints."""
        return float(answer_of([self.python, _DRIVERS / f"drive_{peer}.py", url], sizes))


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own environment
    if done.returncode != 0:
        raise PeersUnavailable((done.stderr.strip() or done.stdout.strip()).splitlines()[-1])
