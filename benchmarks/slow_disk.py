"""The rig for stable ratios: everything in memory, and every sync takes the same time. Linux only. See slow_fsync.c."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.processes import ROOT

_SOURCE = Path(__file__).parent / "slow_fsync.c"
_MEMORY = Path("/dev/shm")  # noqa: S108 - the usual place of a tmpfs
_SETTING = "SLOW_FSYNC_US"


def microseconds() -> int | None:
    """How long a sync takes in this process, if it runs in the rig."""
    setting = os.environ.get(_SETTING)
    return None if setting is None else int(setting)


def run_python(arguments: Sequence[str], fsync_us: int) -> int:
    """Run Python with these arguments in the rig, with all processes it starts; return its exit code."""
    compiler = shutil.which("cc")
    if not sys.platform.startswith("linux") or compiler is None or not os.access(_MEMORY, os.W_OK):
        raise SystemExit("--fsync-us needs Linux, a C compiler named cc and /dev/shm")
    with tempfile.TemporaryDirectory(prefix="holdfast-rig-") as name:
        folder = Path(name)
        library = folder / "slow_fsync.so"
        build: list[str | Path] = [compiler, "-O2", "-shared", "-fPIC", "-o", library, _SOURCE]
        subprocess.run(build, check=True)  # noqa: S603 - our own source
        folder.chmod(0o755)  # the account of the PostgreSQL server loads it too
        environment = os.environ | {_SETTING: str(fsync_us), "LD_PRELOAD": str(library), "TMPDIR": str(_MEMORY)}
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode  # noqa: S603 - ourselves
