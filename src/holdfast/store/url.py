"""A URL opens any store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.model.clock import Clock
from holdfast.model.errors import InvalidURL
from holdfast.redaction import HIDDEN, know_url, without_password
from holdfast.store.simple import SimpleInterface

_KNOWN = "memory://, json:///dir, sqlite:///file.db or postgresql://host/database"
_SWITCHES = {
    **dict.fromkeys(("true", "on", "yes", "1"), True),
    **dict.fromkeys(("false", "off", "no", "0"), False),
    "auto": None,
}


@dataclass(frozen=True, slots=True)
class URLOptions:
    """Options of the PostgreSQL store that stand in its URL; None is one that does not."""

    prepare: bool | None = None
    listen_url: str | None = None


def split_options(url: str) -> tuple[str, URLOptions]:
    """Return a PostgreSQL URL as libpq knows it, and the options behind its '?' that are ours."""
    address, _, query = url.partition("?")
    ours: dict[str, str] = {}
    others = []
    for pair in filter(None, query.split("&")):
        name, _, value = pair.partition("=")
        if name in {"prepare", "listen_url"}:
            ours[name] = unquote(value)
        else:
            others.append(pair)  # as it was written: libpq has rules of its own
    if not ours:
        return url, URLOptions()
    listen_url = ours.get("listen_url")
    if listen_url is not None and listen_url.partition(":")[0].lower() not in {"postgresql", "postgres"}:
        raise InvalidURL(
            "listen_url= in the database URL is not a postgresql://... address; write its : / ? & as %3A %2F %3F %26"
        )
    try:
        prepare = read_switch(ours.get("prepare", "auto"))
    except ValueError as error:
        raise InvalidURL(f"the database URL has another value for prepare=; {error}") from None
    return "?".join(filter(None, (address, "&".join(others)))), URLOptions(prepare, listen_url)


def read_switch(given: object) -> bool | None:
    """Return what ``prepare`` means as it stands in a URL, a variable or a file; None is ``auto``."""
    text = str(given).strip().lower()
    if not isinstance(given, str | bool) or text not in _SWITCHES:
        raise ValueError("give true, false or auto")
    return _SWITCHES[text]


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
    know_url(url)
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
    shown = without_password(url)
    parts = urlsplit(url)
    if parts.netloc:
        meant = f": {shown.replace('//', '///', 1)}" if HIDDEN not in shown else ""
        raise InvalidURL(f"{shown!r} has two slashes where three belong{meant}")
    if parse_qsl(parts.query):
        raise InvalidURL(f"{shown!r} takes no options behind '?'")
    path = unquote(parts.path.removeprefix("/"))
    if not path:
        raise InvalidURL(
            f"{shown!r} names no path; use {parts.scheme}:///agents.db or an absolute {parts.scheme}:////path"
        )
    return path


def _refuse_bare_password(url: str) -> None:
    """Refuse a password with signs that end it for a parser: the rest of it would be shown as the name of a host."""
    shown = without_password(url)
    if shown.endswith((f":{HIDDEN}", f"//{HIDDEN}")) or urlsplit(url).netloc.count("@") > 1:
        raise InvalidURL(f"{shown!r} cannot be read; write a password's @ : / ? # % as %40 %3A %2F %3F %23 %25")
