"""Pauses and full queues beside claims and submissions that are under way: each waits for what it has to know."""

from __future__ import annotations

import pytest

from holdfast import NewTask, QueueFull
from holdfast.model.worker import Claim, NewWorker
from holdfast.store.postgres import PostgresStore
from tests.store.postgres.support import begin, break_rule, is_blocked, paused

CLAIM = Claim(worker_id="w", number=1, limit=1, names=("job",))


@pytest.mark.parametrize("broken", [False, True])
async def test_a_pause_waits_for_a_claim_that_is_under_way(url: str, store: PostgresStore, *, broken: bool) -> None:
    """When it has returned, nothing of the queue is leased any more."""
    if broken:
        break_rule(url, "pause", "ORDER BY w.id FOR UPDATE")
    await store.submit([NewTask(name="job", id="a")])
    await store.register(NewWorker(id="w"))
    async with paused(url) as claiming:
        [claimed] = await claiming.claim(CLAIM)
        pausing = begin(store.pause("queue:default", by="ann"))
        assert await is_blocked(url, pausing) is not broken
        await claiming.finish()
    await pausing
    assert [lease.task_id for lease in await store.owned("w")] == [claimed.task.id]


@pytest.mark.parametrize("broken", [False, True])
async def test_a_claim_that_waits_for_a_pause_obeys_it(url: str, store: PostgresStore, *, broken: bool) -> None:
    """It looks at the pauses again under the lock of its worker."""
    if broken:
        again = """open_queues := "holdfast".unpaused('queue', queues);\n    open_names := """
        break_rule(url, "claim", again, "open_names := ")
    await store.submit([NewTask(name="job", id="a")])
    await store.register(NewWorker(id="w"))
    async with paused(url) as pausing:
        await pausing.pause("queue:default", by="ann")
        claiming = begin(store.claim(CLAIM))
        assert await is_blocked(url, claiming)
        await pausing.finish()
    assert len(await claiming) == broken


@pytest.mark.parametrize("broken", [False, True])
async def test_the_first_setting_of_a_queue_counts_what_is_on_its_way(
    url: str, store: PostgresStore, *, broken: bool
) -> None:
    """A submission that had not seen the setting is among the tasks that are counted."""
    if broken:
        break_rule(url, "set_queue", 'LOCK TABLE "holdfast".tasks IN SHARE ROW EXCLUSIVE MODE;')
    async with paused(url) as submitting:
        await submitting.submit([NewTask(name="job", id="a")])
        setting = begin(store.set_queue("default", max_pending=1))
        assert await is_blocked(url, setting) is not broken
        await submitting.finish()
    await setting
    [settings] = await store.queue_settings()
    assert settings.pending == (0 if broken else 1)


async def test_of_two_submissions_for_one_place_the_second_is_refused(url: str, store: PostgresStore) -> None:
    """It waits for the row of the queue, and reads how full that is only then."""
    await store.set_queue("default", max_pending=1)
    async with paused(url) as first:
        await first.submit([NewTask(name="job", id="a")])
        second = begin(store.submit([NewTask(name="job", id="b")]))
        assert await is_blocked(url, second)
        await first.finish()
    with pytest.raises(QueueFull):
        await second
    assert [task.id for task in (await store.find()).items] == ["a"]
