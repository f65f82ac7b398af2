"""A tick and a pause that were decided on the same row: one of them is written first, and in the end it is paused."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from holdfast import Holdfast, ManualClock, NewTask, StateStore, Submitted
from holdfast.engine.schedules.firer import Firer
from holdfast.model.schedule import StoredSchedule
from tests.engine.schedules.support import HOUR, define, submitted

TRIES, FIRERS = 64, 2


class StartLine:
    """Lets all who change a schedule go on at once, in an order that is drawn, when each has decided what to write."""

    def __init__(self, runners: int, dice: random.Random) -> None:
        self._missing = runners
        self._dice = dice
        self._waiting: list[asyncio.Future[None]] = []

    async def reach(self) -> None:
        """Only the first change of each runner waits here: a pause that has to look again is on its own."""
        if not self._missing:
            return
        self._missing -= 1
        loop = asyncio.get_running_loop()
        mine = loop.create_future()
        self._waiting.append(mine)
        if not self._missing:
            loop.call_soon(self._start)  # the last one waits, too: otherwise it would always be the first to go on
        await mine

    def _start(self) -> None:
        self._dice.shuffle(self._waiting)
        for one in self._waiting:
            one.set_result(None)

    def guard(self, store: StateStore) -> None:
        put = type(store).put_schedule

        async def put_together(
            schedule: StoredSchedule, *, seen: int, tasks: Sequence[NewTask] = ()
        ) -> list[Submitted] | None:
            await self.reach()
            return await put(store, schedule, seen=seen, tasks=tasks)

        vars(store)["put_schedule"] = put_together


async def test_no_tick_is_fired_after_a_pause_has_returned(database_url: str, clock: ManualClock) -> None:
    """However close they come: in each try, all have looked before one of them writes."""
    dice = random.Random(1)
    async with Holdfast(database_url, clock=clock) as working, Holdfast(database_url, clock=clock) as pausing:
        await pausing.schedule("hourly", define(working), every=HOUR, overlap="all")
        expected = 0
        fired: set[bool] = set()
        for number in range(TRIES):
            clock.advance(HOUR)
            line = StartLine(FIRERS + 1, dice)
            line.guard(working.store)
            line.guard(pausing.store)
            firing = [asyncio.create_task(Firer(working.services).fire_due()) for _ in range(FIRERS)]
            await pausing.pause("schedule:hourly", by="ann")
            stood = await standing(pausing)
            await asyncio.gather(*firing)
            assert await standing(pausing) == stood, f"try {number}: something changed it after the pause"
            assert stood["paused_by"] == "ann"
            is_fired = stood["last_tick_at"] == clock.now()
            expected += is_fired
            fired.add(is_fired)
            assert len(await submitted(working)) == expected
            del vars(working.store)["put_schedule"], vars(pausing.store)["put_schedule"]
            await pausing.unpause("schedule:hourly")
    assert fired == {True, False}


async def standing(hold: Holdfast) -> dict[str, Any]:
    stored = await hold.store.schedule("hourly")
    assert stored is not None
    return {name: getattr(stored, name) for name in ("paused_by", "due_at", "last_tick_at", "last_task_id", "revision")}
