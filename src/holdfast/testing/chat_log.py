"""The requests to a ChatServer, and the outcome of each."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias
from urllib.parse import urlencode

Outcome: TypeAlias = Literal["open", "completed", "refused", "broken", "hung_up"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request, and its outcome."""

    n: int
    """Counts from 1."""
    turn: int
    """The number of messages of the assistant in it."""
    body: dict[str, Any]
    headers: dict[str, str]
    """By lower-case name."""
    outcome: Outcome = "open"
    """open: being answered. completed: answered in full, so that a real endpoint would charge for it. refused: an error
    status. broken: cut or malformed, as the script asks. hung_up: the client was gone before the end."""
    at: float = field(default_factory=time.time)


class ChatLog:
    """All exchanges of a server."""

    def __init__(self) -> None:
        self._exchanges: list[Exchange] = []
        self._changed = threading.Condition()

    def open(self, turn: int, body: dict[str, Any], headers: dict[str, str]) -> Exchange:
        """Record a request."""
        with self._changed:
            exchange = Exchange(n=len(self._exchanges) + 1, turn=turn, body=body, headers=headers)
            self._exchanges.append(exchange)
            self._changed.notify_all()
        return exchange

    def close(self, exchange: Exchange, outcome: Outcome) -> None:
        """Record the outcome of a request."""
        with self._changed:
            self._exchanges[exchange.n - 1] = replace(exchange, outcome=outcome)
            self._changed.notify_all()

    def exchanges(self) -> list[Exchange]:
        """Return all exchanges as they are now."""
        with self._changed:
            return list(self._exchanges)

    def wait_until(self, seen: Callable[[list[Exchange]], bool], timeout: float) -> None:
        """Wait until ``seen`` returns true for them; TimeoutError if that takes too long."""
        with self._changed:
            if not self._changed.wait_for(lambda: seen(self._exchanges), timeout):
                raise TimeoutError(f"waited {timeout:g} s; the chat server has seen only {self._exchanges}")

    def to_json(self, keys: Collection[str] = ()) -> bytes:
        """Return the log as GET /log sends it; if keys are given, only the requests with these keys."""
        every = self.exchanges()
        wanted = [one for one in every if not keys or one.headers.get("idempotency-key") in keys]
        return json.dumps([asdict(exchange) for exchange in wanted]).encode()


def read_log(base_url: str, *, keys: Collection[str] = ()) -> list[Exchange]:
    """Read the log of a server in any process; if keys are given, only the requests with these idempotency keys."""
    url = f"{base_url.removesuffix('/v1')}/log?{urlencode({'key': list(keys)}, doseq=True)}"
    with urllib.request.urlopen(url) as answered:  # noqa: S310 - loopback
        return [Exchange(**exchange) for exchange in json.load(answered)]
