"""Queues whose tasks take turns by a label, as workers work on them."""

from __future__ import annotations

import asyncio

from holdfast import Context, Holdfast, QueueSettings
from tests.engine.support import ended


async def test_workers_take_the_tasks_by_turns(hold: Holdfast) -> None:
    """One that comes late is not behind those of another tenant. A child has the label of its parent."""
    order = list[str]()
    first_began, go_on = asyncio.Event(), asyncio.Event()

    @hold.task(queue="deploys")
    async def part(ctx: Context) -> None:
        order.append(f"part of {ctx.task.labels['tenant']}")

    @hold.task(queue="deploys")
    async def deploy(ctx: Context, name: str) -> None:
        order.append(name)
        first_began.set()
        await go_on.wait()
        if name == "globex 0":
            await ctx.submit(part, key="part")

    assert await hold.queue("deploys", fair_by="tenant") == QueueSettings(name="deploys", fair_by="tenant")
    acme = [await hold.submit(deploy, f"acme {number}", labels={"tenant": "acme"}) for number in range(8)]
    async with hold.worker(concurrency=1):
        await first_began.wait()
        globex = [await hold.submit(deploy, f"globex {number}", labels={"tenant": "globex"}) for number in range(3)]
        go_on.set()
        for handle in (*acme, *globex):
            await ended(handle)
    assert order.index("globex 0") <= 2
    assert order.index("globex 1") <= 4
    assert order.index("globex 2") < order.index("acme 7")
    assert "part of globex" in order


def test_it_is_set_from_synchronous_code() -> None:
    with Holdfast("memory://").sync as h:
        assert h.queue("deploys", fair_by="tenant").fair_by == "tenant"
        assert h.queue("deploys", max_pending=5).fair_by == "tenant"
        assert h.queue("deploys", fair_by=None) == QueueSettings(name="deploys", max_pending=5)
