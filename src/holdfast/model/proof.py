"""Which errors prove that nothing happened. Everything else leaves it open.

A refused connection was never sent a request. A reset, a timeout, an answer that could not be read come after that
point. The rule holds for a function that does one thing; one that does two should be two steps.
"""

from __future__ import annotations

from holdfast.model.errors import NotHappened
from holdfast.model.retry import ErrorKind, matches

_PROVEN: tuple[ErrorKind, ...] = (
    NotHappened,
    ConnectionRefusedError,
    # Known by name: none of these modules is needed here. They raise it when no connection came about.
    "socket.gaierror",
    "httpx.ConnectError",
    "httpx.ConnectTimeout",
    "httpx.UnsupportedProtocol",
    "httpx2.ConnectError",
    "httpx2.ConnectTimeout",
    "httpx2.UnsupportedProtocol",
    "requests.exceptions.ConnectTimeout",
    "aiohttp.client_exceptions.ClientConnectorError",
)

_WRAPPERS: tuple[ErrorKind, ...] = ("urllib.error.URLError",)
"""Errors that are raised in place of another one, which is their ``reason``."""


def proves_absence(error: BaseException, declared: tuple[ErrorKind, ...] = ()) -> bool:
    """Say whether this error means for certain that the call did nothing; ``declared`` are those that its author knows.

    Only the error itself counts, and what urllib wraps: a refused connection somewhere behind another error may have
    been an earlier try of the same call.
    """
    if matches(error, (*_PROVEN, *declared)):
        return True
    inner = getattr(error, "reason", None) if matches(error, _WRAPPERS) else None
    return isinstance(inner, BaseException) and matches(inner, _PROVEN)
