"""What a ChatServer was asked, and what became of it."""

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
    """One request, and what became of it."""

    n: int
    """Counts from 1."""
    turn: int
    """How often the assistant has spoken in its messages."""
    body: dict[str, Any]
    headers: dict[str, str]
    """By lower-case name."""
    outcome: Outcome = "open"
    """open: being answered. completed: answered whole, so that a real endpoint would want it paid. refused: an error
    status. broken: cut or malformed, as the script has it. hung_up: the client was gone before the end."""
    at: float = field(default_factory=time.time)


class ChatLog:
    """All exchanges of a server."""

    def __init__(self) -> None:
        self._exchanges: list[Exchange] = []
        self._changed = threading.Condition()

    def open(self, turn: int, body: dict[str, Any], headers: dict[str, str]) -> Exchange:
        """Write a request down."""
        with self._changed:
            exchange = Exchange(n=len(self._exchanges) + 1, turn=turn, body=body, headers=headers)
            self._exchanges.append(exchange)
            self._changed.notify_all()
        return exchange

    def close(self, exchange: Exchange, outcome: Outcome) -> None:
        """Write down what became of it."""
        with self._changed:
            self._exchanges[exchange.n - 1] = replace(exchange, outcome=outcome)
            self._changed.notify_all()

    def exchanges(self) -> list[Exchange]:
        """Return them, as they are now."""
        with self._changed:
            return list(self._exchanges)

    def wait_until(self, seen: Callable[[list[Exchange]], bool], timeout: float) -> None:
        """Wait until they are as ``seen`` wants them; TimeoutError if that takes too long."""
        with self._changed:
            if not self._changed.wait_for(lambda: seen(self._exchanges), timeout):
                raise TimeoutError(f"waited {timeout:g} s in vain; the chat server has seen {self._exchanges}")

    def to_json(self, keys: Collection[str] = ()) -> bytes:
        """Return the log as GET /log has it; where keys are named, only what was asked under these."""
        every = self.exchanges()
        wanted = [one for one in every if not keys or one.headers.get("idempotency-key") in keys]
        return json.dumps([asdict(exchange) for exchange in wanted]).encode()


def read_log(base_url: str, *, keys: Collection[str] = ()) -> list[Exchange]:
    """Ask a server for its log, in whatever process it runs; of requests under these idempotency keys, if any."""
    url = f"{base_url.removesuffix('/v1')}/log?{urlencode({'key': list(keys)}, doseq=True)}"
    with urllib.request.urlopen(url) as answered:  # noqa: S310 - loopback
        return [Exchange(**exchange) for exchange in json.load(answered)]
