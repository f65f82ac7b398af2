"""Turns: the tasks of a fair queue are claimed by turns of the values of a label."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.errors import InvalidValue
from holdfast.model.flow_limit import Limit
from holdfast.model.queue_settings import KEEP, QueueSettings
from holdfast.model.task import IfExists, NewTask
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    CANCEL,
    COMPLETE,
    LEASE,
    NAME,
    Attempt,
    apply_outside,
    claim,
    claimed_by,
    claimed_ids,
    enter,
    move,
    new_task,
    row,
    submit_one,
)
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.contract.limit_lines import ways_back
from holdfast.testing.contract.queued import in_line, page_by_page

QUEUE = "fair"
MINUTE = timedelta(minutes=1)


def of_tenant(tenant: str | None, count: int, **options: Any) -> list[NewTask]:  # noqa: ANN401 - the fields of NewTask
    """Describe tasks of one tenant: a0, a1, ..., or a00 if there are more; None: without the label."""
    labels = {} if tenant is None else {"tenant": tenant}
    given = {"queue": QUEUE, "labels": labels} | options
    width = len(str(count - 1))
    return [new_task(f"{tenant or 'none'}{number:0{width}}", **given) for number in range(count)]


async def one_by_one(store: StateStore, count: int = 100, *, first: int = 1, **options: Any) -> list[str]:  # noqa: ANN401
    """Let the worker claim tasks one by one, until there are none or ``count`` are claimed; return their ids."""
    given: dict[str, Any] = {"queues": (QUEUE,), "limit": 1} | options
    found = list[str]()
    for number in range(first, first + count):
        claimed = await claimed_ids(store, number=number, **given)
        if not claimed:
            break
        found += claimed
    return found


async def is_fair(store: StateStore, queue: str = QUEUE) -> None:
    """Let the tasks of the queue take turns, and a worker serve it."""
    await store.set_queue(queue, fair_by="tenant")


class TurnsContract(ContractBase):
    """set_queue(fair_by=), and the order of claims from such a queue."""

    async def test_tenants_take_turns(self, store: StateStore) -> None:
        """However much each has submitted, and when. Tasks without the label are one tenant."""
        await is_fair(store)
        await store.submit(of_tenant("a", 5))
        await store.submit(of_tenant("b", 2))
        await store.submit(of_tenant(None, 3))
        await store.submit([*of_tenant("c", 1), new_task("none3", queue=QUEUE, labels={"other": "a"})])
        await enter(store)
        order = ["a0", "b0", "c0", "none0", "a1", "b1", "none1", "a2", "none2", "a3", "none3", "a4"]
        assert await one_by_one(store, 5) == order[:5]
        assert await claimed_ids(store, number=6, queues=(QUEUE,)) == order[5:]

    async def test_one_tenant_delays_the_first_task_of_another_by_one_task(self, store: StateStore) -> None:
        """Whenever it comes; and what follows it alternates. So does each further tenant."""
        await is_fair(store)
        await store.submit(of_tenant("b", 50))
        await enter(store)
        assert await one_by_one(store, 20) == [f"b{number:02}" for number in range(20)]
        await store.submit(of_tenant("c", 3))
        assert await one_by_one(store, 2, first=21) == ["c0", "b20"]
        await store.submit(of_tenant("a", 2))
        assert await one_by_one(store, 6, first=23) == ["a0", "c1", "a1", "b21", "c2", "b22"]
        await store.submit([new_task("a2", queue=QUEUE, labels={"tenant": "a"})])
        assert await one_by_one(store, 2, first=29) == ["a2", "b23"]

    async def test_a_tenant_that_comes_again_and_again_gets_one_turn_of_each(self, store: StateStore) -> None:
        """A task that is submitted whenever the one before it was claimed does not go before the others each time."""
        await is_fair(store)
        await store.submit(of_tenant("b", 10))
        await enter(store)
        found = list[str]()
        for number in range(1, 11):
            task = new_task(f"a{number}", queue=QUEUE, labels={"tenant": "a"})
            if not found or found[-1].startswith("a"):
                await store.submit([task])
            found += await one_by_one(store, 1, first=number)
        assert "".join(task_id[0] for task_id in found) in {"ab" * 5, "ba" * 5}

    async def test_priority_orders_the_tasks_of_a_tenant(self, store: StateStore) -> None:
        """What is urgent does not wait behind all that its tenant has submitted, and takes no turn from others."""
        await is_fair(store)
        await store.submit([*of_tenant("a", 10), *of_tenant("b", 3)])
        await enter(store)
        assert await one_by_one(store, 4) == ["a0", "b0", "a1", "b1"]
        await store.submit([new_task("urgent", queue=QUEUE, labels={"tenant": "a"}, priority=5)])
        assert await one_by_one(store, 3, first=5) == ["urgent", "a2", "b2"]

    async def test_what_comes_back_does_not_wait_behind_its_tenant(self, store: StateStore, clock: ManualClock) -> None:
        """Woken, retried, resumed, handed back: it goes before the other tasks of its tenant, which never began."""
        await is_fair(store)
        await enter(store, lease=100 * LEASE)
        for number, way in enumerate(ways_back(store, clock)):
            with row(way):
                await enter(store, f"holder {way}", lease=100 * LEASE)
                await submit_one(store, way, queue=QUEUE, labels={"tenant": "a"}, parent_id="parent")
                attempt = await claimed_by(store, f"holder {way}", queues=(QUEUE,))
                await store.submit([new_task(f"{way} {n}", queue=QUEUE, labels={"tenant": "a"}) for n in range(5)])
                await ways_back(store, clock)[way](attempt)
                clock.advance(2)
                await store.sweep()
                order = await one_by_one(store, first=1 + 10 * number)
                assert sorted(order) == sorted([way, *(f"{way} {n}" for n in range(5))])
                assert order.index(way) <= 1

    async def test_many_retries_do_not_go_before_the_first_of_another(self, store: StateStore) -> None:
        """They have a lane of their own, in which they follow one another."""
        await is_fair(store)
        await store.submit(of_tenant("a", 6))
        await enter(store, "holder")
        assert len(await claimed_ids(store, "holder", queues=(QUEUE,))) == 6
        await store.retire("holder")
        await store.submit([*of_tenant("b", 2), new_task("a6", queue=QUEUE, labels={"tenant": "a"})])
        await enter(store)
        order = await one_by_one(store)
        assert order.index("b0") <= 2
        assert order.index("a6") <= 3
        assert order.index("b1") <= 4

    async def test_tasks_that_come_due_together_take_turns(self, store: StateStore, clock: ManualClock) -> None:
        """In each lane in the order in which they were due."""
        await is_fair(store)
        soon = clock.now() + MINUTE
        await store.submit(of_tenant("a", 4, available_at=soon))
        await store.submit(of_tenant("b", 2, available_at=soon - MINUTE / 2))
        await enter(store)
        assert await one_by_one(store, 1) == []
        clock.advance(60)
        assert (await store.sweep()).due == 6
        await enter(store, "later")
        assert await one_by_one(store, worker_id="later") == ["a0", "b0", "a1", "b1", "a2", "a3"]

    async def test_a_limit_that_all_share_lets_out_by_turns(self, store: StateStore) -> None:
        """Its line is in the order of the queue."""
        await is_fair(store)
        await store.set_limit(Limit(name="openai", concurrency=1))
        await store.submit(of_tenant("a", 4, limits=("openai",)))
        await store.submit(of_tenant("b", 2, limits=("openai",)))
        await enter(store)
        found = list[str]()
        for number in range(1, 7):
            [claimed] = await claim(store, number=number, limit=1, queues=(QUEUE,))
            found.append(claimed.task.id)
            await Attempt(store, claimed).apply(COMPLETE)
        assert found == ["a0", "b0", "a1", "b1", "a2", "a3"]

    async def test_a_limit_of_each_tenant_keeps_its_places(self, store: StateStore) -> None:
        """A tenant that waits at its own limit holds no other up, and goes on when it has a place."""
        await is_fair(store)
        await store.set_limit(Limit(name="tenant", concurrency=1, each=True))
        await store.submit([*of_tenant("a", 3, limits=("tenant:a",)), *of_tenant("b", 3), *of_tenant("c", 2)])
        await enter(store)
        [first] = await claim(store, limit=1, queues=(QUEUE,))
        assert first.task.id == "a0"
        assert await one_by_one(store, 3, first=2) == ["b0", "c0", "b1"]
        await Attempt(store, first).apply(COMPLETE)
        assert await one_by_one(store, first=5) == ["a1", "c1", "b2"]

    async def test_the_places_of_a_fair_queue_go_by_turns(self, store: StateStore) -> None:
        """Also beside a queue that is not fair."""
        await store.set_queue(QUEUE, fair_by="tenant", concurrency=3)
        await store.submit([*of_tenant("a", 5), *of_tenant("b", 1)])
        await store.submit([new_task(f"other{number}") for number in range(3)])
        await enter(store)
        both: dict[str, Any] = {"queues": (QUEUE, "default")}
        assert sorted(await claimed_ids(store, **both)) == ["a0", "a1", "b0", "other0", "other1", "other2"]
        assert await claimed_ids(store, number=2, **both) == []
        [settings] = await store.queue_settings()
        assert settings == QueueSettings(name=QUEUE, pending=3, concurrency=3, working=3, fair_by="tenant")

    async def test_no_queue_of_a_claim_starves(self, store: StateStore, clock: ManualClock) -> None:
        """Of two fair queues and one that is not, the older tasks come first, however far the turns of a queue are."""
        await is_fair(store, "one")
        await is_fair(store, "two")
        await enter(store, lease=1000 * LEASE)
        await store.submit(of_tenant("x", 30, queue="one"))
        assert len(await one_by_one(store, 30, queues=("one",))) == 30
        queues = ("one", "two", "plain")
        for number in range(8):
            for queue in queues:
                await submit_one(store, f"{queue}{number}", queue=queue, labels={"tenant": "a"})
                clock.advance(1)
        by_age = [f"{queue}{number}" for number in range(8) for queue in queues]
        assert await one_by_one(store, 6, first=31, queues=queues) == by_age[:6]
        assert sorted(await claimed_ids(store, number=37, limit=6, queues=queues)) == sorted(by_age[6:12])
        await submit_one(store, "first", queue="one", labels={"tenant": "b"})
        order = await one_by_one(store, first=38, queues=queues)
        assert order.index("first") < order.index("one4") < order.index("one5")
        assert order.index("first") <= 3
        for queue in ("two", "plain"):
            assert [task_id for task_id in order if task_id.startswith(queue)] == [f"{queue}{n}" for n in range(4, 8)]

    async def test_it_is_switched_on_and_off_with_tasks_there(self, store: StateStore) -> None:
        """Tasks that are in the queue get turns, and their ranks back. The same again changes nothing."""
        await store.submit([*of_tenant("a", 6), *of_tenant("b", 4)])
        await enter(store)
        assert await one_by_one(store, 2) == ["a0", "a1"]
        assert await store.set_queue(QUEUE, fair_by="tenant") == QueueSettings(name=QUEUE, pending=8, fair_by="tenant")
        assert await store.set_queue(QUEUE, max_pending=KEEP) == QueueSettings(name=QUEUE, pending=8, fair_by="tenant")
        assert await one_by_one(store, 3, first=3) == ["a2", "b0", "a3"]
        assert (await store.set_queue(QUEUE, fair_by="tenant")).fair_by == "tenant"
        assert await store.set_queue(QUEUE, fair_by="priority") == QueueSettings(
            name=QUEUE, pending=5, fair_by="priority"
        )
        assert await one_by_one(store, 1, first=6) == ["a4"]
        assert await store.set_queue(QUEUE, fair_by=None) == QueueSettings(name=QUEUE, pending=4)
        assert await one_by_one(store, first=7) == ["a5", "b1", "b2", "b3"]
        await store.retire("worker")
        await enter(store, "later")
        assert len(await claimed_ids(store, "later", queues=(QUEUE,))) == 10

    async def test_a_tenant_pays_for_no_task_that_was_cancelled(self, store: StateStore) -> None:
        """The next one comes behind those that are there."""
        await is_fair(store)
        await store.submit([*of_tenant("a", 9), *of_tenant("b", 9)])
        await enter(store)
        assert await one_by_one(store, 2) == ["a0", "b0"]
        for number in range(2, 9):
            await apply_outside(store, f"a{number}", CANCEL)
        await store.submit([new_task("a9", queue=QUEUE, labels={"tenant": "a"})])
        assert await one_by_one(store, 5, first=3) == ["a1", "b1", "a9", "b2", "b3"]

    async def test_a_task_that_is_replaced_takes_the_turn_of_its_new_tenant(self, store: StateStore) -> None:
        """It is the last one of its lane again."""
        await is_fair(store)
        await store.submit([*of_tenant("b", 1), new_task("mine", queue=QUEUE, labels={"tenant": "b"}, key="k")])
        await store.submit([new_task(f"c{number}", queue=QUEUE, labels={"tenant": "b"}) for number in range(3)])
        await enter(store)
        assert await one_by_one(store, 1) == ["b0"]
        again: dict[str, Any] = {"key": "k", "queue": QUEUE, "if_exists": IfExists.REPLACE, "user_input": 2}
        await store.submit([new_task("2", labels={"tenant": "b"}, **again)])
        await store.sweep()
        assert await in_line(store, QUEUE) == ["c0", "c1", "c2", "mine"]
        await store.submit([new_task("3", labels={"tenant": "a"}, **again)])
        await store.submit([new_task("4", labels={"tenant": "d"}, **again)])  # it has no turn yet
        assert await one_by_one(store, 2, first=2) == ["mine", "c0"]

    async def test_what_is_paused_or_leased_by_its_id_keeps_the_others_in_turn(self, store: StateStore) -> None:
        """A task that is leased before it has had its turn can be worked on as any other."""
        await is_fair(store)
        await store.submit([*of_tenant("a", 4), *of_tenant("b", 3)])
        await enter(store)
        await store.pause("a0", by="ann", reason=None)
        await store.acquire("b2", "worker")
        assert await one_by_one(store, 3) == ["b0", "a1", "b1"]
        await store.unpause("a0")
        assert await one_by_one(store, first=4) == ["a0", "a2", "a3"]
        await store.pause("a3", by="ann", reason=None)
        assert (await store.heartbeat("worker")).paused == {"a3"}

    async def test_names_that_no_worker_serves_hold_nothing_up(self, store: StateStore) -> None:
        """And when one does, a tenant that was not there before waits behind one task of each, not behind all."""
        await is_fair(store)
        await store.submit(of_tenant("a", 20, name="rare"))
        await store.submit([new_task(f"b{number:02}", queue=QUEUE, labels={"tenant": "b"}) for number in range(40)])
        await enter(store)
        assert await one_by_one(store, 40) == [f"b{number:02}" for number in range(40)]
        await store.submit([new_task("c0", queue=QUEUE, labels={"tenant": "c"}, name="rare")])
        await store.submit([new_task("c1", queue=QUEUE, labels={"tenant": "c"}, name="rare")])
        rare = {"names": ("rare", NAME)}
        assert await one_by_one(store, 6, first=41, **rare) == ["a00", "a01", "c0", "a02", "c1", "a03"]

    async def test_suspects_of_a_fair_queue_are_handed_out_alone(self, store: StateStore, clock: ManualClock) -> None:
        """By turns as well, and they move no turn on for the others."""
        await is_fair(store)
        await store.submit([*of_tenant("a", 2), *of_tenant("b", 1)])
        for number in range(2):
            await enter(store, f"dies {number}")
            assert len(await claimed_ids(store, f"dies {number}", queues=(QUEUE,))) == 3
            clock.advance(LEASE)
            await store.sweep()
        await enter(store)
        alone = Claim(worker_id="worker", number=1, limit=1, queues=(QUEUE,), names=(NAME,), alone=True)
        assert await store.has_suspect(alone)
        assert await one_by_one(store, 1) == []
        assert await one_by_one(store, alone=True) == ["b0", "a0", "a1"]

    async def test_they_are_listed_by_turns(self, store: StateStore, clock: ManualClock) -> None:
        """Those that have no turn yet, and those that are delayed, come last. Page by page as well."""
        await is_fair(store)
        await store.submit(
            [*of_tenant("a", 4), *of_tenant("b", 2), *of_tenant("c", 1, available_at=clock.now() + MINUTE)]
        )
        assert sorted((await in_line(store, QUEUE))[:6]) == ["a0", "a1", "a2", "a3", "b0", "b1"]
        await store.sweep()
        turns: Sequence[str] = ["a0", "b0", "a1", "b1", "a2", "a3"]
        assert await in_line(store, QUEUE) == [*turns, "c0"]
        await store.submit([new_task("d0", queue=QUEUE, labels={"tenant": "d"})])
        assert await in_line(store, QUEUE) == [*turns, "d0", "c0"]
        for limit in (1, 2, 3):
            assert await page_by_page(store, limit, queue=QUEUE) == " ".join([*turns, "d0", "c0"])
        await store.pause("d0", by="ann", reason=None)
        assert await in_line(store, QUEUE) == [*turns, "c0"]

    async def test_a_task_that_ends_without_a_turn_can_come_back(self, store: StateStore) -> None:
        """Also if its queue is not fair any more by then."""
        await is_fair(store)
        await store.submit(of_tenant("a", 1))
        await enter(store)
        attempt = Attempt(store, await store.acquire("a0", "worker"))
        await attempt.apply(move(TaskState.FAILED))
        await store.set_queue(QUEUE, fair_by=None)
        await apply_outside(store, "a0", move(TaskState.PENDING))
        assert await one_by_one(store) == ["a0"]

    async def test_a_label_that_no_task_could_have_is_refused(self, store: StateStore) -> None:
        """At the door, and nothing changes."""
        for label in ("", "a=b", "x" * 65, 5, True):
            with row(label), pytest.raises(InvalidValue):
                await store.set_queue(QUEUE, fair_by=label)  # type: ignore[arg-type]
        assert await store.queue_settings() == []

    async def test_a_lost_answer_is_read_again(self, store: StateStore) -> None:
        """In the order in which it was given, and without another turn."""
        await is_fair(store)
        await store.submit([*of_tenant("a", 3), *of_tenant("b", 2)])
        await enter(store)
        assert await claimed_ids(store, limit=4, queues=(QUEUE,)) == ["a0", "b0", "a1", "b1"]
        assert await claimed_ids(store, limit=4, queues=(QUEUE,)) == ["a0", "b0", "a1", "b1"]
        await submit_one(store, "b2", queue=QUEUE, labels={"tenant": "b"})
        assert await one_by_one(store, first=2) == ["a2", "b2"]
