"""A server may send any amount. What is read of it, kept of it and done because of it is limited."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from holdfast import InvalidValue
from holdfast.agent.tool import BadArguments
from holdfast.mcp import AnswerUnclear, ServerAway, ServerTools, tools
from holdfast.mcp.client import pipe, transports
from holdfast.mcp.client.schema import Form
from holdfast.mcp.client.tool import ServerTool
from holdfast.mcp.client.validator import MOST_DEPTH, TooMuchWork, Validator
from tests.mcp.client.support import old_command, old_over_http

SOME = 4_000


def doubling(times: int, **also: object) -> dict[str, Any]:
    """A schema of one page that asks for 2 ** times checks."""
    parts: dict[str, Any] = {"0": {"type": "object"}}
    for number in range(times):
        parts[str(number + 1)] = {"allOf": [{"$ref": f"#/$defs/{number}"}] * 2, **also}
    return {"type": "object", "$defs": parts, "required": ["x"], "properties": {"x": {"$ref": f"#/$defs/{times}"}}}


def listing(*listed: dict[str, Any]) -> ServerTools:
    return tools(old_command(), env={"MISBEHAVE": json.dumps({"list": listed})})


# What a schema asks for


@pytest.mark.parametrize("also", [{}, {"$schema": "http://json-schema.org/draft-07/schema#"}])
def test_a_schema_that_asks_for_years_of_work_is_checked_for_a_moment(also: dict[str, str]) -> None:
    schema = doubling(50, **also)
    with pytest.raises(TooMuchWork):
        list(Validator(schema, size=1_000).faults({"x": {}}, size=10))
    form = Form("patient", schema)
    form.check({"x": {}})  # the server checks the rest
    with pytest.raises(BadArguments, match="'x' is a required property"):
        form.check({})  # and what was found until then is reported


def test_what_an_error_quotes_is_work() -> None:
    """Each names what it is about, which may be all of the arguments."""
    row = {"anyOf": [{"type": "string"}, {}]}
    schema = {"type": "object", "properties": {"x": {"type": "array", "items": row}}}
    rows = [["y" * 1_000]] * 1_000
    assert list(Validator(schema, size=100).faults({"x": rows}, size=100)) == []
    with pytest.raises(TooMuchWork):
        list(Validator(schema, size=100).faults({"x": rows}, size=1_000_000))


def test_a_long_list_of_names_is_work() -> None:
    names = {"required": [str(number) for number in range(5_000)]}
    schema = {"type": "object", "anyOf": [names] * 30}
    with pytest.raises(TooMuchWork):
        list(Validator(schema, size=100).faults({}, size=2))


def test_a_long_value_is_work() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "array", "items": {"enum": [list(range(5_000))]}}}}
    with pytest.raises(TooMuchWork):
        list(Validator(schema, size=100).faults({"x": [[1]] * 30}, size=100))


@pytest.mark.parametrize(
    ("schema", "taken"),
    [
        ({"uniqueItems": True}, [{}, {}]),
        ({"oneOf": [{"items": {"pattern": "^a"}}, {"items": {"pattern": "^b"}}]}, ["b"]),
        ({"not": {"items": {"pattern": "^a"}}}, ["b"]),
        ({"contains": {"pattern": "^a"}, "maxContains": 1}, ["a", "b"]),
        ({"if": {"contains": {"pattern": "^a"}}, "then": False}, ["b"]),
        ({"items": {"properties": {"a": {}}, "unevaluatedProperties": False}}, [{"b": 1}]),
    ],
)
def test_what_is_not_checked_refuses_nothing(schema: dict[str, Any], taken: object) -> None:
    Form("lenient", {"type": "object", "properties": {"x": schema}}).check({"x": taken})


@pytest.mark.parametrize(
    ("schema", "refused"),
    [
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, 1),
        ({"not": {"type": "integer"}}, 1),
        ({"if": {"type": "integer"}, "then": {"minimum": 5}}, 1),
        ({"contains": {"type": "integer"}}, ["a"]),
        ({"anyOf": [{"type": "string"}, {"const": 2}]}, 1),
        ({"additionalProperties": False}, {"a": 1}),
    ],
)
def test_what_is_checked_is_checked_as_it_says(schema: dict[str, Any], refused: object) -> None:
    with pytest.raises(BadArguments, match="are wrong: x"):
        Form("strict", {"type": "object", "properties": {"x": schema}}).check({"x": refused})


def test_a_schema_is_itself_checked_within_bounds() -> None:
    """Some drafts want each value of an enum to be there once, and compare them all for that."""
    old = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object"}
    Form("old", {**old, "properties": {"x": {"enum": [{}, {}]}}})
    many = Validator({"type": "object", "allOf": [{}] * 10_000}, size=40_000)
    with pytest.raises(TooMuchWork):
        list(many.faults_of_schema())
    Form("many", {"type": "object", "allOf": [{}] * 10_000}).check({})


@pytest.mark.parametrize("schema", [{"type": "thing"}, {"properties": 5}, {"$schema": "http://["}, {"$schema": 5}])
def test_an_invalid_schema_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=r"describes its parameters wrongly .*leave it out with only="):
        Form("wrong", schema)


def test_a_schema_that_leads_back_to_itself_ends_before_python_does() -> None:
    deep: dict[str, Any] = {}
    for _ in range(60):
        deep = {"x": deep}
    Form("tree", {"type": "object", "properties": {"x": {"$ref": "#"}}}).check(deep)
    steeper = Form("steeper", {"type": "object", "properties": {"x": {"anyOf": [{"allOf": [{"$ref": "#"}]}]}}})
    with pytest.raises(BadArguments, match=f"cannot be checked: .*more than {MOST_DEPTH} keywords within each other"):
        steeper.check(deep)
    steeper.check({"x": {"x": {}}})


# What it lists


async def test_one_page_of_too_many_tools_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(ServerTool, "__init__", lambda _, name, *__, **___: made.append(name))
    with pytest.raises(InvalidValue, match="lists more than 1000 tools"):
        await listing(*[{"name": f"t{number}", "inputSchema": {"type": "object"}} for number in range(1_001)]).listed()
    assert made == []


async def test_others_go_on_while_tools_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, seen, make = 0, [], ServerTool.__init__

    def count(*args: Any, **options: Any) -> None:  # noqa: ANN401
        seen.append(turns)
        make(*args, **options)

    async def go_on() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(ServerTool, "__init__", count)
    other = asyncio.create_task(go_on())
    try:
        await listing(*[{"name": f"t{number}", "inputSchema": {"type": "object"}} for number in range(5)]).listed()
    finally:
        other.cancel()
    assert len(set(seen)) == 5


# What it answers


async def test_an_answer_over_http_that_is_too_long_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transports, "LONGEST_ANSWER", SOME)
    with old_over_http() as url:
        [echo] = await tools(url).listed()
        with pytest.raises(AnswerUnclear, match=f"its answer is longer than {SOME} bytes"):
            await echo({"text": "x" * SOME}, effect_id="1")
        assert await echo({"text": "x" * (SOME - 200)}, effect_id="2") == "x" * (SOME - 200)


async def test_a_list_over_http_that_is_too_long_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transports, "LONGEST_ANSWER", SOME)
    with (
        old_over_http({"list": [{"name": "t", "description": "x" * SOME, "inputSchema": {"type": "object"}}]}) as url,
        pytest.raises(ServerAway, match=f"its answer is longer than {SOME} bytes"),
    ):
        await tools(url).listed()


async def test_a_stream_may_go_on_for_as_long_as_its_events_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transports, "LONGEST_ANSWER", SOME)
    with old_over_http() as url:
        [echo] = await tools(url).listed()
        assert await echo({"text": "chatter"}, effect_id="1") == "at last"
        with pytest.raises(AnswerUnclear):
            await echo({"text": "stream"}, effect_id="2")


async def test_a_packed_answer_is_not_unpacked() -> None:
    """A few bytes could become more than there is memory for."""
    with old_over_http() as url:
        [echo] = await tools(url, headers={"accept-encoding": "gzip"}).listed()
        assert await echo({"text": "accepts"}, effect_id="1") == "identity"
    with old_over_http({"pack": True, "token": "secret"}) as url:
        with pytest.raises(ServerAway, match=r"its answer is packed \(gzip\), which was not asked for"):
            await tools(url, token="secret").listed()  # noqa: S106
        with pytest.raises(ServerAway, match="answered 401"):
            await tools(url).listed()


async def test_a_line_that_is_too_long_is_lost_and_the_next_one_is_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pipe, "LONGEST_LINE", SOME)
    source = tools(old_command())
    [echo] = await source.listed()
    lost = asyncio.create_task(echo({"text": "x" * SOME}, effect_id="1"))
    await asyncio.sleep(0)
    assert await echo({"text": "still there"}, effect_id="2") == "still there"
    assert not lost.done()  # its tool's timeout ends it, and it is in doubt
    assert f"a line of more than {SOME} bytes; it is lost" in caplog.text
    await source.close()
    with pytest.raises(AnswerUnclear):
        await lost


def test_what_is_kept_of_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe, "LONGEST_LINE", 4)
    lines = pipe.Lines("server")
    parts = (b"1234\n12", b"34", b"56", b"78", b"9\n", b"\xc3", b"\xa4b\n\n123456\n1", b"2\n")
    assert [list(lines.whole(part)) for part in parts] == [
        [b"1234"],
        [],
        [],
        [],
        [],
        [],
        ["\u00e4b".encode(), b""],
        [b"12"],
    ]


def test_what_is_not_a_message_is_skipped_and_bad_bytes_in_one_are_replaced(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", pipe.__name__)
    lines = pipe.Lines("server")
    noise = [b"", b"  ", b"\xff\xfe oops", b"{]", b"[]", b"null", b"42", b"{}", b"[" * 100_000, b'"\\ud800"']
    assert [lines.parsed(line) for line in noise] == [None] * len(noise)
    assert "the MCP server server wrote bytes that are not UTF-8" in caplog.text
    assert [record.levelname for record in caplog.records].count("WARNING") == 1  # the rest is logged lower
    for text in (b"caf\xe9", b"cut \\ud83d"):
        message = lines.parsed(b'{"jsonrpc":"2.0","id":1,"result":{"text":"' + text + b'"}}')
        assert message is not None
        assert message.message.result["text"][:3] in {"caf", "cut"}  # type: ignore[union-attr]
