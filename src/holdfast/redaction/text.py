"""What is known of credentials, and replacing it: by value, so that it does not matter where a text comes from."""

from __future__ import annotations

import base64
import html
import json
import os
import re
import traceback
from collections.abc import Iterable
from threading import Lock
from typing import Any, Final
from urllib.parse import quote, quote_plus, unquote

from holdfast.redaction.names import is_credential

HIDDEN: Final = "***"

SHORTEST: Final = 8
"""Characters. A shorter value may be part of a word, or stand for a key where none is needed. It is replaced only in a
URL."""

MOST: Final = 1_000
"""Values that are known at a time. The oldest is forgotten first: an application may use a new token for each call."""

_WORD: Final = re.compile(r"[A-Za-z]{1,15}")
"""A value that may be a word of any text: ``postgres`` is a password, a database and the beginning of ``postgresql``.
It is replaced only where it stands as a credential."""

STRONG: Final = 16
"""Characters of a value that cannot be anything else by chance, so that it may be replaced in data, too."""

_DISTINCT: Final = 8

_ADDRESS: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^\s\"'<>]+", re.IGNORECASE)
_ACCOUNT: Final = re.compile(r"(?<=://)([^/?#@:]*):([^/?#@]*)(?=@)")
_PARAMETER: Final = re.compile(r"(?<=[?&;])([\w.-]+)=([^&;#]*)")

_values: dict[str, None] = {}
_short_values: dict[str, None] = {}
_weak_values: frozenset[str] = frozenset()
"""Values that are replaced only where they stand as a credential: short ones, and words."""
_strong_forms: tuple[tuple[str, str], ...] = ()
_forms: tuple[tuple[str, str], ...] = ()
"""Every way in which a known value may be written, the longest first, as one may be part of another; and what takes its
place."""
_changing = Lock()


def know(*values: str | None) -> None:
    """Replace these values from now on, wherever they occur. What may be a word is replaced only in its places."""
    global _forms, _strong_forms, _weak_values  # noqa: PLW0603 - a process has one set of credentials
    wanted = [stripped for value in values if value and (stripped := value.strip())]
    with _changing:
        if all(value in _values or value in _short_values for value in wanted):
            return
        for value in wanted:
            known = _short_values if len(value) < SHORTEST else _values
            known.pop(value, None)
            known[value] = None
            if len(known) > MOST:
                del known[next(iter(known))]
        _weak_values = frozenset((*_short_values, *filter(_WORD.fullmatch, _values)))
        _forms = _longest_first(_values)
        _strong_forms = _longest_first(filter(_is_strong, _values))


def _longest_first(values: Iterable[str]) -> tuple[tuple[str, str], ...]:
    found = {form for value in values for form in (_placed if _WORD.fullmatch(value) else _written)(value)}
    return tuple(sorted(found, key=lambda form: (-len(form[0]), form)))


def _is_strong(value: str) -> bool:
    return len(value) >= STRONG and len(set(value)) >= _DISTINCT and _WORD.fullmatch(value) is None


def forget_all() -> None:
    """Know nothing any more, for tests."""
    global _forms, _strong_forms, _weak_values  # noqa: PLW0603 - as above
    with _changing:
        _values.clear()
        _short_values.clear()
        _weak_values = frozenset()
        _forms = _strong_forms = ()


def _placed(word: str) -> set[tuple[str, str]]:
    """Return a word as it stands in a URL, in a database address and in a header."""
    places = (":{}@", "password={}", "password='{}'", "Bearer {}", "Basic {}")
    return {(place.format(word), place.format(HIDDEN)) for place in places}


def _written(value: str) -> set[tuple[str, str]]:
    """Return a value as it is, and as a URL, JSON, Python, HTML or a Basic header would write it."""
    escaped = value.encode("utf-8", "surrogatepass")
    forms = {
        value,
        unquote(value),
        quote(value, safe="", errors="replace"),
        quote_plus(value, errors="replace"),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
        html.escape(value),
        base64.b64encode(escaped).decode(),
        base64.urlsafe_b64encode(escaped).decode().rstrip("="),
    }
    return {(form, HIDDEN) for form in forms if len(form) >= SHORTEST}


def knows_any() -> bool:
    """Say whether there is anything to replace."""
    return bool(_forms or _weak_values)


def redacted(text: str, *, in_data: bool = False) -> str:
    """Return the text with ``***`` in the place of every known credential.

    ``in_data`` is for what code or a model goes on with: an answer, an output. There only strong values are replaced. A
    shorter one may stand for something else, such as the number of an order, and must not turn into another number.
    """
    for form, instead in _strong_forms if in_data else _forms:
        if form in text:
            text = text.replace(form, instead)
    if in_data or not _weak_values or "://" not in text:
        return text
    return _ADDRESS.sub(lambda address: _hide_weak(address[0]), text)


def _hide_weak(address: str) -> str:
    """Return a URL without the weak values that stand as credentials in it: libraries log the URLs they are sent to."""

    def hide(part: re.Match[str], mark: str) -> str:
        is_known = part[2] in _weak_values or unquote(part[2]) in _weak_values
        return f"{part[1]}{mark}{HIDDEN}" if is_known else part[0]

    address = _ACCOUNT.sub(lambda part: hide(part, ":"), address, count=1)
    return _PARAMETER.sub(lambda part: hide(part, "=") if is_credential(part[1]) else part[0], address)


def redacted_data(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the same data with every text in it redacted, as data, the names of its fields among them."""
    if not _strong_forms:
        return value
    if isinstance(value, str):
        return redacted(value, in_data=True)
    if isinstance(value, dict):
        return {redacted_data(name): redacted_data(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [redacted_data(part) for part in value]
    return value


def cause_of(error: BaseException) -> BaseException | None:
    """Return an error as the cause of another one, or None if it holds a credential: some endpoints repeat the key.

    A traceback shows the whole chain, wherever it is printed.
    """
    text = "".join(traceback.format_exception(error))
    return error if redacted(text) == text else None


class Curtain:
    """Redacts a text that comes in pieces. It holds an end back that may be the beginning of a credential."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._held = ""

    def take(self, piece: str) -> str:
        """Take the next piece; return what can be shown by now."""
        text = redacted(self._held + piece, in_data=True)
        shown = without_beginning(text)
        self._held = text[len(shown) :]
        return shown

    def end(self) -> str:
        """Return what was held back: no more of it comes."""
        held, self._held = self._held, ""
        return held


def without_beginning(text: str) -> str:
    """Return the text without an end that is the beginning of a known credential."""
    longest = 0
    for form, _ in _strong_forms:
        for length in range(min(len(form) - 1, len(text)), longest, -1):
            if text.endswith(form[:length]):
                longest = length
                break
    return text[: len(text) - longest]


def _begin_child() -> None:
    """Free the lock in a forked child: the thread that held it may be missing there."""
    global _changing  # noqa: PLW0603 - as above
    _changing = Lock()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_begin_child)
