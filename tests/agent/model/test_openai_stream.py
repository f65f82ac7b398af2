"""Events out of bytes, and replies out of events: the ways in which endpoints differ, without an endpoint."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from holdfast.agent import openai_stream
from holdfast.agent.model import ModelError, ModelRefused
from holdfast.agent.openai_errors import of_event
from holdfast.agent.openai_stream import Assembly, Chunk, EventDecoder, read_usage
from holdfast.model.message import Reply, Usage
from holdfast.redaction import know
from tests.agent.model.support import ignore, user

TEXTS = some.text(some.characters(exclude_characters="\r\n", codec="utf-8"))


def events_of(*parts: bytes) -> list[str]:
    decoder = EventDecoder()
    return [event for part in parts for event in decoder.feed(part)]


def assembled(*deltas: dict[str, Any], finish_reason: str | None = "stop") -> Reply:
    assembly = Assembly(user("go", effect_id="e"), ignore)
    for delta in deltas:
        assembly.add(Chunk.read(json.dumps({"choices": [{"index": 0, "delta": delta}]})))
    assembly.add(Chunk.read(json.dumps({"choices": [{"delta": None, "finish_reason": finish_reason}]})))
    return assembly.reply()


def piece(index: int | None, name: str | None = None, arguments: str | None = None, **more: str) -> dict[str, Any]:
    where = {} if index is None else {"index": index}
    return {"tool_calls": [{**where, **more, "function": {"name": name, "arguments": arguments}}]}


def calls_of(reply: Reply) -> list[tuple[str, str]]:
    return [(made.name, made.arguments) for made in reply.tool_calls]


def test_an_endpoint_that_repeats_the_key_is_not_repeated() -> None:
    """Neither in the pieces of a text, wherever they are cut, nor in the reply; and no tool is called with it."""
    know("sk-live-0123456789")
    for size in range(1, 25):
        text = "Your key: sk-live-0123456789. So?"
        said: list[str] = []
        assembly = Assembly(user("go"), said.append)
        for start in range(0, len(text), size):
            delta = {"content": text[start : start + size]}
            assembly.add(Chunk.read(json.dumps({"choices": [{"index": 0, "delta": delta}]})))
            assert "sk-live-" not in "".join(said)
        assembly.add(Chunk.read(json.dumps({"choices": [{"delta": {}, "finish_reason": "stop"}]})))
        reply = assembly.reply()
        assert "".join(said) == reply.content == "Your key: ***. So?"
    for called in (
        piece(0, "note", json.dumps({"text": "sk-live-0123456789"}), id="call"),
        piece(0, "note", "{}", id="call_sk-live-0123456789"),
    ):
        assembly = Assembly(user("go"), ignore)
        assembly.add(Chunk.read(json.dumps({"choices": [{"delta": called, "finish_reason": "stop"}]})))
        with pytest.raises(ModelError, match="repeated a credential in a tool call"):
            assembly.reply()


@given(some.lists(TEXTS), some.lists(some.integers(0, 2000)), some.sampled_from([b"\n", b"\r\n"]))
def test_events_come_out_as_they_went_in_however_the_bytes_are_cut(
    texts: list[str], cuts: list[int], end: bytes
) -> None:
    """JSON may hold U+2028 and its like unescaped: they do not end a line."""
    sent = b"".join(b": comment%bdata: %b%b%b" % (end, text.encode(), end, end) for text in texts)
    places = sorted({0, len(sent), *(cut for cut in cuts if cut < len(sent))})
    parts = [sent[start:stop] for start, stop in pairwise(places)]
    assert events_of(*parts) == texts


@pytest.mark.parametrize(
    ("sent", "events"),
    [
        (b"data:1\n\n", ["1"]),
        (b"data: a\ndata: b\n\n", ["a\nb"]),
        (b"event: x\nid: 7\nretry: 3\ndata: 1\n\n", ["1"]),
        (b": comment\n\n\n\n", []),
        (b"data: [DONE]\n", []),
        (b"data: [DONE]", []),
        (b"data: \xff\n\n", ["\ufffd"]),
    ],
)
def test_events_as_the_standard_has_them(sent: bytes, events: list[str]) -> None:
    assert events_of(sent) == events


@pytest.mark.parametrize(
    "data", ["", "{", "[]", "1", "[" * 99_999, '{"choices": 1}', '{"choices": [{"delta": {"content": 1}}]}']
)
def test_what_is_not_a_chunk_is_an_error(data: str) -> None:
    with pytest.raises(ModelError, match="not a chat completion chunk"):
        Chunk.read(data)


def test_what_is_missing_or_null_or_unknown_is_not_an_error() -> None:
    everything_null = {"choices": None, "usage": None, "model": None, "error": None, "more": 1}
    assembly = Assembly(user("go"), ignore)
    assembly.add(Chunk.read(json.dumps(everything_null)))
    assembly.add(Chunk.read('{"choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": 3}}'))
    reply = assembly.reply()
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (3, 0)


def test_the_usage_that_came_last_counts() -> None:
    assembly = Assembly(user("go"), ignore)
    for tokens in (1, 2, 3):
        usage = {"prompt_tokens": 5, "completion_tokens": tokens}
        assembly.add(Chunk.read(json.dumps({"choices": [{"finish_reason": "stop"}], "usage": usage})))
    reply = assembly.reply()
    assert reply.usage is not None
    assert reply.usage.total == 8


def test_impossible_usage_is_ignored() -> None:
    """Of what an endpoint does not count, or counts in a way that cannot be, the tokens are estimated later on."""
    for prompt, completion, total in (
        (-5, 1, None),
        (5, -1, None),
        (True, 1, None),
        (5, False, None),
        (5.5, 1, None),
        ("5", 1, None),
        (5, [1], None),
        (5, 2, 6),
        (5, 2, 7.0),
        (5, 2, True),
        (5, 2, -7),
    ):
        said = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}
        assert read_usage(said) is None, said
    for other in (None, [], "7", 7, True, [["prompt_tokens", 5]]):
        assert read_usage(other) is None, other
    chunk = Chunk.read('{"choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": 1e400}}')
    assembly = Assembly(user("go"), ignore)
    assembly.add(chunk)
    assert assembly.reply().usage is None


def test_what_is_only_in_the_total_was_written_too() -> None:
    said = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 107}
    assert read_usage(said) == Usage(input_tokens=5, output_tokens=102)
    assert read_usage({**said, "total_tokens": 7}) == Usage(input_tokens=5, output_tokens=2)


class Counter:
    """An ``on_text`` that counts as an agent's does."""

    def __init__(self) -> None:
        self.seen, self.hidden = "", ""
        self.noted = 0

    def __call__(self, text: str) -> None:
        self.seen += text

    def unseen(self, text: str) -> None:
        self.noted += 1
        self.hidden += text


def test_what_arrives_and_is_not_shown_is_counted() -> None:
    for delta, expected in (
        ({"role": "assistant"}, ""),
        ({"tool_calls": [{"index": 0, "function": {"name": "a", "arguments": "{}"}}]}, "a{}"),
        ({"reasoning_content": "hm"}, "hm"),
        ({"reasoning": "hm"}, "hm"),
        ({"thinking": "hm"}, "hm"),
        ({"reasoning": {"text": "hm", "type": "t"}}, "hm"),
        ({"reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}, "hm"),
        ({"reasoning_details": [{"text": "hm"}, {"summary": "!"}, {"data": "?"}, 3, {"text": 3}]}, "hm!?"),
        ({"reasoning_content": None, "reasoning": 7}, ""),
    ):
        counter = Counter()
        Assembly(user("go"), counter).add(Chunk.read(json.dumps({"choices": [{"delta": delta}]})))
        assert (counter.hidden, counter.seen) == (expected, ""), delta
        assert counter.noted, "the endpoint has begun"
    counter = Counter()
    Assembly(user("go"), counter).add(Chunk.read("{}"))
    assert counter.noted, "with an event that holds nothing, too"
    second = {"choices": [{"index": 1, "delta": {"content": "another answer"}}]}
    Assembly(user("go"), counter).add(Chunk.read(json.dumps(second)))
    assert counter.hidden == "another answer"


def test_an_answer_that_was_cut_does_not_become_whole_again() -> None:
    assembly = Assembly(user("go"), ignore)
    for reason in ("length", "tool_calls", "stop"):
        assembly.add(Chunk.read(json.dumps({"choices": [{"finish_reason": reason}]})))
    assert assembly.reply().finish_reason == "length"


def test_an_answer_has_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the wire, in one line, and in what is kept of it."""
    with monkeypatch.context() as smaller:
        smaller.setattr(openai_stream, "MOST_BYTES", 1 << 20)
        with pytest.raises(ModelError, match="an answer of more than 1 MiB"):
            events_of(*[b": a comment that keeps the connection open\n"] * 30_000)
    with monkeypatch.context() as smaller:
        smaller.setattr(openai_stream, "LONGEST_LINE", 1 << 20)
        with pytest.raises(ModelError, match="a line of more than 1 MiB"):
            events_of(*[b"data: " + b"x" * 100_000] * 12)
    monkeypatch.setattr(openai_stream, "MOST_TEXT", 1 << 20)
    many = "x" * 600_000
    for deltas in (
        [{"content": many}, {"content": many}],
        [piece(0, "a", many), piece(0, None, many)],
        [piece(0, "a", many), piece(1, many, "")],
        [{"content": many}, piece(0, "a", many)],
    ):
        with pytest.raises(ModelError, match="text and tool calls of more than 1 MiB"):
            assembled(*deltas)
    assert assembled({"reasoning_content": many}, {"reasoning_content": many}).content == ""  # is not kept


def test_what_an_endpoint_calls_itself_is_kept_short() -> None:
    assembly = Assembly(user("go"), ignore)
    said = {"model": "m\0" * 100_000, "choices": [{"finish_reason": "x" * 100_000}]}
    assembly.add(Chunk.read(json.dumps(said)))
    reply = assembly.reply()
    assert len(reply.model) < 300 > len(reply.finish_reason)
    assert "\0" not in reply.model


def test_half_an_emoji_in_each_of_two_chunks_is_one() -> None:
    pieces: list[str] = []
    assembly = Assembly(user("go"), pieces.append)
    for content in ("a\ud83d", "\ude00b\ud800"):  # which json.dumps writes as escapes, as endpoints do
        assembly.add(Chunk.read(json.dumps({"choices": [{"finish_reason": "stop", "delta": {"content": content}}]})))
    assert assembly.reply().content == "a\U0001f600b\ufffd"
    assert "".join(pieces).encode()  # which lone surrogates would not survive


def test_a_refusal_is_what_the_model_says() -> None:
    assert assembled({"refusal": "I will not."}).content == "I will not."


def test_only_the_first_of_several_answers_is_taken() -> None:
    assembly = Assembly(user("go"), ignore)
    choices = [{"index": index, "delta": {"content": str(index)}, "finish_reason": "stop"} for index in (0, 1)]
    assembly.add(Chunk.read(json.dumps({"choices": choices})))
    assert assembly.reply().content == "0"


def test_pieces_of_calls_find_their_call_by_index() -> None:
    reply = assembled(piece(0, "a", id="x"), piece(1, "b", id="y"), piece(0, None, "{}"), piece(1, None, "[]"))
    assert calls_of(reply) == [("a", "{}"), ("b", "[]")]


def test_calls_without_an_index_follow_each_other() -> None:
    reply = assembled(piece(None, "a", "{", id="x"), piece(None, None, "}"), piece(None, "b", "{}", id="y"))
    assert calls_of(reply) == [("a", "{}"), ("b", "{}")]


def test_a_piece_without_an_index_belongs_to_the_call_before_it() -> None:
    assert calls_of(assembled(piece(0, "a", "{", id="x"), piece(None, None, "}"))) == [("a", "{}")]


def test_whole_calls_that_all_have_the_same_index_are_several() -> None:
    assert calls_of(assembled(piece(0, "a", "{}", id="x"), piece(0, "a", "{}", id="y"))) == [("a", "{}"), ("a", "{}")]


def test_a_new_id_for_every_piece_is_still_one_call() -> None:
    reply = assembled(piece(0, "a", "{", id="x"), piece(0, None, "}", id="y"))
    assert [(made.id, made.arguments) for made in reply.tool_calls] == [("x", "{}")]


def test_a_name_that_comes_with_every_piece_is_not_repeated() -> None:
    assert calls_of(assembled(piece(0, "a", "{", id="x"), piece(0, "a", "}", id="x"))) == [("a", "{}")]


def test_calls_that_come_together_never_become_one() -> None:
    """Neither without ids and indexes, nor where the endpoint gives the same ones to all of them."""
    first, second = {"name": "look", "arguments": '{"place":"a"}'}, {"name": "wipe", "arguments": ""}
    same = {"name": "look", "arguments": '{"place":"b"}'}
    for mark in ({}, {"index": 0}, {"id": ""}, {"index": None, "id": None}, {"index": 0, "id": "x"}):
        for other in (second, same):
            reply = assembled({"tool_calls": [{**mark, "function": first}, {**mark, "function": other}]})
            assert calls_of(reply) == [(made["name"], made["arguments"]) for made in (first, other)], (mark, other)
            assert len({made.id for made in reply.tool_calls}) == 2
    for mark in ({}, {"id": None}):
        pieces = [{"tool_calls": [{**mark, "function": made}]} for made in (first, same, second)]
        assert [made.name for made in assembled(*pieces).tool_calls] == ["look", "look", "wipe"], mark
    assert calls_of(assembled(piece(0, "a", "{}"), piece(0, "b", "[]"))) == [("a", "{}"), ("b", "[]")]
    mixed = assembled(piece(None, "a", "{}"), piece(None, "a", "[]", id="x"))
    assert calls_of(mixed) == [("a", "{}"), ("a", "[]")]


def test_pieces_without_an_index_find_their_call_by_id() -> None:
    opened = {"tool_calls": [{"id": key, "function": {"name": key, "arguments": ""}} for key in "ab"]}
    grown = [{"tool_calls": [{"id": key, "function": {"arguments": f'["{key}"]'}}]} for key in "ab"]
    assert calls_of(assembled(opened, *grown)) == [("a", '["a"]'), ("b", '["b"]')]


def test_a_name_may_come_after_the_id() -> None:
    assert calls_of(assembled(piece(None, None, "", id="x"), piece(None, "a", "{}"))) == [("a", "{}")]


def test_ambiguous_pieces_are_an_error() -> None:
    pieces = [{"function": {"arguments": "{"}}, {"function": {"arguments": "}"}}]
    with pytest.raises(ModelError, match="cannot be assigned to"):
        assembled(piece(None, "a", ""), piece(None, "b", ""), {"tool_calls": pieces})


def test_two_calls_under_one_id_get_two() -> None:
    reply = assembled(piece(0, "a", "{}", id="x"), piece(1, "b", "{}", id="x"))
    first, second = (made.id for made in reply.tool_calls)
    assert first == "x"
    assert second not in {"", "x"}


def test_a_call_without_a_name_is_an_error() -> None:
    with pytest.raises(ModelError, match="without a name"):
        assembled(piece(0, None, "{}", id="x"))


@pytest.mark.parametrize("finish_reason", [None, ""])
def test_no_finish_reason_is_an_error(finish_reason: str | None) -> None:
    with pytest.raises(ModelError, match="without a finish_reason"):
        assembled({"content": "Hi."}, finish_reason=finish_reason)


@pytest.mark.parametrize(
    ("error", "is_refused", "says"),
    [
        ({"message": "overloaded", "code": 529}, False, "answered 529: overloaded"),
        ({"message": "no such model", "code": 404}, True, "check the model's name"),
        ({"message": "odd", "code": "server_error"}, False, "stopped: odd"),
        ("plain words", False, "stopped: plain words"),
        ({"message": "odd", "code": True}, False, "stopped: odd"),
        ({"message": "odd", "code": 200}, False, "stopped: odd"),
        ({"message": "odd", "code": 10**30}, False, "stopped: odd"),
        ({"message": "elsewhere", "code": 302}, False, "redirects are not followed"),
        ({"detail": "another form"}, False, '{"detail": "another form"}'),
    ],
)
def test_an_error_as_an_event_is_read_like_a_status(error: object, is_refused: bool, says: str) -> None:
    read = of_event(error)
    assert isinstance(read, ModelRefused) == is_refused
    assert says in str(read)


def test_an_error_of_any_depth_is_read() -> None:
    deep: object = []
    for _ in range(100_000):
        deep = [deep]
    assert "cannot be shown" in str(of_event({"detail": deep}))
