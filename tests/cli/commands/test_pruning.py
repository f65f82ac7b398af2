"""``holdfast prune``."""

from __future__ import annotations

import json

import pytest

from holdfast import Handle, Holdfast, TaskState
from tests.cli.commands.support import at_terminal, bring, holdfast


async def count(url: str) -> int:
    async with Holdfast(url) as hold:
        return sum((await hold.store.count()).values())


async def test_it_counts_asks_and_deletes(url: str) -> None:
    for number in range(3):
        await bring(url, "greet", str(number), to=TaskState.COMPLETED)
    await bring(url, "wonder", to=TaskState.WAITING)
    counted = holdfast("prune", "--older-than", "0s", "--dry-run", url=url)
    assert (counted.code, counted.out) == (0, "tasks\n3\n")
    assert json.loads(holdfast("prune", "--older-than", "0s", "--dry-run", "--json", url=url).out) == {"tasks": 3}
    refused = holdfast("prune", "--older-than", "0s", url=url)
    assert (refused.code, refused.out) == (2, "")
    assert "Up to 3 tasks" in refused.said
    no = at_terminal("prune", "--older-than", "0s", url=url, types="n\n")
    assert (no.code, no.out) == (1, "")
    assert await count(url) == 4
    nothing = json.loads(holdfast("prune", "--older-than", "30d", "--yes", "--json", url=url).out)
    assert nothing == {"tasks": 0, "events": 0, "artifacts": 0}
    yes = at_terminal("prune", "--older-than", "0s", "--json", url=url, types="y\n")
    assert (yes.code, json.loads(yes.out)["tasks"]) == (0, 3)
    assert await count(url) == 1, "what has not ended stays"


async def test_it_goes_on_until_all_is_gone(url: str) -> None:
    async with Holdfast(url) as hold:
        handles: list[Handle[str]] = await hold.submit_many(
            "greet", [(str(number),) for number in range(1_200)], queue="nowhere"
        )
        for handle in handles:
            await hold.cancel(handle)
    answer = holdfast("prune", "--older-than", "0s", "--yes", url=url)
    assert answer.code == 0, answer.said
    assert answer.out.splitlines()[0].split() == ["tasks", "events", "artifacts"]
    assert answer.out.splitlines()[1].split()[0] == "1200"
    assert answer.said == ("holdfast: deleted 1,000 of 1,200 tasks\nholdfast: deleted 1,200 of 1,200 tasks\n"), (
        "batch by batch, with its progress"
    )
    assert await count(url) == 0


@pytest.mark.parametrize("given", [(), ("--older-than", "soon")])
async def test_how_old_has_to_be_said(url: str, given: tuple[str, ...]) -> None:
    await bring(url, "greet", "you", to=TaskState.COMPLETED)
    answer = holdfast("prune", *given, "--yes", url=url)
    assert (answer.code, answer.out) == (2, "")
    assert await count(url) == 1
