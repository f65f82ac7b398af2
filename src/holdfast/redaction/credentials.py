"""Finding credentials in a header, a URL, a body, an environment or a command, by their place and name."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote, unquote_plus, urlsplit

from holdfast.redaction.logs import guard_libraries
from holdfast.redaction.names import is_credential
from holdfast.redaction.text import know

_SCHEME: Final = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*:/{1,3}|[a-z][a-z0-9+.-]*//|//)", re.IGNORECASE)
"""The beginning of a URL, even if its colon or slash was forgotten."""
_NO_PORT: Final = re.compile(r"\s*[a-z][a-z0-9+.-]*://[^\s/@:\[]*:([^\s/@,]*[^\d\s/@,:][^\s/@,]*)", re.IGNORECASE)
"""A password in the place of the port: the host after it is missing."""
_WEB: Final = re.compile(
    r"\s*(?:https?|wss?)://(?:(?P<account>[^\s/?#@:]*:?(?P<password>[^\s/?#@]*))@)?[^\s/?#@:\[]+(?::\d+)?(?:[/?#]|$)",
    re.IGNORECASE,
)
"""A well-formed web URL: a host, and perhaps an account before it."""
_PAIR: Final = re.compile(r"(?:^|[?&;\s])([\w.-]+)\s*=\s*('(?:[^'\\]|\\.)*'|[^&;\s]*)")
"""A name and a value in a query, or in the key=value form of a database address."""


def know_headers(headers: Mapping[str, str] | Iterable[tuple[str, str]]) -> None:
    """Register the credentials in the headers of a request."""
    guard_libraries()
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    for name, value in pairs:
        if not is_credential(name):
            continue
        know(value)
        scheme, _, rest = value.strip().partition(" ")
        know(rest)
        if scheme.lower() == "basic":
            know(*_basic(rest))
        if "cookie" in name.lower():
            parts = (part.strip().partition("=") for part in value.split(";"))
            know(*(part for name, _, part in parts if is_credential(name) or "sid" in name.lower()))


def _basic(encoded: str) -> tuple[str, ...]:
    try:
        account = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ()
    return account, account.partition(":")[2]


def know_url(url: str | None) -> None:
    """Register the credentials in a URL, even if it is mistyped."""
    guard_libraries()
    for secret in read_credentials(url or ""):
        know(secret, unquote(secret), unquote_plus(secret))


def read_credentials(url: str) -> list[str]:
    """Return what is or may be a credential in a URL: before its ``@``, and after names such as ``token=``.

    A URL parser does not help: if a character was not escaped, it takes half a password for the host name.
    """
    found: list[str] = []
    account, at, _ = url.rpartition("@")
    if (web := _WEB.match(url)) is not None:  # its path may contain an "@"
        found += [part for part in (web["account"], web["password"]) if part]
    elif at:
        account = _SCHEME.sub("", account, count=1)
        if not account.startswith(("?", "/")):
            user, colon, password = account.partition(":")
            found += [account, password] if colon else [user] if _SCHEME.match(url) is None else []
    elif no_port := _NO_PORT.match(url):
        found.append(no_port[1])
    for name, value in _PAIR.findall(url):
        if is_credential(name) or name.lower() == "options":
            found += [value, value.strip("'")]
        elif _SCHEME.match(inner := unquote(value)) and "@" in inner:  # a URL inside a URL
            found += read_credentials(inner)
    return found


def know_environment(environment: Mapping[str, str] | Iterable[tuple[str, str]]) -> None:
    """Register the credentials in the environment of a process."""
    pairs = environment.items() if isinstance(environment, Mapping) else environment
    for name, value in pairs:
        if is_credential(name):
            know(value)
        if "://" in value:
            know_url(value)


def know_proxies(environment: Mapping[str, str]) -> None:
    """Register the passwords of the proxies that requests pass: a proxy may repeat its password in an answer.

    Called for every new client, because the libraries read these variables then.
    """
    for name, value in environment.items():
        if name.lower().endswith("_proxy"):
            know_url(value)


def know_body(body: Any) -> None:  # noqa: ANN401 - JSON
    """Register the credentials in the body of a request, by the names of its fields."""
    if isinstance(body, Mapping):
        for name, value in body.items():
            if isinstance(value, str) and is_credential(str(name)):
                know(value)
            know_body(value)
    elif isinstance(body, list | tuple):
        for part in body:
            know_body(part)


def know_command(words: Sequence[str]) -> None:
    """Register the credentials in the words of a command: ``--token=X``, ``--api-key X``, a URL with a password."""
    for number, word in enumerate(words):
        name, equals, value = word.partition("=")
        if "://" in word or "password=" in word:
            know_url(word)
        elif equals and is_credential(name):
            know(value)
        elif word.startswith("-") and is_credential(word) and number + 1 < len(words):
            know(words[number + 1])


def shown_url(url: str, *, path: bool = True) -> str:
    """Return the host and path of a URL, for messages: never the part before its ``@`` or after its ``?``."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return "(a URL that cannot be read)"
    if not parts.hostname or "@" in parts.path:
        return "(a URL that cannot be read)"
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}{port}{parts.path if path else ''}"
