"""Evidence from real stores: what the checks judge is what is there."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast import Context, Handle, Holdfast, TaskState
from holdfast.model.worker import Claim, NewWorker
from holdfast.service.diagnosis.evidence import Inside
from holdfast.service.diagnosis.evidence_collector import gather
from holdfast.service.diagnosis.finding import Finding, Level
from holdfast.service.diagnosis.report import diagnose
from tests.postgres_server import PostgresServer

LEASE = 0.02


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/holdfast.db"
        return
    server: PostgresServer = request.getfixturevalue("postgres18")
    database = server.create_database()
    yield database
    server.drop_database(database)


@pytest.fixture
async def hold(url: str) -> AsyncIterator[Holdfast]:
    async with Holdfast(url) as hold:
        yield hold


async def look(url: str) -> tuple[Inside, dict[str, Finding]]:
    seen = await gather(url)
    assert seen.failure is None
    assert seen.inside is not None
    return seen.inside, {finding.check: finding for finding in diagnose(seen)}


async def test_an_open_request_and_a_worker(hold: Holdfast, url: str) -> None:
    @hold.task
    async def ask(ctx: Context) -> None:
        await ctx.approval("May I?")

    handle = await hold.submit(ask)
    async with hold.worker(label="clerk"):
        while (await handle.task()).state is not TaskState.WAITING:  # noqa: ASYNC110 - the store has no event
            await asyncio.sleep(0.01)
        inside, found = await look(url)
    assert [approval.question for approval in inside.approvals] == ["May I?"]
    assert [worker.label for worker in inside.at_work] == ["clerk"]
    assert found["approvals"].level is Level.NOTE
    assert found["workers"].words == "1 worker at work: clerk"
    assert found["queues"].level is Level.OK
    assert abs(inside.local - datetime.now(UTC)).total_seconds() < 60


async def test_a_task_that_kills_its_workers(hold: Holdfast, url: str) -> None:
    handle: Handle[None] = await hold.submit("work", queue="default")
    suspected = False
    while (task := await handle.task()).state is not TaskState.FAILED:
        if task.state is TaskState.PENDING and task.deaths >= 2 and not suspected:
            suspected = True
            _, found = await look(url)
            assert found["suspects"].level is Level.WARNING
        for alone in (False, True):
            worker = await hold.store.register(NewWorker(lease=LEASE))
            await hold.store.claim(Claim(worker_id=worker.id, number=1, limit=1, names=["work"], alone=alone))
        await asyncio.sleep(2 * LEASE)
        await hold.store.sweep()
    assert suspected
    inside, found = await look(url)
    assert (inside.poisoned, inside.failed_today) == (1, 1)
    assert found["poison"].level is Level.WARNING
    assert found["failed"].level is Level.NOTE


async def test_an_effect_in_doubt(hold: Holdfast, url: str) -> None:
    @hold.task
    async def pay(ctx: Context) -> None:
        await ctx.step("pay", _reset, effect="once")

    handle = await hold.submit(pay)
    async with hold.worker():
        while not (doubts := await hold.doubts()) or not doubts[0].decisions:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert (await handle.task()).state is TaskState.WAITING
    _, found = await look(url)
    assert found["doubts"].level is Level.WARNING


def _reset() -> None:
    raise ConnectionResetError
