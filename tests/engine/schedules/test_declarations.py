"""Declarations in code: the one that was registered last counts, while some living worker has it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from holdfast import Conflict, Holdfast, InvalidValue, ManualClock
from holdfast.engine.schedules.declarations import as_detail, declare
from holdfast.model.schedule import Schedule
from holdfast.model.worker import NewWorker, Worker, WorkerState
from tests.engine.schedules.support import HOUR, MINUTE, START, define, fire, only, start, submitted, ticks
from tests.engine.support import until


def version(**options: Any) -> Holdfast:  # noqa: ANN401
    """Return the application as one deploy has it."""
    application = Holdfast("memory://")
    define(application, overlap="all", **options)
    return application


async def test_a_task_with_times_is_submitted_by_itself(hold: Holdfast, clock: ManualClock) -> None:
    """Under a schedule of its own name, with the options of its definition."""
    define(hold, cron="0 7 * * mon-fri", timezone="Europe/Berlin", queue="q", priority=2, deadline=60, jitter=5)
    await start(hold, "w")
    seen = await only(hold)
    assert (seen.name, seen.task, seen.cron, seen.timezone) == ("job", "job", "0 7 * * mon-fri", "Europe/Berlin")
    assert (seen.declared, seen.declared_by, seen.is_gone) == (True, ("w",), False)
    assert seen.next[0] - START.replace(day=1, hour=6) < MINUTE, "January 1, 2026 is a Thursday"
    clock.advance(7 * HOUR)
    await fire(hold)
    [task] = await submitted(hold)
    assert (task.schedule, task.queue, task.priority) == ("job", "q", 2)
    assert task.deadline == clock.now() + MINUTE


async def test_the_declaration_registered_last_counts(hold: Holdfast, clock: ManualClock) -> None:
    """A deploy changes the next tick. An older worker beside it changes nothing back, neither by a heartbeat nor by
    coming back from the dead."""
    old, new = version(every=HOUR), version(every=3 * HOUR)
    await start(hold, "old", old)
    clock.advance(HOUR / 2)
    await start(hold, "new", new)
    assert (await only(hold)).next[0] == START + 3.5 * HOUR
    await hold.store.heartbeat("old")
    await start(hold, "old again", old, afresh=False)
    assert (await only(hold)).every == 3 * HOUR
    clock.advance(6 * HOUR)
    await fire(hold)
    assert await ticks(hold) == ["job@2026-01-01T06:30:00"] or await ticks(hold) == ["job@2026-01-01T03:30:00"]


async def test_a_deploy_with_the_same_times_changes_no_tick(hold: Holdfast, clock: ManualClock) -> None:
    """every= counts on from its anchor."""
    await start(hold, "one", version(every=HOUR))
    for number in range(3):
        clock.advance(HOUR / 2)
        await start(hold, f"deploy {number}", version(every=HOUR, queue=f"queue {number}"))
        await fire(hold)
    assert await ticks(hold) == ["job@2026-01-01T01:00:00"]
    assert ((await only(hold)).next[0], (await only(hold)).queue) == (START + 2 * HOUR, "queue 2")


async def test_the_newest_living_other_worker_takes_over(hold: Holdfast, clock: ManualClock) -> None:
    """At once, although the next tick of the dead one's declaration is far away."""
    await start(hold, "first", version(every=HOUR))
    clock.advance(1)
    await start(hold, "second", version(every=2 * HOUR))
    clock.advance(1)
    await start(hold, "other", Holdfast("memory://"))
    await start(hold, "third", version(every=1000 * HOUR))
    assert (await only(hold)).declared_by == ("first", "second", "third")
    await hold.store.retire("third")
    await fire(hold)
    assert ((await only(hold)).every, (await only(hold)).next[0]) == (2 * HOUR, clock.now() + 2 * HOUR)
    await hold.store.retire("first")
    await fire(hold)
    assert (await only(hold)).every == 2 * HOUR


async def test_what_no_living_worker_declares_fires_nothing_and_is_shown(
    hold: Holdfast, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It costs the workers that are left nothing more. When a worker declares it again, catch_up= decides."""
    await start(hold, "w", version(every=HOUR))
    await hold.store.retire("w")
    await start(hold, "other", Holdfast("memory://"))
    with caplog.at_level(logging.WARNING, "holdfast"):
        await fire(hold)
    assert "no living worker declares it" in caplog.text
    seen = await only(hold)
    assert (seen.is_gone, seen.next, seen.declared) == (True, (), True)
    assert (await hold.store.sweep()).next_tick is None
    clock.advance(5.5 * HOUR)
    await fire(hold)
    assert await submitted(hold) == []
    await start(hold, "back", version(every=HOUR))
    await fire(hold)
    assert await ticks(hold) == ["job@2026-01-01T05:00:00"]


async def test_a_worker_that_comes_back_declares_again_what_fires_no_more(hold: Holdfast, clock: ManualClock) -> None:
    """It was dead for the others, and no other worker declares it."""
    await start(hold, "w", version(every=HOUR))
    await hold.store.retire("w")
    await fire(hold)
    assert (await only(hold)).is_gone
    clock.advance(1)
    await start(hold, "w again", version(every=HOUR), afresh=False)
    assert (await only(hold)).next[0] == START + HOUR


async def test_running_workers_declare_and_leave(url: str) -> None:
    """As the worker does it itself: registered when it starts, looked after by another when it stops."""
    declaring, other = Holdfast(url), Holdfast(url)
    define(declaring, every=HOUR)
    define(other, name="other")
    async with declaring:
        if declaring.store.capabilities.multi_process:
            async with other, other.worker():
                async with declaring.worker():
                    [seen] = await other.schedules()
                    assert len(seen.declared_by) == 1

                async def is_parked() -> bool:
                    stored = await other.store.schedule("job")
                    return stored is not None and stored.declared_by is None

                await until(is_parked)
        else:
            async with declaring.worker():
                assert len((await only(declaring)).declared_by) == 1


async def test_a_worker_declared_dead_declares_again_under_its_new_id(url: str, clock: ManualClock) -> None:
    """Its own dead incarnation does not count as a newer declaration."""
    hold = Holdfast(url, clock=clock)
    define(hold, every=1000 * HOUR)
    async with hold, hold.worker() as worker:
        first, may_return, register = worker.id, asyncio.Event(), hold.store.register

        async def register_late(new: NewWorker) -> Worker:
            await may_return.wait()
            return await register(new)

        hold.store.register = register_late  # type: ignore[method-assign, assignment]
        await hold.store.retire(first)
        await fire(hold)
        assert (await only(hold)).is_gone, "no worker declares it meanwhile"
        may_return.set()

        async def is_back() -> bool:
            clock.advance(1)
            seen = await only(hold)
            return seen.declared_by == (worker.id,) != (first,) and seen.next != ()

        await until(is_back)
        states = {one.id: one.state for one in await hold.store.workers()}
        assert states[first] is WorkerState.DEAD


async def test_a_pause_outlives_deploys(hold: Holdfast, clock: ManualClock) -> None:
    await start(hold, "one", version(every=HOUR))
    await hold.pause("schedule:job")
    await start(hold, "two", version(every=2 * HOUR))
    clock.advance(5 * HOUR)
    await fire(hold)
    assert await submitted(hold) == []
    assert await hold.unpause("schedule:job")
    assert (await only(hold)).next[0] == START + 6 * HOUR


async def test_a_schedule_made_by_hand_keeps_its_name(
    hold: Holdfast, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The declaration does not count, and the worker says so. Once the other is deleted, the newest one counts."""
    await hold.schedule("job", define(hold), every=HOUR)
    with caplog.at_level(logging.WARNING, "holdfast"):
        for number in (3, 2):
            await start(hold, f"w{number}", version(every=number * HOUR))
            clock.advance(1)
    assert "holdfast schedules delete job" in caplog.text
    assert ((await only(hold)).every, (await only(hold)).declared) == (HOUR, False)
    assert await hold.unschedule("job")
    assert ((await only(hold)).every, (await only(hold)).declared) == (2 * HOUR, True)
    clock.advance(2 * HOUR)
    await fire(hold)
    assert len(await submitted(hold)) == 1
    with pytest.raises(Conflict):
        await hold.unschedule("job")


async def test_a_declaration_of_a_newer_version_is_left_to_its_workers(hold: Holdfast, clock: ManualClock) -> None:
    """This version does not do half of what it asks for."""
    await start(hold, "w", version(every=HOUR))
    await hold.store.retire("w")
    newer = as_detail(version(every=HOUR).definitions)
    newer["schedules"]["job"]["feature"] = True
    clock.advance(1)
    await hold.store.register(NewWorker(id="newer", lease=80_000, details=newer))
    await fire(hold)
    stored = await hold.store.schedule("job")
    assert stored is not None
    assert stored.is_orphan


async def test_a_change_between_look_and_declaration_is_looked_at_again(hold: Holdfast) -> None:
    """Two workers that start at the same moment: the second counts."""
    define(hold, every=HOUR)
    look = hold.store.schedule
    meanwhile: list[Callable[[], Any]] = [lambda: start_quietly("quick")]

    async def start_quietly(worker_id: str) -> None:
        hold.store.schedule = look  # type: ignore[method-assign]
        await start(hold, worker_id)

    async def disturbed(name: str) -> Any:  # noqa: ANN401
        found = await look(name)
        if meanwhile:
            await meanwhile.pop()()
        return found

    hold.store.schedule = disturbed  # type: ignore[method-assign]
    await declare(hold.services, "slow", afresh=True)
    stored = await look("job")
    assert stored is not None
    assert (stored.declared_by, stored.revision) == ("slow", 2)


def test_what_cannot_be_declared_is_refused_where_it_is_written() -> None:
    hold = Holdfast("memory://")
    for options, message in [
        ({"cron": "0 7 * *"}, "cannot be read"),
        ({"every": 0.5}, "the shortest is"),
        ({"every": 60, "cron": "* * * * *"}, "either cron="),
        ({"timezone": "Europe/Berlin"}, "add cron= or every="),
        ({"overlap": "queue"}, "add cron= or every="),
        ({"every": 60, "overlap": "both"}, "choose one of 'skip', 'queue', 'all'"),
    ]:
        with pytest.raises(InvalidValue, match=message.replace("+", r"\+")):
            define(hold, name=f"job {message}", **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="gives no arguments"):

        @hold.task(every=60)
        async def needs(ctx: object, word: str) -> None: ...

    assert hold.definitions.names == []


def test_a_schedule_that_is_no_longer_declared_is_gone() -> None:
    """Only one that is declared can be."""
    some = dict.fromkeys(Schedule.__dataclass_fields__)
    seen = replace(Schedule(**{**some, "declared": False, "declared_by": ()}))  # type: ignore[arg-type]
    assert not seen.is_gone
    assert replace(seen, declared=True).is_gone
