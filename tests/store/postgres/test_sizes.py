"""Large batches and long journals: sent in parts, and read in pages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from holdfast.model.commit import Commit, Verdict
from holdfast.model.errors import NotFound
from holdfast.model.operations import WriteStep
from holdfast.model.size import BATCH_BYTES
from holdfast.model.step import Step, StepState
from holdfast.store.postgres import PostgresStore, journals
from holdfast.store.postgres import commit as committing
from holdfast.store.postgres.database import Database
from holdfast.store.postgres.records import RECORDS
from tests.store.postgres.support import claimed, execute, held, step


async def test_a_batch_is_sent_in_parts_that_are_bounded_by_bytes(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of more than 1 GB is taken by no server: it would be sent again for ever."""
    parts: list[int] = []
    commit_some = committing._commit_some

    async def watched(db: Database, commits: Sequence[Commit]) -> list[Verdict]:
        parts.append(len(commits))
        return await commit_some(db, commits)

    monkeypatch.setattr(committing, "_commit_some", watched)
    body = b'"' + b"x" * (BATCH_BYTES // 3) + b'"'
    claims = await claimed(store, *(f"t{n}" for n in range(5)))
    lines = [WriteStep(replace(step().step, output=body)) for _ in claims]
    verdicts = await store.commit([held(claim, 1, line) for claim, line in zip(claims, lines, strict=True)])
    assert all(verdict.applied for verdict in verdicts)
    assert parts == [2, 2, 1]


async def test_a_long_journal_is_loaded_in_pages(
    url: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one row it could be more than the 1 GB that a server sends, and the event loop would stand still meanwhile."""
    [claim] = await claimed(store, "long")
    lines = [
        Step(key=f"k{n}", kind="step", position=n, state=StepState.COMPLETED, output=b"1" * (n % 7))
        for n in range(1, 3001)
    ]
    large = [
        Step(key=f"l{n}", kind="step", position=4000 + n, state=StepState.COMPLETED, output=b"1" * (3 << 20))
        for n in range(1, 8)
    ]
    await store.commit([held(claim, 1, *map(WriteStep, (*lines, *large)))])
    await store.commit([held(claim, 2, step())])
    pages: list[tuple[int, int]] = []
    run = journals._run

    async def watched(connection: Any, sql: str, values: Sequence[object] = ()) -> list[Any]:  # noqa: ANN401
        rows = await run(connection, sql, values)
        pages.append((len(rows), sum(len(value) for row in rows for value in row if isinstance(value, bytes))))
        return rows

    monkeypatch.setattr(journals, "_run", watched)
    at_once = 0
    make = RECORDS.step
    loop = asyncio.get_running_loop()

    def count(*row: Any) -> Step:  # noqa: ANN401
        nonlocal at_once
        at_once += 1
        if at_once == 1:
            loop.call_soon(start_over)
        assert at_once <= journals._LARGEST_PAGE, "the event loop had no turn"
        return make(*row)

    def start_over() -> None:
        nonlocal at_once
        at_once = 0

    monkeypatch.setattr(RECORDS, "step", count)
    loaded = await store.load("long")
    assert len(pages) > 8
    # By the bytes of the page before: a page in which the rows become large is larger, once.
    assert sorted(size for _, size in pages)[-2] <= journals.PAGE_BYTES + (3 << 20)
    monkeypatch.undo()
    assert list(loaded.steps) == await store.steps("long")
    assert loaded.task == await store.get("long")
    assert [one.key for one in (await store.load("long", after=4000)).steps] == [one.key for one in large]
    with pytest.raises(NotFound):
        await store.load("none")
    execute(url, "DELETE FROM holdfast.steps WHERE position > 100")
    assert len((await store.load("long")).steps) == 101  # no more than one page: in one statement
