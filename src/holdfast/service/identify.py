"""Ids as people type them: whole, or a few characters of the beginning or the end."""

from __future__ import annotations

from holdfast.model.errors import InvalidValue, NotFound
from holdfast.model.queries import Noun
from holdfast.store.base import StateStore

SHORT = 8
"""Characters of an id that are shown where there is little room: its last ones, which are random."""

_WHOLE = 36
_SHOWN = 5


def short(identifier: str) -> str:
    """Return the part of an id that people see and may type: its end, because ids begin with a time."""
    return identifier[-SHORT:]


async def identify(store: StateStore, noun: Noun, part: str) -> str:
    """Return the one id that begins, or else ends, with ``part``. Raises NotFound, or InvalidValue if there are more.

    A whole id is returned as it is: the verb that uses it finds out whether it exists.
    """
    if len(part) >= _WHOLE:
        return part
    found = await store.ids(noun, part, limit=_SHOWN + 1)
    if not found:
        raise NotFound(noun, part)
    if len(found) > 1 and part not in found:
        some = ", ".join(found[:_SHOWN]) + (" and more" if len(found) > _SHOWN else "")
        raise InvalidValue(f"{part!r} could be any of several {noun}s: {some}; type more of the id")
    return part if part in found else found[0]
