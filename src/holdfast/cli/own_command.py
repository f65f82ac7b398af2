"""What to type to run this command once more."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

_NAME = "holdfast"


def own_command() -> str:
    """Return the command's name if that runs this one in a shell, otherwise its path: a clone is not on PATH."""
    own = shutil.which(_NAME, path=str(Path(sys.executable).parent))
    if own is None:
        return _NAME  # not started by the script that pip writes
    found = shutil.which(_NAME)
    if found is not None and Path(found).absolute() == Path(own).absolute():
        return _NAME
    path, here = Path(own).absolute(), Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))
