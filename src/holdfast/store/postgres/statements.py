"""Which statements of a user's do not belong into a transaction that is shared with Holdfast. No I/O."""

from __future__ import annotations

import re
from typing import Final

from holdfast.model.errors import InvalidValue
from holdfast.store.transaction import excerpt

_ENDS_IT: Final = "the transaction is begun and ended around the function, as one with what Holdfast writes"
_STAYS: Final = "it would stay on a connection that others use after this transaction; SET LOCAL does not"
_OBJECTIONS: Final = {
    **dict.fromkeys(("begin", "start", "commit", "end", "rollback", "abort", "savepoint", "release"), _ENDS_IT),
    **dict.fromkeys(("set", "reset", "discard", "listen", "unlisten", "prepare", "deallocate"), _STAYS),
    "copy": "rows cannot be streamed here; use INSERT",
}
_LOCAL: Final = frozenset({"local", "constraints"})

_NOTHING: Final = re.compile(r"(?:\s|;|--[^\n]*)*")
_WORDS: Final = re.compile(r"(\w*)\s*(\w*)")
_COMMENT_MARK: Final = re.compile(r"/\*|\*/")


def refuse_control(sql: str) -> None:
    """Raise InvalidValue for a statement that would end the transaction, or outlive it."""
    if not isinstance(sql, str):
        raise InvalidValue(f"{sql!r} is not SQL; pass a string, and values as parameters after it")
    first, second = _first_words(sql)
    if first == "set" and second in _LOCAL:
        return
    if (why := _OBJECTIONS.get(first)) is not None:
        raise InvalidValue(f"{excerpt(sql)} is refused: {why}")


def _first_words(sql: str) -> tuple[str, str]:
    """Return the first two words, in lower case, behind whatever comments and empty statements come before them."""
    position = 0
    while True:
        found = _NOTHING.match(sql, position)
        position = found.end() if found else position
        if not sql.startswith("/*", position):
            break
        position = _end_of_comment(sql, position)
    words = _WORDS.match(sql, position)
    return (words[1].lower(), words[2].lower()) if words else ("", "")


def _end_of_comment(sql: str, start: int) -> int:
    """Return where a comment ends; in PostgreSQL they nest."""
    depth = 0
    for mark in _COMMENT_MARK.finditer(sql, start):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(sql)
