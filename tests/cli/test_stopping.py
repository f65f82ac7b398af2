"""What ``holdfast worker`` relies on when it stops."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Context, Holdfast, StoreDamaged
from holdfast.engine.worker import host
from holdfast.model.worker import Claim, Claimed


async def test_forcing_ends_the_grace_of_a_task_that_does_not_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "HAND_BACK_TIMEOUT", 0.1)
    hold, began, enough = Holdfast("memory://"), asyncio.Event(), asyncio.Event()

    @hold.task
    async def deaf(ctx: Context) -> None:
        del ctx
        began.set()
        while not enough.is_set():
            try:
                await enough.wait()
            except asyncio.CancelledError:
                continue

    async with hold:
        await hold.submit(deaf)
        async with hold.worker(grace=600) as worker, asyncio.timeout(30):
            await began.wait()
            joining = asyncio.create_task(worker.join())
            worker.drain()
            await asyncio.sleep(0.1)
            assert not joining.done()
            worker.force()
            await joining
        enough.set()


async def test_a_worker_that_cannot_go_on_raises_instead_of_idling(monkeypatch: pytest.MonkeyPatch) -> None:
    hold = Holdfast("memory://")

    async def broken(claim: Claim) -> list[Claimed]:
        raise StoreDamaged(f"found in claim {claim.number}")

    async with hold:
        monkeypatch.setattr(hold.store, "claim", broken)
        async with hold.worker() as worker:
            with pytest.raises(StoreDamaged, match="found in claim 1"):
                await asyncio.wait_for(worker.join(), 30)
