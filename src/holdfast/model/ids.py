"""Identifiers: UUID version 7, so that ids made later sort later and inserts stay at one end of an index."""

from __future__ import annotations

import os
import time
import uuid

from holdfast.model.errors import InvalidValue

MAX_NAME_LENGTH = 200


def new_id() -> str:
    """Return a fresh id: 48 bits of milliseconds, then 74 random bits."""
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds << 80) | int.from_bytes(os.urandom(10), "big")
    value = (value & ~(0xF << 76)) | (0x7 << 76)
    value = (value & ~(0x3 << 62)) | (0x2 << 62)
    return str(uuid.UUID(int=value))


def check_name(what: str, value: str) -> str:
    """Refuse a name that some database could not hold or a person could not type.

    PostgreSQL's text has no NUL and no lone surrogates, so no store takes them.
    """
    if not value:
        raise InvalidValue(f"{what} is empty; give it a name")
    if len(value) > MAX_NAME_LENGTH:
        raise InvalidValue(f"{what} has {len(value)} characters; at most {MAX_NAME_LENGTH} fit")
    if not value.isprintable():
        raise InvalidValue(f"{what} {value!r} has characters that cannot be printed; use plain text")
    return value


def check_text(what: str, value: str | None) -> None:
    """Refuse free text that some database could not hold: PostgreSQL has no NUL, and no store has lone surrogates."""
    if value is None or (value.isascii() and "\0" not in value):
        return
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise InvalidValue(f"{what} has a NUL or a lone surrogate, which cannot be stored as text; replace it")
