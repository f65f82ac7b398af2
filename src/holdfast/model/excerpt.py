"""Excerpts: the parts that a model sees of a text that is too large for its context.

An excerpt is never above its limit, never cuts a character, and names how many bytes are missing.
"""

from __future__ import annotations

from holdfast.model.checks import check_integer
from holdfast.model.line_search import LineSearch
from holdfast.model.utf8 import decode, drop_cut_end, drop_cut_start, encode

SMALLEST_EXCERPT = 64
"""Bytes: room for the note that something is missing, and a little to show."""


def excerpt(text: str, *, max_bytes: int, head: int | None = None, tail: int | None = None) -> str:
    """Return ``text``, or its beginning and its end if it takes more than ``max_bytes``.

    ``head`` and ``tail`` are the bytes to show of each; 0 shows none. If one is None, it gets the rest of the room; if
    both are None, they share it.
    """
    data = encode(text)
    shares = share(len(data), max_bytes=max_bytes, head=head, tail=tail)
    if shares is None:
        return text
    first, last = drop_cut_end(data[: shares[0]]), drop_cut_start(data[len(data) - shares[1] :])
    return join(decode(first), decode(last), missing=len(data) - len(first) - len(last))


def grep(text: str, pattern: str, *, max_bytes: int, context: int = 0) -> str:
    """Return the lines of ``text`` that contain ``pattern``, as LineSearch finds and shows them."""
    search = LineSearch(pattern, max_bytes=max_bytes, context=context)
    data = encode(text)
    search.feed(data)
    return search.finish(len(data))


def share(size: int, *, max_bytes: int, head: int | None = None, tail: int | None = None) -> tuple[int, int] | None:
    """Decide how many bytes to show from the beginning and from the end of ``size``; None is all of it."""
    check_integer("max_bytes", max_bytes, lowest=SMALLEST_EXCERPT)
    for name, part in (("head", head), ("tail", tail)):
        if part is not None:
            check_integer(name, part, lowest=0)
    if size <= max_bytes:
        return None
    room = max_bytes - len(join(" ", " ", missing=size)) + 2
    if head is None:
        head = room - (room // 2 if tail is None else min(tail, room))
    head = min(head, room)
    return head, room - head if tail is None else min(tail, room - head)


def join(head: str, tail: str, *, missing: int) -> str:
    """Join the two ends of a text, with a line between them that counts the bytes left out."""
    return "\n".join(part for part in (head, f"[... {missing} bytes left out ...]", tail) if part)
