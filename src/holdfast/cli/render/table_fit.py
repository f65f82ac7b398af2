"""Tables that fit: with too little room, whole columns are left out, in a fixed order, before important text is cut."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Final

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

ORDER: Final = (
    *("effect", "tries", "fence", "from", "queues", "process", "superseded by", "sure"),
    *("oldest ready", "review", "delayed", "waiting", "kind", "risk", "queue", "holds", "lease", "said", "source"),
    *("ended", "submitted", "by", "when", "outcome", "took", "for", "input", "asked", "task", "why"),
)
"""Columns that may be left out, the least important first. A column that is not named stays."""

_READABLE: Final = 10
"""Columns of a terminal that a text needs to be readable."""
_BROKEN: Final = 18
"""Columns of a terminal that a command needs on two lines."""
_TELLING: Final = 32
"""Width of the main column on a terminal of the usual width; on others, the same share."""
_USUAL: Final = 80


@dataclass(frozen=True, slots=True)
class WantedWidth:
    """The width that a column asks for."""

    name: str
    width: int
    """The width at which nothing is cut."""
    gives_way: bool = False
    """Whether it may get less."""
    is_whole: bool = False
    """Whether its text is then wrapped instead of cut: only when nothing else helps."""
    is_empty: bool = False
    """Whether it is empty in every row."""


def fit(wishes: Sequence[WantedWidth], width: int, gap: int = 2) -> dict[str, int]:
    """Return the widths of the columns that are shown, ``gap`` apart; those that are missing are left out.

    Empty columns are left out first, but only where there is too little room, so that wide tables look alike. Then the
    others in their ``ORDER``, until the columns that give way are readable.
    """
    main = _main(wishes)
    kept = list(wishes)

    def room() -> int:
        return width - gap * len(kept)

    for wish in [wish for wish in _by_order(wishes, main) if wish.is_empty]:
        if sum(one.width for one in kept) > room():
            kept.remove(wish)
    for wish in [wish for wish in _by_order(kept, main) if wish.name in ORDER]:
        if sum(_least(one, main, width) for one in kept) > room():
            kept.remove(wish)
    least: list[int] = []
    for main_column, narrow in ((main, False), (main, True), (None, True)):
        least = [_least(one, main_column, width, narrow=narrow) for one in kept]
        if sum(least) <= room():
            break
    given = share([one.width for one in kept], room(), least)
    return {one.name: size for one, size in zip(kept, given, strict=True)}


def share(asked: Sequence[int], room: int, least: Sequence[int]) -> list[int]:
    """Divide the room: each gets the least it needs, then the rest goes one by one to those that asked for more."""
    given = [min(wanted, needed) for wanted, needed in zip(asked, least, strict=True)]
    left = room - sum(given)
    while left > 0 and given != list(asked):
        for index, wanted in enumerate(asked):
            if given[index] < wanted and left > 0:
                given[index] += 1
                left -= 1
    return given


class FittingTable(Table):
    """A table that knows the room it has only when it is drawn. Columns that wrap are those that give way."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it with the columns there is room for."""
        _, right, _, left = self.padding
        gap = left + right + bool(self.box)
        wishes = [_wish(column, console, options) for column in self.columns]
        # Some versions of Rich count a padding after the last column, though they draw none.
        widths = fit(wishes, options.max_width + bool(self.box), gap)
        shown = copy(self)
        shown.columns = [
            replace(column, header=_head(column), width=widths[str(column.header)], _index=index, _cells=_cells(column))
            for index, column in enumerate(column for column in self.columns if column.header in widths)
        ]
        yield from Table.__rich_console__(shown, console, options)


def _wish(column: Column, console: Console, options: ConsoleOptions) -> WantedWidth:
    cells = list(column.cells)
    return WantedWidth(
        name=str(column.header),
        width=max(Measurement.get(console, options, cell).maximum for cell in [column.header, *cells]),
        gives_way=not column.no_wrap,
        is_whole=column.overflow == "fold",
        is_empty=all(isinstance(cell, str | Text) and not str(cell).strip() for cell in cells),
    )


def _head(column: Column) -> Text:
    return Text(str(column.header), no_wrap=True, overflow="ellipsis")


def _cells(column: Column) -> list[RenderableType]:
    """Return the cells of a column; a column that is never cut wraps also cells that are made to be cut."""
    cells = list(column.cells)
    if column.overflow == "fold":
        for index, cell in enumerate(cells):
            if isinstance(cell, Text):
                cells[index] = broken = cell.copy()
                broken.no_wrap, broken.overflow = None, "fold"
    return cells


def _main(wishes: Sequence[WantedWidth]) -> WantedWidth | None:
    """Return the main column: of the columns that give way, the most important one. It always stays."""
    giving = [wish for wish in wishes if wish.gives_way and not wish.is_empty]
    return max(giving, key=lambda wish: _place(wish.name), default=None)


def _by_order(wishes: Sequence[WantedWidth], main: WantedWidth | None) -> list[WantedWidth]:
    return sorted((wish for wish in wishes if wish is not main), key=lambda wish: _place(wish.name))


def _place(name: str) -> int:
    return ORDER.index(name) if name in ORDER else len(ORDER)


def _least(wish: WantedWidth, main: WantedWidth | None, width: int, *, narrow: bool = False) -> int:
    """Return the width a column needs; with ``narrow`` a column that is never cut is wrapped."""
    if wish is main:
        return min(wish.width, _TELLING, _TELLING * width // _USUAL)
    if wish.is_whole and wish.gives_way:
        return min(wish.width, _BROKEN) if narrow else wish.width
    return min(wish.width, _READABLE) if wish.gives_way else wish.width
