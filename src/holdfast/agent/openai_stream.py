"""A streamed answer of the chat-completions protocol, put together: bytes to events, events to one Reply.

The openai client's own reader of streams is not used, because it does not tell whether the last event came. A stream
whose connection was closed between two events looks to it like one that is over, and half an answer like a whole one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.agent.model import ModelError, Request
from holdfast.agent.openai_wire import well_formed
from holdfast.model.failure import storable
from holdfast.model.message import Reply, ToolCall, Usage
from holdfast.redaction import Curtain, redacted

LAST_EVENT = "[DONE]"
MOST_BYTES = 16 << 20
"""Of one line. An answer is shorter; what is longer is no answer."""

_EXCERPT = 200


class EventDecoder:
    """Server-sent events out of bytes, whole ones only: what no empty line ends was cut."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[str] = []

    def feed(self, received: bytes) -> Iterator[str]:
        """Take more bytes; yield the data of each event that is complete now."""
        # At line feeds alone: str.splitlines knows more ends of a line, among them some that JSON allows in a text.
        if len(self._rest) > MOST_BYTES:
            raise ModelError(f"the endpoint sent a line of more than {MOST_BYTES >> 20} MiB; the reply was thrown away")
        *lines, self._rest = (self._rest + received).split(b"\n")
        for line in lines:
            text = line.removesuffix(b"\r").decode("utf-8", "replace")
            field, _, value = text.partition(":")
            if field == "data":
                self._data.append(value.removeprefix(" "))
            elif not text and self._data:
                yield "\n".join(self._data)
                self._data.clear()


class Chunk(msgspec.Struct, frozen=True):
    """One event's data, as far as it is used. Endpoints differ in what they leave out and in what they send as null."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    model: str | None = None
    error: Any = None

    @classmethod
    def read(cls, data: str) -> Chunk:
        """Read it, or raise ModelError for what is no chunk."""
        try:
            # By json and not by msgspec, which takes a lone surrogate for the end of its input.
            return msgspec.convert(json.loads(data), cls)
        except ValueError as error:
            raise ModelError(
                f"the endpoint sent an event that is no chat completion chunk ({storable(str(error), _EXCERPT)}): "
                f"{storable(data, _EXCERPT)!r}"
            ) from None  # a JSON error holds the whole text, which may repeat the key


class _Choice(msgspec.Struct, frozen=True):
    index: int = 0
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_CallPiece] | None = None


class _CallPiece(msgspec.Struct, frozen=True):
    index: int | None = None
    id: str | None = None
    function: _FunctionPiece | None = None


class _FunctionPiece(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


@dataclass(slots=True)
class _GrowingCall:
    index: int | None
    id: str = ""
    name: str = ""
    arguments: str = ""


class Assembly:
    """A reply that grows with its chunks."""

    def __init__(self, request: Request, on_text: Callable[[str], None]) -> None:
        self._request = request
        self._on_text = on_text
        self._curtain = Curtain()
        self._content = ""
        self._calls: list[_GrowingCall] = []
        self._usage: Usage | None = None
        self._model = ""
        self._finish_reason: str | None = None

    def add(self, chunk: Chunk) -> None:
        """Take the next chunk."""
        self._model = chunk.model or self._model
        if chunk.usage is not None:
            self._usage = Usage(
                input_tokens=chunk.usage.prompt_tokens or 0, output_tokens=chunk.usage.completion_tokens or 0
            )
        for choice in chunk.choices or ():
            if choice.index == 0:
                self._finish_reason = choice.finish_reason or self._finish_reason
                self._grow(choice.delta or _Delta())

    def reply(self) -> Reply:
        """Return the reply; ModelError if it is not whole."""
        if self._finish_reason is None:
            raise ModelError("the stream ended without a finish_reason; the reply is not whole and was thrown away")
        if self._finish_reason == "error":  # how gateways say that the endpoint behind them broke off
            raise ModelError("the endpoint broke off with finish_reason 'error'; the reply was thrown away")
        if rest := self._curtain.end():
            self._on_text(rest)
        return Reply(
            content=redacted(well_formed(self._content)),
            tool_calls=self._whole_calls(),
            usage=self._usage,
            model=redacted(self._model),
            finish_reason=self._finish_reason,
        )

    def _grow(self, delta: _Delta) -> None:
        if text := delta.content or delta.refusal:
            self._content += text
            if shown := self._curtain.take(well_formed(text)):
                self._on_text(shown)
        for piece in delta.tool_calls or ():
            function = piece.function or _FunctionPiece()
            call = self._call_of(piece, function)
            call.id = call.id or piece.id or ""
            call.name = call.name or function.name or ""
            call.arguments += function.arguments or ""

    def _call_of(self, piece: _CallPiece, function: _FunctionPiece) -> _GrowingCall:
        """Return the call that a piece belongs to.

        Its index says so, with two exceptions: some endpoints give none, and some give 0 to every call. What opens
        another call is a name under another id. An id alone does not: some endpoints make a new one for every piece.
        """
        found = [call for call in self._calls if piece.index is None or call.index == piece.index]
        is_another = bool(found and function.name and piece.id and found[-1].id and piece.id != found[-1].id)
        if not found or is_another:
            found = [_GrowingCall(piece.index)]
            self._calls += found
        return found[-1]

    def _whole_calls(self) -> tuple[ToolCall, ...]:
        taken = {call.id for message in self._request.messages for call in message.tool_calls}
        calls = []
        for position, call in enumerate(self._calls):
            if not call.name:
                raise ModelError("the endpoint sent a tool call without a name; the reply was thrown away")
            # Results are sent back by id: one that is missing, or has been used, would give them to another call.
            identifier = call.id if call.id and call.id not in taken else self._stable_id(position)
            taken.add(identifier)
            arguments = redacted(well_formed(call.arguments))
            calls.append(ToolCall(id=redacted(identifier), name=redacted(call.name), arguments=arguments))
        return tuple(calls)

    def _stable_id(self, position: int) -> str:
        """Make an id that is the same whenever this request is answered so, and another in every other request."""
        of_the_request = self._request.effect_id or str(len(self._request.messages))
        return f"call_{hashlib.sha256(f'{of_the_request}:{position}'.encode()).hexdigest()[:24]}"
