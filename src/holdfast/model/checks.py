"""Checks of input: reject names, text and times that some store could not hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import TypeVar

from holdfast.model.errors import InvalidValue

T = TypeVar("T")

MAX_NAME_LENGTH = 200

MAX_KEY_BYTES = 2000
"""Of a key in a journal, in UTF-8. PostgreSQL rejects an index row above 2,704 bytes, and the task's id, an
account and a meter are in the same row."""


def check_name(what: str, value: str) -> str:
    """Refuse a name that some database could not hold or a person could not type.

    PostgreSQL's text cannot hold NUL or lone surrogates, so no store accepts them.
    """
    if not isinstance(value, str):
        raise InvalidValue(f"{what} is {value!r}; it has to be a string")
    if not value:
        raise InvalidValue(f"{what} is empty; give it a name")
    if len(value) > MAX_NAME_LENGTH:
        raise InvalidValue(f"{what} has {len(value)} characters; at most {MAX_NAME_LENGTH} fit")
    if not value.isprintable():
        raise InvalidValue(f"{what} {value!r} has characters that cannot be printed; use plain text")
    return value


def check_key(what: str, value: str) -> str:
    """Refuse a key of a journal that some database could not hold.

    It may be longer than a name: a key below a step is made of the step's key and a name.
    """
    if not isinstance(value, str):
        raise InvalidValue(f"{what} is {value!r}; it has to be a string")
    if not value:
        raise InvalidValue(f"{what} is empty; give it a name")
    if not value.isprintable():
        raise InvalidValue(f"{what} {value!r} has characters that cannot be printed; use plain text")
    # Most keys are short: only a long one has to be encoded to be measured.
    if len(value) > MAX_KEY_BYTES // 4 and len(value.encode()) > MAX_KEY_BYTES:
        raise InvalidValue(f"{what} has {len(value.encode())} bytes in UTF-8; at most {MAX_KEY_BYTES} fit")
    return value


def check_queue(name: str) -> str:
    """Refuse a name of a queue that could not be written into a list of queues: ``--queues a,b``."""
    check_name("task queue", name)
    if "," in name:
        raise InvalidValue(f"task queue {name!r} has a comma, which separates the names in a list of queues: a,b")
    return name


def check_text(what: str, value: str | None) -> None:
    """Refuse free text that some database could not hold: a NUL in PostgreSQL, a lone surrogate anywhere."""
    if value is None or (value.isascii() and "\0" not in value):
        return
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise InvalidValue(f"{what} has a NUL or a lone surrogate, which cannot be stored as text; replace it")


def check_moment(what: str, value: datetime | None) -> None:
    """Reject a time without a time zone: it does not name a definite moment."""
    if value is not None and (not isinstance(value, datetime) or value.utcoffset() is None):
        raise InvalidValue(f"{what} is {value!r}; give a datetime with a time zone, such as datetime.now(UTC)")


def check_integer(what: str, value: int, *, lowest: int | None = None, highest: int = (1 << 53) - 1) -> None:
    """Reject a value that is not a whole number in the allowed range, which the databases' 64 bits hold."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValue(f"{what} is {value!r}; it has to be a whole number")
    if lowest is not None and value < lowest:
        raise InvalidValue(f"{what} is {value}; the lowest allowed is {lowest}")
    if not -(1 << 53) < value <= highest:
        raise InvalidValue(f"{what} is {value}; the highest allowed is {highest}")


def check_member(what: str, value: object, members: type[Enum]) -> None:
    """Reject a value that is not a member of the enum: a plain string would work in some places and fail in others."""
    if not isinstance(value, members):
        meant = [member.name for member in members if member.value == value]
        names = " or ".join(f"{members.__name__}.{name}" for name in meant or [member.name for member in members])
        raise InvalidValue(f"{what} is {value!r}; use {names}")


def as_tuple(what: str, value: Sequence[T]) -> tuple[T, ...]:
    """Return the sequence as a tuple. A single string is rejected: it would be split into letters."""
    if isinstance(value, tuple):
        return value
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise InvalidValue(f"{what} is {value!r}; give a tuple, also for one: ({value!r},)")
    return tuple(value)


def check_amounts(amounts: Mapping[str, int | None], *, unlimited: bool = False) -> None:
    """Reject amounts that are not whole numbers of at least 0; with ``unlimited``, None means no limit."""
    for meter, amount in amounts.items():
        check_name("meter", meter)
        if amount is not None:
            check_integer(f"the amount of {meter}", amount, lowest=0)
        elif not unlimited:
            raise InvalidValue(f"the amount of {meter} is missing; give a whole number")
