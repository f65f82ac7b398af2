"""Which errors prove that nothing happened. Everything else leaves it open.

A refused connection was never sent a request. A reset, a timeout, an answer that could not be read come after that
point. So may a refused connection: that of a redirect which a library follows after the server did the work, or of a
retry after the first request was lost. Therefore an error of connecting is proof only if its route shows that it
belongs to the first request, and if nothing stands behind it but the reasons why there was no connection.

What the function did before it asked the library cannot be seen. The rule holds for a function that makes one request;
one that makes two should be two steps.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.model.errors import NotHappened
from holdfast.model.retry import ErrorKind, matches
from holdfast.model.route import is_straight

# Known by name where possible: none of these modules is needed here.
_PLAIN: tuple[ErrorKind, ...] = (ConnectionRefusedError, "socket.gaierror")
"""What the operating system says. It has no reason behind it that another error could name."""

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
"""What libraries make of an error of connecting while they handle it. They do not always name it as the cause."""

_BENEATH: tuple[ErrorKind, ...] = (*_TRANSLATED, "httpcore.UnsupportedProtocol", "httpcore2.UnsupportedProtocol")
"""What libraries use inside. An author does not see them alone."""

_CANCELLED: tuple[ErrorKind, ...] = ("asyncio.exceptions.CancelledError",)
"""How a timeout of asyncio ends what it waits for."""

_REASONS: tuple[ErrorKind, ...] = (OSError, BaseExceptionGroup, *_CANCELLED)
"""What a library may name as the cause of a connection that did not come about."""

_WRAPPERS: tuple[ErrorKind, ...] = (
    "urllib.error.URLError",
    "urllib3.exceptions.MaxRetryError",
    "requests.exceptions.ConnectionError",
)
"""Errors that are raised in place of another one, which is their ``reason`` or their only argument."""


def proves_absence(error: BaseException, declared: tuple[ErrorKind, ...] = (), *, author: str = "") -> bool:
    """Say whether this error means for certain that the call did nothing.

    ``declared`` are the errors that the step's author knows; ``author`` is the module of the task's function.
    """
    if matches(error, (NotHappened, *declared)):
        return True
    return _is_no_connection(error) and all(
        is_straight(one.__traceback__, author) and is_known for one, is_known in _chain(error)
    )


def _is_no_connection(error: BaseException) -> bool:
    if matches(error, _NO_CONNECTION):
        return True
    inner = _wrapped(error)
    return inner is not None and _is_no_connection(inner)


def _wrapped(error: BaseException) -> BaseException | None:
    if not matches(error, _WRAPPERS):
        return None
    inner = getattr(error, "reason", None) or next(iter(error.args), None)
    return inner if isinstance(inner, BaseException) else None


def _chain(error: BaseException) -> Iterator[tuple[BaseException, bool]]:
    """Return the error and all that stand behind it, each with whether it only tells why there was no connection.

    An error of another kind is that of an earlier try: a request that was made, and lost.
    """
    seen: set[int] = set()
    behind: list[tuple[BaseException | None, bool]] = [(error, False)]
    while behind:
        one, is_reason = behind.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one, _is_no_connection(one) or matches(one, _BENEATH) or (is_reason and matches(one, _REASONS))
        may_name = not matches(one, _PLAIN)
        behind += [(one.__context__, _implies(one)), (_wrapped(one), may_name), (one.__cause__, may_name)]


def _implies(error: BaseException) -> bool:
    """Say whether what stands behind an error, not named as its cause, is its reason all the same."""
    if matches(error, _TRANSLATED):
        return True
    context = error.__context__
    return isinstance(error, TimeoutError) and context is not None and matches(context, _CANCELLED)
