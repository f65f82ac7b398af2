"""Sweeps that delete what queues keep no longer: they wait for no lock, and spare what another process works on."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from holdfast import NewTask, TaskState
from holdfast.store.postgres import PostgresStore
from tests.store.postgres.support import begin, break_rule, execute, is_blocked, paused

AT_ONCE = {"completed": timedelta(0)}
SWEEP = "SELECT holdfast.prune_kept(100, clock_timestamp()) FROM holdfast.sweep(100)"
"""As the store asks it, in a transaction that stays open."""
DUE = "UPDATE holdfast.retentions SET prunes_at = '-infinity'"


async def _old_tree(store: PostgresStore, queue: str = "default") -> None:
    done = TaskState.COMPLETED
    await store.submit(
        [
            NewTask(id="root", name="job", queue=queue, state=done),
            NewTask(id="child", name="job", queue="other", parent_id="root", state=done),
            NewTask(id="grandchild", name="job", queue="other", parent_id="child", state=done),
        ]
    )
    await store.set_queue(queue, retention=AT_ONCE)


@pytest.mark.parametrize("broken", [False, True])
async def test_a_queue_that_another_sweep_prunes_is_passed_over(
    url: str, store: PostgresStore, *, broken: bool
) -> None:
    """No worker waits for another one."""
    if broken:
        break_rule(url, "prune_kept", "FOR NO KEY UPDATE SKIP LOCKED", "FOR NO KEY UPDATE")
    await _old_tree(store)
    with psycopg.connect(url) as pruning:
        assert pruning.execute(SWEEP).fetchone() == (3,)
        second = begin(store.sweep())
        assert await is_blocked(url, second) is broken
        pruning.commit()
    assert (await second).pruned == 0
    assert await store.get("root") is None


@pytest.mark.parametrize("broken", [False, True])
async def test_a_tree_of_which_a_task_is_locked_stays(url: str, store: PostgresStore, *, broken: bool) -> None:
    """Also where only other tasks of it would go in this batch: the locked one may be revived with its children."""
    if broken:  # only what goes is looked at
        break_rule(
            url, "prune_queue", "WHERE NOT other.id = ANY (locked)", "WHERE other.goes AND NOT other.id = ANY (locked)"
        )
    await _old_tree(store)
    with psycopg.connect(url) as reviving:
        for locked in ("root", "child", "grandchild"):
            reviving.execute("SELECT FROM holdfast.tasks WHERE id = %s FOR NO KEY UPDATE", (locked,))
            execute(url, DUE)
            pruned = (await store.sweep(limit=1)).pruned
            reviving.rollback()
            if broken:
                assert pruned == 1
                return
            assert pruned == 0
    for left in ("child", "root", None):
        execute(url, DUE)
        assert (await store.sweep(limit=1)).pruned == 1
        assert left is None or await store.get(left) is not None


async def test_no_sweep_waits_for_a_transaction_that_submits(url: str, store: PostgresStore) -> None:
    """It holds the row of the queue with the other settings, perhaps for long."""
    await _old_tree(store)
    await store.set_queue("default", max_pending=10)
    async with paused(url) as submitting:
        await submitting.submit([NewTask(id="new", name="job")])
        sweeping = begin(store.sweep())
        assert not await is_blocked(url, sweeping)
        assert (await sweeping).pruned == 3
        await submitting.finish()
    assert await store.get("new") is not None


async def test_a_setting_and_a_sweep_do_not_wait_for_each_other_in_a_circle(url: str, store: PostgresStore) -> None:
    """The setting locks the table of tasks to count them, the sweep has written tasks: either comes first."""
    await _old_tree(store)
    with psycopg.connect(url) as pruning:
        pruning.execute(SWEEP)
        setting = begin(store.set_queue("default", retention={"failed": timedelta(1)}, concurrency=3))
        assert await is_blocked(url, setting)
        pruning.commit()
    assert (await setting).retention == {"failed": timedelta(1)}
    async with paused(url) as setting_first:
        await setting_first.set_queue("default", retention=AT_ONCE, concurrency=None)
        sweeping = begin(store.sweep())
        assert await is_blocked(url, sweeping)
        await setting_first.finish()
    assert (await sweeping).pruned == 0
