"""What a due schedule does, as a table: which ticks get a task, and when the next one is due."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.model.due_schedule import CATCH_UP_MOST, abandoned, fire, paused, replanned, unpaused
from holdfast.model.errors import InvalidValue
from holdfast.model.schedule import CatchUp, Overlap, ScheduleSpec, StoredSchedule, key_of, read_spec, tick_of
from holdfast.model.transitions import TaskState
from holdfast.testing.contract._support import row

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
HOURLY = ScheduleSpec(task="job", user_input=["x"], every=HOUR, queue="q", priority=3, deadline=MINUTE)


def made(spec: ScheduleSpec = HOURLY, **options: Any) -> StoredSchedule:  # noqa: ANN401
    """Return a schedule as it stands in the store, made at START."""
    return replace(replanned(None, "nightly", spec, START), revision=1, **options)


def fired(schedule: StoredSchedule, now: datetime) -> list[float]:
    """Return the ticks that get a task, in hours after START."""
    firing = fire(schedule, now)
    assert firing is not None
    ticks = [tick_of(task.schedule, task.key) for task in firing.tasks]
    return [(tick - START) / HOUR for tick in ticks if tick is not None]


def test_a_tick_submits_the_task_that_the_spec_describes() -> None:
    """Once: the schedule has moved on."""
    schedule = made()
    assert schedule.due_at == START + HOUR
    assert fire(schedule, START + HOUR - SECOND) is None
    firing = fire(schedule, START + HOUR + SECOND)
    assert firing is not None
    [task] = firing.tasks
    assert (task.name, task.user_input, task.queue, task.priority) == ("job", ["x"], "q", 3)
    assert (task.schedule, task.key) == ("nightly", "nightly@2026-01-01T01:00:00+00:00")
    assert (task.deadline, task.actor) == (START + HOUR + SECOND + MINUTE, "schedule")
    changed = firing.schedule
    assert (changed.tick_at, changed.due_at) == (START + 2 * HOUR, START + 2 * HOUR)
    assert (changed.last_tick_at, changed.last_task_id) == (START + HOUR, task.id)
    assert changed.fired_at == START + HOUR + SECOND
    assert fire(changed, START + HOUR + SECOND) is None


def test_missed_ticks_are_caught_up_as_was_said() -> None:
    """A tick counts as missed a minute after it was due."""
    table = [
        (CatchUp.LAST, 1.01, [1]),
        (CatchUp.LAST, 1.9, [1]),
        (CatchUp.LAST, 5.5, [5]),
        (CatchUp.NONE, 1.01, [1]),
        (CatchUp.NONE, 1.02, []),
        (CatchUp.NONE, 5.5, []),
        (CatchUp.NONE, 5.01, [5]),
        (CatchUp.ALL, 1.5, [1]),
        (CatchUp.ALL, 5.5, [1, 2, 3, 4, 5]),
        (CatchUp.ALL, 500.5, list(range(401, 501))),
    ]
    for catch_up, hours, expected in table:
        with row(catch_up, hours):
            schedule = made(replace(HOURLY, catch_up=catch_up, overlap=Overlap.ALL))
            assert fired(schedule, START + hours * HOUR) == expected
            firing = fire(schedule, START + hours * HOUR)
            assert firing is not None
            assert firing.schedule.due_at == START + (int(hours) + 1) * HOUR, "the next one is always in the future"
    assert CATCH_UP_MOST == 100


def test_a_tick_that_meets_the_last_task_does_as_was_said() -> None:
    late = START + 3.5 * HOUR
    for state in (None, *TaskState):
        is_open = state is not None and not state.is_terminal
        for overlap in Overlap:
            with row(overlap, state):
                schedule = made(replace(HOURLY, overlap=overlap), last_task_id="before", last_state=state)
                assert schedule.waits_for_last == (overlap is Overlap.QUEUE)
                firing = fire(schedule, late)
                if not is_open or overlap is Overlap.ALL:
                    assert fired(schedule, late) == [3]
                elif overlap is Overlap.QUEUE:
                    assert firing is None, "it is kept"
                else:
                    assert firing is not None
                    assert (firing.tasks, firing.schedule.skipped_at) == ((), START + 3 * HOUR)
                    assert (firing.schedule.last_task_id, firing.schedule.last_tick_at) == ("before", None)


def test_of_the_ticks_that_came_while_the_last_task_ran_one_is_kept() -> None:
    """The newest. It was not missed, however long it had to wait, if workers were there when the task ended."""
    ended = START + 3.5 * HOUR
    for catch_up, after, expected in (
        (CatchUp.NONE, SECOND, [3]),
        (CatchUp.NONE, 2 * MINUTE, []),
        (CatchUp.LAST, MINUTE, [3]),
    ):
        with row(catch_up, after):
            schedule = made(
                replace(HOURLY, overlap=Overlap.QUEUE, catch_up=catch_up),
                last_state=TaskState.COMPLETED,
                last_ended_at=ended,
            )
            assert fired(schedule, ended + after) == expected


def test_jitter_delays_a_tick_and_loses_none() -> None:
    """Each tick gets its task once, at its own time, in order: also where the jitter is longer than an hour."""
    hourly = replace(HOURLY, every=None, cron="0 * * * *", overlap=Overlap.ALL)
    for spec, longest in (
        (replace(HOURLY, jitter=59 * MINUTE), 59 * MINUTE),
        (replace(hourly, jitter=59 * MINUTE), 59 * MINUTE),
        (replace(hourly, jitter=30 * HOUR), HOUR),
    ):
        with row(spec):
            schedule = made(spec)
            seen: list[float] = []
            for _ in range(50):
                assert schedule.due_at is not None
                assert START + HOUR <= schedule.tick_at <= schedule.due_at < schedule.tick_at + longest
                assert fire(schedule, schedule.due_at - timedelta(microseconds=1)) is None
                seen += fired(schedule, schedule.due_at)
                firing = fire(schedule, schedule.due_at)
                assert firing is not None
                schedule = firing.schedule
            assert seen == list(range(1, 51))


def test_a_clock_that_jumps_fires_nothing_twice() -> None:
    """Back: nothing until it is there again. On: the ticks in between were missed."""
    firing = fire(made(), START + HOUR)
    assert firing is not None
    assert fire(firing.schedule, START - 5 * HOUR) is None
    assert fire(firing.schedule, START + HOUR) is None
    assert fired(firing.schedule, START + 10.5 * HOUR) == [10]


def test_a_pause_is_not_caught_up() -> None:
    still = paused(made(), START + MINUTE, by="anna", reason="holidays")
    assert (still.due_at, still.paused_at, still.paused_by, still.pause_reason) == (
        None,
        START + MINUTE,
        "anna",
        "holidays",
    )
    assert fire(still, START + 9 * HOUR) is None
    again = unpaused(still, START + 5.5 * HOUR)
    assert (again.due_at, again.paused_at, again.paused_by, again.pause_reason) == (START + 6 * HOUR, None, None, None)


def test_other_times_replace_the_next_tick_and_the_same_times_keep_it() -> None:
    """A new deploy with the same times changes no tick; with others, the next tick."""
    later = START + 1.5 * HOUR
    daily = ScheduleSpec(task="job", cron="0 7 * * *")
    for spec, tick, anchor in [
        (replace(HOURLY, queue="other"), START + HOUR, START),
        (replace(HOURLY, every=2 * HOUR), later + 2 * HOUR, later),
        (daily, START + 7 * HOUR, later),
    ]:
        with row(spec):
            changed = replanned(made(), "nightly", spec, later)
            assert (changed.tick_at, changed.anchored_at) == (tick, anchor)
            assert read_spec(changed.spec) == spec
    still = replanned(paused(made(), START, by="a", reason=None), "nightly", daily, later)
    assert (still.due_at, still.paused_at) == (None, START)


def test_a_declared_schedule_fires_while_a_worker_declares_it() -> None:
    declared = replanned(None, "job", HOURLY, START, declared_by="w")
    assert (declared.declared, declared.due_at) == (True, START + HOUR)
    gone = abandoned(declared)
    assert (gone.declared, gone.declared_by, gone.due_at) == (True, None, None)
    back = replanned(gone, "job", HOURLY, START + 5 * HOUR, declared_by="v")
    assert (back.tick_at, back.due_at) == (START + HOUR, START + HOUR), "what was missed meanwhile is caught up"
    made_by_hand = replanned(gone, "job", HOURLY, START)
    assert (made_by_hand.declared, made_by_hand.due_at) == (False, START + HOUR)
    assert unpaused(replace(gone, paused_at=START), START).due_at is None


def test_a_spec_is_read_as_it_was_written() -> None:
    whole = ScheduleSpec(
        task="job",
        user_input={"args": [1, None]},
        cron="0 7 * * mon-fri",
        timezone="Europe/Berlin",
        jitter=MINUTE,
        overlap=Overlap.ALL,
        catch_up=CatchUp.ALL,
        deadline=HOUR,
        budget={"steps": 5},
        labels={"tenant": "acme"},
    )
    for spec in (whole, HOURLY):
        assert read_spec(spec.to_json()) == spec
    for stored in ({**whole.to_json(), "feature": 1}, {**whole.to_json(), "overlap": "new"}, {}, "text", None):
        with row(stored), pytest.raises(InvalidValue):
            read_spec(stored)


def test_a_key_names_schedule_and_tick() -> None:
    assert tick_of("a@b", key_of("a@b", START)) == START
    for schedule, key in (
        (None, None),
        ("a", None),
        (None, key_of("a", START)),
        ("b", key_of("a", START)),
        ("a", "a@x"),
    ):
        assert tick_of(schedule, key) is None
