"""Ticks: the same on every machine, also where clocks are changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.errors import InvalidValue
from holdfast.model.schedule import CatchUp, ScheduleSpec
from holdfast.model.ticks import check_times, due_time, latest_ticks, next_tick
from holdfast.testing.contract._support import row

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
BERLIN = "Europe/Berlin"
"""2026: at 02:00 on March 29 clocks go on to 03:00, and at 03:00 on October 25 back to 02:00."""


def spec(**options: Any) -> ScheduleSpec:  # noqa: ANN401
    return ScheduleSpec(task="job", **options)


def ticks(one: ScheduleSpec, after: datetime, count: int) -> list[datetime]:
    found: list[datetime] = []
    for _ in range(count):
        found.append(next_tick(one, NEW_YEAR, found[-1] if found else after))
    return found


def test_cron_counts_local_time_where_clocks_are_changed() -> None:
    """What docs/schedules.md says, line by line. Times are in UTC."""
    spring, autumn = datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC)
    table = [
        # A fixed time that does not exist: at the first moment after the gap.
        ("30 2 * * *", spring, ["29 01:00", "30 00:30"]),
        # Several of them: once.
        ("0,30 2 * * *", spring, ["29 01:00", "30 00:00", "30 00:30"]),
        # A fixed time that exists twice: the first time only.
        ("30 2 * * *", autumn, ["25 00:30", "26 01:30"]),
        ("30 1-3 * * *", autumn, ["24 23:30", "25 00:30", "25 02:30"]),
        # A minute or hour that begins with a star: each moment that the clock shows it, also twice, or not at all.
        ("*/30 2 * * *", spring, ["30 00:00", "30 00:30"]),
        ("*/30 2 * * *", autumn, ["25 00:00", "25 00:30", "25 01:00", "25 01:30", "26 01:00"]),
        ("30 * 25 10 *", autumn.replace(hour=22), ["24 22:30", "24 23:30", "25 00:30", "25 01:30", "25 02:30"]),
        ("30 * 29 3 *", spring.replace(hour=23), ["28 23:30", "29 00:30", "29 01:30"]),
    ]
    for cron, after, expected in table:
        with row(cron, after):
            found = ticks(spec(cron=cron, timezone=BERLIN), after, len(expected))
            assert [tick.strftime("%d %H:%M") for tick in found] == expected


def test_a_tick_that_passed_is_not_found_again_in_the_hour_that_comes_twice() -> None:
    """02:30 comes at 00:30 UTC, and again at 01:30."""
    nightly = spec(cron="30 2 * * *", timezone=BERLIN)
    for minute in (0, 29, 30, 31, 59):
        after = datetime(2026, 10, 25, 1, minute, tzinfo=UTC)
        with row(after):
            assert next_tick(nightly, NEW_YEAR, after) == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)


def test_every_counts_elapsed_time_from_its_anchor() -> None:
    """Whatever local clocks do, and however often it was asked."""
    daily = spec(every=timedelta(days=1))
    assert ticks(daily, NEW_YEAR, 2) == [NEW_YEAR + timedelta(days=1), NEW_YEAR + timedelta(days=2)]
    late = datetime(2026, 10, 26, 0, 0, 1, tzinfo=UTC)
    assert next_tick(daily, NEW_YEAR, late) == datetime(2026, 10, 27, tzinfo=UTC)
    assert next_tick(daily, NEW_YEAR, NEW_YEAR - timedelta(days=9)) == NEW_YEAR + timedelta(days=1)


CRONS = ("* * * * *", "*/7 3 * * *", "30 2 * * *", "0 */5 * * mon-fri", "15 1,2,3 * * *", "0 0 1 1 *", "*/10 * 29 2 *")


@given(
    st.sampled_from(CRONS),
    st.sampled_from((BERLIN, "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "UTC", "Pacific/Apia")),
    st.datetimes(datetime(2011, 1, 1), datetime(2030, 1, 1)),  # noqa: DTZ001 - made aware below
)
def test_ticks_only_go_forward(cron: str, zone: str, begin: datetime) -> None:
    """And each is found from any moment before it: workers that begin to look at different times agree."""
    one, after = spec(cron=cron, timezone=zone), begin.replace(tzinfo=UTC)
    found = ticks(one, after, 6)
    assert all(earlier < later for earlier, later in pairwise([after, *found]))
    between = after + (found[0] - after) / 2
    assert next_tick(one, NEW_YEAR, between) == found[0]


@given(st.sampled_from(CRONS[:5]), st.integers(0, 40), st.integers(1, 12))
def test_the_latest_ticks_are_the_end_of_all(cron: str, passed: int, most: int) -> None:
    one = spec(cron=cron, timezone=BERLIN)
    everything = ticks(one, datetime(2026, 10, 24, 20, tzinfo=UTC), 45)
    first, until = everything[0], everything[passed]
    assert latest_ticks(one, NEW_YEAR, first, until, most=most) == everything[: passed + 1][-most:]
    assert latest_ticks(one, NEW_YEAR, first, first - timedelta(seconds=1), most=most) == []


def test_the_latest_of_very_many_ticks_are_found_at_once() -> None:
    """A schedule of every second, after ten years."""
    for one in (spec(every=timedelta(seconds=1)), spec(cron="* * * * * *")):
        until = NEW_YEAR + timedelta(days=3650)
        found = latest_ticks(one, NEW_YEAR, NEW_YEAR + timedelta(seconds=1), until, most=3)
        assert found == [until - timedelta(seconds=2), until - timedelta(seconds=1), until]


def test_jitter_is_the_same_on_every_worker() -> None:
    """Between nothing and all of it, by schedule and tick."""
    jittered = spec(every=timedelta(hours=1), jitter=timedelta(minutes=10))
    times = [NEW_YEAR + n * timedelta(hours=1) for n in range(200)]
    delays = [due_time(jittered, "a", tick) - tick for tick in times]
    assert delays == [due_time(jittered, "a", tick.astimezone()) - tick for tick in times]
    assert min(delays) >= timedelta()
    assert max(delays) < timedelta(minutes=10)
    assert max(delays) - min(delays) > timedelta(minutes=9)
    assert due_time(jittered, "a", NEW_YEAR) != due_time(jittered, "b", NEW_YEAR)
    assert due_time(spec(every=timedelta(hours=1)), "a", NEW_YEAR) == NEW_YEAR


def test_what_cannot_be_a_schedule_is_refused() -> None:
    wrong: dict[str, dict[str, Any]] = {
        "either cron=": {},
        "or every=": {"cron": "* * * * *", "every": timedelta(hours=1)},
        "cannot be read": {"cron": "61 * * * *"},
        "minute, hour": {"cron": "every day"},
        "Bad day-of-month": {"cron": "0 0 31 2,4 *"},
        "is not known on this machine": {"cron": "* * * * *", "timezone": "Europe/Springfield"},
        "write a name such as": {"cron": "* * * * *", "timezone": "../../etc/passwd"},
        "the shortest is": {"every": timedelta(milliseconds=999)},
        "knows no time zone": {"every": timedelta(hours=1), "timezone": BERLIN},
        "make it shorter": {"every": timedelta(hours=1), "jitter": timedelta(hours=1)},
        "zero or more": {"cron": "* * * * *", "jitter": timedelta(seconds=-1)},
        "add overlap='all'": {"cron": "* * * * *", "catch_up": CatchUp.ALL},
        "before the year 9999": {"every": timedelta(days=365_000 * 9)},
    }
    for message, options in wrong.items():
        with row(message), pytest.raises(InvalidValue, match=message.replace("*", r"\*")):
            check_times(spec(**options), NEW_YEAR)
