"""Queues that say how long they keep ended tasks: workers delete what is older."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

from datetime import timedelta

import pytest

from holdfast import Context, Holdfast, InvalidValue, ManualClock, QueueSettings, TaskState
from tests.engine.support import ended, settle, until

DAY = timedelta(days=1)


async def test_workers_delete_what_a_queue_keeps_no_longer(timed: Holdfast, clock: ManualClock) -> None:
    """Of any queue, also one that the worker does not claim from; and prune by hand goes on working."""

    @timed.task(queue="reports")
    async def report(ctx: Context) -> str:
        return "done"

    kept = {"completed": DAY}
    assert await timed.queue("reports", retention=kept) == QueueSettings(name="reports", retention=kept)
    assert await timed.queue("reports", retention=kept) == QueueSettings(name="reports", retention=kept)
    async with timed.worker():
        old = await timed.submit(report)
        other = await timed.submit(report, queue="default")
        assert [await ended(old), await ended(other)] == ["done"] * 2
    clock.advance(2 * DAY)
    young = await timed.submit(report)
    async with timed.worker(queues=["elsewhere"]):

        async def is_gone() -> bool:
            clock.advance(1)
            await settle()
            return await timed.store.get(old.id) is None

        await until(is_gone)
    assert await timed.store.get(young.id) is not None
    assert (await timed.store.get(other.id)) is not None
    await timed.cancel(young)
    assert (await young.task()).state is TaskState.CANCELLED
    assert (await timed.store.prune(timedelta(0))).tasks >= 1
    with pytest.raises(InvalidValue, match="retention names 'running'"):
        await timed.queue("reports", retention={"running": DAY})


def test_blocking_code_sets_a_retention(url: str) -> None:
    hold = Holdfast(url)
    with hold.sync as h:
        kept = {"failed": DAY}
        assert h.queue("default", retention=kept) == QueueSettings(name="default", retention=kept)
        assert h.queues() == [QueueSettings(name="default", retention=kept)]
