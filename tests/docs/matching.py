"""Whether a command printed what its page shows, where ``...`` stands for what varies."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

ANYTHING = "..."


def matches(shown: Sequence[str], printed: Sequence[str]) -> bool:
    """Compare line by line. A line that is only ``...`` stands for any number of lines, none included."""
    # As in every matcher of wildcards: only what the last ``...`` matched ever has to be tried again.
    at = to = 0
    star: int | None = None
    swallowed = 0
    while to < len(printed):
        if at < len(shown) and shown[at].strip() == ANYTHING:
            star, swallowed = at, to
            at += 1
        elif at < len(shown) and line_matches(shown[at], printed[to]):
            at, to = at + 1, to + 1
        elif star is not None:
            swallowed += 1
            at, to = star + 1, swallowed
        else:
            return False
    return all(line.strip() == ANYTHING for line in shown[at:])


def line_matches(shown: str, printed: str) -> bool:
    """Compare one line. ``...`` within it stands for any text; spaces at the end do not count."""
    parts = (re.escape(part) for part in shown.rstrip().split(ANYTHING))
    return re.fullmatch(".*".join(parts), printed.rstrip()) is not None


def difference(shown: Sequence[str], printed: Sequence[str], *, where: str) -> str:
    """Return a diff for people. A line that fits one with ``...`` in it counts as equal."""
    patterns = [line for line in shown if ANYTHING in line and line.strip() != ANYTHING]
    folded = [next((one for one in patterns if line_matches(one, line)), line.rstrip()) for line in printed]
    lines = difflib.unified_diff([line.rstrip() for line in shown], folded, f"{where} shows", "printed", lineterm="")
    return "\n".join(lines)
