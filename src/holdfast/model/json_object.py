"""Read JSON objects field by field; reject a missing, wrong or unknown field with the path to it.

Used by every ``from_json`` in the model. Unknown keys are rejected: otherwise a misspelled ``max_step`` would silently
mean "no limit", and the user would notice it only on the bill.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any, TypeVar

from holdfast.model.errors import InvalidValue
from holdfast.model.limits import child_path, describe
from holdfast.model.task import JsonValue

Item = TypeVar("Item")


class JsonObject:
    """One JSON object while it is read. ``optional`` readers return None for a key that is missing."""

    def __init__(self, value: JsonValue, path: str, known: Collection[str]) -> None:
        """Reject anything but an object whose keys are all in ``known``."""
        if not isinstance(value, dict):
            raise InvalidValue(f"{path}: expected an object, not {describe(value)}")
        for key in value:
            if key not in known:
                raise InvalidValue(f"{child_path(path, key)}: unknown key; known here: {', '.join(known)}")
        self._value: dict[str, Any] = value
        self._path = path

    def __contains__(self, key: str) -> bool:
        return key in self._value

    def path(self, key: str) -> str:
        """Return the path of ``key``, for messages."""
        return child_path(self._path, key)

    def raw(self, key: str) -> JsonValue:
        """Return the value of a required key."""
        if key not in self._value:
            raise InvalidValue(f"{self.path(key)}: missing")
        return self._value[key]

    def text(self, key: str) -> str:
        """Return a required string."""
        return _as_text(self.raw(key), self.path(key))

    def optional_text(self, key: str) -> str | None:
        """Return a string, or None if it is missing."""
        return self.text(key) if key in self._value else None

    def integer(self, key: str) -> int:
        """Return a required whole number of at least 0."""
        value = self.raw(key)
        if type(value) is not int or value < 0:
            raise InvalidValue(f"{self.path(key)}: expected a whole number of at least 0, not {value!r}")
        return value

    def optional_integer(self, key: str) -> int | None:
        """Return a whole number, or None if it is missing."""
        return self.integer(key) if key in self._value else None

    def optional_fraction(self, key: str) -> float | None:
        """Return a number from 0 to 1, or None if it is missing."""
        if key not in self._value:
            return None
        value = self.raw(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1 or math.isnan(value):
            raise InvalidValue(f"{self.path(key)}: expected a number from 0 to 1, not {value!r}")
        return value

    def optional_moment(self, key: str) -> datetime | None:
        """Return a time with its zone, or None if it is missing."""
        if key not in self._value:
            return None
        text = self.text(key)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise InvalidValue(f"{self.path(key)}: {text!r} is not an ISO 8601 time") from None
        if moment.utcoffset() is None:
            raise InvalidValue(f"{self.path(key)}: {text!r} has no time zone; append Z or an offset")
        return moment

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of strings; empty if it is missing."""
        return self.items(key, _as_text)

    def items(self, key: str, read: Callable[[JsonValue, str], Item]) -> tuple[Item, ...]:
        """Return a list, each item read by ``read(item, path)``; empty if it is missing."""
        value = self._value.get(key, [])
        if not isinstance(value, list):
            raise InvalidValue(f"{self.path(key)}: expected a list, not {describe(value)}")
        return tuple(read(item, f"{self.path(key)}[{index}]") for index, item in enumerate(value))


def without_none(fields: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Remove the fields that are None: optional fields are omitted, never null."""
    return {key: value for key, value in fields.items() if value is not None}


def _as_text(value: JsonValue, path: str) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"{path}: expected text, not {describe(value)}")
    return value
