from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.model.deadline import LONGEST, Deadline, as_seconds, moment_of
from holdfast.model.errors import InvalidValue

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_deadline_passes_at_its_moment() -> None:
    deadline = Deadline(NOW + timedelta(seconds=600), "task 42")
    just_before = deadline.at - timedelta(microseconds=1)
    assert not deadline.passed(just_before)
    assert deadline.remaining(just_before) == timedelta(microseconds=1)
    assert deadline.passed(deadline.at)
    assert deadline.remaining(deadline.at + timedelta(days=1)) == timedelta()


@pytest.mark.parametrize(
    ("later", "words"),
    [
        (timedelta(seconds=90), "the deadline of step x (2026-01-01T00:01:00+00:00) passed 30 s ago"),
        (timedelta(seconds=3661), "the deadline of step x (2026-01-01T00:01:00+00:00) passed 1:00:01 ago"),
        (timedelta(seconds=59.5), "the deadline of step x (2026-01-01T00:01:00+00:00) is 0.5 s away"),
    ],
)
def test_the_message_says_which_deadline_and_by_how_much(later: timedelta, words: str) -> None:
    assert Deadline(NOW + timedelta(seconds=60), "step x").message(NOW + later) == words


@pytest.mark.parametrize(("given", "seconds"), [(1, 1.0), (0.25, 0.25), (timedelta(minutes=2), 120.0)])
def test_durations_are_seconds_or_timedeltas(given: float | timedelta, seconds: float) -> None:
    assert as_seconds(given) == seconds


@pytest.mark.parametrize(
    "bad", [0, -1, float("nan"), float("inf"), timedelta(), timedelta(seconds=-1), True, "5", None]
)
def test_what_is_not_a_duration_is_refused(bad: float) -> None:
    with pytest.raises(InvalidValue, match="the timeout"):
        as_seconds(bad, what="the timeout")


def test_a_deadline_needs_a_zone_and_an_end() -> None:
    with pytest.raises(InvalidValue, match="no time zone"):
        Deadline(datetime(2026, 1, 1), "task")  # noqa: DTZ001


@pytest.mark.parametrize("bad", [LONGEST * 1.001, 1e12, 1e300, timedelta.max])
def test_nothing_lasts_longer_than_can_be_written(bad: float) -> None:
    with pytest.raises(InvalidValue, match="at most a thousand years are allowed"):
        moment_of(bad, NOW)
    assert moment_of(LONGEST, NOW).year == NOW.year + 1000
