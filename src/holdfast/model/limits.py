"""How large and how deep a stored value may be, and the errors for values beyond that.

Shared by the two walkers over user data: ``canonical`` for plain JSON and ``flatten`` for all types.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NoReturn

from holdfast.model.errors import CodecError, InvalidValue

MAX_INT_DIGITS: Final = 4300
"""Python's own limit against slow conversions; a longer int could be computed but not read again."""

_TOO_LONG: Final = 10**MAX_INT_DIGITS
# In a Python string such a pair is two code points, but two JSON escapes would be read back as one character.
_SPLIT_CHARACTER: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
DEEPEST: Final = 200  # far enough from Python's recursion limit for every walker and parser involved
_LONGEST_KEY_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The caps for one stored value. Depth counts containers inside containers."""

    max_bytes: int = 8 * 1024 * 1024
    max_depth: int = 64

    def __post_init__(self) -> None:
        """Reject limits with which nothing could be stored, or not safely."""
        if self.max_bytes < 1:
            raise InvalidValue(f"max_bytes is {self.max_bytes}; it must be at least 1")
        if not 1 <= self.max_depth <= DEEPEST:
            raise InvalidValue(f"max_depth is {self.max_depth}; choose 1 to {DEEPEST}")

    def check_size(self, size: int, path: str) -> None:
        """Reject a value of at least ``size`` bytes if that is too large."""
        if size > self.max_bytes:
            raise CodecError(
                f"takes {size:,} bytes or more, and {self.max_bytes:,} are allowed; "
                "store large outputs as an artifact and keep its id",
                path=path,
            )


DEFAULT_LIMITS: Final = Limits()


def refuse_depth(limits: Limits, path: str) -> NoReturn:
    """Raise CodecError for a value that is too deep, such as one that contains itself."""
    raise CodecError(
        f"is nested more than {limits.max_depth} levels deep (does it contain itself?); flatten it", path=path
    )


def check_text(text: str, path: str) -> None:
    """Reject the one kind of string that JSON would not restore."""
    if not text.isascii() and _SPLIT_CHARACTER.search(text):
        raise CodecError(
            "text with a character split into two surrogates would come back joined; join it first with "
            "text.encode('utf-16', 'surrogatepass').decode('utf-16')",
            path=path,
        )


def check_int(number: int, path: str) -> None:
    """Reject an int that could be computed but not read again."""
    if not -_TOO_LONG < number < _TOO_LONG:
        raise CodecError(f"an int of more than {MAX_INT_DIGITS} digits cannot be stored; store it as text", path=path)


def child_path(path: str, key: object) -> str:
    """Return the path of a member as Python code reaches it: ``result.items[3]["a b"]``."""
    if isinstance(key, str) and key.isidentifier():
        return f"{path}.{key}"
    text = repr(key)
    return f"{path}[{text if len(text) <= _LONGEST_KEY_SHOWN else text[:_LONGEST_KEY_SHOWN] + '...'}]"


def describe(value: object) -> str:
    """Name the kind of a value for a sentence: "a function", "a module.Class"."""
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
