"""A URL opens any store, and can be shown without its password."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from holdfast.model.clock import Clock
from holdfast.model.errors import InvalidURL
from holdfast.store.simple import SimpleInterface

_HIDDEN = "***"
_KNOWN = "memory://, json:///dir, sqlite:///file.db or postgresql://host/database"


@asynccontextmanager
async def open_store(url: str, *, clock: Clock | None = None, **options: Any) -> AsyncIterator[SimpleInterface]:  # noqa: ANN401
    """Open the store a URL names for as long as the ``async with`` block lasts."""
    async with make_store(url, clock=clock, **options) as store:
        yield store


def make_store(url: str, *, clock: Clock | None = None, **options: Any) -> SimpleInterface:  # noqa: ANN401
    """Return the store this URL names, not yet open.

    ``sqlite:///agents.db`` is relative to the working directory, ``sqlite:////var/lib/agents.db`` absolute; the same
    for ``json:``. ``options`` go to the store, for example ``schema=`` or ``migrate=`` for PostgreSQL.
    """
    match url.partition(":")[0].lower():  # not urlsplit, which may stumble over a password
        case "memory":
            from holdfast.store.memory import MemoryStore  # noqa: PLC0415 - each store is imported when it is asked for

            return MemoryStore(clock=clock, **options)
        case "json":
            from holdfast.store.jsonfile import JsonStore  # noqa: PLC0415

            return JsonStore(_path(url), clock=clock, **options)
        case "sqlite":
            from holdfast.store.sqlite import SqliteStore  # noqa: PLC0415

            return SqliteStore(_path(url), clock=clock, **options)
        case "postgresql" | "postgres":
            _refuse_bare_password(url)
            from holdfast.store.postgres import PostgresStore  # noqa: PLC0415

            return PostgresStore(url, clock=clock, **options)
        case _:
            raise InvalidURL(f"{without_password(url)!r} names no store; use {_KNOWN}")


def _path(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc:
        raise InvalidURL(f"{url!r} has two slashes where three belong: {parts.scheme}:///{parts.netloc}{parts.path}")
    if parse_qsl(parts.query):
        raise InvalidURL(f"{url!r} takes no options behind '?'")
    path = unquote(parts.path.removeprefix("/"))
    if not path:
        raise InvalidURL(
            f"{url!r} names no path; use {parts.scheme}:///agents.db or an absolute {parts.scheme}:////path"
        )
    return path


def _refuse_bare_password(url: str) -> None:
    """Refuse a password with signs that end it for a parser: the rest of it would be shown as the name of a host."""
    shown = without_password(url)
    if shown.endswith((f":{_HIDDEN}", f"//{_HIDDEN}")) or urlsplit(url).netloc.count("@") > 1:
        raise InvalidURL(f"{shown!r} cannot be read; write a password's @ : / ? # % as %40 %3A %2F %3F %23 %25")


def without_password(url: str) -> str:
    """Return the URL with ``***`` for every password in it, wherever PostgreSQL would read one."""
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        return f"{url.split(':', 1)[0]}:{_HIDDEN}"  # unreadable, so nobody knows where its password stands
    if not parts.scheme:
        return _HIDDEN if "password" in url.lower() else url
    if parts.netloc and "@" in f"{parts.path}{parts.fragment}":  # part of a password that was not escaped
        return f"{parts.scheme}://{_HIDDEN}"
    if parts.password is not None:
        account, _, host = parts.netloc.rpartition("@")
        parts = parts._replace(netloc=f"{account.partition(':')[0]}:{_HIDDEN}@{host}")
    if any("password" in name.lower() for name, _ in query):
        kept = [(name, _HIDDEN if "password" in name.lower() else value) for name, value in query]
        parts = parts._replace(query=urlencode(kept, safe="*/:"))
    # urlunsplit writes sqlite:/x for sqlite:///x; what people typed is what they recognise.
    shown = f"{parts.scheme}://{parts.netloc}{parts.path}"
    return f"{shown}?{parts.query}" if parts.query else shown
