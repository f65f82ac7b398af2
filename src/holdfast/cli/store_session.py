"""Opening the store that a command looks at, and running the command on it."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec
from urllib.parse import unquote, urlsplit

from holdfast.cli.locator import distrust, find_holdfast, show_role, url_in_code
from holdfast.engine.api.holdfast import Holdfast
from holdfast.model.errors import HoldfastError, InvalidValue, NotAStore
from holdfast.redaction import without_password
from holdfast.service.identify import short
from holdfast.service.service import Service
from holdfast.settings import current_settings, is_postgres
from holdfast.store.sqlite.peek import peek
from holdfast.store.url import make_store

P = ParamSpec("P")


def command(function: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make a coroutine function a command."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(function(*args, **kwargs))

    return run


@asynccontextmanager
async def opened(database_url: str | None) -> AsyncIterator[Service]:
    """Open the store for a command that looks at tasks or after them. It has to be there: nothing is created."""
    hold = holdfast_to_look_at(database_url)
    show_role(hold, "command")
    async with opened_to_serve(hold, read_only=True):
        yield Service(hold)


def holdfast_to_look_at(database_url: str | None) -> Holdfast:
    """Return a Holdfast of the store that a command means which looks at tasks or after them; it is not yet open.

    That is the store that the flag or a setting names. Where neither does, it is the store of the application that the
    settings name: the one that its workers work on. To find it, the code of the application is run. Who only looks does
    not expect that of a file of another user.
    """
    settings = current_settings()
    if database_url is not None or settings.is_set("database_url") or settings["application"] is None:
        return Holdfast(database_url)
    if (why := distrust(settings)) is not None:
        raise InvalidValue(
            f"the store is that of the application {settings['application']}, whose code is not run: {why}; name the "
            f"store with --database-url, or, if you trust that code, set HOLDFAST_APPLICATION={settings['application']}"
        )
    try:
        return find_holdfast(None)
    except HoldfastError as error:
        error.add_note("which store it uses is not known then: name one with --database-url, or set database_url")
        raise


def holdfast_to_serve(application: str | None, database_url: str | None, *, role: str = "command") -> Holdfast:
    """Return what is served to others, not yet open: the application's Holdfast, if one is named or set.

    Its store is the application's own, unless ``database_url`` names another. ``role``: see ``show_role``.
    """
    target = application or current_settings()["application"]
    hold = Holdfast(database_url) if target is None else find_holdfast(target, database_url, role=role)
    show_role(hold, role)
    if not make_store(hold.url).capabilities.durable:
        raise InvalidValue(
            f"{without_password(hold.url)} lives inside this process and ends with it; name a store that lasts"
        )
    return hold


@asynccontextmanager
async def opened_to_serve(hold: Holdfast, *, read_only: bool) -> AsyncIterator[Holdfast]:
    """Open what is served to others. Its store is created where there is none, unless it is only to be read.

    Whoever is served is a program that starts us by itself; it could not submit something first.
    """
    if read_only:
        _refuse_new(hold.url)
        if is_postgres(hold.url):
            hold._options["migrate"] = False  # noqa: SLF001 - the application's other options, its schema, stay
    async with hold:
        yield hold


def command_line(verb: str, task_id: str, url: str) -> str:
    """Return what to type about a task; with its store, if that is not the one the command looks at by itself."""
    return with_store(f"holdfast {verb} {short(task_id)}", url)


def with_store(line: str, url: str) -> str:
    """Return what to type, with the store if the command does not look at that one by itself."""
    if url == _own_url():
        return line
    # A password belongs into no shell's history.
    return f"{line} --database-url {url}" if without_password(url) == url else f"{line} --database-url ..."


def _own_url() -> str:
    """Return the URL of the store that commands look at by themselves."""
    settings = current_settings()
    own: str = settings["database_url"]
    if settings.is_set("database_url") or settings["application"] is None:
        return own
    return url_in_code(settings["application"]) or own


def user(given: str | None) -> str:
    """Return who decides: as given, or as set, or whoever is logged in."""
    configured: str | None = given or current_settings()["user"]
    if configured:
        return configured
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        raise InvalidValue("nobody knows who you are here; say it with --by NAME, or set HOLDFAST_USER") from None


def _refuse_new(url: str) -> None:
    """Refuse a store that is not there: a mistyped path would show an empty one, and leave it behind."""
    if is_postgres(url):
        return
    parts = urlsplit(url)
    if parts.scheme == "memory":
        raise InvalidValue("memory:// lives inside one process, and there is nothing in this one; name another store")
    if parts.scheme not in {"sqlite", "json"} or parts.netloc:
        return
    path = Path(unquote(parts.path.removeprefix("/")))
    if not path.exists() or (parts.scheme == "sqlite" and path.is_file() and not peek(path).schema):
        raise NotAStore(
            f"there is no store at {without_password(url)} (from {Path.cwd()}); submit a task first, or name the store "
            "with --database-url, HOLDFAST_DATABASE_URL or holdfast.toml"
        )
