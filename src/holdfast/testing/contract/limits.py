"""Limits of tasks: a claim takes all keys of a task or none, and whatever ends a task's work gives them back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.commit import Refusal
from holdfast.model.errors import Conflict, InvalidValue, NoPlace, NotFound
from holdfast.model.flow_limit import Limit, LimitUse, grain_of
from holdfast.model.operations import (
    ApplyPatch,
    Operation,
    Release,
    Rest,
    SubmitChild,
    UntilTime,
    WriteStep,
)
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    CANCEL,
    COMPLETE,
    LEASE,
    Attempt,
    acquired_by,
    apply_outside,
    claim,
    claimed_ids,
    enter,
    move,
    new_task,
    row,
    running_task,
    step,
    stored,
    submit_one,
)
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.contract.hints import hints_of
from holdfast.testing.snapshot import snapshot

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


async def use_of(store: StateStore, key: str) -> LimitUse:
    """Return how a key stands, which has to be listed."""
    [found] = [use for use in await store.limit_uses() if use.key == key]
    return found


async def taken(store: StateStore, key: str) -> tuple[int, int]:
    """Return how many have a permit of a key, and how many wait for one."""
    use = await use_of(store, key)
    return use.taken, use.waiting


def end_of_use(limit: Limit, now: datetime) -> datetime:
    """Return from when on what begins now with a permit of this moment counts no more."""
    assert limit.per is not None
    end, grain = now + limit.validity + limit.per, grain_of(limit.per)
    over = (end - datetime(1970, 1, 1, tzinfo=end.tzinfo)) % grain
    return end if not over else end - over + grain


class LimitsContract(ContractBase):
    """set_limit, limits, limit_uses, close_limit; and what limits mean for claims."""

    async def test_limits_are_set_changed_and_listed(self, store: StateStore) -> None:
        """As a whole, by name, exactly as given; the same again changes nothing. A key is listed once it is used."""
        assert await store.limits() == []
        assert await store.limit_uses() == []
        minute = timedelta(minutes=1, microseconds=1)
        openai = Limit(name="openai", rate=500, tokens=200_000, per=minute, burst=7)
        tenant = Limit(name="tenant \U0001f600", concurrency=2, each=True)
        assert await store.set_limit(tenant) == tenant
        assert await store.set_limit(openai) == openai
        before = await snapshot(store)
        assert await store.set_limit(openai) == openai
        assert await snapshot(store) == before
        assert await store.limits() == [openai, tenant]
        assert await store.limit_uses() == [LimitUse(key="openai", limit=openai)]
        none = Limit(name="openai")
        assert await store.set_limit(none) == none
        await submit_one(store, limits=["tenant \U0001f600:z", "tenant \U0001f600:a"])
        assert await store.limits() == [none, tenant]
        keys = [(use.key, use.waiting) for use in await store.limit_uses()]
        assert keys == [("tenant \U0001f600:a", 1), ("openai", 0), ("tenant \U0001f600:z", 0)]
        assert [use.key for use in await store.limit_uses("openai")] == ["openai"]
        assert len(await store.limit_uses(limit=2)) == 2
        assert await store.limit_uses("unknown") == []

    async def test_an_idle_key_is_forgotten_until_it_is_needed(self, store: StateStore, clock: ManualClock) -> None:
        """With a key for each run there would be more and more. What waits with a key finds it again."""
        await store.set_limit(Limit(name="run", concurrency=1, each=True))
        await store.set_limit(Limit(name="slow", rate=1, per=HOUR, each=True))
        await store.set_limit(Limit(name="openai", concurrency=1))
        await enter(store, lease=86_400)
        done = await running_task(store, "done", "worker of done", limits=["run:done", "slow:done"])
        waiting = await running_task(store, "waiting", "worker of waiting", limits=["run:waiting"])
        await waiting.apply(move(TaskState.WAITING, waits=(UntilTime(key="t", at=clock.now() + 3 * HOUR),)))
        later = clock.now() + 3 * HOUR
        await submit_one(store, "delayed", queue="later", limits=["run:a", "run:delayed"], available_at=later)
        await submit_one(store, "pending", queue="later", limits=["run:pending"])
        await done.apply(COMPLETE)
        clock.advance(61)
        await store.sweep()
        assert [use.key for use in await store.limit_uses()] == ["run:pending", "slow:done", "openai"]
        clock.advance(7200)
        await store.sweep()
        assert [use.key for use in await store.limit_uses()] == ["run:pending", "openai"]
        clock.advance(3600)
        await store.sweep()
        await submit_one(store, "new", queue="later", limits=["run:done"])
        assert len(await claimed_ids(store, queues=("queue of waiting", "later"), limit=10)) == 4
        for key in ("run:a", "run:delayed", "run:done", "run:pending", "run:waiting"):
            assert await taken(store, key) == (1, 0)

    async def test_each_is_for_ever(self, store: StateStore) -> None:
        """The keys of stored tasks would name nothing."""
        await store.set_limit(Limit(name="tenant", concurrency=1, each=True))
        with pytest.raises(Conflict, match="each"):
            await store.set_limit(Limit(name="tenant", concurrency=1))
        assert (await store.limits())[0].each

    async def test_a_key_of_no_limit_is_refused(self, store: StateStore, clock: ManualClock) -> None:
        """By a submission, which then stores nothing; by the verdict on a child; by a pause and a closing."""
        await store.set_limit(Limit(name="tenant", concurrency=1, each=True))
        await store.set_limit(Limit(name="openai", concurrency=1))
        parent = await running_task(store, "parent", limits=["openai"])
        before = await snapshot(store)
        for key, error in (
            ("nothing", NotFound),
            ("nothing:x", NotFound),
            ("tenant", InvalidValue),
            ("tenant:", InvalidValue),
            ("openai:x", InvalidValue),
        ):
            with row(key):
                with pytest.raises(error):
                    await store.submit([new_task("fine", limits=["openai"]), new_task("other", limits=["openai", key])])
                with pytest.raises(error):
                    await store.submit([new_task("one", limits=[key], key="k")])
                with pytest.raises(error):
                    await store.close_limit(["openai", key], clock.now() + HOUR)
                if key != "tenant":
                    with pytest.raises(error):
                        await store.pause(f"limit:{key}", by="person")
                assert await snapshot(store) == before
                verdict = await parent.send(SubmitChild(new_task("child", limits=[key])), WriteStep(step()))
                assert verdict.refusal is Refusal.CONFLICT
                assert key.partition(":")[0] in verdict.detail
                parent.sequence -= 1
                assert await snapshot(store) == before

    async def test_a_task_names_its_limits(self, store: StateStore) -> None:
        """Sorted, each once, wherever the task is read; with the key that it waits for."""
        for name in ("b", "a"):
            await store.set_limit(Limit(name=name, concurrency=1))
        task = await submit_one(store, limits=["b", "a", "b"])
        assert (task.limits, task.waits_for) == (("a", "b"), "a")
        free = await submit_one(store, "free")
        assert (free.limits, free.waits_for) == ((), None)
        ended = await submit_one(store, "ended", limits=["a"], state=TaskState.COMPLETED, result=1)
        assert (ended.limits, ended.waits_for) == (("a",), None)
        await enter(store)
        [claimed] = [claimed for claimed in await claim(store) if claimed.task.id == "task"]
        loaded = await store.load("task")
        standing = await store.standing("task")
        assert standing is not None
        found = {found.id: found for found in (await store.find()).items}
        for read in (claimed.task, loaded.task, standing, found["task"]):
            assert read.limits == ("a", "b")

    async def test_no_more_are_claimed_than_may_be_at_work(self, store: StateStore) -> None:
        """Over all queues, names and workers, and in the order of the queue."""
        await store.set_limit(Limit(name="openai", concurrency=3))
        workers = [await enter(store, f"worker {n}") for n in range(3)]
        for n in range(8):
            await submit_one(
                store, f"task {n}", queue=f"queue {n % 2}", name=f"name {n // 2 % 2}", limits=["openai"], priority=-n
            )
            await submit_one(store, f"free {n}", queue="free")
        asked: dict[str, Any] = {"queues": ("queue 0", "queue 1"), "names": ("name 0", "name 1")}
        assert await claimed_ids(store, workers[0], limit=2, **asked) == ["task 0", "task 1"]
        assert await claimed_ids(store, workers[1], **asked) == ["task 2"]
        assert await claimed_ids(store, workers[2], **asked) == []
        assert await taken(store, "openai") == (3, 5)
        assert len(await claimed_ids(store, workers[2], queues=("free",))) == 8
        assert {task.id for task in (await store.queued()).items} == {f"task {n}" for n in range(3, 8)}

    async def test_each_key_counts_apart(self, store: StateStore) -> None:
        """A full tenant keeps no other from its place, however many of its tasks come first."""
        await store.set_limit(Limit(name="tenant", concurrency=2, each=True))
        await store.submit([new_task(f"full {n:03}", limits=["tenant:acme"]) for n in range(150)])
        await store.submit([new_task(f"other {n}", limits=[f"tenant:{n}"]) for n in range(5)])
        await store.submit([new_task(f"none {n}") for n in range(3)])
        await enter(store)
        claimed = await claimed_ids(store, limit=20)
        assert sorted(claimed) == [
            "full 000",
            "full 001",
            *(f"none {n}" for n in range(3)),
            *(f"other {n}" for n in range(5)),
        ]
        assert await taken(store, "tenant:acme") == (2, 148)

    async def test_all_keys_of_a_task_or_none(self, store: StateStore) -> None:
        """A task that waits for one key takes no place of another, and goes on once that one has room."""
        await store.set_limit(Limit(name="tenant", concurrency=1, each=True))
        await store.set_limit(Limit(name="openai", concurrency=2))
        await enter(store)
        for task_id, keys in (
            ("first", ("tenant:a",)),
            ("other", ("openai",)),
            ("that needs both", ("openai", "tenant:a")),
        ):
            await submit_one(store, task_id, limits=keys)
        held = {claimed.task.id: claimed for claimed in await claim(store)}
        assert set(held) == {"first", "other"}
        assert await taken(store, "openai") == (1, 0)
        assert (await stored(store, "that needs both")).waits_for == "tenant:a"
        await submit_one(store, "third", limits=["openai"])
        assert await claimed_ids(store, number=2) == ["third"]
        await Attempt(store, held["first"]).apply(COMPLETE)
        assert await claimed_ids(store, number=3) == []
        assert (await stored(store, "that needs both")).waits_for == "openai"
        await Attempt(store, held["other"]).apply(COMPLETE)
        assert await claimed_ids(store, number=4) == ["that needs both"]
        assert [await taken(store, key) for key in ("openai", "tenant:a")] == [(2, 0), (1, 0)]

    async def test_whatever_ends_its_work_gives_the_places_back(self, store: StateStore, clock: ManualClock) -> None:
        """Every way out of a slot; the next task gets the place at once."""
        await store.set_limit(Limit(name="tenant", concurrency=1, each=True))
        later = clock.now() + HOUR
        moves = {
            "completed": move(TaskState.COMPLETED),
            "failed": move(TaskState.FAILED),
            "cancelled": CANCEL,
            "handed back": move(TaskState.PENDING),
            "put off": move(TaskState.PENDING, available_at=later),
            "waits": move(TaskState.WAITING, waits=(UntilTime(key="t", at=later),)),
        }
        waits_again = {"handed back", "its worker leaves", "its worker dies"}

        async def die(attempt: Attempt) -> None:
            clock.advance(LEASE)
            await store.sweep()
            assert (await stored(store, attempt.task.id)).owner is None

        def go(*operations: Operation) -> Callable[[Attempt], Awaitable[Any]]:
            return lambda attempt: attempt.apply(*operations)

        ways: dict[str, Callable[[Attempt], Awaitable[Any]]] = {
            **{name: go(to) for name, to in moves.items()},
            **{f"{name} and more": go(to, ApplyPatch(body=b"1", author="a")) for name, to in moves.items()},
            "rests": go(Rest(resting=True)),
            "rests and ends": go(Rest(resting=True), COMPLETE),
            "its worker leaves": lambda attempt: store.retire(attempt.worker_id),
            "its worker dies": die,
        }
        for way, leave in ways.items():
            with row(way):
                key, beside = f"tenant:{way}", f"beside {way}"
                attempt = await running_task(store, way, f"worker of {way}", limits=[key])
                await submit_one(store, f"next of {way}", queue=beside, limits=[key])
                await enter(store, beside, lease=10 * LEASE)
                assert await claimed_ids(store, beside, 1, queues=(beside,)) == []
                assert await taken(store, key) == (1, 1)
                await leave(attempt)
                assert await claimed_ids(store, beside, 2, queues=(beside,)) == [f"next of {way}"]
                assert await taken(store, key) == (1, int(way.removesuffix(" and more") in waits_again))

    async def test_a_poisoned_task_gives_its_places_back(self, store: StateStore, clock: ManualClock) -> None:
        """It failed in the sweep that found its last worker dead."""
        await store.set_limit(Limit(name="openai", concurrency=1))
        await submit_one(store, limits=["openai"])
        for n in range(10):
            await enter(store, f"victim {n}")
            await claim(store, f"victim {n}", limit=1)
            await claim(store, f"victim {n}", 2, limit=1, alone=True)
            assert await taken(store, "openai") == (1, 0)
            clock.advance(LEASE)
            poisoned = (await store.sweep()).poisoned
            assert await taken(store, "openai") == (0, int(not poisoned))
            if poisoned:
                break
        assert (await stored(store)).state is TaskState.FAILED
        assert await taken(store, "openai") == (0, 0)

    async def test_a_review_keeps_the_places_while_it_is_held(self, store: StateStore) -> None:
        """Its worker verifies the result: that is work."""
        await store.set_limit(Limit(name="openai", concurrency=1))
        attempt = await running_task(store, limits=["openai"])
        await attempt.apply(move(TaskState.REVIEW))
        assert await taken(store, "openai") == (1, 0)
        await attempt.apply(COMPLETE)
        assert await taken(store, "openai") == (0, 0)

    async def test_a_changed_limit_is_obeyed_at_once(self, store: StateStore) -> None:
        """A higher one lets more begin; a lower one ends nothing, and lets nothing begin until enough have ended."""
        await store.set_limit(Limit(name="openai", concurrency=1))
        await enter(store)
        await store.submit([new_task(f"task {n}", limits=["openai"]) for n in range(10)])
        first = await claim(store)
        assert len(first) == 1
        await hints_of(store, store.set_limit(Limit(name="openai", concurrency=4)), "queue:default")
        held = [Attempt(store, claimed) for claimed in first + await claim(store, number=2)]
        assert len(held) == 4
        await store.set_limit(Limit(name="openai", concurrency=2))
        for attempt in held[:2]:
            await attempt.apply(COMPLETE)
            assert await claimed_ids(store, number=3) == []
        assert await taken(store, "openai") == (2, 6)
        await held[2].apply(COMPLETE)
        assert await claimed_ids(store, number=3) == ["task 4"]
        await store.set_limit(Limit(name="openai"))
        assert len(await claimed_ids(store, number=4)) == 5
        assert await taken(store, "openai") == (7, 0)

    async def test_a_task_is_leased_by_its_id_only_with_a_place(self, store: StateStore) -> None:
        """The refusal names the key. What a worker has already is answered."""
        await store.set_limit(Limit(name="openai", concurrency=1))
        await enter(store)
        for task_id in ("a", "b"):
            await submit_one(store, task_id, limits=["openai"])
        attempt = await acquired_by(store, "b", "worker")
        assert await taken(store, "openai") == (1, 1)
        before = await snapshot(store)
        with pytest.raises(NoPlace, match="limit 'openai'"):
            await store.acquire("a", "worker")
        assert await snapshot(store) == before
        assert (await store.acquire("b", "worker")).task.owner == "worker"
        assert await taken(store, "openai") == (1, 1)
        await attempt.apply(Release())
        await store.pause("limit:openai", by="person")
        with pytest.raises(NoPlace, match="limit 'openai'"):
            await store.acquire("a", "worker")
        await store.unpause("limit:openai")
        assert (await store.acquire("a", "worker")).task.owner == "worker"
        assert await claimed_ids(store) == []

    async def test_what_rested_takes_its_places_again(self, store: StateStore) -> None:
        """Or its Commit is refused as a whole, and names the key."""
        await store.set_limit(Limit(name="openai", concurrency=1))
        attempt = await running_task(store, limits=["openai"])
        await attempt.apply(Rest(resting=True))
        other = await running_task(store, "other", "worker 2", limits=["openai"])
        verdict = await attempt.send(WriteStep(step()), Rest(resting=False))
        error = verdict.error()
        assert isinstance(error, NoPlace)
        assert (error.task_id, error.key) == ("task", "openai")
        assert await store.steps("task") == []
        attempt.sequence -= 1
        await attempt.apply(Rest(resting=True), Rest(resting=True))
        await other.apply(COMPLETE)
        await attempt.apply(Rest(resting=False), WriteStep(step()))
        assert await taken(store, "openai") == (1, 0)
        await attempt.apply(Rest(resting=True), Rest(resting=False))
        await attempt.apply(Rest(resting=False))
        assert await taken(store, "openai") == (1, 0)
        await attempt.apply(COMPLETE)
        assert await taken(store, "openai") == (0, 0)

    async def test_a_repeated_claim_takes_nothing_again(self, store: StateStore) -> None:
        """Its answer was lost."""
        await store.set_limit(Limit(name="openai", concurrency=3, rate=10, per=SECOND))
        await enter(store)
        for n in range(2):
            await submit_one(store, f"task {n}", limits=["openai"])
        assert await claimed_ids(store) == await claimed_ids(store) == ["task 0", "task 1"]
        use = await use_of(store, "openai")
        assert (use.taken, use.calls) == (2, 2)

    async def test_a_pruned_task_leaves_nothing(self, store: StateStore, clock: ManualClock) -> None:
        """The key stays, and has room."""
        await store.set_limit(Limit(name="openai", concurrency=1))
        attempt = await running_task(store, limits=["openai"])
        await attempt.apply(COMPLETE)
        await submit_one(store, "unwanted", limits=["openai"])
        await apply_outside(store, "unwanted", CANCEL)
        clock.advance(1)
        assert (await store.prune(timedelta(0))).tasks == 2
        assert await taken(store, "openai") == (0, 0)

    async def test_no_race_goes_beyond_a_limit(self, store: StateStore) -> None:
        """Many claim, end and hand back at once, in two queues; every answer is the truth, and nothing is forgotten."""
        await store.set_limit(Limit(name="openai", concurrency=5))
        await store.set_limit(Limit(name="tenant", concurrency=2, each=True))
        workers = [await enter(store, f"worker {n}") for n in range(12)]
        tasks = [
            new_task(f"task {n:03}", queue=f"queue {n % 2}", limits=["openai", f"tenant:{n % 4}"]) for n in range(80)
        ]
        await store.submit(tasks)
        at_work: set[str] = set()
        done: set[str] = set()

        async def work(worker_id: str) -> None:
            number = 0
            while len(done) < len(tasks):
                number += 1
                await asyncio.sleep(0)
                for claimed in await claim(store, worker_id, number, limit=2, queues=("queue 0", "queue 1")):
                    assert claimed.task.id not in at_work | done
                    at_work.add(claimed.task.id)
                    assert len(at_work) <= 5
                    await asyncio.sleep(0)
                    at_work.discard(claimed.task.id)
                    if number % 3 == 0:
                        await Attempt(store, claimed).apply(move(TaskState.PENDING))
                    else:
                        done.add(claimed.task.id)
                        await Attempt(store, claimed).apply(COMPLETE)

        async with asyncio.timeout(120):
            await asyncio.gather(*map(work, workers))
        assert {(use.key, use.taken, use.waiting) for use in await store.limit_uses()} == {
            ("openai", 0, 0),
            *((f"tenant:{n}", 0, 0) for n in range(4)),
        }
