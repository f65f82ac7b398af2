"""Sending: what is known about one request on its way, as far as its transport can tell."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class Sending:
    """One request. The transport fills it in."""

    method: str | None = None
    """The method that is recorded; None for any message.

    More may be sent on behalf of one call (an answer to what the server asks back, a request for the rest of a stream),
    and their outcome says nothing about the call.
    """
    is_sent: bool = False
    """A part of it may have reached the server."""
    status: int | None = None
    """Of the HTTP answer, if there was one."""
    trouble: str = ""
    """What went wrong underneath."""


def sending_of(method: str | None) -> Sending:
    """Return the record of a message that is sent in this context."""
    current = CURRENT.get(None)
    return current if current is not None and current.method in {None, method} else Sending()


CURRENT: ContextVar[Sending] = ContextVar("holdfast_mcp_sending")
"""The request that is being sent in this context. The SDK passes the caller's context on to the sending code."""
