"""Which store a command or a server means, and opening it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from holdfast.engine.api.holdfast import Holdfast
from holdfast.model.errors import HoldfastError, InvalidValue, NotAStore
from holdfast.model.queries import Vitals
from holdfast.redaction import without_password
from holdfast.service.locator import find_holdfast, show_role, url_in_code, why_untrusted
from holdfast.service.service import Service
from holdfast.settings import current_settings, is_postgres, store_options
from holdfast.store import open_store
from holdfast.store.sqlite.peek import peek
from holdfast.store.url import make_store


def find_application(target: str | None, database_url: str | None = None, *, role: str = "command") -> Service:
    """Return the service of an application, not yet open: ``my_module:hold``, or the one that the settings name.

    ``database_url`` names another store than its code does. ``role``: see ``show_role``.
    """
    return Service(find_holdfast(target, database_url, role=role))


def service_to_look(database_url: str | None) -> Service:
    """Return the service of the store for a command that reads or manages tasks; it is not yet open.

    That is the store that the flag or a setting names. Where neither does, it is the store of the application that the
    settings name: the one that its workers work on. To find it, the code of the application is run. That is
    refused where the settings file belongs to another user: a user who only looks does not expect it.
    """
    settings = current_settings()
    if database_url is not None or settings.is_set("database_url") or settings["application"] is None:
        hold = Holdfast(database_url)
        show_role(hold, "command")
        return Service(hold)
    if (why := why_untrusted(settings)) is not None:
        raise InvalidValue(
            f"the store is that of the application {settings['application']}, whose code is not run: {why}; name the "
            f"store with --database-url, or, if you trust that code, set HOLDFAST_APPLICATION={settings['application']}"
        )
    try:
        return find_application(None)
    except HoldfastError as error:
        error.add_note("which store it uses is not known then: name one with --database-url, or set database_url")
        raise


def service_to_serve(application: str | None, database_url: str | None, *, role: str = "command") -> Service:
    """Return the service that a server offers, not yet open: that of the application, if one is named or set.

    Its store is the application's own, unless ``database_url`` names another. ``role``: see ``show_role``.
    """
    target = application or current_settings()["application"]
    hold = Holdfast(database_url) if target is None else find_holdfast(target, database_url, role=role)
    show_role(hold, role)
    if not make_store(hold.url).capabilities.durable:
        raise InvalidValue(
            f"{without_password(hold.url)} lives inside this process and ends with it; name a store that lasts"
        )
    return Service(hold)


@asynccontextmanager
async def opened(service: Service, *, read_only: bool) -> AsyncIterator[Service]:
    """Open a store for as long as the block lasts. It is created where there is none, unless it is only to be read.

    The client is a program that starts this server by itself; it could not submit a task first.
    """
    if read_only:
        _refuse_new(service.url)
        service.keep_schema()
    async with service:
        yield service


async def migrate(database_url: str | None, *, schema: str | None) -> tuple[str, Vitals]:
    """Bring the store that a command means to the schema of this version; return its URL, and how it is then.

    ``schema`` of PostgreSQL is by default what the application's code says, and then what the settings say.
    """
    service = service_to_look(database_url)
    url, named = service.url, schema or service.store_options.get("schema")
    # Only PostgreSQL needs this command; the other stores migrate whenever they are opened.
    chosen: dict[str, Any] = {} if named is None else {"schema": named}
    options: dict[str, Any] = {**store_options(url), "migrate": True, **chosen} if is_postgres(url) else {}
    async with open_store(url, **options) as store:
        return url, await store.vitals()


def own_url() -> str:
    """Return the URL of the store that commands look at by themselves."""
    settings = current_settings()
    own: str = settings["database_url"]
    if settings.is_set("database_url") or settings["application"] is None:
        return own
    return url_in_code(settings["application"]) or own


def _refuse_new(url: str) -> None:
    """Refuse a store that does not exist: a mistyped path would create an empty one."""
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
