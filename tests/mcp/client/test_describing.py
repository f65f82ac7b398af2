"""Describing where the tools come from: what is refused, and when."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from holdfast import Agent, DuplicateName, Holdfast, InvalidValue, MissingExtra, ScriptedModel, TaskFailed, tool
from holdfast.agent.scripted import Line, call
from holdfast.mcp import Declared, ServerTools, tools
from tests.agent.support import register, tool_results
from tests.mcp.client.support import World, finished, old_command

ANYTHING = {"type": "object"}


def lists(*listed: dict[str, Any], **options: Any) -> ServerTools:  # noqa: ANN401
    """The tools of a server that lists these."""
    named = [{"inputSchema": ANYTHING, **each} for each in listed]
    return tools(old_command(), env={"MISBEHAVE": json.dumps({"list": named})}, **options)


@pytest.mark.parametrize(
    ("server", "options", "words"),
    [
        ("uvx some-server", {}, "is not an http:// or https:// URL; a server that is started is a list of words"),
        ("ftp://there", {}, "is not an http"),
        ([], {}, "is empty, or has a NUL"),
        (["a\0b"], {}, "is empty, or has a NUL"),
        ("https://ann:secret@there/mcp", {}, "holds a user or password; pass token="),
        ("https://there/mcp", {"env": {}}, "env= and cwd= are for a server that is started"),
        (["there"], {"token": "x"}, "headers= and token= are for a server at a URL"),
        ("https://there", {"token": "x", "headers": {"authorization": "y"}}, "set the same header"),
        (["there"], {"only": "search"}, 'name the tools in a list: only=\\["search"\\]'),
        (["there"], {"declare": {"search": "read_only"}}, "write Declared"),
        (["there"], {"declare": {"a.b": Declared()}}, "has a tool 'a.b'.*Declared\\(name=...\\)"),
        (["there"], {"declare": {"a": Declared(effect="pure", settle=1)}}, "are for effect='once'"),
        (["there"], {"connect": 0}, "connect is 0 seconds"),
    ],
)
def test_mistakes_are_reported_when_they_are_made(server: Any, options: dict[str, Any], words: str) -> None:  # noqa: ANN401
    with pytest.raises(InvalidValue, match=words):
        tools(server, **options)


def test_secrets_are_not_shown() -> None:
    for source in (
        tools("https://there/mcp?key=SECRET", token="SECRET", headers={"x-key": "SECRET"}),  # noqa: S106
        tools(["server", "--key=SECRET"], env={"KEY": "SECRET"}),
    ):
        assert "SECRET" not in repr(source)
        assert "SECRET" not in repr(vars(source)["_server"].label)


def test_importing_and_describing_connects_to_nothing_and_loads_no_sdk() -> None:
    code = """
import sys
import holdfast.mcp
assert not any(name.startswith("holdfast.mcp.client") for name in sys.modules)
from holdfast import Agent, ScriptedModel
from holdfast.mcp import Declared, tools
source = tools(["no-such-program"], declare={"search": Declared(risk="read_only")})
Agent("ops", model=ScriptedModel([]), tools=[source])
assert not {"mcp", "mcp_types", "httpx2"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.mcp.client.source.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"pip install 'holdfast\[mcp\]'"):
        tools(["server"])


async def test_which_tools_are_offered(world: World) -> None:
    declared = {"search": Declared(risk="read_only"), "send": Declared(name="post")}
    assert [tool.name for tool in await tools(world.command, declare=declared, only=declared).listed()] == [
        "search",
        "post",
    ]
    assert [tool.name for tool in await tools(world.command, only=["send"], prefix="w-").listed()] == ["w-send"]
    assert len(await tools(world.command).listed()) == 9


async def test_a_declared_tool_that_is_not_there_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    assert await tools(world.command, only=["serach"]).listed() == ()
    assert "has no tool serach" in caplog.text


async def test_a_tool_name_that_endpoints_refuse_is_an_error_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    [usable] = await lists({"name": "files/read"}, {"name": "write"}).listed()
    assert usable.name == "write"  # an unusable tool that was not asked for does not affect it
    assert "has a tool 'files/read'" in caplog.text
    assert "it is left out" in caplog.text
    with pytest.raises(InvalidValue, match=r"has a tool 'files/read'.*letters, digits.*Declared\(name=.*only="):
        await lists({"name": "files/read"}, only=["files/read"]).listed()
    [tool] = await lists({"name": "files/read"}, declare={"files/read": Declared(name="read")}).listed()
    assert tool.name == "read"


@tool
async def send(to: str) -> str:
    """Send, without any server."""
    return f"sent to {to} by hand"


@pytest.mark.parametrize("asked", [{"declare": {"send": Declared()}}, {"only": ["send"]}])
async def test_two_tools_of_one_name_that_were_asked_for_are_an_error(
    hold: Holdfast, world: World, asked: dict[str, Any]
) -> None:
    agent, _ = register(hold, ["done"], tools=[send, tools(world.command, **asked)])
    with pytest.raises(TaskFailed, match="two tools are called 'send'; give one of them another name"):
        await finished(hold, agent)
    with pytest.raises(DuplicateName):
        Agent("agent", model=ScriptedModel([]), tools=[send, send])


async def test_an_undeclared_tool_yields_to_a_declared_one_of_its_name(
    hold: Holdfast, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The tasks go on when a server begins to list another tool."""
    script: list[Line] = [call("send", to="ann"), call("search", query="x"), "done"]
    agent, model = register(hold, script, tools=[send, tools(world.command)])
    await finished(hold, agent)
    assert tool_results(model) == ["sent to ann by hand", "nothing about x"]
    assert world.called == ["search"]
    assert "already has a tool called 'send'; the second one is ignored" in caplog.text


async def test_a_tool_that_was_asked_for_comes_before_one_that_was_not(hold: Holdfast, world: World) -> None:
    """In either order of the servers."""
    stranger = lists({"name": "send", "description": "Say it is done."}, {"name": "other"})
    agent, model = register(
        hold, [call("send", to="ann"), "done"], tools=[stranger, tools(world.command, only=["send"])]
    )
    await finished(hold, agent)
    assert world.called == ["send"]
    assert [spec.name for spec in model.requests[0].tools][-2:] == ["send", "other"]


async def test_of_two_undeclared_tools_the_first_servers_is_taken(hold: Holdfast, world: World) -> None:
    stranger = lists({"name": "send", "description": "Say it is done."})
    agent, _ = register(hold, [call("send", to="ann"), "done"], tools=[tools(world.command), stranger])
    await finished(hold, agent)
    assert world.called == ["send"]


async def test_a_tool_that_is_listed_twice_is_taken_once(caplog: pytest.LogCaptureFixture) -> None:
    source = lists({"name": "t", "description": "1"}, {"name": "t", "description": "2"}, declare={"t": Declared()})
    assert [tool.description for tool in await source.listed()] == ["1"]
    assert "lists 't' twice; one is left out" in caplog.text


async def test_only_nothing_is_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert await lists({"name": "t"}, declare={"other": Declared()}, only=[]).listed() == ()
    assert "has no tool" not in caplog.text


async def test_what_a_server_says_is_cut_to_size() -> None:
    remark = {"type": "object", "properties": {"description": {"type": "string", "description": "y" * 9_000}}}
    [tool] = await lists({"name": "chatty", "description": "x" * 100_000, "inputSchema": remark}).listed()
    assert len(tool.spec.description) < 4_200
    properties: Any = tool.spec.parameters["properties"]
    assert len(properties["description"]["description"]) < 1_200
    with pytest.raises(InvalidValue, match=r"takes .* bytes, more than 65536; leave the tool out with only="):
        await lists({"name": "huge", "inputSchema": {"type": "object", "enum": ["z" * 70_000]}}, only=["huge"]).listed()


async def test_a_tool_without_words_is_described_by_where_it_is_from() -> None:
    [tool] = await lists({"name": "mute"}).listed()
    assert tool.description.startswith("The tool mute of the MCP server python")
    [tool] = await lists({"name": "mute"}, declare={"mute": Declared(description="Says nothing.")}).listed()
    assert tool.spec.description == "Says nothing."


async def test_a_schema_is_checked_without_following_it_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[object] = []
    monkeypatch.setattr("urllib.request.urlopen", fetched.append)
    patient = {"type": "object", "properties": {"text": {"type": "string", "pattern": "^(a+)+$"}}}
    patterned = {"type": "object", "patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}
    evil = {"$ref": "http://127.0.0.1:9/schema.json"}
    endless = {"$ref": "#"}
    source = lists(
        {"name": "patient", "inputSchema": patient},
        {"name": "patterned", "inputSchema": patterned},
        {"name": "evil", "inputSchema": {"type": "object", "properties": {"x": evil}}},
        {"name": "endless", "inputSchema": {"type": "object", **endless}},
    )
    found = {tool.name: tool for tool in await source.listed()}
    slow = "a" * 60 + "!"
    assert found["patient"].read(json.dumps({"text": slow})) == {"text": slow}  # at once: the server may check it
    assert found["patterned"].read(json.dumps({slow: 1})) == {slow: 1}
    with pytest.raises(InvalidValue, match="cannot be checked"):
        found["evil"].read('{"x": 1}')
    assert fetched == []
    with pytest.raises(InvalidValue, match="cannot be checked"):
        found["endless"].read("{}")


@pytest.mark.parametrize(
    ("written", "words"), [("[1]", "have to be a JSON object"), ("{", "wrong"), ('{"a": 1, "a": 2}', "wrong")]
)
async def test_arguments_that_are_not_an_object_are_refused(written: str, words: str) -> None:
    [tool] = await lists({"name": "any"}).listed()
    with pytest.raises(InvalidValue, match=words):
        tool.read(written)
    assert tool.read("") == {}


async def test_a_parameter_may_be_called_anything(hold: Holdfast) -> None:
    source = tools(old_command())
    script: list[Line] = [call("echo", text="one", self="two", arguments="three", effect_id="four"), "done"]
    agent, model = register(hold, script, tools=[source])
    await finished(hold, agent)
    assert tool_results(model) == ["one"]


async def test_a_server_that_never_stops_listing_is_stopped() -> None:
    with pytest.raises(InvalidValue, match="lists more than 1000 tools"):
        await tools(old_command(), env={"MISBEHAVE": json.dumps({"endless": True})}).listed()
