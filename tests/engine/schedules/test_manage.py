"""Schedules made at run time: made, made again, listed, triggered, paused, deleted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Conflict, Holdfast, InvalidValue, ManualClock, NotFound
from holdfast.testing.contract._support import row
from tests.engine.schedules.support import HOUR, MINUTE, START, define, fire, only, start, submitted, ticks


async def test_the_same_schedule_again_changes_nothing(hold: Holdfast, clock: ManualClock) -> None:
    """Another one of the name takes its place; with the same times it goes on with the same tick."""
    job = define(hold)
    first = await hold.schedule("a", job, "x", every=HOUR)
    clock.advance(HOUR / 2)
    assert await hold.schedule("a", job, "x", every=HOUR) == first
    assert (await hold.store.schedules())[0].revision == 1
    again = await hold.schedule("a", job, "y", every=HOUR)
    assert again.next == first.next
    other = await hold.schedule("a", job, "y", every=2 * HOUR)
    assert other.next[0] == clock.now() + 2 * HOUR
    clock.advance(2 * HOUR)
    await fire(hold)
    [task] = await submitted(hold)
    assert task.user_input == ["y"]


async def test_a_deleted_schedule_fires_no_more_and_leaves_its_tasks(hold: Holdfast, clock: ManualClock) -> None:
    await hold.schedule("a", define(hold), every=HOUR)
    clock.advance(HOUR)
    await fire(hold)
    assert await hold.unschedule("a")
    assert not await hold.unschedule("a")
    clock.advance(HOUR)
    await fire(hold)
    assert await ticks(hold) == ["a@2026-01-01T01:00:00"]
    assert await hold.schedules() == []


async def test_a_trigger_is_apart_from_the_ticks(hold: Holdfast, clock: ManualClock) -> None:
    """It works while the schedule is paused, and counts for nothing."""
    await hold.schedule("a", define(hold), "word", every=HOUR, queue="q", deadline=MINUTE)
    await hold.pause("schedule:a")
    before = await only(hold)
    handles = [await hold.trigger("a", by="anna") for _ in range(2)]
    assert handles[0].id != handles[1].id
    task = await handles[0].task()
    assert (task.schedule, task.key, task.queue, task.user_input) == ("a", None, "q", ["word"])
    assert task.deadline == clock.now() + MINUTE
    assert (await hold.store.history(task.id))[0].actor == "anna"
    assert await only(hold) == before


async def test_a_pause_names_who_and_why(hold: Holdfast, clock: ManualClock) -> None:
    await hold.schedule("a", define(hold), every=HOUR)
    pause = await hold.pause("schedule:a", by="anna", reason="holidays")
    assert (pause.subject, pause.at, pause.by, pause.reason) == ("schedule:a", clock.now(), "anna", "holidays")
    clock.advance(HOUR)
    assert await hold.pause("schedule:a", by="bert") == pause
    assert await hold.pauses() == [pause]
    assert (await only(hold)).next == ()
    assert await hold.unpause("schedule:a")
    assert await hold.pauses() == []
    assert not await hold.unpause("schedule:a")
    assert (await only(hold)).next[0] == START + 2 * HOUR


async def test_what_is_not_there_is_not_found(hold: Holdfast) -> None:
    define(hold)
    for call in (hold.trigger("x"), hold.pause("schedule:x"), hold.unpause("schedule:x")):
        with pytest.raises(NotFound, match="schedule"):
            await call


async def test_what_cannot_be_a_schedule_is_refused(hold: Holdfast) -> None:
    """And nothing is stored."""
    job = define(hold)
    moment: Any = datetime(2026, 1, 1, tzinfo=UTC)
    for message, call in {
        "characters": hold.schedule("x" * 121, job, every=HOUR),
        "is empty": hold.schedule("", job, every=HOUR),
        "either cron=": hold.schedule("a", job),
        "give a time from its submission": hold.schedule("a", job, every=HOUR, deadline=moment),
        "add overlap='all'": hold.schedule("a", job, every=HOUR, catch_up="all"),
        "key": hold.schedule("a", job, every=HOUR, key="k"),
        "job.bind": hold.schedule("a", job, every=HOUR, word="x"),
        "cannot be called like this": hold.schedule("a", job, 1, 2, 3, every=HOUR),
        "no task named": hold.schedule("a", "unknown", every=HOUR),
        "jitter": hold.schedule("a", job, every=HOUR, jitter=timedelta(seconds=-1)),
    }.items():
        with row(message), pytest.raises(InvalidValue, match=message):
            await call
    assert await hold.schedules() == []


async def test_what_is_declared_in_code_is_not_changed_by_hand(hold: Holdfast) -> None:
    """Unless no living worker declares it any more."""
    job = define(hold, every=HOUR)
    await start(hold, "w")
    with pytest.raises(Conflict, match="choose another name"):
        await hold.schedule("job", job, every=HOUR)
    with pytest.raises(Conflict, match=r"hold\.pause\('schedule:job'\)"):
        await hold.unschedule("job")
    await hold.store.retire("w")
    assert not (await hold.schedule("job", job, every=HOUR)).declared
    await hold.unschedule("job")
    await start(hold, "v")
    await hold.store.retire("v")
    assert await hold.unschedule("job")


def test_blocking_code_has_the_same(database_url: str) -> None:
    hold = Holdfast(database_url)
    job = define(hold)
    with hold.sync as h:
        made = h.schedule("a", job, "x", cron="0 3 * * *")
        assert h.schedules() == [made]
        assert h.trigger("a").task().schedule == "a"
        assert h.pause("schedule:a").subject == "schedule:a"
        assert h.unpause("schedule:a")
        assert h.unschedule("a")
