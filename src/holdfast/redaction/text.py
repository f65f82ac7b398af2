"""The known credentials, and replacing them in text: by value, so it works for text from any source."""

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
"""Characters. A shorter value may be part of a word, or a dummy key where none is needed. It is replaced only in a
URL."""

MOST: Final = 1_000
"""The most values known at a time; the oldest is dropped first. An application may use a new token for each call."""

_WORD: Final = re.compile(r"[A-Za-z]{1,15}")
"""A value that may be a normal word: ``postgres`` is a password, a database and the beginning of ``postgresql``. It is
replaced only in the place of a credential."""

STRONG: Final = 16
"""Characters. A value this long does not occur by chance, so it is replaced in data too."""

_DISTINCT: Final = 8

_ADDRESS: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^\s\"'<>]+", re.IGNORECASE)
_ACCOUNT: Final = re.compile(r"(?<=://)([^/?#@:]*):([^/?#@]*)(?=@)")
_PARAMETER: Final = re.compile(r"(?<=[?&;])([\w.-]+)=([^&;#]*)")

_values: dict[str, None] = {}
_short_values: dict[str, None] = {}
_weak_values: frozenset[str] = frozenset()
"""Values that are replaced only in the place of a credential: short values, and words."""
_strong_forms: tuple[tuple[str, str], ...] = ()
_forms: tuple[tuple[str, str], ...] = ()
"""Every way to write a known value, with its replacement. The longest first, because one may be part of another."""
_changing = Lock()


def know(*values: str | None) -> None:
    """Replace these values from now on, everywhere. A value that may be a word is replaced only in the usual places."""
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
    """Forget all values, for tests."""
    global _forms, _strong_forms, _weak_values  # noqa: PLW0603 - as above
    with _changing:
        _values.clear()
        _short_values.clear()
        _weak_values = frozenset()
        _forms = _strong_forms = ()


def _placed(word: str) -> set[tuple[str, str]]:
    """Return the forms of a word in a URL, in a database address and in a header."""
    places = (":{}@", "password={}", "password='{}'", "Bearer {}", "Basic {}")
    return {(place.format(word), place.format(HIDDEN)) for place in places}


def _written(value: str) -> set[tuple[str, str]]:
    """Return the forms of a value: unchanged, and as written in a URL, JSON, Python, HTML or a Basic header."""
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
    """Return whether there is anything to replace."""
    return bool(_forms or _weak_values)


def redacted(text: str, *, in_data: bool = False) -> str:
    """Return the text with ``***`` in the place of every known credential.

    ``in_data`` is for text that code or a model works with: an answer, an output. There only strong values are
    replaced. A shorter value may mean something else there, such as an order number, which must not be changed.
    """
    for form, instead in _strong_forms if in_data else _forms:
        if form in text:
            text = text.replace(form, instead)
    if in_data or not _weak_values or "://" not in text:
        return text
    return _ADDRESS.sub(lambda address: _hide_weak(address[0]), text)


def _hide_weak(address: str) -> str:
    """Return a URL without the weak values in its credential places: libraries log the URLs they use."""

    def hide(part: re.Match[str], mark: str) -> str:
        is_known = part[2] in _weak_values or unquote(part[2]) in _weak_values
        return f"{part[1]}{mark}{HIDDEN}" if is_known else part[0]

    address = _ACCOUNT.sub(lambda part: hide(part, ":"), address, count=1)
    return _PARAMETER.sub(lambda part: hide(part, "=") if is_credential(part[1]) else part[0], address)


def redacted_data(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the data with every text in it redacted, also the names of fields."""
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

    A traceback always shows the whole chain of causes.
    """
    text = "".join(traceback.format_exception(error))
    return error if redacted(text) == text else None


class StreamRedactor:
    """Redacts a text that comes in pieces. It keeps back an end that may be the beginning of a credential."""

    def __init__(self) -> None:
        """Start with nothing kept back."""
        self._held = ""

    def take(self, piece: str) -> str:
        """Add the next piece; return what can be shown now."""
        text = redacted(self._held + piece, in_data=True)
        shown = without_beginning(text)
        self._held = text[len(shown) :]
        return shown

    def end(self) -> str:
        """Return the rest: no more pieces follow."""
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
