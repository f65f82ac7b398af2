"""Permits of steps: in the order of their line, all keys or none, and given back, also after a death."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.errors import InvalidValue, NotFound
from holdfast.model.flow_limit import Limit, PermitAnswer, PermitRequest, PermitReturn
from holdfast.model.operations import UntilTime
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    COMPLETE,
    LEASE,
    Attempt,
    claim,
    claimed_ids,
    enter,
    move,
    row,
    running_task,
    submit_one,
)
from holdfast.testing.contract.base import START, ContractBase
from holdfast.testing.contract.hints import hints_of
from holdfast.testing.contract.limits import HOUR, SECOND, end_of_use, taken, use_of
from holdfast.testing.snapshot import snapshot

GRANTED = PermitAnswer(granted=True)


def request(permit_id: str, *keys: str, **options: Any) -> PermitRequest:  # noqa: ANN401 - its own fields
    """Ask for a permit of the usual worker."""
    given: dict[str, Any] = {"worker_id": "worker", "task_id": "task", "lasts": 10.0} | options
    return PermitRequest(id=permit_id, keys=keys or ("openai",), **given)


async def take(store: StateStore, permit_id: str, *keys: str, **options: Any) -> PermitAnswer:  # noqa: ANN401 - as above
    """Ask once."""
    [answer] = await store.take_permits([request(permit_id, *keys, **options)])
    return answer


async def give_back(store: StateStore, *permit_ids: str, tokens: int | None = None) -> None:
    """Return permits, or places in line."""
    await store.return_permits([PermitReturn(id=permit_id, tokens=tokens) for permit_id in permit_ids])


class PermitsContract(ContractBase):
    """take_permits, return_permits."""

    async def test_a_permit_is_had_until_it_is_returned(self, store: StateStore) -> None:
        """The next one in line gets it; one that came later does not come before it."""
        await store.set_limit(Limit(name="openai", concurrency=2))
        await enter(store)
        assert [await take(store, name) for name in ("a", "b")] == [GRANTED, GRANTED]
        waits = PermitAnswer(granted=False, waits_for="openai")
        assert [await take(store, name) for name in ("c", "d")] == [waits, waits]
        assert await taken(store, "openai") == (2, 2)
        await hints_of(store, give_back(store, "a"), "limit:openai")
        assert [await take(store, name) for name in ("e", "d", "c", "d")] == [waits, waits, GRANTED, waits]
        assert await taken(store, "openai") == (2, 2)
        await give_back(store, "d")
        await give_back(store, "b", "b", "unknown", "d")
        assert [await take(store, name) for name in ("f", "e", "f")] == [waits, GRANTED, waits]
        await give_back(store, "c", "e", "f")
        assert await taken(store, "openai") == (0, 0)

    async def test_the_same_request_is_answered_as_before(self, store: StateStore) -> None:
        """It takes nothing twice, and keeps its place; within one call as well."""
        await store.set_limit(Limit(name="openai", concurrency=1, rate=10, per=SECOND))
        await enter(store)
        asked = [request("a"), request("b"), request("a"), request("b")]
        for _ in range(2):
            answers = await store.take_permits(asked)
            assert [answer.granted for answer in answers] == [True, False, True, False]
        use = await use_of(store, "openai")
        assert (use.taken, use.waiting, use.calls) == (1, 1, 1)

    async def test_a_refusal_says_what_holds_after_the_call(self, store: StateStore, clock: ManualClock) -> None:
        """Also where the same call has granted the permit behind which the request waits."""
        await store.set_limit(Limit(name="a", concurrency=1))
        calls = await store.set_limit(Limit(name="calls", rate=1, per=10 * SECOND))
        await enter(store)
        assert (await take(store, "first", "a")).granted
        assert (await take(store, "both", "a", "calls")).waits_for == "a"
        await give_back(store, "first")
        asked = [request("behind", "calls"), request("both", "a", "calls")]
        refused = PermitAnswer(granted=False, waits_for="calls", again_at=end_of_use(calls, clock.now()))
        assert await store.take_permits(asked) == [refused, GRANTED]

    async def test_a_dead_worker_is_only_refused(self, store: StateStore) -> None:
        """It waits for no pause and no time."""
        await store.set_limit(Limit(name="a", concurrency=1))
        await store.set_limit(Limit(name="b", rate=1, per=SECOND))
        await enter(store)
        await enter(store, "gone")
        assert (await take(store, "first", "a", "b")).granted
        assert not (await take(store, "both", "a", "b", worker_id="gone")).granted
        await store.retire("gone")
        await store.pause("limit:a", by="ann")
        await give_back(store, "first")
        for permit_id in ("both", "new"):
            answer = await take(store, permit_id, "b", "a", worker_id="gone")
            assert answer == PermitAnswer(granted=False, waits_for="a")

    async def test_a_permit_that_is_valid_for_longer_counts_for_longer(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """A shorter time than that of the limit changes nothing. A permit that is answered again gets the time, too."""
        limit = await store.set_limit(Limit(name="openai", rate=2, per=SECOND))
        await enter(store)
        late = 3.0
        assert (await take(store, "a", valid_for=limit.validity.total_seconds() / 2)).granted
        assert (await take(store, "b", valid_for=late)).granted
        assert (await take(store, "next")).again_at == end_of_use(limit, clock.now())
        await give_back(store, "a", "b", "next")
        clock.advance(1.2)
        assert (await use_of(store, "openai")).calls == 1
        assert (await take(store, "c")).granted
        assert (await take(store, "c", valid_for=5.0)).granted
        clock.advance(late)
        assert (await use_of(store, "openai")).calls == 1
        clock.advance(late)
        assert (await use_of(store, "openai")).calls == 0

    async def test_all_keys_of_a_request_or_none(self, store: StateStore) -> None:
        """One that waits for another key keeps its place in this line: no other comes before it."""
        for name in ("a", "b", "c"):
            await store.set_limit(Limit(name=name, concurrency=1))
        await enter(store)
        assert (await take(store, "first", "b")).granted
        assert (await take(store, "both", "b", "a", "b")).waits_for == "b"
        assert [await taken(store, name) for name in ("a", "b")] == [(0, 1), (1, 1)]
        assert (await take(store, "behind", "a", "c")).waits_for == "a"
        assert (await take(store, "beside", "c")).waits_for == "c"
        await give_back(store, "first")
        assert not (await take(store, "behind", "a", "c")).granted
        assert (await take(store, "both", "b", "a")).granted
        await give_back(store, "both")
        assert not (await take(store, "beside", "c")).granted
        assert (await take(store, "behind", "a", "c")).granted

    async def test_no_more_calls_begin_in_any_time(self, store: StateStore, clock: ManualClock) -> None:
        """Counted from when the permit is void; the answer says when there is room again."""
        limit = await store.set_limit(Limit(name="openai", rate=2, per=SECOND, burst=1))
        await enter(store, lease=1000)
        assert all([(await take(store, name)).granted for name in ("a", "b", "c")])
        await give_back(store, "a", "b")
        end = end_of_use(limit, clock.now())
        assert await take(store, "d") == PermitAnswer(granted=False, waits_for="openai", again_at=end)
        use = await use_of(store, "openai")
        assert (use.taken, use.calls, use.waiting) == (1, 3, 1)
        clock.advance((end - clock.now()).total_seconds() - 0.000001)
        assert not (await take(store, "d")).granted
        clock.advance(0.000001)
        assert (await use_of(store, "openai")).calls == 0
        assert (await take(store, "d")).granted

    async def test_tokens_are_reserved_and_settled(self, store: StateStore, clock: ManualClock) -> None:
        """At most as many as the limit has. What a call did not use is free at once; what it used beyond counts too."""
        limit = await store.set_limit(Limit(name="openai", tokens=100, per=SECOND))
        await store.set_limit(Limit(name="other", concurrency=10))
        await enter(store, lease=1000)
        assert (await take(store, "a", "openai", "other", tokens=60)).granted
        assert (await use_of(store, "openai")).tokens == 60
        assert (await use_of(store, "other")).tokens == 0
        refused = await take(store, "b", tokens=41)
        assert (refused.granted, refused.waits_for) == (False, "openai")
        assert refused.again_at == end_of_use(limit, clock.now())
        assert not (await take(store, "small", tokens=1)).granted
        await hints_of(store, give_back(store, "a", tokens=59), "limit:openai", "limit:other")
        assert (await take(store, "b", tokens=41)).granted
        await give_back(store, "b", "small", tokens=91)
        assert (await use_of(store, "openai")).tokens == 150
        assert not (await take(store, "c", tokens=0)).granted
        clock.advance((end_of_use(limit, clock.now()) - clock.now()).total_seconds())
        assert (await take(store, "c", tokens=0)).granted
        assert (await take(store, "huge", tokens=10**9)).granted
        use = await use_of(store, "openai")
        assert (use.tokens, use.calls, use.taken) == (100, 2, 2)
        clock.advance((end_of_use(limit, clock.now()) - clock.now()).total_seconds())
        await give_back(store, "huge", tokens=7)
        assert (await use_of(store, "openai")).tokens == 0

    async def test_a_large_request_does_not_wait_for_ever(self, store: StateStore) -> None:
        """Small ones that come later do not take what it waits for."""
        await store.set_limit(Limit(name="openai", tokens=100, per=HOUR))
        await enter(store)
        assert (await take(store, "a", tokens=50)).granted
        assert not (await take(store, "large", tokens=90)).granted
        for n in range(5):
            assert not (await take(store, f"small {n}", tokens=5)).granted
        await give_back(store, "a", tokens=0)
        assert not (await take(store, "not so small", tokens=11)).granted
        await give_back(store, "not so small")
        assert (await take(store, "large", tokens=90)).granted
        assert (await take(store, "small 0", tokens=5)).granted
        assert (await take(store, "small 1", tokens=5)).granted
        assert not (await take(store, "small 2", tokens=5)).granted

    async def test_a_permit_that_is_answered_again_counts_from_then_on(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """The first answer was lost, so that its call begins later. What counts no more waits again, at its place."""
        limit = await store.set_limit(Limit(name="openai", rate=1, per=SECOND, concurrency=3))
        await enter(store, lease=1000)
        assert (await take(store, "a")).granted
        first_end = end_of_use(limit, clock.now())
        clock.advance(0.9)
        assert (await take(store, "a")).granted
        second_end = end_of_use(limit, clock.now())
        assert (await use_of(store, "openai")).calls == 1
        clock.advance((first_end - clock.now()).total_seconds())
        refused = await take(store, "b")
        assert (refused.granted, refused.again_at) == (False, second_end)
        clock.advance((second_end - clock.now()).total_seconds())
        assert (await take(store, "a")).granted
        assert (await taken(store, "openai"))[0] == 1
        clock.advance(2)
        assert (await take(store, "b")).granted
        assert not (await take(store, "a")).granted
        assert (await taken(store, "openai")) == (1, 1)
        assert not (await take(store, "c")).granted
        clock.advance(2)
        assert not (await take(store, "c")).granted
        assert (await take(store, "a")).granted

    async def test_steps_and_tasks_share_a_limit(self, store: StateStore) -> None:
        """Each counts as one."""
        await store.set_limit(Limit(name="openai", concurrency=2))
        attempt = await running_task(store, limits=["openai"])
        assert (await take(store, "a")).granted
        assert not (await take(store, "b")).granted
        await submit_one(store, "next", limits=["openai"])
        assert await claimed_ids(store, number=2) == []
        assert await taken(store, "openai") == (2, 2)
        later = move(TaskState.WAITING, waits=(UntilTime(key="t", at=START + HOUR),))
        await hints_of(store, attempt.apply(later), "limit:openai")
        assert (await take(store, "b")).granted
        await give_back(store, "a")
        [claimed] = await claim(store, number=2)
        assert claimed.task.id == "next"
        await hints_of(store, Attempt(store, claimed).apply(COMPLETE), "limit:openai")
        await submit_one(store, "last", limits=["openai"])
        assert (await take(store, "c")).granted
        assert await claimed_ids(store, number=3) == []
        await hints_of(store, give_back(store, "b"), "queue:default")  # tasks hear of it, too
        assert await claimed_ids(store, number=3) == ["last"]

    async def test_a_dead_worker_waits_for_nothing(self, store: StateStore, clock: ManualClock) -> None:
        """What it waits for goes to those behind it. What it had is kept until its call is over at the latest."""
        limit = await store.set_limit(Limit(name="openai", concurrency=2))
        await enter(store)
        await enter(store, "living", lease=1000)
        ends = clock.now() + limit.validity + timedelta(seconds=100)
        assert (await take(store, "a", lasts=100)).granted
        assert (await take(store, "b", worker_id="living")).granted
        assert not (await take(store, "c")).granted
        assert not (await take(store, "d", worker_id="living")).granted
        assert await taken(store, "openai") == (2, 2)
        clock.advance(LEASE)
        swept = await store.sweep()
        assert swept.next_due == ends
        assert await taken(store, "openai") == (2, 1)
        assert not (await take(store, "e")).granted
        assert await taken(store, "openai") == (2, 1)
        await give_back(store, "b")
        assert (await take(store, "d", worker_id="living")).granted
        assert not (await take(store, "f", worker_id="living")).granted
        clock.advance((ends - clock.now()).total_seconds() - 0.000001)
        await store.sweep()
        assert not (await take(store, "f", worker_id="living")).granted
        clock.advance(0.000001)
        await hints_of(store, store.sweep(), "limit:openai")
        assert (await take(store, "f", worker_id="living")).granted
        assert await taken(store, "openai") == (2, 0)

    async def test_a_draining_worker_gets_permits(self, store: StateStore) -> None:
        """It has to finish what it has. A worker that never registered, or has left, gets none."""
        await store.set_limit(Limit(name="openai", concurrency=5))
        await enter(store)
        await store.drain("worker")
        await enter(store, "another")
        assert (await take(store, "a")).granted
        assert not (await take(store, "b", worker_id="stranger")).granted
        for name in ("c", "d", "e", "f"):
            assert (await take(store, name, worker_id="another")).granted
        assert not (await take(store, "g")).granted
        assert not (await take(store, "h", worker_id="another")).granted
        await store.retire("worker")
        assert not (await take(store, "i")).granted
        assert await taken(store, "openai") == (5, 1)
        await give_back(store, "c")
        assert not (await take(store, "g")).granted
        assert (await take(store, "h", worker_id="another")).granted

    async def test_a_closed_or_paused_limit_grants_nothing(self, store: StateStore, clock: ManualClock) -> None:
        """The answer tells which it is; what was granted is still there."""
        await store.set_limit(Limit(name="tenant", each=True))
        await enter(store, lease=1000)
        assert (await take(store, "a", "tenant:x")).granted
        until = clock.now() + 5 * SECOND
        await store.close_limit(["tenant:x"], until)
        assert (await take(store, "a", "tenant:x")).granted
        closed = PermitAnswer(granted=False, waits_for="tenant:x", again_at=until)
        assert await take(store, "b", "tenant:x") == closed
        assert (await take(store, "other", "tenant:y")).granted
        clock.advance(5)
        assert (await take(store, "b", "tenant:x")).granted
        for subject in ("limit:tenant", "limit:tenant:x"):
            with row(subject):
                await store.pause(subject, by="person")
                paused = PermitAnswer(granted=False, waits_for="tenant:x", paused=True)
                assert await take(store, f"c {subject}", "tenant:x") == paused
                assert (await take(store, f"d {subject}", "tenant:y")).granted is (subject == "limit:tenant:x")
                await store.unpause(subject)
                assert (await take(store, f"c {subject}", "tenant:x")).granted

    async def test_a_request_for_no_limit_is_refused(self, store: StateStore) -> None:
        """None of the call is noted."""
        await store.set_limit(Limit(name="tenant", concurrency=1, each=True))
        await enter(store)
        before = await snapshot(store)
        for key, error in (("unknown", NotFound), ("tenant", InvalidValue)):
            with row(key), pytest.raises(error):
                await store.take_permits([request("fine", "tenant:a"), request("b", "tenant:a", key)])
        for options in (
            {"keys": ()},
            {"keys": "openai"},
            {"keys": [""]},
            {"keys": [f"tenant:{n}" for n in range(9)]},
            {"keys": ["tenant:" + "a" * 200]},
            {"tokens": -1},
            {"tokens": 1.5},
            {"id": ""},
            {"lasts": -1.0},
            {"lasts": float("nan")},
            {"lasts": float("inf")},
            {"lasts": "long"},
            {"valid_for": -1.0},
        ):
            given: dict[str, Any] = {"id": "a", "task_id": "task", "worker_id": "worker", "keys": ["tenant:a"]}
            with row(options), pytest.raises(InvalidValue):
                await store.take_permits([PermitRequest(**({"lasts": 1.0} | given | options))])
        for returned in ({"id": ""}, {"id": "a", "tokens": -1}, {"id": "a", "tokens": True}):
            with row(returned), pytest.raises(InvalidValue):
                await store.return_permits([PermitReturn(**returned)])
        assert await snapshot(store) == before

    async def test_no_race_of_steps_goes_beyond_a_limit(self, store: StateStore) -> None:
        """Many ask and return at once; every answer is the truth, and no request waits for ever."""
        await store.set_limit(Limit(name="openai", concurrency=4))
        await store.set_limit(Limit(name="tenant", concurrency=2, each=True))
        await enter(store, lease=1000)
        at_work: set[str] = set()

        async def call(name: str, *keys: str) -> None:
            while not (await take(store, name, *keys)).granted:  # noqa: ASYNC110 - others return theirs
                await asyncio.sleep(0)
            at_work.add(name)
            assert len(at_work) <= 4
            await asyncio.sleep(0)
            at_work.discard(name)
            await give_back(store, name)

        async with asyncio.timeout(120):
            await asyncio.gather(*(call(f"call {n}", "openai", f"tenant:{n % 3}") for n in range(60)))
        assert {(use.taken, use.waiting) for use in await store.limit_uses()} == {(0, 0)}
