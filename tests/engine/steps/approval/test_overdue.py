"""An approval whose time is over is expired, also before a worker comes and writes that down."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import ApprovalState, Conflict, Context, Holdfast, ManualClock
from holdfast.service.service import Service
from tests.engine.support import until
from tests.postgres_server import PostgresServer

PATIENCE = 60.0


async def test_it_is_listed_as_expired_on_every_store(tmp_path: Path, postgres18: PostgresServer) -> None:
    database = postgres18.create_store()
    for url in ("memory://", f"json:///{tmp_path}/hold", f"sqlite:///{tmp_path}/hold.db", database):
        clock = ManualClock()
        hold = Holdfast(url, clock=clock)

        @hold.task
        async def ask(ctx: Context) -> None:
            await ctx.approval("now?", expires=timedelta(seconds=10))

        @hold.task
        async def ask_patiently(ctx: Context) -> None:
            await ctx.approval("some day?")

        async with hold:
            async with hold.worker():
                handle = await hold.submit(ask)
                patient = await hold.submit(ask_patiently)

                async def are_open() -> bool:
                    return len(await hold.approvals()) == 2  # noqa: B023 - within this turn

                await until(are_open, patience=PATIENCE)
            [asked] = await hold.approvals(handle)
            clock.advance(11)
            assert await hold.approvals(handle) == []
            assert [each.task_id for each in await hold.approvals(limit=1)] == [patient.id]
            [expired] = await hold.approvals(states=["expired"])
            assert (expired.id, expired.state) == (asked.id, ApprovalState.EXPIRED)
            assert (await Service(hold).approval(asked.id)).state is ApprovalState.EXPIRED
            with pytest.raises(Conflict, match="has expired without a decision; nothing was changed"):
                await hold.approve(asked.id, by="ann")
    postgres18.drop_database(database)
