"""What an error proves about a call: that it was not made, or nothing at all."""

from __future__ import annotations

from mcp.shared.exceptions import MCPError
from mcp_types import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
)

from holdfast.effects.http import REFUSALS
from holdfast.mcp.client.dispatch import Sending
from holdfast.mcp.client.errors import AnswerUnclear, CallRefused, ServerAway
from holdfast.model.failure import storable

REFUSING = frozenset(
    {
        METHOD_NOT_FOUND,
        INVALID_PARAMS,
        HEADER_MISMATCH,
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        UNSUPPORTED_PROTOCOL_VERSION,
    }
)
"""Errors with which a server refuses a call, by the protocol: a failure in the tool itself is a result.

Not INVALID_REQUEST and PARSE_ERROR: the SDK also uses them for answers that it cannot read.
"""


def meaning_of(
    error: Exception, sending: Sending, *, server: str, tool: str
) -> ServerAway | CallRefused | AnswerUnclear:
    """Return the exception for a call that ended in ``error``; ``sending`` records how far it got."""
    said = storable(sending.trouble or str(error) or type(error).__name__, 500)
    if not sending.is_sent:
        return ServerAway(f"the MCP server {server} cannot be reached, and {tool} was not called: {said}")
    if isinstance(error, MCPError) and error.code in REFUSING:
        return CallRefused(f"the MCP server {server} refused the call of {tool}: {said}")
    if sending.status in REFUSALS:
        return ServerAway(f"the MCP server {server} answered {sending.status}, and {tool} was not called: {said}")
    return AnswerUnclear(f"the MCP server {server} was sent the call of {tool}, and its outcome is unknown: {said}")
