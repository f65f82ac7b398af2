"""ScriptedModel: prepared answers, for tests and demos that run without an endpoint."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from holdfast.agent.model import ModelRefused, Request
from holdfast.agent.script import Script
from holdfast.agent.verifier import code_in
from holdfast.model.checks import check_name
from holdfast.model.errors import InvalidValue
from holdfast.model.message import Message, Reply, ToolCall, Usage
from holdfast.model.tokens import estimate_tokens

_PIECES = 4


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A tool call in a script. ``call`` makes one. Arguments given as a text may be invalid, like those of a model."""

    name: str
    arguments: dict[str, Any] | str = field(default_factory=dict)

    @property
    def written(self) -> str:
        """The arguments as the model writes them."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


def call(name: str, /, **arguments: Any) -> ScriptedCall:  # noqa: ANN401 - JSON
    """Make the model call this tool: ``call("read_file", path="a.txt")``."""
    return ScriptedCall(name, arguments)


def verdict(request: Request, reason: str | None = None) -> str:
    """Answer as a judge: accept, or reject for this reason. ``Judge(model=ScriptedModel([verdict]))`` accepts.

    A verdict contains the code of this request.
    """
    code = code_in(request.messages[0].content)
    if not code:
        raise InvalidValue("this request does not ask for a verdict; only a Judge's does")
    return f"{code} ACCEPT" if reason is None else f"{code} REJECT: {reason}"


Answer: TypeAlias = str | ScriptedCall | Sequence[str | ScriptedCall] | Reply
Writer: TypeAlias = Callable[[Request], "Answer | BaseException | Awaitable[Answer | BaseException]"]
Line: TypeAlias = Answer | BaseException | Writer


def estimate_usage(request: Request, reply: Reply) -> Usage:
    """Estimate the tokens of an exchange from its texts: the same in every run."""
    read = [part for message in request.messages for part in _texts(message)]
    return Usage(
        input_tokens=sum(map(estimate_tokens, read)), output_tokens=sum(map(estimate_tokens, _texts(reply.message)))
    )


class ScriptedModel:
    """A model that answers from a script.

    A line of the script is a text; a ``call(...)``, or a list of calls made in parallel, with or without texts among
    them; a Reply; an exception to raise; or a function, possibly async, that takes the Request and returns one of
    these. A single function instead of a list writes all the answers.

    Only the conversation decides which answer is next: a request in which the model has answered n - 1 times gets the
    n-th answer of the script. So a task that is resumed in another process continues where it was, and any number of
    conversations can share one object. ``Request.turn`` is how often the model has answered, including answers that
    were compacted away; if it is None, the assistant's messages are counted.

    An exception is not an answer. It is raised once to each request that reaches it, identified by its effect id, and
    the next try continues with the line after it. A new process does not know that and raises it again.

    ``usage`` is the reported usage of each call: a Usage, a function of request and reply, or None for an endpoint that
    reports none. By default it is estimated from the texts.
    """

    def __init__(
        self,
        replies: Sequence[Line] | Writer,
        *,
        name: str = "scripted",
        usage: Usage | Callable[[Request, Reply], Usage | None] | None = estimate_usage,
    ) -> None:
        if isinstance(replies, str):
            raise InvalidValue(f"a script is a list of answers; write [{replies!r}] for one answer")
        self.name = check_name("the model's name", name)
        self.requests: list[Request] = []
        """Every request so far, in this process."""
        self._script: Script[Line] | Writer = replies if callable(replies) else Script(replies, _is_failure)
        self._usage = usage

    async def complete(self, request: Request, on_text: Callable[[str], None]) -> Reply:
        """Return the next answer in this conversation."""
        self.requests.append(request)
        turn = _turn(request)
        line = self._line(self._script, turn, request) if isinstance(self._script, Script) else self._script
        made = line(request) if callable(line) else line
        answer = await made if inspect.isawaitable(made) else made
        if isinstance(answer, BaseException):
            raise answer.with_traceback(None)  # it may be raised again, and must not collect tracebacks
        reply = self._complete(_reply(answer, turn), request)
        for piece in _pieces(reply.content):
            on_text(piece)
        return reply

    def _line(self, script: Script[Line], turn: int, request: Request) -> Line:
        line = script.line(turn, request.effect_id or request.messages)
        if line is None:
            raise ModelRefused(
                f"the script of {self.name} has {script.answers} answers, and this conversation has had {turn}; "
                "write more of them, or let the last one be a text"
            )
        return line

    def _complete(self, reply: Reply, request: Request) -> Reply:
        usage = self._usage(request, reply) if callable(self._usage) else self._usage
        return Reply(
            content=reply.content,
            tool_calls=reply.tool_calls,
            usage=reply.usage or usage,
            model=reply.model or self.name,
            finish_reason=reply.finish_reason,
        )


def _is_failure(line: Line) -> bool:
    return isinstance(line, BaseException)


def _turn(request: Request) -> int:
    if request.turn is not None:
        return request.turn
    return sum(message.role == "assistant" for message in request.messages)


def _reply(answer: Answer, turn: int) -> Reply:
    if isinstance(answer, Reply):
        return answer
    parts = [answer] if isinstance(answer, str | ScriptedCall) else answer
    if not isinstance(parts, Sequence) or not all(isinstance(part, str | ScriptedCall) for part in parts):
        raise InvalidValue(
            f"{answer!r} is not an answer; a script has texts, call(...), lists of them, and Reply objects"
        )
    calls = tuple(
        ToolCall(id=f"call_{turn}_{position}", name=part.name, arguments=part.written)
        for position, part in enumerate(part for part in parts if isinstance(part, ScriptedCall))
    )
    content = "".join(part for part in parts if isinstance(part, str))
    return Reply(content=content, tool_calls=calls, finish_reason="tool_calls" if calls else "stop")


def _pieces(text: str) -> list[str]:
    size = -(-len(text) // _PIECES) or 1
    return [text[start : start + size] for start in range(0, len(text), size)]


def _texts(message: Message) -> list[str]:
    return [message.content, *(f"{call.name}{call.arguments}" for call in message.tool_calls)]
