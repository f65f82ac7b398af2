"""Assembles a streamed answer of the chat-completions protocol: bytes to events, events to one Reply.

The openai client's own reader of streams is not used, because it does not report whether the last event came. For it, a
connection that was closed between two events looks like the end of the stream, and half an answer like a complete one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.agent.finish_reason import was_cut
from holdfast.agent.model import ModelError, Request, note_unseen
from holdfast.agent.openai_wire import well_formed
from holdfast.model.failure import storable
from holdfast.model.message import Reply, ToolCall, Usage
from holdfast.redaction import StreamRedactor, redacted

LAST_EVENT = "[DONE]"
MOST_BYTES = 64 << 20
"""Of one answer on the wire, without compression. Each word comes with some hundred bytes of protocol."""
LONGEST_LINE = 16 << 20
MOST_TEXT = 8 << 20
"""Characters of its text and its tool calls: the journal does not store more than this for one step."""

_EXCERPT = 200
_LONGEST_NAME = 200


class EventDecoder:
    """Decodes server-sent events from bytes. An event is complete only with the empty line at its end."""

    def __init__(self) -> None:
        self._received = 0
        self._rest = bytearray()
        self._data: list[str] = []

    def feed(self, received: bytes) -> Iterator[str]:
        """Take more bytes; yield the data of each event that is complete now. Raises ModelError for too many bytes."""
        self._received += len(received)
        if self._received > MOST_BYTES:
            raise _too_long("an answer", MOST_BYTES)
        if len(self._rest) > LONGEST_LINE:
            raise _too_long("a line", LONGEST_LINE)
        self._rest += received
        if b"\n" not in received:
            return
        # Only at line feeds: str.splitlines also splits at characters that JSON allows in a text.
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            text = line.removesuffix(b"\r").decode("utf-8", "replace")
            field, _, value = text.partition(":")
            if field == "data":
                self._data.append(value.removeprefix(" "))
            elif not text and self._data:
                yield "\n".join(self._data)
                self._data.clear()


def _too_long(what: str, limit: int) -> ModelError:
    return ModelError(f"the endpoint sent {what} of more than {limit >> 20} MiB; the reply was discarded")


class Chunk(msgspec.Struct, frozen=True):
    """The used part of one event's data. Endpoints differ in what they leave out and in what they send as null."""

    choices: list[_Choice] | None = None
    usage: Any = None
    model: str | None = None
    error: Any = None

    @classmethod
    def read(cls, data: str) -> Chunk:
        """Read a chunk. Raises ModelError if the data is not a chunk."""
        try:
            # With json and not msgspec, which reads a lone surrogate as the end of its input.
            return msgspec.convert(json.loads(data), cls)
        except (ValueError, RecursionError) as error:
            raise ModelError(
                f"the endpoint sent an event that is not a chat completion chunk ({storable(str(error), _EXCERPT)}): "
                f"{storable(data, _EXCERPT)!r}"
            ) from None  # a JSON error contains the whole text, which may repeat the key


class _Choice(msgspec.Struct, frozen=True):
    index: int = 0
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_CallPiece] | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None
    thinking: Any = None

    @property
    def thoughts(self) -> str:
        """The model's reasoning, which is paid for and not part of the answer. Some endpoints send it in two forms."""
        forms = (self.reasoning_content, self.reasoning, self.thinking, self.reasoning_details)
        return next(filter(None, map(_thoughts_in, forms)), "")


class _CallPiece(msgspec.Struct, frozen=True):
    index: int | None = None
    id: str | None = None
    function: _FunctionPiece | None = None


class _FunctionPiece(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


def _thoughts_in(sent: Any) -> str:  # noqa: ANN401 - any JSON that an endpoint sends
    """Return the text of a piece of reasoning: it is a text, or has texts in its parts."""
    if isinstance(sent, str):
        return sent
    parts = [part for part in (sent if isinstance(sent, list) else [sent]) if isinstance(part, dict)]
    texts = (part.get(name) for part in parts for name in ("text", "summary", "thinking", "data"))
    return "".join(text for text in texts if isinstance(text, str))


@dataclass(slots=True, eq=False)
class _GrowingCall:
    index: int | None
    id: str = ""
    name: str = ""
    arguments: str = ""


def read_usage(sent: object) -> Usage | None:
    """Return the tokens an endpoint counted; None if the count is not valid, or contradicts itself."""
    if not isinstance(sent, dict):
        return None
    prompt, completion, total = (sent.get(name) for name in ("prompt_tokens", "completion_tokens", "total_tokens"))
    if any(type(count) is not int for count in (prompt, completion, total) if count is not None):
        return None  # type, not isinstance: a bool is an int in Python
    counted = (prompt or 0) + (completion or 0)
    if min(prompt or 0, completion or 0) < 0 or (total is not None and total < counted):
        return None
    # Some endpoints count the reasoning only in the total.
    hidden = 0 if total is None or prompt is None else total - counted
    return Usage(input_tokens=prompt or 0, output_tokens=(completion or 0) + hidden)


class Assembly:
    """A reply that grows with its chunks."""

    def __init__(self, request: Request, on_text: Callable[[str], None]) -> None:
        self._request = request
        self._on_text = on_text
        self._redactor = StreamRedactor()
        self._content = ""
        self._calls: list[_GrowingCall] = []
        self._size = 0
        self._usage: Usage | None = None
        self._model = ""
        self._finish_reason: str | None = None

    def add(self, chunk: Chunk) -> None:
        """Take the next chunk."""
        note_unseen(self._on_text, "")  # any chunk means that the endpoint has begun to answer
        self._model = chunk.model or self._model
        if chunk.usage is not None:
            self._usage = read_usage(chunk.usage)
        for choice in chunk.choices or ():
            if choice.index == 0:
                if not was_cut(self._finish_reason or ""):  # a later reason does not make it complete
                    self._finish_reason = choice.finish_reason or self._finish_reason
                self._grow(choice.delta or _Delta())
            elif choice.delta is not None:
                note_unseen(self._on_text, choice.delta.content or "")

    def reply(self) -> Reply:
        """Return the reply. Raises ModelError if it is not complete."""
        if self._finish_reason is None:
            raise ModelError("the stream ended without a finish_reason; the reply is not complete and was discarded")
        if self._finish_reason == "error":  # from a gateway whose endpoint failed
            raise ModelError("the endpoint stopped with finish_reason 'error'; the reply was discarded")
        if rest := self._redactor.end():
            self._on_text(rest)
        return Reply(
            content=redacted(well_formed(self._content), in_data=True),
            tool_calls=self._whole_calls(),
            usage=self._usage,
            model=redacted(storable(self._model, _LONGEST_NAME)),
            finish_reason=storable(self._finish_reason, _LONGEST_NAME),
        )

    def _grow(self, delta: _Delta) -> None:
        if text := delta.content or delta.refusal:
            self._count(text)
            self._content += text
            if shown := self._redactor.take(well_formed(text)):
                self._on_text(shown)
        note_unseen(self._on_text, delta.thoughts)
        grown: list[_GrowingCall] = []
        for piece in delta.tool_calls or ():
            function = piece.function or _FunctionPiece()
            written = (piece.id or "") + (function.name or "") + (function.arguments or "")
            self._count(written)
            note_unseen(self._on_text, (function.name or "") + (function.arguments or ""))
            call = self._call_of(piece, function, grown)
            call.id = call.id or piece.id or ""
            call.name = call.name or function.name or ""
            call.arguments += function.arguments or ""
            grown.append(call)

    def _count(self, text: str) -> None:
        self._size += len(text)
        if self._size > MOST_TEXT:
            raise _too_long("text and tool calls", MOST_TEXT)

    def _call_of(self, piece: _CallPiece, function: _FunctionPiece, grown: list[_GrowingCall]) -> _GrowingCall:
        """Return the call that a piece belongs to; ``grown`` are the calls of the pieces that came together with it.

        The index decides, with two exceptions: some endpoints send none, and some send 0 for every call. Without an
        index the id decides, and without both the piece continues the last call.
        """
        calls = self._calls
        if piece.index is not None:
            found = [call for call in calls if call.index == piece.index]
        else:
            found = [call for call in calls if piece.id and call.id == piece.id] or calls[-1:]
        if not found or self._is_another(piece, function, found[-1], grown):
            found = [_GrowingCall(piece.index)]
            calls += found
        return found[-1]

    @staticmethod
    def _is_another(piece: _CallPiece, function: _FunctionPiece, last: _GrowingCall, grown: list[_GrowingCall]) -> bool:
        """Return whether a piece opens a new call, and does not continue the last one that it could belong to.

        A name opens a new call, unless id or index show that the call is the same: two calls must never become one,
        with the name of the first and the arguments of both. An id alone does not: some endpoints send a new id with
        every piece.
        """
        has_same_id = bool(piece.id) and piece.id == last.id
        if not function.name:
            if piece.index is None and not has_same_id and last in grown:
                raise ModelError(
                    "the endpoint sent pieces of tool calls without name, id and index, which cannot be assigned to "
                    "their calls; the reply was discarded"
                )
            return False
        if not last.name:
            return bool(piece.id and last.id) and not has_same_id
        if function.name != last.name or last in grown or (piece.id and last.id and not has_same_id):
            return True
        return piece.index is None and not has_same_id

    def _whole_calls(self) -> tuple[ToolCall, ...]:
        taken = {call.id for message in self._request.messages for call in message.tool_calls}
        calls = []
        for position, call in enumerate(self._calls):
            if not call.name:
                raise ModelError("the endpoint sent a tool call without a name; the reply was discarded")
            # Results are sent back by id: with a missing or repeated id, a result would go to another call.
            identifier = call.id if call.id and call.id not in taken else self._stable_id(position)
            taken.add(identifier)
            asked = ToolCall(id=identifier, name=call.name, arguments=well_formed(call.arguments))
            if any(redacted(part, in_data=True) != part for part in (asked.id, asked.name, asked.arguments)):
                raise ModelError("the endpoint repeated a credential in a tool call; the reply was discarded")
            calls.append(asked)
        return tuple(calls)

    def _stable_id(self, position: int) -> str:
        """Return an id that is the same in every answer to this request, and differs between requests."""
        of_the_request = self._request.effect_id or str(len(self._request.messages))
        return f"call_{hashlib.sha256(f'{of_the_request}:{position}'.encode()).hexdigest()[:24]}"
