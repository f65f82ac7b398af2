"""Stores that outlive their process, and stores that several processes share."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from datetime import timedelta

from holdfast.model.clock import ManualClock
from holdfast.model.commit import Refusal
from holdfast.model.flow_limit import Limit, PermitRequest, PermitReturn
from holdfast.model.operations import UntilEvent, WriteStep
from holdfast.model.transitions import TaskState
from holdfast.model.worker import WorkerState
from holdfast.store.base import ANYTHING, StateStore
from holdfast.testing.contract._support import (
    LEASE,
    claimed_by,
    claimed_ids,
    enter,
    move,
    new_task,
    running_task,
    send,
    step,
    stored,
    submit_one,
)
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.contract.hints import PATIENCE
from holdfast.testing.snapshot import snapshot


class ReopenContract(ContractBase):
    """Acknowledged data is there after a reopen. For stores that outlive their process; needs ``another_store``."""

    async def test_everything_is_there_again(
        self, store: StateStore, clock: ManualClock, another_store: Callable[[], StateStore]
    ) -> None:
        """Every field."""
        attempt = await running_task(store, user_input={"a": ["\x00", 2**70]}, budget={"tokens": 3}, key="k")
        await attempt.apply(WriteStep(step(output=b"\x00\xff")))
        await store.emit("news", 1, key="k")
        await submit_one(store, "delayed", available_at=clock.now() + timedelta(hours=1))
        artifact = await store.put_artifact(b"bytes")
        await self._use_limits(store, clock)
        for subject in ("queue:deploys", "task:job", "delayed"):
            await store.pause(subject, by="person", reason="freeze")
        await store.set_queue("default", max_pending=3)
        before = await snapshot(store, channels=("news",), artifacts=(artifact.id,))
        await store.close()
        async with another_store() as again:
            assert await snapshot(again, channels=("news",), artifacts=(artifact.id,)) == before
            assert await again.read_artifact(artifact.id) == b"bytes"

    async def _use_limits(self, store: StateStore, clock: ManualClock) -> None:
        """Leave permits of tasks and steps, lines of both, tokens, and a key that is closed."""
        await store.set_limit(Limit(name="openai", rate=9, tokens=100, per=timedelta(minutes=1), burst=1))
        await store.set_limit(Limit(name="tenant/\U0001f600", concurrency=2, each=True))
        key = "tenant/\U0001f600:Acme"
        await running_task(store, "limited", "worker of limits", limits=[key, "openai"])
        await submit_one(store, "in line", limits=[key, "openai"])
        asked = {"task_id": "limited", "worker_id": "worker of limits", "lasts": 1.5, "keys": [key, "openai"]}
        requests = [PermitRequest(id=f"p{n}", tokens=n, **asked) for n in range(3)]  # type: ignore[arg-type]
        assert [answer.granted for answer in await store.take_permits(requests)] == [True, False, False]
        await store.close_limit(["tenant/\U0001f600:closed"], clock.now() + timedelta(hours=1))

    async def test_turns_are_as_they_were(self, store: StateStore, another_store: Callable[[], StateStore]) -> None:
        """Of tasks that have one, of lanes that are empty, and of those that wait for theirs."""

        async def submit_to(store: StateStore, tenant: str, *task_ids: str) -> None:
            labels = {"tenant": tenant}
            await store.submit([new_task(task_id, queue="fair", labels=labels) for task_id in task_ids])

        await store.set_queue("fair", fair_by="tenant")
        await submit_to(store, "a", "a0", "a1", "a2", "a3")
        await submit_to(store, "b", "b0", "b1")
        await enter(store)
        assert await claimed_ids(store, limit=4, queues=("fair",)) == ["a0", "b0", "a1", "b1"]
        await submit_to(store, "c", "c0")
        await store.close()
        async with another_store() as again:
            await submit_to(again, "b", "b2")
            await enter(again, "later")
            assert await claimed_ids(again, "later", queues=("fair",)) == ["c0", "a2", "b2", "a3"]

    async def test_permits_are_as_they_were(
        self, store: StateStore, clock: ManualClock, another_store: Callable[[], StateStore]
    ) -> None:
        """Who has one, who is next in line, what counts, and until when."""
        await self._use_limits(store, clock)
        await store.sweep()
        await store.close()
        async with another_store() as again:
            key = "tenant/\U0001f600:Acme"
            assert await claimed_ids(again, "worker of limits", 2) == []
            await again.return_permits([PermitReturn(id="p0")])
            asked = {"task_id": "limited", "worker_id": "worker of limits", "lasts": 1.5, "keys": [key, "openai"]}
            requests = [PermitRequest(id=f"p{n}", **asked) for n in (2, 1)]  # type: ignore[arg-type]
            assert [answer.granted for answer in await again.take_permits(requests)] == [False, True]
            await again.return_permits([PermitReturn(id="p1"), PermitReturn(id="p2")])
            assert await claimed_ids(again, "worker of limits", 2) == ["in line"]
            uses = {use.key: (use.taken, use.waiting, use.calls) for use in await again.limit_uses()}
            assert uses == {key: (2, 0, 0), "openai": (2, 0, 4), "tenant/\U0001f600:closed": (0, 0, 0)}
            clock.advance(200)
            assert (await again.limit_uses("openai"))[0].calls == 0

    async def test_work_goes_on_where_it_was(
        self, store: StateStore, clock: ManualClock, another_store: Callable[[], StateStore]
    ) -> None:
        """Leases, waits, delays and duplicates outlive the store object."""
        attempt = await running_task(store)
        commit = attempt.commit(move(TaskState.WAITING, waits=(UntilEvent(key="e", channel="news"),)))
        await send(store, commit)
        await running_task(store, "running", "other")
        await store.close()
        async with another_store() as again:
            assert (await send(again, commit)).duplicate
            await again.emit("news", 1)
            assert (await stored(again)).state is TaskState.PENDING
            clock.advance(LEASE)
            assert (await again.sweep()).recovered == ("running",)
            assert {worker.state for worker in await again.workers()} == {WorkerState.DEAD}


class SharedContract(ContractBase):
    """Two stores over the same data at once. For stores with ``multi_process``; needs ``another_store``."""

    async def test_each_sees_what_the_other_wrote(
        self, store: StateStore, another_store: Callable[[], StateStore]
    ) -> None:
        """At once: both read the same data."""
        async with another_store() as other:
            await submit_one(store)
            assert await other.get("task") == await store.get("task")
            attempt = await running_task(other, "running")
            await attempt.apply(WriteStep(step()))
            assert await snapshot(store) == await snapshot(other)

    async def test_racing_claims_never_share_a_task(
        self, store: StateStore, another_store: Callable[[], StateStore]
    ) -> None:
        """For any number of processes."""
        ids = [f"task-{number:02}" for number in range(30)]
        await store.submit([new_task(task_id) for task_id in ids])
        async with another_store() as other:
            await enter(store, "here")
            await enter(other, "there")
            answers = await asyncio.gather(
                *(claimed_ids(store, "here", number, limit=3) for number in range(1, 7)),
                *(claimed_ids(other, "there", number, limit=3) for number in range(1, 7)),
            )
        handed_out = [task_id for answer in answers for task_id in answer]
        assert len(handed_out) == len(set(handed_out))
        assert set(handed_out) <= set(ids)

    async def test_racing_submissions_of_one_key_are_one_task(
        self, store: StateStore, another_store: Callable[[], StateStore]
    ) -> None:
        """The others get the id of the first task."""
        async with another_store() as other:
            answers = await asyncio.gather(
                *(
                    each.submit([new_task(f"task-{number}-{index}", key="k")])
                    for number in range(5)
                    for index, each in enumerate((store, other))
                )
            )
        assert len({answer.task_id for [answer] in answers}) == 1
        assert sum(answer.created for [answer] in answers) == 1

    async def test_a_take_over_fences_the_other_process(
        self, store: StateStore, clock: ManualClock, another_store: Callable[[], StateStore]
    ) -> None:
        """The worker that slept wakes up and is refused."""
        sleeper = await running_task(store, queue="default")
        async with another_store() as other:
            clock.advance(LEASE)
            await other.sweep()
            await enter(other, "successor")
            successor = await claimed_by(other, "successor")
            assert (await sleeper.send(WriteStep(step("late", 1)))).refusal is Refusal.SUPERSEDED
            await successor.apply(WriteStep(step("in time", 1)))
        assert [found.key for found in await store.steps("task")] == ["in time"]

    async def test_hints_come_from_the_other_process(
        self, store: StateStore, another_store: Callable[[], StateStore]
    ) -> None:
        """By topic if the store can name it, otherwise as ANYTHING."""
        ids = map("task-{}".format, itertools.count())
        async with another_store() as other, store.listen() as listener:
            for precise, act in (
                ("queue:q", lambda: other.submit([new_task(next(ids), queue="q")])),
                ("channel:news", lambda: other.emit("news", 1)),
            ):
                expected = precise if store.capabilities.precise_hints else ANYTHING
                await act()
                async with asyncio.timeout(PATIENCE):
                    while expected not in (hinted := await listener.wait()):
                        if ANYTHING in hinted:  # it listens only from now on: earlier changes are not known
                            await act()
