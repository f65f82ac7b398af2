"""On which kind of file system a file is: Linux tells; elsewhere nobody is asked."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")


def file_system_of(path: Path) -> str | None:
    """Return the kind of file system a file is on, as Linux calls it; None where it does not tell."""
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return file_system_in(mounts, PurePosixPath(path.resolve()))


def file_system_in(mounts: str, path: PurePosixPath) -> str | None:
    """Find the file system of a path in the text of /proc/self/mountinfo: that of the innermost mount, the last one."""
    found: tuple[int, str] | None = None
    for line in mounts.splitlines():
        place, separator, kind = line.partition(" - ")
        fields = place.split(" ")
        if not separator or len(fields) < 5:  # noqa: PLR2004 - the fifth is where it is mounted
            continue
        point = PurePosixPath(_ESCAPED.sub(lambda code: chr(int(code[1], 8)), fields[4]))
        depth = len(point.parts)
        if path.is_relative_to(point) and (found is None or depth >= found[0]):
            found = depth, kind.split(" ")[0]
    return None if found is None else found[1]
