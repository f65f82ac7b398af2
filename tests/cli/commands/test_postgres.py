"""The same commands on PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from holdfast import Holdfast, TaskState
from tests.cli.commands.support import bring, holdfast, states, work_off
from tests.postgres_server import PostgresServer


@pytest.fixture
def url(postgres18: PostgresServer) -> Iterator[str]:
    url = postgres18.create_store()
    yield url
    postgres18.drop_database(url)


async def test_looking_after_tasks_on_postgresql(url: str) -> None:
    failed = await bring(url, "fail", to=TaskState.FAILED)
    asking = await bring(url, "deploy", "billing", to=TaskState.WAITING)
    paying = await bring(url, "pay", 5, to=TaskState.WAITING)
    assert holdfast("resume", failed[-8:], url=url).out == f"{failed} pending\n"
    assert holdfast("cancel", "--name", "fail", url=url).code == 2
    assert holdfast("cancel", "--name", "fail", "--yes", url=url).out == f"{failed} cancelled\n"
    [approval] = json.loads(holdfast("approvals", "--json", url=url).out)["approvals"]
    assert holdfast("approve", approval["id"][-8:], url=url).code == 0
    [doubt] = json.loads(holdfast("doubts", "--json", url=url).out)["doubts"]
    assert holdfast("resolve", doubt["effect_id"][-8:], "happened", "--result", '"paid"', url=url).code == 0
    assert [(await work_off(url, task_id)).result for task_id in (asking, paying)] == ["billing, says tess", "paid"]
    forked = holdfast("fork", paying, url=url).out.strip()
    assert await states(url, forked) == ["pending"]
    fact_id = holdfast("memory", "store", "billing", "port", "8443", url=url).out.strip()
    assert holdfast("memory", "verify", fact_id[-8:], url=url).out.strip() == fact_id
    pruned = json.loads(holdfast("prune", "--older-than", "0s", "--yes", "--json", url=url).out)
    assert pruned["tasks"] == 3
    async with Holdfast(url) as hold:
        assert await hold.store.get(forked) is not None
