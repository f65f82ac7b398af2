"""Limits in a time: rates, what closes a limit for a time, and pauses of limits."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.errors import InvalidValue
from holdfast.model.flow_limit import Limit
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    CANCEL,
    COMPLETE,
    Attempt,
    apply_outside,
    claim,
    claimed_ids,
    enter,
    new_task,
    row,
    submit_one,
)
from holdfast.testing.contract.base import START, ContractBase
from holdfast.testing.contract.hints import hints_of
from holdfast.testing.contract.limits import HOUR, SECOND, end_of_use, taken, use_of

MICROSECOND = timedelta(microseconds=1)


async def submit_many(store: StateStore, count: int, *keys: str, first: int = 0) -> None:
    """Submit tasks with these limits, in the order of their ids."""
    await store.submit([new_task(f"task {n:03}", limits=keys) for n in range(first, first + count)])


class RatesContract(ContractBase):
    """rate=, burst= and per= of limits of tasks; close_limit; pauses of limits."""

    async def test_no_more_begin_in_any_time(self, store: StateStore, clock: ManualClock) -> None:
        """All at once if none began before; then none until the first count no more, to the microsecond."""
        limit = await store.set_limit(Limit(name="openai", rate=3, per=SECOND))
        await enter(store, lease=1000)
        await submit_many(store, 10, "openai")
        clock.advance(0.123457)  # the end is rounded up, not down
        first_end = end_of_use(limit, clock.now())
        assert len(await claimed_ids(store, limit=2)) == 2
        clock.advance(0.5)
        second_end = end_of_use(limit, clock.now())
        assert len(await claimed_ids(store, number=2)) == 1
        assert first_end - START > limit.validity + SECOND
        for number, end, before, after in ((3, first_end, 3, 2), (4, second_end, 3, 1)):
            clock.advance((end - MICROSECOND - clock.now()).total_seconds())
            assert (await use_of(store, "openai")).calls == before
            assert await claimed_ids(store, number=number) == []
            clock.advance(0.000001)
            assert (await use_of(store, "openai")).calls == before - after
            assert len(await claimed_ids(store, number=number)) == after
        assert await taken(store, "openai") == (6, 4)

    async def test_what_ends_counts_on(self, store: StateStore, clock: ManualClock) -> None:
        """A rate is about beginnings; each lease of a task is one."""
        limit = await store.set_limit(Limit(name="openai", rate=2, per=SECOND, burst=1))
        await enter(store)
        await submit_many(store, 5, "openai")
        for number in (1, 2, 3):
            [claimed] = await claim(store, number=number, limit=1)
            await Attempt(store, claimed).apply(COMPLETE)
        assert await claimed_ids(store, number=4) == []
        use = await use_of(store, "openai")
        assert (use.taken, use.calls, use.waiting) == (0, 3, 2)
        end = end_of_use(limit, clock.now())
        assert (await store.sweep()).next_due == end
        clock.advance((end - clock.now()).total_seconds())
        assert (await store.sweep()).next_due is None
        assert len(await claimed_ids(store, number=4)) == 2

    async def test_a_line_is_let_out_when_its_time_comes(self, store: StateStore, clock: ManualClock) -> None:
        """A sweep after that time hints the queue."""
        limit = await store.set_limit(Limit(name="openai", rate=1, per=SECOND))
        await enter(store)
        await submit_many(store, 2, "openai")
        await claimed_ids(store)
        clock.advance((end_of_use(limit, clock.now()) - clock.now()).total_seconds())
        await hints_of(store, store.sweep(), "queue:default")

    async def test_another_time_keeps_what_counts(self, store: StateStore, clock: ManualClock) -> None:
        """What began counts as long as it did, whatever is set meanwhile."""
        hourly = await store.set_limit(Limit(name="openai", rate=2, per=HOUR))
        await enter(store, lease=10_000)
        await submit_many(store, 5, "openai")
        assert len(await claimed_ids(store)) == 2
        end = end_of_use(hourly, clock.now())
        await store.set_limit(Limit(name="openai", rate=2, per=SECOND))
        clock.advance(10)
        assert await claimed_ids(store, number=2) == []
        await store.set_limit(Limit(name="openai", concurrency=100))
        await store.set_limit(Limit(name="openai", rate=3, per=SECOND))
        assert len(await claimed_ids(store, number=2)) == 1
        clock.advance((end - clock.now()).total_seconds())
        assert (await use_of(store, "openai")).calls == 0
        assert len(await claimed_ids(store, number=3)) == 2

    async def test_a_closed_limit_opens_at_its_time(self, store: StateStore, clock: ManualClock) -> None:
        """Nothing begins with it before. An earlier time changes nothing; what is beside it goes on."""
        await store.set_limit(Limit(name="tenant", each=True))
        await enter(store, lease=1000)
        await submit_many(store, 3, "tenant:a")
        await submit_one(store, "beside", limits=["tenant:b"])
        await store.sweep()
        until = clock.now() + 10 * SECOND
        await store.close_limit(["tenant:a"], until)
        await store.close_limit(["tenant:a"], clock.now() + SECOND)
        assert (await use_of(store, "tenant:a")).closed_until == until
        assert await claimed_ids(store) == ["beside"]
        assert (await store.sweep()).next_due == until
        clock.advance(10 - 0.000001)
        assert await claimed_ids(store, number=2) == []
        clock.advance(0.000001)
        assert len(await claimed_ids(store, number=2)) == 3
        with pytest.raises(InvalidValue, match="time zone"):
            await store.close_limit(["tenant:a"], until.replace(tzinfo=None))

    async def test_no_claim_begins_after_a_pause_or_a_change_of_a_limit(self, store: StateStore) -> None:
        """Many claim meanwhile. When the call has returned, nothing more is leased with it, in any process."""
        for change in ("pause", "close", "lower"):
            with row(change):
                key = f"limit {change}"
                await store.set_limit(Limit(name=key, concurrency=100))
                workers = [await enter(store, f"{change} {n}") for n in range(8)]
                await store.submit([new_task(f"{change} {n:03}", limits=[key], queue=change) for n in range(60)])
                leased: list[str] = []

                async def claim_on(worker_id: str, queue: str = change, leased: list[str] = leased) -> None:
                    for number in range(1, 6):
                        leased += await claimed_ids(store, worker_id, number, limit=1, queues=(queue,))

                claiming = [asyncio.create_task(claim_on(worker_id)) for worker_id in workers]
                await asyncio.sleep(0)
                if change == "pause":
                    await store.pause(f"limit:{key}", by="person")
                elif change == "close":
                    await store.close_limit([key], await store.now() + HOUR)
                else:
                    await store.set_limit(Limit(name=key, concurrency=1))
                held = {lease.task_id for worker_id in workers for lease in await store.owned(worker_id)}
                await asyncio.gather(*claiming)
                assert len(set(leased) - held) <= int(change == "lower" and not held)
                assert await claimed_ids(store, workers[0], 6, queues=(change,)) == []

    async def test_a_paused_limit_lets_nothing_begin(self, store: StateStore) -> None:
        """As a whole, or one key of it; what is at work goes on, what waits is claimed after the pause."""
        await store.set_limit(Limit(name="tenant", concurrency=1, each=True))
        await store.set_limit(Limit(name="openai", rate=100, per=SECOND))
        rows = (("limit:tenant", "tenant:1"), ("limit:tenant:2", "tenant:2"), ("limit:openai", "openai"))
        for subject, key in rows:
            with row(subject):
                worker, queue = await enter(store, f"worker {key}"), f"queue {key}"
                for task_id in (f"a {key}", f"b {key}"):
                    await submit_one(store, task_id, queue=queue, limits=[key])
                await submit_one(store, f"c {key}", queue=queue, limits=["tenant:beside"])
                [claimed] = await claim(store, worker, 1, queues=(queue,), limit=1)
                await store.sweep()
                pause = await store.pause(subject, by="person", reason="the provider is down")
                assert await store.pauses() == [pause]
                await Attempt(store, claimed).apply(COMPLETE)
                is_beside = subject != "limit:tenant"
                expected = [f"c {key}"] if is_beside else []
                assert await claimed_ids(store, worker, 2, queues=(queue,)) == expected
                await hints_of(store, store.unpause(subject), f"queue:{queue}")
                got = await claimed_ids(store, worker, 3, queues=(queue,))
                assert got == [f"b {key}", *(() if is_beside else (f"c {key}",))]
                await store.retire(worker)
                for task_id in (f"b {key}", f"c {key}"):
                    await apply_outside(store, task_id, CANCEL)
