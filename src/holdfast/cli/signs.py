"""Signs for terminals that have only letters: each becomes one character, so that columns stay where they are."""

from __future__ import annotations

import codecs
from io import TextIOWrapper
from typing import Final, TextIO

ERRORS: Final = "holdfast.signs"
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


def readable(stream: TextIO | None) -> None:
    """Let a terminal show what its encoding has no letters for: our own signs in others, anything else as ``?``.

    A program that reads is not misled: it could not tell a sign that was replaced from what a task has said.
    """
    if isinstance(stream, TextIOWrapper) and stream.isatty():
        stream.reconfigure(errors=ERRORS)


def _in_letters(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_LETTERS.get(sign, "?") for sign in error.object[error.start : error.end]), error.end


codecs.register_error(ERRORS, _in_letters)
