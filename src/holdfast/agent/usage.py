"""What a model call took: as the endpoint says, where that can be, and estimated everywhere else.

A budget that believed every number could be made endless by an endpoint that says 0, or be spent by one that says a
billion.
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
"""In one direction. The largest contexts there are hold so many."""

_LONGEST_TOKEN = 128
"""Bytes. The longest tokens there are stand for so many blanks; those of a text are far shorter."""


def settled_usage(request: Request, reply: Reply, stream: TextStream) -> Usage:
    """Return what a call took that was answered: what the model says, or an estimate if that is impossible."""
    written = [reply.content, *(call.name + call.arguments for call in reply.tool_calls)]
    said = reply.usage
    size = max(sum(len(encode(text)) for text in written), stream.bytes)
    if isinstance(said, Usage) and _can_be(said, measure(request.messages), size):
        return said
    output = max(sum(map(estimate_tokens, written)), stream.tokens)
    return Usage(input_tokens=estimate_prompt(request.messages, request.tools), output_tokens=output)


def lost_usage(request: Request, stream: TextStream) -> Usage:
    """Estimate what a call took that was cut off: its prompt, and what had arrived of the answer."""
    return Usage(
        input_tokens=estimate_prompt(request.messages, request.tools),
        output_tokens=stream.tokens,
    )


def _can_be(said: Usage, prompt: TextSize, written: int) -> bool:
    counts = (said.input_tokens, said.output_tokens)
    if any(type(count) is not int for count in counts):  # no booleans, which Python takes for numbers
        return False
    least_input = max(1, prompt.bytes // _LONGEST_TOKEN)
    least_output = written // _LONGEST_TOKEN
    return least_input <= said.input_tokens <= MOST_TOKENS and least_output <= said.output_tokens <= MOST_TOKENS
