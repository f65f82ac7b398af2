"""An HTTP request with the effect id as its Idempotency-Key, and what each answer to it proves.

no connection                    nothing was sent: NotHappened
2xx                              done
4xx, with a few exceptions       the server declined: NotHappened
a lost or any other answer       in doubt
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

from holdfast.effects.declaration import Probed, effect
from holdfast.effects.errors import Impossible, RequestRefused, UnclearResponse
from holdfast.effects.exchange import Client, HttpResponse
from holdfast.model.canonical import canonical
from holdfast.model.doubt import Absent, Happened, Outcome, Unknown
from holdfast.model.errors import CodecError, InvalidValue, MissingExtra
from holdfast.model.task import JsonValue
from holdfast.redaction import know_headers, know_url

REFUSALS = frozenset(range(400, 500)) - {408, 409, 425}
"""The statuses that prove that nothing was done: the server understood the request and declined it.

Not 408 and 425: a proxy on the way may send them. Above all not 409: servers that support Idempotency-Key send it while
the first request under the key still runs. 429 is included, because a rate limit is checked before the work. 503 is not
included, with or without Retry-After: Varnish, for example, sends both by default after it has forwarded the request
and got no answer. If you know that your server sends 503 only for work not done: ``refusals=REFUSALS | {503}``.
"""

MOST_BYTES = 1_000_000
_FOUND, _NOT_FOUND = 200, 404
_LONGEST_PAUSE = timedelta(days=3650).total_seconds()
"""A longer pause is not plausible and is ignored."""
_NUMBER = re.compile(r"[0-9]{1,300}(\.[0-9]{1,300})?")
"""With no more digits than a float can hold."""
_PASSING = frozenset({408, 409, 425, 429, *range(500, 600)})
"""Statuses that may change a little later."""


def http_request(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    lookup: str | None = None,
    read_lookup: Callable[[HttpResponse], Outcome] = Happened,
    replayable: bool = False,
    refusals: Collection[int] = REFUSALS,
    timeout: float = 30.0,
    max_bytes: int = MOST_BYTES,
    key_header: str = "Idempotency-Key",
) -> Probed[..., Coroutine[Any, Any, HttpResponse]]:
    """Return a tool that sends this request, with its argument as the JSON body, and returns the HttpResponse.

    ``{effect_id}`` in ``url`` and ``lookup`` is replaced by the effect id. ``headers`` are sent and never recorded, so
    put credentials there: an answer that repeats one is recorded with ``***`` in its place. Redirects are not followed.
    ``timeout`` is for the whole exchange, in seconds; connecting may take half of it. The step's own timeout has to be
    longer.

    If the answer to a request is lost, there are two ways to find out what happened (if both are given, the first is
    used). With neither, a person decides:

    - ``lookup``, a URL that is read with GET: 404 means that it did not happen, 200 that it did, with this answer as
      its result. If a search answers 200 with an empty list, ``read_lookup`` decides what the answer means; the list
      is ``answer.body``.
    - ``replayable=True`` declares that the server does each key once, and answers a repetition as it answered the
      first time: the request is sent again. Check how long the server remembers its keys: a task may be continued
      again much later.
    """
    for one in (url, lookup or url):
        know_url(one)
        if not one.lower().startswith(("http://", "https://")):
            # The message does not repeat the URL: any part of it may be a password.
            raise InvalidValue("the URL begins with neither http:// nor https://; write the full address")
    know_headers(headers or {})
    if not 1 <= max_bytes <= MOST_BYTES:
        raise InvalidValue(f"max_bytes is {max_bytes}; choose 1 to {MOST_BYTES}, the answer goes into the journal")
    if timeout <= 0:
        raise InvalidValue(f"timeout is {timeout}; give the seconds after which the answer counts as lost")
    client = Client(_load_httpx2(), timeout, max_bytes)
    request = _Request(client, method, url, dict(headers or {}), key_header, refusals, lookup, read_lookup)
    reconcile = request.look_up if lookup is not None else request.repeat if replayable else None
    return effect("once", reconcile=reconcile)(request.send)


@dataclass(frozen=True, slots=True)
class _Request:
    client: Client
    method: str
    url: str
    headers: Mapping[str, str]
    key_header: str
    refusals: Collection[int]
    lookup: str | None
    read_lookup: Callable[[HttpResponse], Outcome]

    async def send(self, body: JsonValue = None, *, effect_id: str) -> HttpResponse:
        """Send it; raise the matching error for an answer that is not a success."""
        answer = await self._exchange(effect_id, body)
        if answer.is_success:
            return answer
        if answer.status in self.refusals:
            pause = read_retry_after(answer.headers.get("retry-after", ""), datetime.now(UTC))
            raise RequestRefused(_describe(answer), status=answer.status, body=answer.excerpt, retry_after=pause)
        raise UnclearResponse(_describe(answer), status=answer.status, body=answer.excerpt)

    async def look_up(self, effect_id: str, body: JsonValue = None) -> Outcome:  # noqa: ARG002 - the signature of every reconcile
        """Ask the server what it has under this id."""
        answer = await self.client.exchange("GET", _filled(self.lookup or "", effect_id), self.headers, None)
        if answer.status == _NOT_FOUND:
            return Absent()
        return self.read_lookup(answer) if answer.status == _FOUND else _unknown(answer)

    async def repeat(self, effect_id: str, body: JsonValue = None) -> Outcome:
        """Send it again under the same key, to a server that does each key once."""
        answer = await self._exchange(effect_id, body)
        # A refusal proves nothing about the first request: an expired token is found before the key is checked.
        return Happened(answer) if answer.is_success else _unknown(answer)

    async def _exchange(self, effect_id: str, body: JsonValue) -> HttpResponse:
        headers = self.client.httpx2.Headers(self.headers)  # header names are case-insensitive
        headers[self.key_header] = effect_id
        content = None
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
            try:
                # Canonical: a server may compare a repetition with the first request, byte by byte.
                content = canonical(body, name="the body")
            except CodecError as error:
                raise Impossible(str(error)) from error
        return await self.client.exchange(self.method, _filled(self.url, effect_id), headers, content)


def _describe(answer: HttpResponse) -> str:
    return f"the server answered {answer.status}: {answer.excerpt}"


def _unknown(answer: HttpResponse) -> Unknown:
    """Return Unknown for an answer that proves nothing; raise if it may soon change, so that it is asked again."""
    if answer.status in _PASSING:
        raise UnclearResponse(_describe(answer), status=answer.status, body=answer.excerpt)
    return Unknown(_describe(answer))


def read_retry_after(value: str, now: datetime) -> float | None:
    """Return the header's value, a number of seconds or a date, as seconds from now.

    None if it is missing or not valid: then the retry policy alone decides how long to wait.
    """
    seconds = read_seconds(value)
    if seconds is not None:
        return seconds
    try:
        return _sensible(max(0.0, (parsedate_to_datetime(value) - now).total_seconds()))
    except (TypeError, ValueError, OverflowError):
        return None  # missing, not readable, or a date without a zone


def read_seconds(value: str, *, in_one: int = 1) -> float | None:
    """Return a number as seconds, ``in_one`` of its units per second; None if it is not valid."""
    return _sensible(float(value) / in_one) if _NUMBER.fullmatch(value) else None


def _sensible(seconds: float) -> float | None:
    return seconds if seconds <= _LONGEST_PAUSE else None


def _filled(url: str, effect_id: str) -> str:
    return url.replace("{effect_id}", quote(effect_id, safe=""))


def _load_httpx2() -> Any:  # noqa: ANN401 - the module
    try:
        import httpx2  # noqa: PLC0415 - an extra, only for requests
    except ImportError as missing:
        raise MissingExtra("http", "http_request") from missing
    return httpx2
