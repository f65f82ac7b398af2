"""Where output goes: data to stdout, messages to stderr; tables and colours for people, plain text for programs."""

from __future__ import annotations

import codecs
import json
import os
import sys
import textwrap
from collections.abc import Collection, Sequence
from functools import cache
from io import TextIOWrapper
from typing import Final, TextIO

import typer
from rich import box
from rich.console import Console, RenderableType
from rich.text import Text

from holdfast.cli.render.table_fit import FittingTable
from holdfast.cli.render.words import safe
from holdfast.model.task import JsonValue
from holdfast.redaction import redacted

_ESCAPED = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}
"""Control characters that JSON does not escape, but that terminals obey."""

SIGNS: Final = "holdfast.signs"
"""The name under which Python's encoders find ``_in_letters``."""

_LETTERS: Final = {
    "✓": "+",
    "✗": "x",
    "▶": ">",
    "↶": "<",
    "·": ".",
    "…": "~",
    "→": ">",
    "█": "#",
    "▒": "=",
    "░": ".",
}
"""Signs for terminals that have only letters: each becomes one character, so that columns stay where they are."""

_PLAIN_WIDTH = 100_000
"""Wide enough that nothing is ever wrapped or cut where a program reads."""


@cache
def console() -> Console:
    """Return the console of stdout. It knows NO_COLOR, and whether it is a terminal."""
    readable(sys.stdout)
    if sys.stdout.isatty():
        return Console(highlight=False, emoji=False)
    # Also where FORCE_COLOR is set: a program would read half of a table.
    return Console(highlight=False, emoji=False, width=_PLAIN_WIDTH, soft_wrap=True, force_terminal=False)


@cache
def words() -> Console:
    """Return the console of stderr."""
    readable(sys.stderr)
    return Console(stderr=True, highlight=False, emoji=False)


def print_message(text: str) -> None:
    """Print a message to stderr, beside the data: on one line, unless the terminal is too narrow for it.

    A word that is longer than a line is left to the terminal: a cursor or a URL that we broke could not be copied.
    """
    line = f"holdfast: {safe(redacted(text))}"  # before a narrow terminal breaks it
    if words().is_terminal:
        lines = textwrap.wrap(line, words().width, break_long_words=False, break_on_hyphens=False)
        words().print(Text("\n".join(lines)), soft_wrap=True)
    else:
        typer.echo(line, err=True)


def print_if_cut(listed: Sequence[object], limit: int) -> None:
    """Print a message if a list may not be complete."""
    if len(listed) >= limit:
        print_message(f"these are the first {limit:,}, and there may be more: a larger --limit shows them")


def print_json(data: JsonValue) -> None:
    """Print one JSON document; indented on a terminal."""
    print_line(data, indent=2 if sys.stdout.isatty() else None)


def print_line(data: JsonValue, *, indent: int | None = None) -> None:
    """Print one JSON document on one line."""
    typer.echo(json_text(data, indent=indent, visible=sys.stdout.isatty()))


def json_text(data: JsonValue, *, indent: int | None = None, visible: bool = False) -> str:
    """Return data as JSON. With ``visible``, every character that a terminal would obey or hide is escaped.

    Those are control characters, overrides of the direction, and characters without a width. The JSON means the same.
    """
    text = json.dumps(data, ensure_ascii=False, indent=indent).translate(_ESCAPED)
    if text.isascii():
        return text
    if any("\ud800" <= character <= "\udfff" for character in text):
        return json.dumps(data, indent=indent)  # half a character, which only JSON's own escapes can write
    return "".join(map(_visible, text)) if visible else text


def _visible(character: str) -> str:
    if character.isprintable() or character == "\n":
        return character
    return json.dumps(character)[1:-1]


def print_page(*parts: RenderableType) -> None:
    """Print a page for people; without a terminal, leave out the blanks that fill up a column."""
    if console().is_terminal:
        console().print(*parts, sep="\n")
        return
    with console().capture() as captured:
        console().print(*parts, sep="\n")
    typer.echo("\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n")))


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str | Text]], *, empty: str, flexible: Collection[str] = ()
) -> None:
    """Print a table; ``empty`` is printed to stderr where there is nothing to list.

    Without a terminal, columns are separated by at least two spaces, and nothing is cut.
    """
    if not rows:
        print_message(empty)
        return
    if console().is_terminal:
        console().print(table(columns, rows, flexible=flexible))
        return
    cells = [[*columns], *([_plain(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    *,
    flexible: Collection[str] = (),
    title: str | None = None,
) -> FittingTable:
    """Return a table for a person: a line under its head, one line for each row.

    Where there is too little room, some columns are left out, and what is in the ``flexible`` ones is cut.
    """
    made = FittingTable(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), title=title, title_justify="left"
    )
    for column in columns:
        made.add_column(column, no_wrap=column not in flexible, overflow="ellipsis")
    for row in rows:
        made.add_row(*map(one_line, row))
    return made


def one_line(cell: str | Text) -> Text:
    """Return a cell that is cut, and never broken, where there is too little room."""
    made = cell.copy() if isinstance(cell, Text) else Text(safe(cell))
    made.no_wrap, made.overflow = True, "ellipsis"
    return made


def close_stdout() -> None:
    """Write nothing more to stdout: Python would try once more at the end, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _plain(cell: str | Text) -> str:
    return safe(" ".join((cell.plain if isinstance(cell, Text) else cell).split()))


def readable(stream: TextIO | None) -> None:
    """Replace what a terminal's encoding cannot show: our own signs by similar ones, anything else by ``?``.

    Not where a program reads: it could not tell a replaced sign from the output of a task.
    """
    if isinstance(stream, TextIOWrapper) and stream.isatty():
        stream.reconfigure(errors=SIGNS)


def _in_letters(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_LETTERS.get(sign, "?") for sign in error.object[error.start : error.end]), error.end


codecs.register_error(SIGNS, _in_letters)
