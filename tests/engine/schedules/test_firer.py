"""Firing: each tick submits one task, whichever worker looks, and whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast import Holdfast, ManualClock, NewTask, StoreUnavailable, TaskState
from holdfast.engine.schedules.firer import Firer
from holdfast.model.schedule import StoredSchedule, tick_of
from holdfast.model.task import Submitted
from tests.engine.schedules.support import HOUR, MINUTE, START, define, fire, only, start, submitted, ticks
from tests.engine.support import until

ACME = {"tenant": "acme"}


async def test_a_schedule_submits_its_task_at_each_tick(hold: Holdfast, clock: ManualClock) -> None:
    """With the arguments and options that it was made with, and its name and tick in sight."""
    job = define(hold)
    await hold.schedule(
        "hourly", job, "hello", every=HOUR, queue="q", priority=5, deadline=MINUTE, overlap="all", labels=ACME
    )
    for _ in range(3):
        await fire(hold)
        clock.advance(HOUR)
    assert await ticks(hold) == ["hourly@2026-01-01T01:00:00", "hourly@2026-01-01T02:00:00"]
    task = (await submitted(hold))[0]
    assert (task.schedule, task.queue, task.priority, task.user_input) == ("hourly", "q", 5, ["hello"])
    assert (task.deadline, task.labels) == (START + HOUR + MINUTE, ACME)
    seen = await only(hold)
    assert (seen.last_tick_at, seen.last_state) == (START + 2 * HOUR, TaskState.PENDING)
    assert [at - START for at in seen.next] == [3 * HOUR, 4 * HOUR, 5 * HOUR]


async def test_twenty_workers_submit_one_task_at_a_tick(database_url: str) -> None:
    """They all look at the same moment. No tick is lost, and none is fired twice."""
    hold = Holdfast(database_url)
    job = define(hold)
    async with hold, AsyncExitStack() as workers:
        for _ in range(20):
            await workers.enter_async_context(hold.worker(grace=0))
        await hold.schedule("busy", job, every=1, overlap="all", catch_up="all")

        async def fired() -> bool:
            return len(await submitted(hold)) >= 4

        await until(fired)
        tasks = await submitted(hold)
    found = sorted(tick for task in tasks if (tick := tick_of("busy", task.key)) is not None)
    assert len(found) == len(tasks)
    assert found == [found[0] + timedelta(seconds=n) for n in range(len(tasks))]


async def test_a_worker_that_dies_while_it_fires_loses_and_doubles_nothing(hold: Holdfast, clock: ManualClock) -> None:
    """Before the store has it, another one fires the tick; afterwards there is nothing left to fire."""
    await hold.schedule("hourly", define(hold), every=HOUR, overlap="all")
    put = hold.store.put_schedule

    class Killed(BaseException):
        """What the death of a process looks like from inside."""

    for is_stored in (False, True):
        clock.advance(HOUR)

        async def die(
            schedule: StoredSchedule, *, seen: int, tasks: Sequence[NewTask] = (), is_stored: bool = is_stored
        ) -> list[Submitted] | None:
            if is_stored:
                await put(schedule, seen=seen, tasks=tasks)
            raise Killed

        hold.store.put_schedule = die  # type: ignore[method-assign]
        with pytest.raises(Killed):
            await fire(hold)
        hold.store.put_schedule = put  # type: ignore[method-assign]
        await fire(hold)
    assert await ticks(hold) == ["hourly@2026-01-01T01:00:00", "hourly@2026-01-01T02:00:00"]


async def test_a_lost_answer_fires_nothing_twice(hold: Holdfast, clock: ManualClock) -> None:
    """The worker looks again, and finds the next tick."""
    await hold.schedule("hourly", define(hold), every=HOUR)
    put = hold.store.put_schedule

    async def lose(schedule: StoredSchedule, *, seen: int, tasks: Sequence[NewTask] = ()) -> list[Submitted] | None:
        await put(schedule, seen=seen, tasks=tasks)
        raise StoreUnavailable("the answer was lost")

    clock.advance(HOUR)
    hold.store.put_schedule = lose  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        await fire(hold)
    hold.store.put_schedule = put  # type: ignore[method-assign]
    await fire(hold)
    assert await ticks(hold) == ["hourly@2026-01-01T01:00:00"]


async def test_a_pause_between_the_look_and_the_tick_counts(hold: Holdfast, clock: ManualClock) -> None:
    """So does a deletion, and a change: a worker that looked before has seen another revision."""
    job = define(hold)
    look = hold.store.due_schedules

    async def change_it(name: str) -> None:
        match name:
            case "paused":
                await hold.pause("schedule:paused")
            case "deleted":
                await hold.unschedule("deleted")
            case _:
                await hold.schedule("changed", job, every=2 * HOUR)

    for name in ("paused", "deleted", "changed"):
        await hold.schedule(name, job, every=HOUR)
    clock.advance(HOUR)
    due = await look()
    assert len(due) == 3

    async def looked_before(*, limit: int = 100) -> list[StoredSchedule]:
        del limit
        return due

    for one in due:
        await change_it(one.name)
    hold.store.due_schedules = looked_before  # type: ignore[method-assign]
    await Firer(hold.services).fire_due()
    assert await submitted(hold) == []


async def test_pauses_and_ticks_at_once(hold: Holdfast, clock: ManualClock) -> None:
    """Each tick is fired once or not at all, and none once the pause has returned."""
    await hold.schedule("hourly", define(hold), every=HOUR, overlap="all")
    for _ in range(10):
        clock.advance(HOUR)
        await asyncio.gather(fire(hold), hold.pause("schedule:hourly"), fire(hold))
        before = await ticks(hold)
        assert len(before) == len(set(before))
        await fire(hold)
        clock.advance(HOUR)
        await fire(hold)
        assert await ticks(hold) == before
        await hold.unpause("schedule:hourly")
    assert (await only(hold)).next[0] == clock.now() + HOUR


async def test_after_a_time_without_workers_ticks_are_caught_up_as_was_said(url: str, clock: ManualClock) -> None:
    """The store is closed meanwhile, and opened by another process."""
    async with Holdfast(url, clock=clock) as before:
        job = define(before)
        for catch_up in ("none", "last"):
            await before.schedule(catch_up, job, every=HOUR, catch_up=catch_up)
        await before.schedule("all", job, every=HOUR, catch_up="all", overlap="all")
        if not before.store.capabilities.durable:
            pytest.skip("what is in memory is gone with its process")
    clock.advance(3.5 * HOUR)
    async with Holdfast(url, clock=clock) as after:
        await fire(after)
        found = await ticks(after)
        assert found == [*(f"all@2026-01-01T0{n}:00:00" for n in (1, 2, 3)), "last@2026-01-01T03:00:00"]
        assert {one.next[0] for one in await after.schedules()} == {START + 4 * HOUR}


async def test_one_tick_is_kept_while_the_last_task_runs(hold: Holdfast, clock: ManualClock) -> None:
    """overlap="queue": its task is submitted when the last one has ended. overlap="skip" drops it."""
    job = define(hold)
    await hold.schedule("queued", job, every=HOUR, overlap="queue")
    await hold.schedule("skipping", job, every=HOUR)
    for _ in range(4):
        clock.advance(HOUR)
        await fire(hold)
    assert await ticks(hold) == ["queued@2026-01-01T01:00:00", "skipping@2026-01-01T01:00:00"]
    queued, skipping = await hold.schedules()
    assert (queued.next[0], queued.skipped_at) == (START + 2 * HOUR, None)
    assert (skipping.next[0], skipping.skipped_at) == (START + 5 * HOUR, START + 4 * HOUR)
    for task in await submitted(hold):
        await hold.cancel(task.id)
    await fire(hold)
    await fire(hold)
    assert (await ticks(hold))[1:-1] == ["queued@2026-01-01T04:00:00"]
    clock.advance(HOUR)
    await fire(hold)
    assert "skipping@2026-01-01T05:00:00" in await ticks(hold)


async def test_a_clock_that_steps_back_fires_nothing_again(hold: Holdfast, clock: ManualClock) -> None:
    """Also where the schedule was deleted and made again: the tick has its task already."""
    job = define(hold)
    await hold.schedule("daily", job, cron="0 7 * * *")
    clock.advance(7 * HOUR)
    await fire(hold)
    clock.jump_wall(-HOUR / 2)
    await fire(hold)
    await hold.unschedule("daily")
    await hold.schedule("daily", job, cron="0 7 * * *")
    clock.advance(HOUR)
    await fire(hold)
    assert await ticks(hold) == ["daily@2026-01-01T07:00:00"]
    [task] = await submitted(hold)
    assert (await only(hold)).last_task_id == task.id


async def test_a_cron_schedule_fires_by_the_clock_on_the_wall(hold: Holdfast, clock: ManualClock) -> None:
    """Over a change of clocks in Berlin: 02:30 comes twice on October 25, and fires once."""
    clock.advance(START.replace(month=10, day=24) - START)
    await hold.schedule("nightly", define(hold), cron="30 2 * * *", timezone="Europe/Berlin", overlap="all")
    for _ in range(3 * 48):
        clock.advance(HOUR / 2)
        await fire(hold)
    days = [(24, "00:30"), (25, "00:30"), (26, "01:30")]
    assert await ticks(hold) == [f"nightly@2026-10-{day}T{time}:00" for day, time in days]


async def test_a_schedule_that_cannot_be_fired_here_disturbs_no_other(
    hold: Holdfast, clock: ManualClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer version of Holdfast made it, or its time zone is not on this machine. It is logged once.

    If there are many, they are due before those that can be fired.
    """
    monkeypatch.setattr("holdfast.engine.schedules.firer.AT_A_TIME", 1)
    job = define(hold)
    for name in ("newer", "nowhere", "that is fine"):
        await hold.schedule(name, job, cron="0 * * * *")
    for name, change in (("newer", {"feature": 1}), ("nowhere", {"timezone": "Europe/Atlantis"})):
        stored = await hold.store.schedule(name)
        assert stored is not None
        await hold.store.put_schedule(replace(stored, spec={**stored.spec, **change}), seen=1)
    clock.advance(HOUR)
    firer = Firer(hold.services)
    with caplog.at_level(logging.WARNING, "holdfast"):
        for _ in range(3):
            await firer.fire_due()
    assert await ticks(hold) == ["that is fine@2026-01-01T01:00:00"]
    assert len(caplog.records) == 2
    troubles = {one.name: one.trouble for one in await hold.schedules()}
    assert troubles["that is fine"] is None
    assert "another version of Holdfast" in (troubles["newer"] or "")
    assert "is not known on this machine" in (troubles["nowhere"] or "")


async def test_the_task_of_a_schedule_waits_for_a_worker_that_knows_it(hold: Holdfast, clock: ManualClock) -> None:
    """Submitting needs the name alone."""
    await hold.schedule("hourly", "unknown here", 1, every=HOUR, queue="elsewhere")
    clock.advance(HOUR)
    await fire(hold)
    [task] = await submitted(hold)
    assert (task.name, task.queue, task.state) == ("unknown here", "elsewhere", TaskState.PENDING)


async def test_a_schedule_is_fired_by_workers_that_do_not_declare_it(hold: Holdfast, clock: ManualClock) -> None:
    """What counts is that some living worker does."""
    application = Holdfast("memory://")
    define(application, every=timedelta(hours=2))
    await start(hold, "declares it", application)
    clock.advance(2 * HOUR)
    await fire(hold)
    assert await ticks(hold) == ["job@2026-01-01T02:00:00"]
