"""How an answer of a model ended, and whether the calls it asks for may be made.

An answer that was cut or filtered calls no tool. It is not known what the model would have written next: perhaps other
arguments, perhaps that the call is a mistake.
"""

from __future__ import annotations

from holdfast.model.failure import storable
from holdfast.model.message import ToolCall

_WELL = frozenset({"stop", "tool_calls", "function_call", "tool_use", "end_turn", "stop_sequence", "eos", "eos_token"})
"""Reasons for a complete answer."""

_CUT = frozenset(
    {
        *("length", "max_tokens", "max_output_tokens", "max_length", "model_length", "truncated", "incomplete"),
        *("model_context_window_exceeded", "context_length_exceeded", "repetition_truncation", "pause_turn"),
        *("content_filter", "content_filtered", "filtered", "filter", "safety", "recitation", "blocklist", "language"),
        *("prohibited_content", "spii", "sensitive", "refusal", "guardrail_intervened", "moderation", "blocked"),
        *("error", "abort", "aborted", "cancelled", "canceled", "timeout", "network_error", "time_limit"),
        *("insufficient_system_resource", "malformed_function_call", "unexpected_tool_call", "interrupted"),
    }
)
"""Reasons for an incomplete answer. OpenAI has two of them; endpoints that translate other protocols add their own."""


def ended_well(finish_reason: str) -> bool:
    """Return whether the model wrote its answer to the end."""
    return _plain(finish_reason) in _WELL


def was_cut(finish_reason: str) -> bool:
    """Return whether the answer was cut off, filtered or interrupted."""
    return _plain(finish_reason) in _CUT


def why_not_made(call: ToolCall, finish_reason: str) -> str | None:
    """Return why a call must not be made, in words for the model; None if it may be.

    With an unknown finish_reason, arguments are proof enough: half of them would not be JSON. A call without arguments
    proves nothing: it may take none, or it may have been cut before them.
    """
    if was_cut(finish_reason):
        return (
            f"your answer was cut off (finish_reason {_shown(finish_reason)}), so none of its calls was made. "
            "Make the call again, with less text around it"
        )
    if not call.arguments.strip() and not ended_well(finish_reason):
        return (
            f"the call came without arguments, and finish_reason {_shown(finish_reason)} does not show that your "
            "answer was complete, so it was not made. Make it again and write its arguments, {} if there are none"
        )
    return None


def _plain(finish_reason: str) -> str:
    return finish_reason.strip().lower().replace("-", "_").replace(" ", "_")


def _shown(finish_reason: str) -> str:
    return repr(storable(finish_reason, 60))
