"""Permits of a process: when the store is asked, for whom there are slots, and what happens to them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from holdfast import Context, Holdfast, ManualClock, StoreUnavailable
from holdfast.engine.runtime.permit_request import StepRequest
from holdfast.engine.runtime.permits import GIVE_WAY_AFTER, PATIENCE, RETURN_AGAIN_AFTER, Permits
from holdfast.engine.worker.slots import Slots
from holdfast.model.flow_limit import PermitAnswer, PermitRequest, PermitReturn
from tests.engine.support import until


class OnWorker:
    """The place of an attempt on a worker."""

    def __init__(self, name: str, slots: Slots[str]) -> None:
        self.name, self.slots = name, slots
        self.is_unwanted = self.was_handed_back = False

    @property
    def needs_slot(self) -> bool:
        return self.slots.is_resting(self.name)

    @property
    def free_slots(self) -> int | None:
        return self.slots.free

    def reserve(self, count: int) -> None:
        self.slots.keep(count)

    def release(self, count: int) -> None:
        self.slots.let_go(count)

    def take_slot(self) -> None:
        self.slots.wake(self.name)

    def hand_back(self) -> None:
        self.was_handed_back = True


class Scene:
    """A worker with one slot, and a store whose answers the test gives."""

    def __init__(self, hold: Holdfast, clock: ManualClock) -> None:
        self.permits: Permits = hold.services.permits
        self.clock = clock
        self.slots: Slots[str] = Slots(1, hold.services.alarms, self._freed)
        self.free_for_claims: list[int | None] = []
        self.asked: list[list[str]] = []
        self.answers: list[PermitAnswer | Exception] = []
        self.returned: list[str] = []
        vars(hold.store).update(take_permits=self._take, return_permits=self._return)

    def _freed(self) -> None:
        self.permits.slot_freed(self.slots)
        self.free_for_claims.append(self.slots.free)

    async def _take(self, requests: Sequence[PermitRequest]) -> list[PermitAnswer]:
        self.asked.append([request.task_id for request in requests])
        given = [self.answers.pop(0) if self.answers else PermitAnswer(granted=False) for _ in requests]
        await asyncio.sleep(0)
        answers = [one for one in given if isinstance(one, PermitAnswer)]
        for one in given:
            if isinstance(one, Exception):
                raise one
        return answers

    async def _return(self, returned: Sequence[PermitReturn]) -> None:
        self.returned += [permit.id for permit in returned]

    def ask(self, name: str) -> StepRequest:
        place = OnWorker(name, self.slots)
        return self.permits.ask(name, place, task_id=name, worker_id="worker", keys=("api",), tokens=0, lasts=1.0)

    async def resting(self, name: str) -> StepRequest:
        """A request that was refused, and whose attempt has given its slot back to another one."""
        self.slots.take(name)
        request = self.ask(name)
        await until(request.answered.done)
        self.slots.rest(name)
        self.slots.take("another")
        self.asked.clear()
        return request

    def hint(self) -> None:
        self.permits._hinted("api")

    async def hint_to(self, request: StepRequest) -> None:
        """Let a request know that there may be a permit, for which it lacks a slot."""
        self.hint()
        await until(lambda: request.lacks_slot_since is not None)


GRANTED = PermitAnswer(granted=True)


async def passes(clock: ManualClock, seconds: float) -> None:
    """Let time pass, with real time for each round."""
    for _ in range(round(seconds / 0.1) + 1):
        clock.advance(0.1)
        await asyncio.sleep(0.01)


@pytest.fixture
async def scene(still: Holdfast, clock: ManualClock) -> Scene:
    await still.limit("api", concurrency=1, rate=10, per=timedelta(seconds=5))
    return Scene(still, clock)


async def test_the_next_free_slot_is_for_a_request_before_tasks_in_the_queue(scene: Scene) -> None:
    request = await scene.resting("a")
    await scene.hint_to(request)
    assert scene.asked == []  # a permit could not be used
    scene.free_for_claims.clear()
    scene.answers = [GRANTED]
    scene.slots.leave("another")
    assert scene.free_for_claims == [0]
    await until(request.over.done)
    assert request.permit is not None
    assert scene.slots.working == {"a"}
    assert scene.slots.busy == 1


async def test_a_slot_that_was_kept_in_vain_is_for_tasks_in_the_queue(scene: Scene, clock: ManualClock) -> None:
    request = await scene.resting("a")
    await scene.hint_to(request)
    scene.slots.leave("another")
    await until(lambda: scene.asked)
    await until(lambda: request.lacks_slot_since is None and not request.is_asking)
    assert scene.free_for_claims[-1] == 1
    # And the one after that, too: a limit without room must not keep slots from tasks.
    scene.slots.take("another")
    await scene.hint_to(request)
    scene.slots.leave("another")
    assert scene.free_for_claims[-1] == 1
    assert clock.boot() < PATIENCE


async def test_a_request_that_is_withdrawn_leaves_the_slot_that_was_kept_for_it(scene: Scene) -> None:
    request = await scene.resting("a")
    await scene.hint_to(request)
    scene.slots.leave("another")
    scene.permits.withdraw(request)
    assert scene.slots.busy == 0
    await until(lambda: scene.returned == [request.id])


async def test_without_a_slot_it_leaves_its_line_and_then_its_worker(scene: Scene, clock: ManualClock) -> None:
    request = await scene.resting("a")
    place, first = request.place, request.id
    scene.hint()
    await passes(clock, 2 * GIVE_WAY_AFTER)
    assert scene.returned == [first]
    assert request.id != first
    await passes(clock, PATIENCE)
    assert request.over.done()
    assert isinstance(place, OnWorker)
    assert place.was_handed_back
    assert scene.asked == []


async def test_a_lost_answer_is_asked_for_again_and_counts_from_the_first_question(
    scene: Scene, clock: ManualClock
) -> None:
    scene.answers = [StoreUnavailable("away"), GRANTED]
    request = scene.ask("a")
    await until(lambda: len(scene.asked) == 1)
    await passes(clock, 0.2)
    await until(request.over.done)
    assert request.permit is not None
    assert not request.permit.is_void
    clock.advance(0.21)  # of the half second that a limit of five seconds gives
    assert bool(request.permit.is_void)
    assert scene.asked == [["a"], ["a"]]


async def test_with_a_slow_store_permits_are_valid_for_longer(still: Holdfast, clock: ManualClock) -> None:
    """Otherwise each of them would be void when it comes, and its call would count all the same."""
    calls: list[float] = []
    take_permits = still.store.take_permits

    async def take_slowly(requests: Sequence[PermitRequest]) -> list[PermitAnswer]:
        answers = await take_permits(requests)
        clock.advance(0.2)
        return answers

    vars(still.store)["take_permits"] = take_slowly
    await still.limit("api", rate=10, per=timedelta(seconds=1))

    @still.task
    async def limited(ctx: Context) -> None:
        for _ in range(3):
            await ctx.step("ask", lambda: calls.append(clock.boot()), limits=["api"])

    handle = await still.submit(limited)
    async with still.worker(lease=3600.0):
        await passes(clock, 2.0)
        await handle.result(timeout=30.0)
    assert len(calls) == 3


async def test_a_request_that_is_withdrawn_while_the_store_is_asked_gives_its_permit_back(scene: Scene) -> None:
    scene.answers = [GRANTED]
    request = scene.ask("a")
    await until(lambda: scene.asked)
    scene.permits.withdraw(request)
    await until(lambda: scene.returned == [request.id])


async def test_a_question_without_an_answer_is_given_back_twice(scene: Scene, clock: ManualClock) -> None:
    """The first time, it may still have waited in the store for a lock: then the permit would be kept for ever."""
    scene.answers = [StoreUnavailable("away")]
    request = scene.ask("a")
    await until(lambda: scene.asked)
    await until(lambda: not request.is_asking)
    scene.permits.withdraw(request)
    await until(lambda: scene.returned == [request.id])
    clock.advance(RETURN_AGAIN_AFTER)
    await until(lambda: scene.returned == [request.id] * 2)


async def test_a_hint_during_the_question_is_not_lost(scene: Scene, clock: ManualClock) -> None:
    scene.answers = [PermitAnswer(granted=False), GRANTED]
    request = scene.ask("a")
    await until(lambda: scene.asked)
    scene.hint()
    await until(request.over.done)  # without it, time would have to pass
    assert request.permit is not None
    assert clock.boot() == 0.0


async def test_what_an_attempt_leaves_behind_is_given_back_but_not_what_a_thread_still_uses(scene: Scene) -> None:
    scene.answers = [GRANTED, GRANTED]
    used, unused, waiting = scene.ask("a"), scene.ask("a"), scene.ask("a")
    await until(waiting.answered.done)
    assert used.permit is not None
    assert unused.permit is not None
    run = used.permit.in_thread(lambda: "done")
    scene.permits.leave("a")
    await until(lambda: sorted(scene.returned) == sorted([unused.id, waiting.id]))
    assert await asyncio.to_thread(run) == "done"
    await until(lambda: used.id in scene.returned)
