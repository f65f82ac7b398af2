"""Which errors prove that nothing happened. After any other error it is unknown.

If the connection was refused, no request was sent. A reset, a timeout or an unreadable answer comes after the request.
A refused connection can come later too: from a redirect that a library follows after the server did the work, or from a
retry after the first request was lost. Therefore a connection error is proof only if its route shows that it belongs to
the first request, and if all errors behind it only explain why there was no connection.

It cannot be seen what the function did before it called the library. The rule holds for a function that makes one
request; a function that makes two should be two steps.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.model.errors import NotHappened
from holdfast.model.retry import ErrorKind, matches
from holdfast.model.route import is_direct_failure

# By name where possible, so that these modules need not be imported here.
_PLAIN: tuple[ErrorKind, ...] = (ConnectionRefusedError, "socket.gaierror")
"""Errors of the operating system. They have no deeper cause."""

_NO_CONNECTION: tuple[ErrorKind, ...] = (
    *_PLAIN,
    "httpx.ConnectError",
    "httpx.ConnectTimeout",
    "httpx.UnsupportedProtocol",
    "httpx2.ConnectError",
    "httpx2.ConnectTimeout",
    "httpx2.UnsupportedProtocol",
    "urllib3.exceptions.ConnectTimeoutError",
    "urllib3.exceptions.NewConnectionError",
    "requests.exceptions.ConnectTimeout",
    "aiohttp.client_exceptions.ClientConnectorError",
)

_TRANSLATED: tuple[ErrorKind, ...] = (
    "httpcore.ConnectError",
    "httpcore.ConnectTimeout",
    "httpcore2.ConnectError",
    "httpcore2.ConnectTimeout",
)
"""Errors that libraries raise for a connection error. They do not always name that error as the cause."""

_BENEATH: tuple[ErrorKind, ...] = (*_TRANSLATED, "httpcore.UnsupportedProtocol", "httpcore2.UnsupportedProtocol")
"""Errors that libraries use internally. The step's author sees them only behind another error."""

_CANCELLED: tuple[ErrorKind, ...] = ("asyncio.exceptions.CancelledError",)
"""An asyncio timeout ends what it waits for with this error."""

_REASONS: tuple[ErrorKind, ...] = (OSError, BaseExceptionGroup, *_CANCELLED)
"""Errors that a library may name as the cause of a failed connection."""

_WRAPPERS: tuple[ErrorKind, ...] = (
    "urllib.error.URLError",
    "urllib3.exceptions.MaxRetryError",
    "requests.exceptions.ConnectionError",
)
"""Errors that are raised in place of another one, which is their ``reason`` or their only argument."""


def proves_absence(error: BaseException, declared: tuple[ErrorKind, ...] = (), *, author: str = "") -> bool:
    """Return whether this error proves that the call did nothing.

    ``declared`` are the errors that the step's author named; ``author`` is the module of the task's function.
    """
    if matches(error, (NotHappened, *declared)):
        return True
    return _is_connection_failure(error) and all(
        is_direct_failure(one.__traceback__, author) and is_known for one, is_known in _chain(error)
    )


def _is_connection_failure(error: BaseException) -> bool:
    if matches(error, _NO_CONNECTION):
        return True
    inner = _wrapped(error)
    return inner is not None and _is_connection_failure(inner)


def _wrapped(error: BaseException) -> BaseException | None:
    if not matches(error, _WRAPPERS):
        return None
    inner = getattr(error, "reason", None) or next(iter(error.args), None)
    return inner if isinstance(inner, BaseException) else None


def _chain(error: BaseException) -> Iterator[tuple[BaseException, bool]]:
    """Yield the error and all errors behind it, each with whether it only explains why there was no connection.

    An error of another kind belongs to an earlier try: a request that was made and lost.
    """
    seen: set[int] = set()
    behind: list[tuple[BaseException | None, bool]] = [(error, False)]
    while behind:
        one, is_reason = behind.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one, _is_connection_failure(one) or matches(one, _BENEATH) or (is_reason and matches(one, _REASONS))
        may_name = not matches(one, _PLAIN)
        behind += [(one.__context__, _implies(one)), (_wrapped(one), may_name), (one.__cause__, may_name)]


def _implies(error: BaseException) -> bool:
    """Return whether the context of an error is its reason, although it is not named as the cause."""
    if matches(error, _TRANSLATED):
        return True
    context = error.__context__
    return isinstance(error, TimeoutError) and context is not None and matches(context, _CANCELLED)
