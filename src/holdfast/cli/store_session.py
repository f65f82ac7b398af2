"""Opening the store of a command, and the commands to suggest for its tasks."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, ParamSpec

from holdfast.model.errors import InvalidValue
from holdfast.redaction import without_password
from holdfast.service import session
from holdfast.service.identify import short
from holdfast.service.service import Service
from holdfast.settings import current_settings

P = ParamSpec("P")


def command(function: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make a coroutine function a command."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(function(*args, **kwargs))

    return run


@asynccontextmanager
async def opened(database_url: str | None) -> AsyncIterator[Service]:
    """Open the store for a command that reads or manages tasks. It has to exist: nothing is created."""
    async with session.opened(session.service_to_look(database_url), read_only=True) as service:
        yield service


def command_line(verb: str, task_id: str, url: str) -> str:
    """Return a command for a task; with its store, if that is not the command's default."""
    return with_store(f"holdfast {verb} {short(task_id)}", url)


def with_store(line: str, url: str) -> str:
    """Return a command, with the store if that is not the command's default."""
    if url == session.own_url():
        return line
    # A password must not get into a shell's history.
    return f"{line} --database-url {url}" if without_password(url) == url else f"{line} --database-url ..."


def user(given: str | None) -> str:
    """Return who decides: the name that was given, else the setting, else the user who is logged in."""
    configured: str | None = given or current_settings()["user"]
    if configured:
        return configured
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        raise InvalidValue("your user has no name here; give one with --by NAME, or set HOLDFAST_USER") from None
