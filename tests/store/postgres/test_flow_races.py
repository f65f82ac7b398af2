"""Pauses, settings of queues and ticks beside claims and submissions under way: each waits for what it has to know."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import NewTask, QueueFull, TaskState
from holdfast.model.commit import Refusal
from holdfast.model.operations import Rest
from holdfast.model.schedule import StoredSchedule
from holdfast.model.worker import Claim, NewWorker
from holdfast.store.postgres import PostgresStore
from tests.store.postgres.support import (
    COMPLETE,
    begin,
    break_rule,
    claimed,
    held,
    is_blocked,
    move,
    paused,
    wait_for_waiters,
    waiters,
)

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
        again = """open_queues := "holdfast".open_queues(queues);\n    open_names := """
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
async def test_a_pause_that_is_there_is_not_ended_amid_another_pause(
    url: str, store: PostgresStore, *, broken: bool
) -> None:
    """The second caller is answered with a pause that holds: who ends it has to wait."""
    if broken:
        break_rule(url, "pause", "DO UPDATE SET reason = p.reason", "DO NOTHING")
    await store.pause("queue:default", by="ann")
    await store.register(NewWorker(id="w"))
    async with paused(url) as registering:
        await registering.register(NewWorker(id="x"))
        pausing = begin(store.pause("queue:default", by="bob"))
        assert await is_blocked(url, pausing)
        ending = begin(store.unpause("queue:default"))
        await wait_for_waiters(url, 1 if broken else 2)
        if broken:
            assert await ending
        await registering.finish()
    if broken:
        with pytest.raises(ValueError, match="not enough values"):
            await pausing
    else:
        assert (await pausing).by == "ann"
        assert await ending


@pytest.mark.parametrize("broken", [False, True])
async def test_who_waits_to_set_a_queue_lets_others_pass(url: str, store: PostgresStore, *, broken: bool) -> None:
    """A transaction of a user's own may stay open for long. Only the caller who has to count its tasks waits for it."""
    if broken:
        break_rule(url, "stop_writing_tasks", "SET lock_timeout TO '300ms'")
    async with paused(url) as submitting:
        await submitting.submit([NewTask(name="job", id="a")])
        setting = begin(store.set_queue("other", max_pending=1))
        assert await is_blocked(url, setting)
        beside = begin(store.submit([NewTask(name="job", id="b")]))
        if broken:
            await wait_for_waiters(url, 2)
        else:
            await beside
            assert not setting.done()
        await submitting.finish()
    await beside
    assert (await setting).max_pending == 1


@pytest.mark.parametrize("broken", [False, True])
async def test_submissions_wait_for_each_other_only_where_the_queue_has_a_limit(
    url: str, store: PostgresStore, *, broken: bool
) -> None:
    """Its other settings say nothing about them. They are counted all the same, also by a limit that comes."""
    if broken:
        break_rule(url, "enter_queue", "q.name = wanted AND q.max_pending IS NOT NULL", "q.name = wanted")
    await store.set_queue("default", concurrency=5, retention={"completed": timedelta(days=1)})
    async with paused(url) as submitting:
        await submitting.submit([NewTask(name="job", id="a")])
        second = begin(store.submit([NewTask(name="job", id="b"), NewTask(name="job", id="c")]))
        assert await is_blocked(url, second) is broken
        setting = begin(store.set_queue("default", max_pending=3))
        assert await is_blocked(url, setting)
        await submitting.finish()
    await second
    assert ((await setting).max_pending, (await store.queue_settings())[0].pending) == (3, 3)
    with pytest.raises(QueueFull):
        await store.submit([NewTask(name="job", id="d")])


@pytest.mark.parametrize("broken", [False, True])
async def test_a_tick_waits_for_no_submission_to_its_queue(url: str, store: PostgresStore, *, broken: bool) -> None:
    """It is not refused in any case. A worker that waited here would claim nothing meanwhile."""
    if broken:
        break_rule(url, "enter_queue", "IF is_refusable AND EXISTS", "IF EXISTS")
        break_rule(url, "enter_queue", "> settings.max_pending THEN", "> settings.max_pending AND is_refusable THEN")
    await store.set_queue("default", max_pending=1)
    at = datetime.now(UTC)
    made = StoredSchedule(name="s", spec={}, anchored_at=at, tick_at=at, due_at=at)
    await store.put_schedule(made, seen=0)
    async with paused(url) as submitting:
        await submitting.submit([NewTask(name="job", id="a")])
        tick = begin(store.put_schedule(made, seen=1, tasks=[NewTask(name="job", id="b", schedule="s")]))
        assert await is_blocked(url, tick) is broken
        await submitting.finish()
    await tick
    assert (await store.queue_settings())[0].pending == 2
    with pytest.raises(QueueFull):
        await store.submit([NewTask(name="job", id="c")])


@pytest.mark.parametrize("broken", [False, True])
async def test_the_first_setting_of_a_queue_counts_what_is_on_its_way(
    url: str, store: PostgresStore, *, broken: bool
) -> None:
    """A submission that had not seen the setting is among the tasks that are counted."""
    if broken:
        break_rule(url, "set_queue", 'PERFORM "holdfast".stop_writing_tasks();', "NULL;")
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


async def _at_work(store: PostgresStore) -> tuple[int, int]:
    """Return how many tasks count as being at work, and how many are."""
    [settings] = await store.queue_settings()
    tasks = (await store.find()).items
    return settings.working, sum(task.owner is not None and not task.resting for task in tasks)


@pytest.mark.parametrize("broken", [False, True])
async def test_of_two_claims_for_one_place_the_second_gets_nothing(
    url: str, store: PostgresStore, *, broken: bool
) -> None:
    """It waits for the row of the queue, and counts the places only then."""
    if broken:
        break_rule(url, "lock_slots", "ORDER BY s.queue FOR NO KEY UPDATE")
    await store.set_queue("default", concurrency=1)
    await store.submit([NewTask(name="job", id="a"), NewTask(name="job", id="b")])
    for worker_id in ("w", "x"):
        await store.register(NewWorker(id=worker_id))
    async with paused(url) as first:
        assert len(await first.claim(CLAIM)) == 1
        second = begin(store.claim(replace(CLAIM, worker_id="x")))
        assert await is_blocked(url, second)
        await first.finish()
    assert len(await second) == broken


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("verb", ["claim", "acquire"])
async def test_the_first_limit_counts_a_lease_that_is_on_its_way(
    url: str, store: PostgresStore, verb: str, *, broken: bool
) -> None:
    """A claim that had not seen the limit is among the tasks that are counted."""
    if broken:
        break_rule(url, "set_queue", 'PERFORM "holdfast".stop_writing_tasks();', "NULL;")
    await store.set_queue("default", max_pending=10)
    await store.submit([NewTask(name="job", id="a"), NewTask(name="job", id="b")])
    await store.register(NewWorker(id="w"))
    async with paused(url) as leasing:
        await (leasing.claim(CLAIM) if verb == "claim" else leasing.acquire("a", "w"))
        setting = begin(store.set_queue("default", concurrency=1))
        assert await is_blocked(url, setting) is not broken
        await leasing.finish()
    await setting
    assert await _at_work(store) == (0 if broken else 1, 1)


@pytest.mark.parametrize("broken", [False, True])
async def test_a_claim_that_waits_for_the_first_limit_obeys_it(url: str, store: PostgresStore, *, broken: bool) -> None:
    """It has the lock of the table before it looks which queues have a limit."""
    if broken:
        break_rule(url, "lock_slots", 'LOCK TABLE "holdfast".tasks IN ROW EXCLUSIVE MODE;')
    await store.set_queue("default", max_pending=10)
    await store.submit([NewTask(name="job", id=task_id) for task_id in "abc"])
    await store.register(NewWorker(id="w"))
    async with paused(url) as setting:
        await setting.set_queue("default", concurrency=1)
        claiming = begin(store.claim(replace(CLAIM, limit=3)))
        assert await is_blocked(url, claiming)
        await setting.finish()
    assert len(await claiming) == (3 if broken else 1)
    assert await _at_work(store) == ((0, 3) if broken else (1, 1))


async def test_an_end_waits_for_no_claim_and_makes_a_place(url: str, store: PostgresStore) -> None:
    """Neither the short way of a Commit nor a batch with other ends, waits and rests."""
    await store.set_queue("worker", concurrency=4)
    first, second, third, _ = await claimed(store, "a", "b", "c", "d")
    await store.submit([NewTask(name="job", id="e", queue="worker")])
    await store.register(NewWorker(id="w"))
    claim = replace(CLAIM, queues=("worker",))
    async with paused(url) as claiming:
        await claiming.set_queue("worker", concurrency=5)
        assert len(await claiming.claim(claim)) == 1
        [ended] = await store.commit([held(first, 1, COMPLETE)])
        several = await store.commit([held(second, 1, Rest(resting=True)), held(third, 1, move(TaskState.FAILED))])
        assert all(verdict.applied for verdict in (ended, *several))
        assert waiters(url) == 0
        await claiming.finish()
    assert await _at_work(store) == (2, 2)


async def test_a_task_that_rested_waits_for_a_claim_and_is_refused(url: str, store: PostgresStore) -> None:
    """The claim has taken the place meanwhile."""
    await store.set_queue("worker", concurrency=1)
    [resting] = await claimed(store, "a")
    await store.commit([held(resting, 1, Rest(resting=True))])
    await store.submit([NewTask(name="job", id="b", queue="worker")])
    await store.register(NewWorker(id="w"))
    async with paused(url) as claiming:
        assert len(await claiming.claim(replace(CLAIM, queues=("worker",)))) == 1
        waking = begin(store.commit([held(resting, 2, Rest(resting=False))]))
        assert await is_blocked(url, waking)
        await claiming.finish()
    [verdict] = await waking
    assert verdict.refusal is Refusal.NO_PLACE
    assert await _at_work(store) == (1, 1)


async def test_a_claim_waits_for_no_submission(url: str, store: PostgresStore) -> None:
    """A submission may be part of a user's own transaction, which has the other settings of the queue locked."""
    await store.set_queue("default", max_pending=10, concurrency=1)
    await store.submit([NewTask(name="job", id="a")])
    await store.register(NewWorker(id="w"))
    async with paused(url) as submitting:
        await submitting.submit([NewTask(name="job", id="b")])
        assert [one.task.id for one in await store.claim(CLAIM)] == ["a"]
        await submitting.finish()


@pytest.mark.parametrize("broken", [False, True])
async def test_a_pause_counts_for_a_worker_that_begins_beside_it(
    url: str, store: PostgresStore, *, broken: bool
) -> None:
    """The pause waits for a claim; a worker that is entered meanwhile has no row that the pause could have locked."""
    if broken:
        break_rule(url, "pause", "PERFORM pg_advisory_xact_lock(hashtextextended('\"holdfast\"register', 0));")
    await store.submit([NewTask(name="job", id=task_id) for task_id in "ab"])
    await store.register(NewWorker(id="w"))
    async with paused(url) as claiming, paused(url) as newcomer:
        await claiming.claim(CLAIM)
        pausing = begin(store.pause("queue:default", by="ann"))
        assert await is_blocked(url, pausing)
        registering = begin(store.register(NewWorker(id="new")))
        if broken:
            await registering
            await newcomer.claim(replace(CLAIM, worker_id="new"))
        else:
            await wait_for_waiters(url, 2)
        await claiming.finish()
        await pausing
        await newcomer.finish()
    await registering
    assert await store.claim(replace(CLAIM, worker_id="new", number=2)) == []
    assert len(await store.owned("new")) == broken


@pytest.mark.parametrize("broken", [False, True])
async def test_a_submission_that_waits_for_a_new_limit_obeys_it(
    url: str, store: PostgresStore, *, broken: bool
) -> None:
    """It reads the limit under the lock of the row."""
    if broken:
        break_rule(url, "enter_queue", "WHERE q.name = wanted FOR NO KEY UPDATE;", "WHERE q.name = wanted;")
    await store.set_queue("default", max_pending=5)
    async with paused(url) as setting:
        await setting.set_queue("default", max_pending=0)
        submitting = begin(store.submit([NewTask(name="job", id="a")]))
        assert await is_blocked(url, submitting)
        await setting.finish()
    if broken:
        await submitting
    else:
        with pytest.raises(QueueFull):
            await submitting


async def test_a_new_limit_waits_for_a_submission_that_has_its_place(url: str, store: PostgresStore) -> None:
    """When it has returned, whatever was taken before is counted."""
    await store.set_queue("default", max_pending=5)
    async with paused(url) as submitting:
        await submitting.submit([NewTask(name="job", id="a")])
        setting = begin(store.set_queue("default", max_pending=1))
        assert await is_blocked(url, setting)
        await submitting.finish()
    assert (await setting).pending == 1
    with pytest.raises(QueueFull):
        await store.submit([NewTask(name="job", id="b")])


@pytest.mark.parametrize("broken", [False, True])
async def test_a_tick_that_waits_for_a_pause_is_not_fired(url: str, store: PostgresStore, *, broken: bool) -> None:
    """Under the lock of the schedule's row it sees another revision than the one it was decided for."""
    if broken:
        break_rule(url, "put_schedule", "AND s.revision = seen")
    now = datetime(2026, 1, 1, tzinfo=UTC)
    row = StoredSchedule(name="s", spec={}, anchored_at=now, tick_at=now, due_at=now)
    await store.put_schedule(row, seen=0)
    async with paused(url) as pausing:
        await pausing.put_schedule(replace(row, due_at=None, paused_at=now, paused_by="ann"), seen=1)
        firing = begin(store.put_schedule(row, seen=1, tasks=[NewTask(name="job", id="a")]))
        assert await is_blocked(url, firing)
        await pausing.finish()
    assert (await firing is None) is not broken
    stored = await store.schedule("s")
    assert stored is not None
    assert (stored.paused_by == "ann") is not broken
    assert len((await store.find()).items) == broken
