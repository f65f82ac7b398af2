"""Processes that write to one memory at once, and answers that are lost."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast, MemoryFact, NotFound
from holdfast.store.postgres import PostgresStore
from tests.engine.manage.memory import storing_process
from tests.postgres_server import PostgresServer

PROCESSES = 4
WORDS = 25


@pytest.fixture(params=["sqlite", "postgres"])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store that several processes can share."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/hold.db"
    server: PostgresServer = request.getfixturevalue("postgres18")
    return server.create_store()


async def test_processes_that_say_things_at_once(shared_url: str) -> None:
    async with Holdfast(shared_url) as hold:
        processes = [
            subprocess.Popen(
                [sys.executable, storing_process.__file__, shared_url, f"p{number}", str(WORDS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(PROCESSES)
        ]
        for process in processes:
            assert process.stdout is not None
            assert await asyncio.to_thread(process.stdout.readline) == "ready\n"
        answers = await asyncio.gather(*(asyncio.to_thread(process.communicate, "go\n", 300) for process in processes))
        assert [process.returncode for process in processes] == [0] * PROCESSES
        assert sum(int(printed) for printed, _ in answers) > 0, "no process was ever slower: that was not a race"

        each = await hold.memory.history("alice", "likes")
        assert Counter(fact.source for fact in each) == {f"p{number}": WORDS for number in range(PROCESSES)}
        for number in range(PROCESSES):
            in_order([fact for fact in each if fact.source == f"p{number}"])
        [conflict] = await hold.memory.conflicts()
        assert {fact.value for fact in conflict.facts} == {f"p{number} {WORDS - 1}" for number in range(PROCESSES)}

        in_order(await hold.memory.history("alice", "says"), PROCESSES * WORDS)

        said = await hold.memory.history("alice", "knows")
        [last] = [fact for fact in said if fact.is_live]
        assert last.value == WORDS - 1


def in_order(facts: list[MemoryFact], count: int = WORDS) -> None:
    """Each was superseded by the next, and all are there."""
    assert len({fact.value for fact in facts}) == len(facts) == count
    assert [fact.superseded_by for fact in facts] == [*(fact.id for fact in facts[1:]), None]


class LosesAnswers:
    """Loses the answer of every call of one query, the first time it is made, after ``between`` has happened."""

    def __init__(self, store: PostgresStore, query: str) -> None:
        self.lost = 0
        self.between: Any = None
        self._query = store._backend.queries[query]
        self._connections = store._backend.open_connections()
        self._fetch = self._connections._fetch_once
        self._connections._fetch_once = self._lose  # type: ignore[method-assign]

    async def _lose(self, query: str, values: Any) -> Any:  # noqa: ANN401
        answer = await self._fetch(query, values)
        if query == self._query and not self.lost:
            self.lost += 1
            if self.between is not None:
                await self.between()
            raise psycopg.OperationalError("the connection is lost")
        return answer


async def test_a_fact_whose_answer_is_lost_is_stored_once(postgres18: PostgresServer) -> None:
    async with Holdfast(postgres18.create_store()) as hold:
        assert isinstance(hold.store, PostgresStore)
        await hold.memory.store("alice", "likes", "tea")
        answers = LosesAnswers(hold.store, "remember")
        coffee = await hold.memory.store("alice", "likes", "coffee")
        assert answers.lost == 1
        assert coffee.verified_at is None, "it counts as said once"
        assert [fact.id for fact in await hold.memory.recall("alice")] == [coffee.id]
        assert len(await hold.memory.history("alice", "likes")) == 2

        dated = MemoryFact(entity="bob", attribute="likes", value="tea")
        answers.lost = 0
        assert [await hold.store.fact(dated.id)] == [None]
        stored = await hold.store.remember(dated, seen=await hold.store.subject("bob", "likes"))
        assert answers.lost == 1
        assert stored == [await hold.store.fact(dated.id)]


async def test_a_fact_whose_answer_is_lost_may_be_superseded_already(postgres18: PostgresServer) -> None:
    """Stated after another's fact, as its answer shows; stating it again would put it before the other's."""
    async with Holdfast(postgres18.create_store()) as hold, Holdfast(hold.url) as other:
        assert isinstance(hold.store, PostgresStore)
        answers = LosesAnswers(hold.store, "remember")
        answers.between = lambda: other.memory.store("alice", "likes", "water")
        await hold.memory.store("alice", "likes", "coffee")
        assert answers.lost == 1
        assert [fact.value for fact in await hold.memory.history("alice", "likes")] == ["coffee", "water"]
        assert [fact.value for fact in await hold.memory.recall("alice")] == ["water"]


async def test_a_fact_that_is_forgotten_while_it_is_verified_stays_forgotten(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Holdfast(shared_url) as hold, Holdfast(shared_url) as other:
        tea = await hold.memory.store("alice", "likes", "tea")
        remember = hold.store.remember
        forgotten = 0

        async def too_late(*facts: MemoryFact, **options: Any) -> list[MemoryFact]:  # noqa: ANN401
            nonlocal forgotten
            forgotten += await other.memory.forget(tea.id)
            return await remember(*facts, **options)

        monkeypatch.setattr(hold.store, "remember", too_late)
        with pytest.raises(NotFound):
            await hold.memory.verify(tea.id, by="bob")
        assert forgotten == 1
        assert await hold.memory.history("alice", "likes") == []
