"""``holdfast memory``."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import Holdfast, MemoryFact
from tests.cli.commands.support import at_terminal, holdfast, only


@pytest.fixture
async def url(url: str) -> str:
    """A store that is there."""
    async with Holdfast(url):
        return url


async def recalled(url: str, entity: str) -> list[MemoryFact]:
    async with Holdfast(url) as hold:
        return await hold.memory.recall(entity)


async def test_what_is_stored_is_recalled_and_found(url: str) -> None:
    stored = holdfast("memory", "store", "billing", "port", "8443", "--half-life", "never", url=url)
    assert stored.code == 0, stored.said
    assert "billing: port: 8443 (says tess)" in stored.said
    parsed = json.loads(
        holdfast(
            *("memory", "store", "billing", "owner", "Ada", "--confidence", "0.8", "--source", "wiki", "--json"),
            *("--half-life", "7d"),
            url=url,
        ).out
    )
    assert only(parsed, "value", "confidence", "source") == {"value": "Ada", "confidence": 0.8, "source": "wiki"}
    related = holdfast("memory", "relate", "billing", "depends on", "postgres", url=url)
    [port, needs, owner] = await recalled(url, "billing")
    assert (stored.out.split()[-1], related.out.split()[-1], parsed["id"]) == (port.id, needs.id, owner.id)
    assert (port.value, port.half_life, owner.half_life) == (8443, None, timedelta(days=7))
    assert (needs.relation, needs.half_life) == (True, timedelta(days=30))
    listed = holdfast("memory", "recall", "billing", url=url).out.splitlines()
    assert listed[0].split() == ["id", "entity", "attribute", "value", "sure", "source", "said"]
    assert listed[3].split()[:6] == [owner.id[-8:], "billing", "owner", "Ada", "80%", "wiki"]
    one = json.loads(holdfast("memory", "recall", "billing", "port", "--json", url=url).out)
    assert [fact["value"] for fact in one["facts"]] == [8443]
    found = json.loads(holdfast("memory", "search", "postg", "--json", url=url).out)
    assert [fact["id"] for fact in found["facts"]] == [needs.id]
    nothing = holdfast("memory", "recall", "mallory", url=url)
    assert (nothing.code, nothing.out, nothing.said) == (0, "", "holdfast: nothing is known about mallory\n")


async def test_a_conflict_is_reported_shown_and_settled(url: str) -> None:
    holdfast("memory", "store", "billing", "owner", "Ada", "--source", "wiki", url=url)
    second = holdfast("memory", "store", "billing", "owner", "Grace", "--source", "chat", url=url)
    assert "other sources say something else" in second.said
    shown = holdfast("memory", "conflicts", "billing", url=url)
    assert {line.split()[3] for line in shown.out.splitlines()[1:]} == {"Ada", "Grace"}
    [conflict] = json.loads(holdfast("memory", "conflicts", "--json", url=url).out)["conflicts"]
    assert (conflict["entity"], len(conflict["facts"])) == ("billing", 2)
    chat = second.out.split()[-1]
    verified = holdfast("memory", "verify", chat[-8:], "--by", "linus", "--json", url=url)
    assert only(json.loads(verified.out), "id", "verified_by") == {"id": chat, "verified_by": "linus"}
    assert [fact.value for fact in await recalled(url, "billing")] == ["Grace"]
    assert holdfast("memory", "conflicts", url=url).said == "holdfast: all sources agree\n"
    history = holdfast("memory", "history", "billing", "owner", url=url).out.splitlines()
    assert history[1].split()[3] == "Ada"
    assert history[1].endswith(chat[-8:]), "superseded by"


async def test_forgetting_is_asked_about(url: str) -> None:
    fact_id = holdfast("memory", "store", "billing", "owner", "\x1b[31mAda", url=url).out.split()[-1]
    refused = holdfast("memory", "forget", fact_id, url=url)
    assert (refused.code, refused.out) == (2, "")
    no = at_terminal("memory", "forget", fact_id[-8:], url=url, types="n\n")
    assert no.code == 1
    assert "\ufffd[31mAda" in no.said
    assert len(await recalled(url, "billing")) == 1
    yes = at_terminal("memory", "forget", fact_id[-8:], "--json", url=url, types="y\n")
    assert json.loads(yes.out)["id"] == fact_id
    assert await recalled(url, "billing") == []
    assert holdfast("memory", "forget", fact_id, "--yes", url=url).code == 3
    assert holdfast("memory", "verify", fact_id[-8:], url=url).code == 3


async def test_there_and_back(url: str, tmp_path: Path) -> None:
    async with Holdfast(url) as hold:
        await hold.memory.store("billing", "owner", "Ada")
        await hold.memory.store("billing", "owner", "Grace")
    exported = holdfast("memory", "export", url=url)
    assert (exported.code, exported.said) == (0, "")
    assert len(json.loads(exported.out)["facts"]) == 2
    other = f"sqlite:///{tmp_path}/other.db"
    async with Holdfast(other):
        pass
    file = tmp_path / "memory.json"
    file.write_text(exported.out, encoding="utf-8")
    assert holdfast("memory", "import", str(file), url=other).said == "holdfast: 2 facts are new here\n"
    again = holdfast("memory", "import", "-", "--json", url=other, stdin=exported.out)
    assert (again.code, json.loads(again.out)) == (0, {"new": 0})
    assert holdfast("memory", "export", "--json", url=other).out == exported.out
    for given, stdin in ((str(tmp_path / "nowhere.json"), ""), ("-", "nonsense"), ("-", "{}")):
        wrong = holdfast("memory", "import", given, url=other, stdin=stdin)
        assert (wrong.code, wrong.out) == (2, "")
        assert wrong.said.count("\n") == 1


@pytest.mark.parametrize(
    "given",
    [("--confidence", "2"), ("--half-life", "soon"), ("--half-life", "0s")],
)
async def test_what_is_not_a_fact(url: str, given: tuple[str, ...]) -> None:
    answer = holdfast("memory", "store", "billing", "owner", "Ada", *given, url=url)
    assert (answer.code, answer.out) == (2, "")
    assert await recalled(url, "billing") == []
