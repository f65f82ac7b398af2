"""The slots of a worker, without a worker."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import ManualClock
from holdfast.engine.runtime.alarms import Alarms
from holdfast.engine.worker.slots import PATIENCE, Slots
from tests.engine.support import settle


@pytest.fixture
async def slots(clock: ManualClock) -> AsyncIterator[Slots[Any]]:
    """One slot. An attempt has given it back, and another one has it."""
    alarms = Alarms(clock)
    slots: Slots[Any] = Slots(1, alarms, lambda: None)
    slots.take(RESTING)
    slots.rest(RESTING)
    slots.take(WORKING)
    yield slots
    await alarms.close()


RESTING: Any = "an attempt that rests"
WORKING: Any = "an attempt that works"


async def ask(slots: Slots[Any], times: int) -> list[asyncio.Task[bool]]:
    """Let so many branches of the attempt that rests ask for a slot."""
    branches = [asyncio.create_task(slots.work(RESTING)) for _ in range(times)]
    await settle()
    assert not any(branch.done() for branch in branches)
    return branches


async def test_the_branches_of_an_attempt_want_and_get_one_slot_together(slots: Slots[Any]) -> None:
    branches = await ask(slots, 3)
    assert slots.busy == 2
    slots.leave(WORKING)
    await settle()
    assert [branch.done() and branch.result() for branch in branches] == [True, True, True]
    assert (slots.busy, slots.resting()) == (1, [])


async def test_an_attempt_wants_a_slot_as_long_as_one_of_its_branches_does(
    slots: Slots[Any], clock: ManualClock
) -> None:
    first, second = await ask(slots, 2)
    first.cancel()
    await settle()
    assert slots.busy == 2
    clock.advance(PATIENCE)
    await settle()
    assert second.done()
    assert not second.result()
    assert slots.busy == 1


async def test_an_attempt_that_is_over_wants_no_slot(slots: Slots[Any]) -> None:
    branches = await ask(slots, 2)
    slots.leave(RESTING)
    assert slots.busy == 1
    for branch in branches:
        branch.cancel()
    await asyncio.wait(branches)


async def test_branches_of_attempts_that_were_lost_are_answered_at_once(slots: Slots[Any]) -> None:
    branches = await ask(slots, 2)
    slots.clear()
    await settle()
    assert [branch.done() and branch.result() for branch in branches] == [False, False]
    assert all(branch.done() for branch in branches)
    assert slots.busy == 0
