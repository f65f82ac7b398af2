"""remember and recall."""

from __future__ import annotations

from mcp import Client

from holdfast import Holdfast
from tests.mcp.support import ask, connected, read


async def test_what_was_remembered_is_recalled(client: Client) -> None:
    said = await ask(client, "remember", entity="host db1", attribute="disk", value={"tb": 2}, confidence=0.9)
    assert (said["uri"], said["source"]) == ("fact://host%20db1", "mcp:ada")
    [fact] = (await ask(client, "recall", entity="host db1"))["facts"]
    assert (fact["attribute"], fact["value"], fact["confidence"]) == ("disk", {"tb": 2}, 0.9)
    assert fact["said_at"]
    assert (await ask(client, "recall", entity="host db1", attribute="disk"))["facts"] == [fact]
    assert (await ask(client, "recall", query="disk"))["facts"] == [fact]
    assert [one["value"] for one in (await read(client, said["uri"]))["facts"]] == [{"tb": 2}]


async def test_nothing_is_known(client: Client) -> None:
    for where in ({"entity": "nothing"}, {"query": "nothing"}, {"entity": "x", "attribute": "y"}, {}):
        assert await ask(client, "recall", **where) == {"facts": []}


async def test_what_a_source_states_again_supersedes_its_earlier_fact(client: Client) -> None:
    for value in ("1 TB", "2 TB"):
        await ask(client, "remember", entity="db1", attribute="disk", value=value)
    assert [fact["value"] for fact in (await ask(client, "recall", entity="db1"))["facts"]] == ["2 TB"]


async def test_what_others_said_stays_beside_it_for_people_to_settle(hold: Holdfast, client: Client) -> None:
    await ask(client, "remember", entity="db1", attribute="disk", value="1 TB")
    async with connected(hold, "bob") as bob:
        await ask(bob, "remember", entity="db1", attribute="disk", value="2 TB")
        facts = (await ask(bob, "recall", entity="db1"))["facts"]
    assert sorted((fact["source"], fact["value"]) for fact in facts) == [("mcp:ada", "1 TB"), ("mcp:bob", "2 TB")]
    assert await hold.memory.conflicts("db1")


async def test_a_limit_is_a_limit(client: Client) -> None:
    for number in range(4):
        await ask(client, "remember", entity="db1", attribute=f"a{number}", value=number)
    assert len((await ask(client, "recall", entity="db1", limit=2))["facts"]) == 2
