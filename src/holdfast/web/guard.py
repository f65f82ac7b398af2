"""The guard: who may come in. It stands in front of every route. A new route needs a token unless it says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from http import HTTPStatus
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.service.access import CALLER, Caller
from holdfast.web.answers import refuse
from holdfast.web.names import HostAndPort, HostNames, read_host
from holdfast.web.tokens import Tokens

_BEARER: Final = b"bearer"


class RouteAccess(Enum):
    """What a route asks of a caller."""

    TOKEN = auto()
    """A token, and a Host and Origin that belong to this server."""
    KNOWN_HOST = auto()
    """Only the Host and Origin: for what may be read without a token, but not by a page of another site."""
    OPEN = auto()
    """Nothing: for probes, which call the server by whatever address it has today."""


class NotAdmitted(Exception):
    """A request that is not let in."""

    def __init__(self, status: HTTPStatus, words: str, *headers: tuple[bytes, bytes]) -> None:
        """``words`` say what is wrong and what to do; they repeat nothing from the request."""
        super().__init__(words)
        self.status, self.words, self.headers = status, words, headers


class RequestGuard:
    """Checks every request, and passes its caller to the application."""

    def __init__(
        self, application: ASGIApp, *, tokens: Tokens, names: HostNames, access: Mapping[str, RouteAccess]
    ) -> None:
        """``access`` has the paths that do not ask for a token."""
        self._application = application
        self._tokens, self._names, self._access = tokens, names, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or refuse it."""
        try:
            caller = self._admit(scope)
        except NotAdmitted as refusal:
            await refuse(scope, send, refusal.status, refusal.words, refusal.headers)
            return
        await self._application({**scope, CALLER: caller}, receive, send)

    def _admit(self, scope: Scope) -> Caller | None:
        """Return the caller; None where the route asks for no token. Raises NotAdmitted."""
        access = self._access.get(scope["path"], RouteAccess.TOKEN)
        if access is RouteAccess.OPEN:
            return None
        host = self._host(scope)
        for origin in _headers(scope, b"origin"):
            if not self._names.allows_origin(origin.decode("latin-1"), host):
                raise NotAdmitted(
                    HTTPStatus.FORBIDDEN,
                    "pages of this origin may not call this server; if they should, start it with --allow-host NAME",
                )
        return self._caller(scope) if access is RouteAccess.TOKEN else None

    def _host(self, scope: Scope) -> HostAndPort:
        given = _headers(scope, b"host")
        host = read_host(given[0].decode("latin-1")) if len(given) == 1 else None
        if host is None or not self._names.know(host):
            raise NotAdmitted(
                HTTPStatus.MISDIRECTED_REQUEST,
                "this server is not known by the name in your Host header; if it should be, start it with "
                "--allow-host NAME",
            )
        return host

    def _caller(self, scope: Scope) -> Caller:
        given = _headers(scope, b"authorization")
        scheme, _, secret = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        caller = self._tokens.caller_of(secret.strip()) if scheme.lower() == _BEARER else None
        if caller is None:
            raise NotAdmitted(
                HTTPStatus.UNAUTHORIZED,
                "a token is missing or wrong; send the header Authorization: Bearer ..., with the token of "
                "HOLDFAST_API_TOKEN or the one the server showed when it started",
                (b"www-authenticate", b"Bearer"),
            )
        return caller


def _headers(scope: Scope, wanted: bytes) -> list[bytes]:
    return [value for name, value in scope["headers"] if name == wanted]
