"""Compacting a conversation: drop the oldest messages so that the rest is still a conversation a model accepts.

A model rejects a tool's result without its call, and a call without its result. So messages are dropped in groups: an
assistant's message with all results of its calls and the messages in between, or one message alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile

from holdfast.model.errors import InvalidValue
from holdfast.model.excerpt import SMALLEST_EXCERPT, excerpt
from holdfast.model.message import Message, ToolCall
from holdfast.model.task import JsonValue
from holdfast.model.tokens import ContextRoom, TextSize
from holdfast.model.utf8 import encode

_FRAME = TextSize(bytes=16, tokens=4)
"""For the role and the separators between messages, in the template of any model."""

_ARGUMENT_SIZES = (4_000, 1_000, 250, SMALLEST_EXCERPT)
"""Bytes of each text in the arguments of a call."""


def compact(
    messages: Sequence[Message], *, max_bytes: int | None = None, max_tokens: int | None = None
) -> tuple[Message, ...]:
    """Return what fits of a conversation: system messages, the goal and the newest groups, in their order.

    The goal is the first message of the user. A note replaces the messages that were left out. Pass the whole
    conversation every time, not the last result, or the note counts too few. If even the newest group does not fit, its
    tool results are cut in the middle, then the goal, then its other messages, and at last the texts in the arguments
    of its calls, which stay JSON. Raises InvalidValue if that is not enough.
    """
    room = ContextRoom(max_bytes, max_tokens)
    if room.holds(measure(messages)):
        return tuple(messages)
    fixed, groups = _divide(messages)
    newest = groups.pop() if groups else []
    kept = {*fixed, *newest}
    # If messages are dropped, the note needs room too: measure it with the highest count it could show.
    used = measure(messages[index] for index in kept) + (measure([_note(len(messages))]) if groups else TextSize())
    if not room.holds(used):
        return _shorten(messages, _Kept(fixed, newest), room)
    for group in reversed(groups):
        used += measure(messages[index] for index in group)
        if not room.holds(used):
            break
        kept.update(group)
    return _with_note(messages, kept)


def open_calls(messages: Iterable[Message]) -> tuple[ToolCall, ...]:
    """Return the tool calls that have no result yet, in order."""
    pending: list[tuple[int, ToolCall]] = []
    for number, message in enumerate(messages):
        pending += [(number, call) for call in message.tool_calls]
        if message.role == "tool":
            asked = [found for found in pending if found[1].id == message.tool_call_id]
            # Some models number their calls from 1 in every message: the newest message with that id is meant.
            if asked:
                pending.remove(next(found for found in asked if found[0] == asked[-1][0]))
    return tuple(call for _, call in pending)


def measure(messages: Iterable[Message]) -> TextSize:
    """Return the room that messages take: their contents, their calls, and a frame for each."""
    sizes = [_measure(message) for message in messages]
    return TextSize(sum(size.bytes for size in sizes), sum(size.tokens for size in sizes))


@lru_cache(maxsize=4096)  # a conversation is measured again after each new message
def _measure(message: Message) -> TextSize:
    calls = [text for call in message.tool_calls for text in (call.id, call.name, call.arguments)]
    return _FRAME + TextSize.of(message.content, message.tool_call_id or "", *calls)


@dataclass(frozen=True, slots=True)
class _Kept:
    """The places of the messages that may not be left out."""

    fixed: list[int]
    newest: list[int]


def _divide(messages: Sequence[Message]) -> tuple[list[int], list[list[int]]]:
    """Return the places of the system messages and the goal, and those of the groups, the newest last."""
    leading = len(list(takewhile(lambda message: message.role == "system", messages)))
    goal = next((index for index, message in enumerate(messages) if message.role == "user"), None)
    fixed = [*range(leading), *([] if goal is None else [goal])]
    groups: list[list[int]] = []
    asked_in: dict[str | None, int] = {}
    for index, message in enumerate(messages):
        if index in fixed:
            continue
        group = [index]
        if message.role == "tool" and message.tool_call_id in asked_in:
            # Back to the call, with everything between: nothing may come between a call and its results.
            while groups and groups[-1][-1] >= asked_in[message.tool_call_id]:
                group = groups.pop() + group
        groups.append(group)
        asked_in |= {call.id: index for call in message.tool_calls}
    return fixed, groups


def _with_note(messages: Sequence[Message], kept: Iterable[int]) -> tuple[Message, ...]:
    """Return the messages at the places in ``kept``, with a note at the place of the last dropped message."""
    places = set(kept)
    left_out = [index for index in range(len(messages)) if index not in places]
    noted = {left_out[-1]: _note(len(left_out))} if left_out else {}
    return tuple(noted.get(index, messages[index]) for index in sorted(places | noted.keys()))


def _note(count: int) -> Message:
    text = f"[{count} earlier message{'s were' if count > 1 else ' was'} left out here; the facts are in the state.]"
    return Message(role="user", content=text)


def _shorten(messages: Sequence[Message], kept: _Kept, room: ContextRoom) -> tuple[Message, ...]:
    """Return only the messages that must stay, with long contents cut in the middle, and cut no more than necessary."""
    shortened = list(messages)

    def cut(places: Sequence[int], longest: int, how: Callable[[Message, int], Message]) -> bool:
        for place in places:
            shortened[place] = how(shortened[place] if how is _cut_calls else messages[place], longest)
        return room.holds(measure(_with_note(shortened, everything)))

    everything = [*kept.fixed, *kept.newest]
    results = [place for place in kept.newest if messages[place].role == "tool"]
    goal = [place for place in kept.fixed if messages[place].role == "user"]
    others = [place for place in kept.newest if place not in results]
    for places in (results, goal, others):
        # Search for the largest size that fits, if there is one: `fits` always fits, `too_long` never does.
        fits = SMALLEST_EXCERPT
        if not places or not cut(places, fits, _cut_content):
            continue
        too_long = max(len(encode(messages[place].content)) for place in places)
        while too_long - fits > 1:
            middle = (fits + too_long) // 2
            fits, too_long = (middle, too_long) if cut(places, middle, _cut_content) else (fits, middle)
        cut(places, fits, _cut_content)
        return _with_note(shortened, everything)
    # Such long arguments are rare, so a few fixed sizes are enough; an exact search is not worth it.
    for longest in _ARGUMENT_SIZES:
        if cut(others, longest, _cut_calls):
            return _with_note(shortened, everything)
    raise InvalidValue(_explain(messages, kept, room))


def _cut_content(message: Message, longest: int) -> Message:
    return replace(message, content=excerpt(message.content, max_bytes=longest))


def _cut_calls(message: Message, longest: int) -> Message:
    calls = tuple(replace(call, arguments=_cut_arguments(call.arguments, longest)) for call in message.tool_calls)
    return replace(message, tool_calls=calls)


def _cut_arguments(arguments: str, longest: int) -> str:
    """Return arguments with the long texts in them cut in the middle. If they are not JSON, wrap them in an object."""
    if len(arguments) <= longest:
        return arguments
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        value = {"arguments": arguments}
    try:
        return json.dumps(_cut_texts(value, longest), ensure_ascii=False)
    except RecursionError:
        return json.dumps({"arguments": excerpt(arguments, max_bytes=longest)})


def _cut_texts(value: JsonValue, longest: int) -> JsonValue:
    match value:
        case str():
            return excerpt(value, max_bytes=longest)
        case list():
            return [_cut_texts(item, longest) for item in value]
        case dict():
            return {key: _cut_texts(item, longest) for key, item in value.items()}
    return value


def _explain(messages: Sequence[Message], kept: _Kept, room: ContextRoom) -> str:
    allowed = " and ".join(
        f"{limit} {unit}"
        for limit, unit in ((room.max_bytes, "bytes"), (room.max_tokens, "tokens"))
        if limit is not None
    )
    system = measure(messages[place] for place in kept.fixed if messages[place].role == "system")
    if not room.holds(system):
        return (
            f"the system messages alone take {system.bytes} bytes, about {system.tokens} tokens, and {allowed} are "
            "allowed for the whole conversation; shorten the instructions or raise the limit"
        )
    least = measure(messages[place] for place in (*kept.fixed, *kept.newest))
    return (
        f"the newest messages, which a model needs whole, take {least.bytes} bytes, about {least.tokens} tokens, and "
        f"{allowed} are allowed for the whole conversation even after shortening; raise the limit, or let tools take "
        "ids of artifacts instead of long arguments"
    )
