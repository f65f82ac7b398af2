r"""Characters that a reader does not see or mistakes for others, shown as escapes.

An approver reads a call before agreeing to it. With a zero-width space, a run of blanks or a Cyrillic letter in a Latin
word, the approver would read a different call. Such characters are shown as JSON escapes: ``\u200b``.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Final

from holdfast.model.task import JsonValue

BLANK: Final = "\\u0020"
"""The escape for a space that a reader would not see."""
_TOKEN: Final = re.compile(r"[^\s\"'`(){}\[\],;=<>|&]+")
_ASCII_LETTER: Final = re.compile("[A-Za-z]")
_ASCII_DIGIT: Final = re.compile("[0-9]")
_UNSEEN: Final = re.compile(
    # Blanks that Unicode classifies as letters, marks or symbols, and marks that select a form of the character before.
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_LOOKALIKE: Final = re.compile(
    # Latin letters of phonetics, and small capitals; modifier letters; punctuation, dashes and quotes; mathematical
    # signs, lines and strokes; Lisu. Each looks like an ASCII character to most readers.
    "[\u00ad\u00b4\u00b7\u00b8\u0131\u0237\u01c0-\u01c3\u0250-\u02ff\u0375\u037e\u0387\u055d\u0589\u05c0\u05c3\u05f3\u05f4"
    "\u1d00-\u1d7f\u1680\u2000-\u206f\u2200-\u22ff\u2500-\u257f\u2758-\u275e\u27cb\u27cd\u2981-\u29ff\u2cf9-\u2cff"
    "\u2e00-\u2e7f\ua4d0-\ua4ff\ua789-\ua78c]"
)


def show_text(text: str) -> str:
    """Return a text with an escape for every invisible or misleading character. Line breaks stay."""
    shown = "\n".join(_reveal(line) for line in text.split("\n"))
    blank = len(shown) - len(shown.lstrip(" "))
    end = len(shown.rstrip(" "))
    return shown if not blank and end == len(shown) else BLANK * blank + shown[blank:end] + BLANK * (len(shown) - end)


def show_json(data: JsonValue) -> str:
    """Return data as JSON on one line. A person can read it, and parsing it gives exactly the data."""
    return _reveal(json.dumps(data, ensure_ascii=False))


def show_ascii(data: JsonValue) -> str:
    """Return data as JSON with an escape for every character that is not ASCII."""
    return _reveal(json.dumps(data))


def _reveal(line: str) -> str:
    hidden = _in_mixed_words(line)
    return "".join(
        _written(character) if at in hidden or _is_hidden(character, line[at - 1] if at else "") else character
        for at, character in enumerate(line)
    )


def _is_hidden(character: str, before: str) -> bool:
    if character.isascii():
        return before == " " if character == " " else not character.isprintable()
    if not character.isprintable() or _UNSEEN.match(character) or _LOOKALIKE.match(character):
        return True
    if unicodedata.category(character).startswith("M"):
        return not before or before.isascii()  # it changes the look of an ASCII character
    return unicodedata.normalize("NFKC", character) != character


def _in_mixed_words(line: str) -> set[int]:
    """Return the places of letters of other scripts in words with Latin letters, and of other digits beside 0 to 9."""
    if line.isascii():
        return set()
    found: set[int] = set()
    for token in _TOKEN.finditer(line):
        word = token[0]
        if word.isascii():
            continue
        has_letter, has_digit = _ASCII_LETTER.search(word), _ASCII_DIGIT.search(word)
        found.update(
            token.start() + at
            for at, character in enumerate(word)
            if (has_letter and _is_of_another_script(character)) or (has_digit and _is_other_digit(character))
        )
    return found


def _is_of_another_script(character: str) -> bool:
    # Readers do not mistake wide characters, such as Chinese, for Latin letters.
    return (
        not character.isascii()
        and character.isalpha()
        and unicodedata.east_asian_width(character) not in {"W", "F"}
        and not unicodedata.name(character, "").startswith("LATIN ")
    )


def _is_other_digit(character: str) -> bool:
    return not character.isascii() and character.isdigit()


def _written(character: str) -> str:
    return f"\\u{ord(character):04x}" if character.isascii() else json.dumps(character)[1:-1]
