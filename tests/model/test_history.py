from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st

from holdfast.model.errors import InvalidValue
from holdfast.model.history import compact, measure, open_calls
from holdfast.model.message import Message, ToolCall

NOTE = re.compile(r"\[(\d+) earlier messages? (?:was|were) left out here; the facts are in the state\.\]")
CUT = re.compile(r"\[\.\.\. (\d+) bytes left out \.\.\.\]")


def system(text: str) -> Message:
    return Message(role="system", content=text)


def user(text: str) -> Message:
    return Message(role="user", content=text)


def says(text: str, *calls: str) -> Message:
    made = tuple(ToolCall(id=name, name="look", arguments="{}") for name in calls)
    return Message(role="assistant", content=text, tool_calls=made)


def result(call: str, text: str) -> Message:
    return Message(role="tool", content=text, tool_call_id=call)


# Lengths around those at which something happens; no content that looks like one of our own notes.
contents = st.builds(
    lambda letter, length: letter * length, st.sampled_from(["a", "é", "状", "🙂"]), st.sampled_from([0, 1, 9, 70, 400])
)


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """As an agent holds them, with words of the user between, results in any order, and some still missing."""
    messages = [system(draw(contents)) for _ in range(draw(st.integers(0, 2)))]
    messages += [user(draw(contents)) for _ in range(draw(st.integers(0, 1)))]
    fresh = draw(st.booleans())  # whether call ids are new every time, or count from zero in every message
    for turn in range(draw(st.integers(0, 6))):
        names = [f"{turn if fresh else ''}:{number}" for number in range(draw(st.integers(0, 3)))]
        messages.append(says(draw(contents), *names))
        answers = [result(name, draw(contents)) for name in draw(st.permutations(names))]
        if answers and draw(st.integers(0, 4)) == 0:
            answers[draw(st.integers(0, len(answers) - 1))] = user(draw(contents))
        messages += answers
        messages += [user(draw(contents)) for _ in range(draw(st.integers(0, 1)))]
    # No two alike, so that they can be distinguished.
    return [replace(message, content=f"{number}:{message.content}") for number, message in enumerate(messages)]


limits = st.integers(0, 1500)


@st.composite
def squeezed(draw: st.DrawFn) -> tuple[list[Message], int]:
    """A conversation and a limit under which something of it, and likely not all of it, has to go."""
    messages = draw(conversations().filter(lambda found: len(found) > 3))
    total = measure(messages).bytes
    return messages, draw(st.integers(total // 3, total - 1))


def compact_or_skip(messages: Sequence[Message], **limit: int) -> tuple[Message, ...]:
    try:
        return compact(messages, **limit)
    except InvalidValue:
        reject()


def is_from(kept: Message, original: Message) -> bool:
    """Whether ``kept`` is ``original``, or that with its middle cut out."""
    if kept == original:
        return True
    head, cut, tail = CUT.split(kept.content) if CUT.search(kept.content) else (kept.content, "0", "")
    head, tail = head.removesuffix("\n"), tail.removeprefix("\n")
    missing = len(original.content.encode()) - len(head.encode()) - len(tail.encode())
    same = (kept.role, kept.tool_calls, kept.tool_call_id) == (
        original.role,
        original.tool_calls,
        original.tool_call_id,
    )
    return (
        same
        and original.content.startswith(head)
        and original.content.endswith(tail)
        and missing == int(cut)
        and missing > 0
    )


def places(kept: Sequence[Message], messages: Sequence[Message]) -> list[int | None]:
    """Where in the conversation each message stood; None for the note. Fails for what never stood there."""
    return [
        None
        if NOTE.fullmatch(message.content)
        else next(index for index, original in enumerate(messages) if is_from(message, original))
        for message in kept
    ]


def fixed_part(messages: Sequence[Message]) -> set[int]:
    """Where the system messages at the beginning and the goal stand."""
    leading = 0
    while leading < len(messages) and messages[leading].role == "system":
        leading += 1
    return {*range(leading), *[index for index, message in enumerate(messages) if message.role == "user"][:1]}


def group_up_to(messages: Sequence[Message], index: int) -> list[Message]:
    """A message with those before it that it may not be parted from."""

    def asker(place: int) -> int:
        asked = messages[place].tool_call_id
        return next(i for i in reversed(range(place)) if any(call.id == asked for call in messages[i].tool_calls))

    first = asker(index) if messages[index].role == "tool" else index
    return [messages[place] for place in range(first, index + 1) if place not in fixed_part(messages)]


@given(conversations(), limits)
def test_never_over_the_limit_in_bytes(messages: list[Message], limit: int) -> None:
    assert measure(compact_or_skip(messages, max_bytes=limit)).bytes <= limit


@given(conversations(), limits)
def test_never_over_the_limit_in_tokens(messages: list[Message], limit: int) -> None:
    assert measure(compact_or_skip(messages, max_tokens=limit)).tokens <= limit


@given(conversations(), limits, limits)
def test_both_limits_hold_and_the_same_comes_out_twice(messages: list[Message], most: int, tokens: int) -> None:
    kept = compact_or_skip(messages, max_bytes=most, max_tokens=tokens)
    assert measure(kept).bytes <= most
    assert measure(kept).tokens <= tokens
    assert kept == compact(messages, max_bytes=most, max_tokens=tokens)


@given(conversations())
def test_what_fits_comes_back_as_it_is(messages: list[Message]) -> None:
    size = measure(messages)
    for kept in (compact(messages), compact(messages, max_bytes=size.bytes, max_tokens=size.tokens)):
        assert len(kept) == len(messages)
        assert all(one is other for one, other in zip(kept, messages, strict=True))


@given(conversations(), limits)
def test_compacting_again_changes_nothing(messages: list[Message], limit: int) -> None:
    kept = compact_or_skip(messages, max_bytes=limit)
    assert compact(kept, max_bytes=limit) == kept


@given(squeezed())
def test_order_is_kept_nothing_is_invented_and_the_note_counts_right(case: tuple[list[Message], int]) -> None:
    messages, limit = case
    kept = compact_or_skip(messages, max_bytes=limit)
    found = places(kept, messages)
    stood = [place for place in found if place is not None]
    assert stood == sorted(set(stood))
    notes = [match for message in kept if (match := NOTE.fullmatch(message.content))]
    assert [int(match[1]) for match in notes] == ([len(messages) - len(stood)] if len(stood) < len(messages) else [])


@given(squeezed())
def test_a_call_and_its_results_stay_or_go_together(case: tuple[list[Message], int]) -> None:
    messages, limit = case
    kept = compact_or_skip(messages, max_bytes=limit)
    for index, message in enumerate(kept):
        if message.role == "tool":
            assert any(call.id == message.tool_call_id for before in kept[:index] for call in before.tool_calls)
    # Whatever has no result in what is left had none in the whole.
    still_open = list(open_calls(messages))
    for call in open_calls(kept):
        still_open.remove(call)


@given(squeezed())
def test_system_messages_the_goal_and_the_newest_stay(case: tuple[list[Message], int]) -> None:
    messages, limit = case
    stood = places(compact_or_skip(messages, max_bytes=limit), messages)
    assert fixed_part(messages) | {len(messages) - 1} <= set(stood)


@given(squeezed())
def test_what_is_kept_beside_the_fixed_part_is_the_newest_and_as_much_as_fits(case: tuple[list[Message], int]) -> None:
    messages, limit = case
    kept = compact_or_skip(messages, max_bytes=limit)
    stood = {place for place in places(kept, messages) if place is not None}
    assume(len(stood) < len(messages))
    assume(not any(CUT.search(message.content) for message in kept))
    newest_left_out = max(set(range(len(messages))) - stood)
    assert newest_left_out < min(stood - fixed_part(messages), default=len(messages))
    note = user(f"[{len(messages)} earlier messages were left out here; the facts are in the state.]")
    with_one_more = [*(messages[place] for place in stood), note, *group_up_to(messages, newest_left_out)]
    assert measure(with_one_more).bytes > limit


CONVERSATION = [
    system("Be brief."),
    user("Fix it."),
    says("", "1"),
    result("1", "a" * 300),
    says("", "2", "3"),
    result("3", "b" * 300),
    result("2", "c" * 300),
    says("done"),
]


def test_groups_leave_from_the_oldest() -> None:
    kept = compact(CONVERSATION, max_bytes=900)
    assert kept == (
        *CONVERSATION[:2],
        user("[2 earlier messages were left out here; the facts are in the state.]"),
        *CONVERSATION[4:],
    )
    kept = compact(CONVERSATION, max_bytes=400)
    assert kept == (
        *CONVERSATION[:2],
        user("[5 earlier messages were left out here; the facts are in the state.]"),
        CONVERSATION[-1],
    )


def test_results_of_the_newest_group_are_shortened_in_the_middle() -> None:
    kept = compact(CONVERSATION[:-1], max_bytes=600)
    head, note, asks, *results = kept[1:]
    assert (head, asks) == (CONVERSATION[1], CONVERSATION[4])
    assert note.content.startswith("[2 earlier")
    assert [shown.tool_call_id for shown in results] == ["3", "2"]
    for shown, letter in zip(results, "bc", strict=True):
        assert re.fullmatch(rf"{letter}+\n\[\.\.\. \d+ bytes left out \.\.\.\]\n{letter}+", shown.content)
    assert 590 < measure(kept).bytes <= 600


def test_then_the_goal_is_shortened_and_then_the_rest_of_the_newest_group() -> None:
    messages = [system("Be brief."), user("g" * 900), says("t" * 900, "1"), result("1", "r" * 900)]
    by_limit = {limit: compact(messages, max_bytes=limit) for limit in (2500, 1500, 500)}
    cut = {limit: [bool(CUT.search(message.content)) for message in kept] for limit, kept in by_limit.items()}
    assert cut == {
        2500: [False, False, False, True],
        1500: [False, True, False, True],
        500: [False, True, True, True],
    }
    assert all(limit - 10 < measure(kept).bytes <= limit for limit, kept in by_limit.items())


def test_a_system_message_that_is_too_large_is_named() -> None:
    with pytest.raises(
        InvalidValue, match=r"system messages alone take 516 bytes.*300 bytes.*shorten the instructions"
    ):
        compact([system("s" * 500), user("hello")], max_bytes=300)
    with pytest.raises(InvalidValue, match=r"about 147 tokens.*90 tokens"):
        compact([system("s" * 500), user("hello")], max_tokens=90)


def test_arguments_of_calls_are_shortened_last_and_stay_json() -> None:
    given = {"path": "a.txt", "text": "x" * 9_000, "parts": ["y" * 9_000, 1, {"deep": "z" * 9_000}]}
    for arguments in (json.dumps(given), "no json " * 2_000, "[" * 30_000):
        asks = Message(role="assistant", content="", tool_calls=(ToolCall(id="1", name="write", arguments=arguments),))
        *_, kept = compact([user("hello"), asks], max_bytes=2_000)
        [call] = kept.tool_calls
        assert (call.id, call.name) == ("1", "write")
        read = json.loads(call.arguments)
        assert "left out" in call.arguments
        if "path" in read:
            assert read["path"] == "a.txt"
            assert read["parts"][1] == 1
    asks = Message(role="assistant", content="", tool_calls=(ToolCall(id="1", name="write", arguments="x" * 500),))
    with pytest.raises(InvalidValue, match=r"newest messages.*long arguments"):
        compact([user("hello"), asks], max_bytes=100)


def test_a_result_goes_with_the_newest_message_that_used_its_id() -> None:
    messages = [user("go"), says("", "0"), result("0", "a" * 100), says("", "0"), result("0", "b" * 100)]
    kept = compact(messages, max_bytes=270)
    assert [message.content for message in kept][2:] == ["", "b" * 100]


def test_a_word_between_a_call_and_its_result_does_not_part_them() -> None:
    messages = [user("go"), user("old" * 50), says("", "0"), user("by the way"), result("0", "b")]
    assert compact(messages, max_bytes=200)[-3:] == tuple(messages[2:])


def test_calls_without_a_result() -> None:
    assert open_calls([]) == ()
    assert open_calls(CONVERSATION) == ()
    assert [call.id for call in open_calls([*CONVERSATION[:5], result("3", ""), result("9", "to no call")])] == ["2"]
    # Some models use an id again: the newest message that did is answered, its first call first.
    first, second, third = (ToolCall(id="0", name="look", arguments=text) for text in ("1", "2", "3"))
    asks = [replace(says(""), tool_calls=(first,)), replace(says(""), tool_calls=(second, third))]
    assert open_calls([*asks, result("0", "x")]) == (first, third)
    assert open_calls([*asks, result("0", "x"), result("0", "y")]) == (first,)
