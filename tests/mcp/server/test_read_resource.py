"""read_resource: for models whose client gives them tools only."""

from __future__ import annotations

import base64
import json

import pytest
from mcp import Client

from holdfast import Holdfast
from holdfast.mcp.excerpts import MAX_ANSWER, text_of
from holdfast.service.access import AccessScope
from tests.mcp.support import ask, connected, refused, submitted, taken


async def keep(client: Client, task_id: str, content: bytes, name: str) -> str:
    answer = await ask(
        client,
        "add_artifact",
        task_id=task_id,
        name=name,
        summary="for a test",
        content=base64.b64encode(content).decode(),
        encoding="base64",
    )
    return str(answer["uri"])


async def test_what_other_answers_point_to(client: Client) -> None:
    task_id, lease = await taken(client, plan=["look"])
    await ask(client, "complete_step", lease=lease, key="look", output={"dump": "/tmp/dump"})  # noqa: S108
    await ask(client, "remember", entity="db1", attribute="disk", value="2 TB")
    uri = (await ask(client, "get_task", task_id=task_id))["uri"]
    for one, found in (
        (uri, lambda form: form["agent_state"]["plan"] == ["look"]),
        (f"{uri}/steps", lambda form: form["steps"][0]["output"] == {"dump": "/tmp/dump"}),  # noqa: S108
        ("task://queue", lambda form: form["tasks"] == []),
        ("task://current", lambda form: [line["task_id"] for line in form["yours"]] == [task_id]),
        ("task://schedules", lambda form: form["schedules"] == []),
        ("fact://db1", lambda form: form["facts"][0]["value"] == "2 TB"),
    ):
        answer = await ask(client, "read_resource", uri=one)
        assert (answer["uri"], answer["mime_type"]) == (one, "application/json")
        assert found(json.loads(answer["text"])), answer


async def test_text_is_brought(client: Client) -> None:
    uri = await keep(client, await submitted(client), "größer\n".encode(), "a.log")
    answer = await ask(client, "read_resource", uri=uri)
    assert answer["text"] == "größer\n"
    part = await ask(client, "read_resource", uri=f"{uri}?offset=0&length=2")
    assert part["text"] == "gr"


async def test_for_non_text_type_and_size_are_shown(client: Client) -> None:
    uri = await keep(client, await submitted(client), b"\x89PNG\0\xff" * 500, "a.png")
    answer = await ask(client, "read_resource", uri=uri)
    assert answer == {"uri": uri, "mime_type": "image/png", "text": "[no text: about 3000 bytes]"}


async def test_what_is_long_is_cut_and_marked(client: Client) -> None:
    text = "\n".join(f"line {number}" for number in range(20_000))
    uri = await keep(client, await submitted(client), text.encode(), "a.log")
    answer = await ask(client, "read_resource", uri=uri)
    assert len(text_of(answer)) <= MAX_ANSWER
    assert answer["text"].startswith("line 0\nline 1\n")
    assert "more characters" in answer["text"]
    assert (answer["uri"], answer["truncated"]) == (uri, f"cut to fit; the rest is at {uri}")


@pytest.mark.parametrize(
    ("uri", "kind", "words"),
    [
        ("file:///etc/passwd", "NotFound", "use a URI that another answer named"),
        ("state://agents/a/tasks/nowhere", "NotFound", "list_tasks shows which there are"),
        ("artifact://nowhere", "NotFound", "nowhere"),
        ("fact://unknown", "NotFound", "recall searches by words"),
        ("task://current?x=1", "InvalidValue", "it takes no query"),
        ("task://schedules?x=1", "InvalidValue", "it takes no query"),
        ("", "NotFound", "use a URI that another answer named"),
    ],
)
async def test_what_is_not_there(client: Client, uri: str, kind: str, words: str) -> None:
    answer = await refused(client, "read_resource", uri=uri)
    assert answer["kind"] == kind
    assert words in answer["error"]


async def test_it_takes_the_right_to_read(hold: Holdfast) -> None:
    async with connected(hold, scopes=frozenset({AccessScope.SUBMIT, AccessScope.WORK})) as client:
        assert (await refused(client, "read_resource", uri="task://queue"))["kind"] == "NotAllowed"
