"""Route: the code that an error passed on its way from where it was raised to where it was caught.

HTTP libraries follow redirects and retry by themselves. The error of a second request looks like the error of the first
one, but its traceback does not: it passes the code that follows redirects, or the same function twice, or a loop that
has already collected an answer. A route is straight if it shows that the author's code called a library once, and that
the library was still busy with its first request. Unknown code makes a route not straight: it may have made a request
before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from types import CodeType, FrameType, TracebackType
from typing import Any

_CARRIERS = frozenset(
    {"anyio", "asyncio", "concurrent", "contextlib", "functools", "holdfast", "threading", "unittest", "uvloop"}
)
"""Packages that only call what the author or a library passes to them, or connect. They make no request themselves."""

_CONNECTORS = frozenset(
    {
        "aiohappyeyeballs",
        "aiohttp.connector",
        "aiohttp.resolver",
        "http.client",
        "httpcore",
        "httpcore2",
        "httpx._transports.default",
        "httpx2._transports.default",
        "selectors",
        "socket",
        "ssl",
        "urllib3.connection",
        "urllib3.util.connection",
    }
)
"""Modules and packages that repeat only attempts to connect."""

_VERBS = frozenset({"delete", "get", "head", "options", "patch", "post", "put", "request"})
_HTTPX_CLIENT = _VERBS | {
    "_send_handling_auth",
    "_send_handling_redirects",
    "_send_single_request",
    "send",
    "stream",
}

_ONE_REQUEST: Mapping[str, frozenset[str]] = {
    "aiohttp.client": frozenset({"__aenter__", "_connect_and_send_request", "_request"}),
    "httpx._api": _VERBS | {"stream"},
    "httpx._client": _HTTPX_CLIENT,
    "httpx2._api": _VERBS | {"stream"},
    "httpx2._client": _HTTPX_CLIENT,
    "requests.adapters": frozenset({"send"}),
    "requests.api": _VERBS,
    "requests.sessions": _VERBS | {"send"},
    "smtplib": frozenset({"__init__", "_get_socket", "connect"}),
    "urllib.request": frozenset({"_call_chain", "_open", "do_open", "http_open", "https_open", "open", "urlopen"}),
    "urllib3": frozenset({"request"}),
    "urllib3._request_methods": frozenset({"request", "request_encode_body", "request_encode_url"}),
    "urllib3.connectionpool": frozenset({"_make_request", "_prepare_proxy", "_validate_conn", "urlopen"}),
    "urllib3.poolmanager": frozenset({"urlopen"}),
    "urllib3.util.retry": frozenset({"increment"}),
    "urllib3.util.util": frozenset({"reraise"}),
}
"""The functions that a first request passes, by module. Redirects, retries and hooks pass others, or these twice."""


def _has_no_answer(names: Mapping[str, Any]) -> bool:
    history = names.get("history")
    return isinstance(history, list) and not history


def _is_first_of_aiohttp(names: Mapping[str, Any]) -> bool:
    # aiohttp repeats an idempotent request if a kept-alive connection breaks. The flag is True until it has done so.
    is_never_repeated = names.get("method") in {"PATCH", "POST"}
    return _has_no_answer(names) and (is_never_repeated or names.get("retry_persistent_connection") is True)


_LOOPS: Mapping[tuple[str, str], Callable[[Mapping[str, Any]], bool]] = {
    ("aiohttp.client", "_request"): _is_first_of_aiohttp,
    ("httpx._client", "_send_handling_auth"): _has_no_answer,
    ("httpx._client", "_send_handling_redirects"): _has_no_answer,
    ("httpx2._client", "_send_handling_auth"): _has_no_answer,
    ("httpx2._client", "_send_handling_redirects"): _has_no_answer,
}
"""Functions with a loop: whether their variables show its first round. A missing variable counts as no."""


def is_direct_failure(traceback: TracebackType | None, author: str = "") -> bool:
    """Return whether an error came straight from the first request of a known library, or from the author's own code.

    ``author`` is the module of the task's function. Its whole package counts as the author's, even if it is installed.
    """
    in_library = False
    passed: dict[CodeType, FrameType] = {}
    for frame in _frames(traceback):
        module = str(frame.f_globals.get("__name__", ""))
        if _package(module) in _CARRIERS:
            continue
        if _is_in(module, _CONNECTORS):
            in_library = True
        elif module in _ONE_REQUEST:
            # The same frame twice is an error that was raised again. Another frame of the same code is a retry.
            if passed.setdefault(frame.f_code, frame) is not frame or not _is_first(frame, module):
                return False
            in_library = True
        elif in_library or not _is_authors(frame, module, author):
            return False  # a hook, an authentication, a transport, or a library that may try again
    return True


def _frames(traceback: TracebackType | None) -> Iterator[FrameType]:
    while traceback is not None:
        yield traceback.tb_frame
        traceback = traceback.tb_next


def _is_first(frame: FrameType, module: str) -> bool:
    name = frame.f_code.co_name
    shows_first = _LOOPS.get((module, name))
    return name in _ONE_REQUEST[module] and (shows_first is None or shows_first(frame.f_locals))


def _is_authors(frame: FrameType, module: str, author: str) -> bool:
    package = _package(module)
    if package in sys.stdlib_module_names:
        return False
    if author and package == _package(author):
        return True
    place = PurePath(str(frame.f_globals.get("__file__") or frame.f_code.co_filename))
    return not {"site-packages", "dist-packages"} & set(place.parts)


def _is_in(module: str, names: frozenset[str]) -> bool:
    return module in names or _package(module) in names


def _package(module: str) -> str:
    return module.partition(".")[0]
