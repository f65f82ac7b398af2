"""The usage of a model call: as the endpoint reports it if that is plausible, otherwise estimated.

A budget that believed every number would never end with an endpoint that reports 0, and would be spent at once with one
that reports a billion.
"""

from __future__ import annotations

from holdfast.agent.model import Request
from holdfast.agent.prompt import estimate_prompt
from holdfast.agent.text_stream import TextStream
from holdfast.model.history import measure
from holdfast.model.message import Reply, Usage
from holdfast.model.tokens import TextSize, estimate_tokens
from holdfast.model.utf8 import encode

MOST_TOKENS = 10_000_000
"""In one direction. The largest contexts hold so many."""

_LONGEST_TOKEN = 128
"""Bytes. The longest known tokens stand for so many blanks; tokens of a text are far shorter."""


def settled_usage(request: Request, reply: Reply, stream: TextStream) -> Usage:
    """Return the usage of an answered call: as reported, or an estimate if the report is impossible."""
    written = [reply.content, *(call.name + call.arguments for call in reply.tool_calls)]
    reported = reply.usage
    size = max(sum(len(encode(text)) for text in written), stream.bytes)
    if isinstance(reported, Usage) and _can_be(reported, measure(request.messages), size):
        return reported
    output = max(sum(map(estimate_tokens, written)), stream.tokens)
    return Usage(input_tokens=estimate_prompt(request.messages, request.tools), output_tokens=output)


def lost_usage(request: Request, stream: TextStream) -> Usage:
    """Estimate the usage of a call that was cut off: its prompt, and what had arrived of the answer."""
    return Usage(
        input_tokens=estimate_prompt(request.messages, request.tools),
        output_tokens=stream.tokens,
    )


def _can_be(reported: Usage, prompt: TextSize, written: int) -> bool:
    counts = (reported.input_tokens, reported.output_tokens)
    if any(type(count) is not int for count in counts):  # type, not isinstance: a bool is an int in Python
        return False
    least_input = max(1, prompt.bytes // _LONGEST_TOKEN)
    least_output = written // _LONGEST_TOKEN
    return least_input <= reported.input_tokens <= MOST_TOKENS and least_output <= reported.output_tokens <= MOST_TOKENS
