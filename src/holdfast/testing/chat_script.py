"""The answers of a ChatServer, as data, and their form in the chat-completions protocol."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from holdfast.agent.scripted import ScriptedCall


class Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One answer, and what goes wrong with it. A script may also hold a plain text or a plain call."""

    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    finish_reason: str | None = None
    """None: "stop", or "tool_calls" if there are calls."""
    usage: bool = True
    call_ids: bool = True
    """False: tool calls have no ids, as with some endpoints."""
    pause: float = 0.0
    """Seconds of silence before every event."""
    comments: bool = False
    """Send a comment in each pause, as some endpoints do to keep a connection open."""

    status: int = 200
    """Anything else is an error, with ``text`` as its message."""
    code: str | None = None
    """OpenAI's name of the error."""
    retry_after: str | None = None
    """The header: seconds, or a date."""
    hang: Literal["before_headers", "mid_stream"] | None = None
    """Send nothing more, until the client hangs up."""
    cut_at: int | None = None
    """Close the connection after so many bytes of the body, if it has more."""
    reset: bool = False
    """Cut with a reset, not with a normal close."""
    malformed: bool = False
    """Send an event in the middle that is not JSON."""
    error_event: str | None = None
    """Send an error with this message in the middle."""
    framing: Literal["chunked", "until_close"] = "chunked"
    """How the client finds the end of the body; only with "chunked" can it see that the body was cut."""

    @property
    def is_failure(self) -> bool:
        """Whether it is not a valid answer, so that the conversation stays at the same turn."""
        broken = self.hang or self.malformed or self.error_event is not None
        return bool(broken) or self.status != 200 or self.cut_at is not None


Line: TypeAlias = str | ScriptedCall | Sequence[str | ScriptedCall] | Answer


def as_answer(line: Line) -> Answer:
    """Read a line of a script."""
    if isinstance(line, Answer):
        return line
    parts = [line] if isinstance(line, str | ScriptedCall) else line
    text = "".join(part for part in parts if isinstance(part, str))
    return Answer(text=text, calls=tuple(part for part in parts if isinstance(part, ScriptedCall)))


def read_script(text: bytes) -> list[Answer]:
    """Read a script from JSON: a list of texts and of objects with the fields of Answer."""
    lines = msgspec.json.decode(text, type=list[str | Answer])
    return [as_answer(line) for line in lines]


def whole(answer: Answer, turn: int, model: str) -> bytes:
    """Return the body of an answer that is not streamed."""
    calls = [_call(answer, turn, position) for position in range(len(answer.calls))]
    message = {"role": "assistant", "content": answer.text or None, **({"tool_calls": calls} if calls else {})}
    choice = {"index": 0, "message": message, "finish_reason": _finish_reason(answer)}
    usage = {"usage": _usage(answer)} if answer.usage else {}
    return json.dumps({**_head(turn, model, "chat.completion"), "choices": [choice], **usage}).encode()


def events(answer: Answer, turn: int, model: str, *, with_usage: bool) -> list[bytes]:
    """Return the events of an answer that is streamed."""
    head = _head(turn, model, "chat.completion.chunk")
    deltas = [{"role": "assistant", "content": ""}, *_deltas(answer, turn)]
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": _finish_reason(answer)}]})
    if with_usage and answer.usage:
        chunks.append({"choices": [], "usage": _usage(answer)})
    sent = [json.dumps({**head, **chunk}) for chunk in chunks]
    if answer.malformed:
        sent.insert(len(sent) // 2, '{"choices": [{"del')
    if answer.error_event is not None:
        sent.insert(len(sent) // 2, json.dumps({"error": {"message": answer.error_event, "code": answer.code}}))
    return [f"data: {data}\n\n".encode() for data in [*sent, "[DONE]"]]


def error(answer: Answer) -> bytes:
    """Return the body of an error."""
    return json.dumps({"error": {"message": answer.text, "type": "error", "param": None, "code": answer.code}}).encode()


def cut(parts: Sequence[bytes], at: int) -> list[bytes]:
    """Return the first ``at`` bytes, still divided into parts."""
    kept = []
    for part in parts:
        kept.append(part[:at])
        at -= len(part)
        if at <= 0:
            break
    return kept


def _head(turn: int, model: str, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{turn}", "object": kind, "created": 0, "model": model}


def _deltas(answer: Answer, turn: int) -> Iterator[dict[str, Any]]:
    """Cut the text into words, and each call into its head and two halves of its arguments."""
    for word in re.findall(r"\s*\S+\s*$|\s*\S+", answer.text) or ([answer.text] if answer.text else []):
        yield {"content": word}
    for position in range(len(answer.calls)):
        call = _call(answer, turn, position)
        arguments = call["function"]["arguments"]
        half = len(arguments) // 2
        yield {"tool_calls": [{**call, "index": position, "function": {**call["function"], "arguments": ""}}]}
        for part in (arguments[:half], arguments[half:]):
            yield {"tool_calls": [{"index": position, "function": {"arguments": part}}]}


def _call(answer: Answer, turn: int, position: int) -> dict[str, Any]:
    call = answer.calls[position]
    identifier = {"id": f"call_{turn}_{position}"} if answer.call_ids else {}
    function = {"name": call.name, "arguments": call.written}
    return {**identifier, "type": "function", "function": function}


def _finish_reason(answer: Answer) -> str:
    return answer.finish_reason if answer.finish_reason is not None else "tool_calls" if answer.calls else "stop"


def _usage(answer: Answer) -> dict[str, int]:
    """Return fixed numbers that a test can predict: 10 for the request, and 1 for each word and call."""
    output = len(answer.text.split()) + len(answer.calls)
    return {"prompt_tokens": 10, "completion_tokens": output, "total_tokens": 10 + output}
