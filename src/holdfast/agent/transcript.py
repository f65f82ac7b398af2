"""The conversation of a task, read from its journal: messages are the outputs of its steps.

The running agent and later readers, such as a task that continues this one, use the same functions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from holdfast.agent.excerpts import kept_note
from holdfast.agent.fixed_arguments import FixedArguments
from holdfast.engine.manage.message import MESSAGE
from holdfast.engine.steps.one_try import failure_of
from holdfast.model.codec import decode
from holdfast.model.failure import Failure
from holdfast.model.message import Message, Reply
from holdfast.model.step import Step, StepState
from holdfast.model.task import JsonValue

LLM, TOOL, BEGIN = "llm", "tool", "begin"
"""Kinds of steps: a model call, a tool call, and the earlier conversation; MESSAGE is a message to the agent."""

UNKNOWN = "unknown"
"""Replaces the name in the key of a call of a tool that does not exist."""

ENDED = "The result of this call is not known."
EMPTY_ANSWER = "Your answer was empty. Call a tool, or give your final answer in words."


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """One answer of the model, as its step recorded it."""

    reply: Reply
    steps: int
    """How many steps were charged: the answer and the calls it asks for, or only the answer if the budget was short."""
    readings: tuple[FixedArguments, ...] | None = None
    """The arguments of its calls, as they were read; None if an older version recorded it."""

    def to_data(self) -> dict[str, JsonValue]:
        """Return what the step records."""
        data: dict[str, JsonValue] = {"reply": self.reply.to_json(), "steps": self.steps}
        if self.readings:
            made = zip(self.readings, self.reply.tool_calls, strict=True)
            data["read"] = [reading.to_data(call) for reading, call in made]
        return data

    def reading(self, index: int) -> FixedArguments | None:
        """Return the arguments of a call as they were read; None if they were not recorded with the answer."""
        return None if self.readings is None else self.readings[index]

    @classmethod
    def of(cls, data: Any) -> RecordedAnswer:  # noqa: ANN401 - what the step recorded
        """Read what the step recorded."""
        reply = Reply.from_json(data["reply"])
        if "read" not in data:
            return cls(reply, data["steps"])
        made = zip(data["read"], reply.tool_calls, strict=True)
        return cls(reply, data["steps"], tuple(FixedArguments.of(one, call) for one, call in made))


def model_key(turn: int) -> str:
    """Return the key of the model call of a turn, counted from 1."""
    return f"{LLM}:{turn}"


def tool_key(tool: str, turn: int, index: int) -> str:
    """Return the key of a tool call: the tool, the turn of the answer that asks for it, and its place there."""
    return f"{tool}:{turn}.{index}"


def turn_of(step: Step) -> int | None:
    """Return the turn of a step; None if it is not a turn of the conversation, such as a judge's model call."""
    kind, _, turn = step.key.rpartition(":")
    return int(turn) if step.kind == LLM and kind == LLM else None


def tool_message(call_id: str, output: Any) -> Message:  # noqa: ANN401 - what the tool's step recorded
    """Return the result of a tool call as the model sees it."""
    if "artifact" in output:
        kept = output["artifact"]
        note = kept_note(kept["artifact_id"], kept["bytes"])
        return Message(role="tool", content=f"{output['excerpt']}\n{note}", tool_call_id=call_id)
    value = output["value"]
    return Message(role="tool", content=value if isinstance(value, str) else as_text(value), tool_call_id=call_id)


def error_message(call_id: str, failure: Failure) -> Message:
    """Return a failed tool call as the model sees it."""
    kind = failure.type_name.rpartition(".")[2]
    return Message(role="tool", content=f"Error: {kind}: {failure.message}", tool_call_id=call_id)


def answer_message(reply: Reply) -> Message:
    """Return an answer as it appears in the conversation.

    Some endpoints refuse a conversation with an empty message, so a note to the model replaces an empty answer.
    """
    return reply.message if reply.tool_calls or reply.content.strip() else user_message(EMPTY_ANSWER)


def is_answer(message: Message) -> bool:
    """Return whether a message of the conversation is, or replaces, an answer of the model."""
    return message.role == "assistant" or message == user_message(EMPTY_ANSWER)


def user_message(text: str) -> Message:
    """Return a message of a person."""
    return Message(role="user", content=text)


def as_text(value: JsonValue) -> str:
    """Return data as a model reads it."""
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def read_answers(steps: Iterable[Step]) -> list[tuple[int, RecordedAnswer]]:
    """Return the model's answers that these steps recorded, with their turns."""
    return [
        (turn, RecordedAnswer.of(decode(step.output)))
        for step in steps
        if (turn := turn_of(step)) is not None and step.state is StepState.COMPLETED and step.output is not None
    ]


def read_transcript(steps: Iterable[Step]) -> list[Message]:
    """Return the conversation that these steps recorded, in order. A call without a result gets a note."""
    ordered = sorted(steps, key=lambda step: step.position)
    results = {step.key.rpartition(":")[2]: step for step in ordered if step.kind == TOOL}
    messages: list[Message] = []
    for step in ordered:
        if step.state is not StepState.COMPLETED or step.output is None:
            continue
        if step.kind == MESSAGE:
            messages.append(user_message(decode(step.output)["text"]))
        elif step.kind == BEGIN:
            messages += [Message.from_json(message) for message in decode(step.output)["messages"]]
        elif (turn := turn_of(step)) is not None:
            reply = RecordedAnswer.of(decode(step.output)).reply
            messages.append(answer_message(reply))
            messages += [_result(call.id, results.get(f"{turn}.{at}")) for at, call in enumerate(reply.tool_calls)]
    return messages


def _result(call_id: str, step: Step | None) -> Message:
    if step is not None and step.state is StepState.COMPLETED and step.output is not None:
        return tool_message(call_id, decode(step.output))
    if step is not None and step.state is StepState.FAILED:
        return error_message(call_id, failure_of(step))
    return Message(role="tool", content=ENDED, tool_call_id=call_id)
