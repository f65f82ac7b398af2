"""Text that a person decides about: nothing in it is dropped, and what is left out is counted."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style

from holdfast.model.glyphs import BLANK, show_ascii, show_json, show_text
from holdfast.model.task import JsonValue

_READABLE = 10
_NEAR = 12
"""How many characters before the end of a line a better place for a break may be."""


class Exact:
    """A line that is broken at the width of its column, and not at blanks: Rich would drop them there."""

    def __init__(self, text: str, style: str = "") -> None:
        """``text`` is on one line, or on lines of its own; ``style`` is one of Rich's."""
        self._text = text
        self._style = style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it."""
        style = console.get_style(self._style) if self._style else Style.null()
        for line in self._text.split("\n"):
            for part in fold(line, options.max_width):
                yield Segment(part, style)
                yield Segment.line()

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Return its smallest and largest width."""
        widest = max(map(cell_len, self._text.split("\n")))
        return Measurement(min(widest, _READABLE), widest).with_maximum(options.max_width)


def fold(line: str, width: int) -> list[str]:
    """Break a line into parts that fit. No part begins or ends with a blank, which could not be seen there.

    Where a line can only be broken at a blank, the blank is written as an escape.
    """
    parts: list[str] = []
    while len(line) > 2 * width or cell_len(line) > width:  # a long line is not measured to its end each time
        most = _most(line, width)
        near = range(most, max(0, most - _NEAR), -1)
        end = next((at for at in near if " " not in line[at - 1 : at + 1]), None)
        if end is None:
            end = most - line[:most].endswith(" ") or 1
            line = f"{line[:end]}{BLANK}{line[end + 1 :]}"
        parts.append(line[:end])
        line = line[end:]
    return [*parts, line]


def _most(line: str, width: int) -> int:
    """Return how many characters fit, at least one."""
    used = 0
    for at, character in enumerate(line):
        used += cell_len(character)
        if used > width:
            return max(1, at)
    return len(line)


def exact_json(data: JsonValue, longest: int) -> str:
    """Return data as a person can check it, on one line."""
    return cut_with_count(show_json(data), longest)


def exact_text(text: str, longest: int) -> str:
    """Return a text as a person can check it."""
    return cut_with_count(show_text(text), longest)


def in_ascii(data: JsonValue, longest: int) -> str:
    """Return data once more without any character that could be taken for another; empty if it has none."""
    shown = show_json(data)
    return "" if shown.isascii() else cut_with_count(show_ascii(data), longest)


def cut_with_count(text: str, longest: int) -> str:
    """Return a text that is not much longer than this, with how much is missing."""
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text) - longest:,} more characters)"
