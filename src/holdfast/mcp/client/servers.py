"""Where a server is: a command that is started and spoken to over its pipes, or a URL."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from holdfast.model.errors import InvalidValue
from holdfast.redaction import know_command, know_environment, know_headers, know_url, shown_url


@dataclass(frozen=True, slots=True)
class Command:
    """A program to start. Its environment may hold secrets and is never shown."""

    words: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    folder: str | None = None

    @property
    def label(self) -> str:
        """The program's name, for messages; its arguments may hold secrets."""
        return Path(self.words[0]).name


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A URL that speaks streamable HTTP. Its headers hold secrets and are never shown."""

    url: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def label(self) -> str:
        """Host and path, for messages; a query may hold secrets."""
        return shown_url(self.url)


Server = Command | Endpoint

_NOT_A_URL = (
    "the address of the MCP server is not an http:// or https:// URL; a server that is started is a list of words: "
    '["uvx", "some-server"]'
)
"""The message does not repeat the address: any part of it may be a password."""


def server_at(
    server: str | Sequence[str],
    *,
    env: Mapping[str, str] | None,
    cwd: str | os.PathLike[str] | None,
    headers: Mapping[str, str] | None,
    token: str | None,
) -> Server:
    """Return the server that the arguments name. Raises InvalidValue for one that cannot be reached."""
    if isinstance(server, str):
        if env is not None or cwd is not None:
            raise InvalidValue("env= and cwd= are for a server that is started; one at a URL takes headers= and token=")
        return _endpoint(server, dict(headers or {}), token)
    if headers is not None or token is not None:
        raise InvalidValue("headers= and token= are for a server at a URL; one that is started takes env= and cwd=")
    words = tuple(map(os.fspath, server))
    if not words or not all(isinstance(word, str) and word for word in words[:1]) or "\0" in "".join(words):
        raise InvalidValue(
            "the command of the MCP server is empty, or has a NUL in it; give its words in a list: "
            '["uvx", "some-server"]'
        )
    know_command(words)
    know_environment(env or {})
    return Command(words, tuple(sorted((env or {}).items())), None if cwd is None else os.fspath(cwd))


def _endpoint(url: str, headers: dict[str, str], token: str | None) -> Endpoint:
    know_url(url)
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - read when it is asked for
    except ValueError:  # an invalid port, or half an IPv6 address
        raise InvalidValue(_NOT_A_URL) from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InvalidValue(_NOT_A_URL)
    if parts.username is not None or parts.password is not None:
        raise InvalidValue("the URL of an MCP server holds a user or password; pass token= or headers= instead")
    if token is not None:
        if any(name.lower() == "authorization" for name in headers):
            raise InvalidValue("token= and an Authorization header set the same header; pass one of them")
        headers["Authorization"] = f"Bearer {token}"
    know_headers(headers)
    return Endpoint(url, tuple(sorted(headers.items())))
