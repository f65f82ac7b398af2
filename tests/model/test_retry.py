from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.canonical import canonical
from holdfast.model.errors import InvalidValue
from holdfast.model.retry import ErrorKind, GiveUp, Jitter, RecordedError, Retry, RetryAt, decide, qualified_name

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Busy(Exception):
    def __init__(self, retry_after: object) -> None:
        self.retry_after = retry_after


class VeryBusy(Busy):
    pass


def delays(policy: Retry, error: BaseException, random: float = 0.5) -> list[float]:
    found = []
    attempt = 1
    while isinstance(decision := decide(policy, error, attempt, NOW, random), RetryAt):
        assert decision.at == NOW + timedelta(seconds=decision.delay)
        found.append(decision.delay)
        attempt += 1
    return found


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Retry(max_attempts=5, jitter="none"), [1, 2, 4, 8]),
        (Retry(max_attempts=1), []),
        (Retry(max_attempts=4, jitter="none", max_delay=3), [1, 2, 3]),
        (Retry(max_attempts=4, jitter="none", initial=0.5, factor=3), [0.5, 1.5, 4.5]),
        (Retry(max_attempts=4, jitter="full"), [0.5, 1, 2]),
        (Retry(max_attempts=4, jitter="equal"), [0.75, 1.5, 3]),
        (Retry(max_attempts=3, jitter="none", initial=0), [0, 0]),
    ],
)
def test_pauses(policy: Retry, expected: list[float]) -> None:
    assert delays(policy, OSError()) == expected


@given(st.integers(1, 10**6), st.floats(0, 1, exclude_max=True), st.sampled_from(["full", "equal", "none"]))
def test_no_pause_exceeds_the_cap_however_late_the_attempt(attempt: int, random: float, jitter: Jitter) -> None:
    assert 0 <= Retry(max_attempts=10**7, factor=10, jitter=jitter).backoff(attempt, random) <= 60


@pytest.mark.parametrize(
    ("retry_on", "give_up_on", "error", "retries"),
    [
        ((Exception,), (), ValueError(), True),
        ((Exception,), (), KeyboardInterrupt(), False),
        ((OSError,), (), ConnectionResetError(), True),
        ((OSError,), (), ValueError(), False),
        ((OSError,), (ConnectionError,), ConnectionResetError(), False),
        ((OSError,), (ConnectionError,), FileNotFoundError(), True),
        (("OSError",), (), ConnectionResetError(), True),
        (("builtins.OSError",), (), ConnectionResetError(), False),
        ((Exception,), (qualified_name(Busy),), VeryBusy(None), False),
        ((), (), ValueError(), False),
    ],
)
def test_matching_is_the_same_for_live_and_for_recorded_errors(
    retry_on: tuple[ErrorKind, ...],
    give_up_on: tuple[ErrorKind, ...],
    error: BaseException,
    retries: bool,
) -> None:
    policy = Retry(retry_on=retry_on, give_up_on=give_up_on)
    for seen in (error, RecordedError.of(error)):
        assert isinstance(decide(policy, seen, 1, NOW, 0.5), RetryAt) is retries


def test_one_kind_need_not_be_wrapped_in_a_tuple() -> None:
    assert Retry(retry_on=OSError, give_up_on="ValueError") == Retry(retry_on=(OSError,), give_up_on=("ValueError",))  # type: ignore[arg-type]


def test_the_reason_for_giving_up_is_given() -> None:
    assert decide(Retry(), OSError(), 3, NOW, 0) == GiveUp("attempt 3 of 3 failed")
    assert decide(Retry(give_up_on=(OSError,)), OSError(), 1, NOW, 0) == GiveUp("OSError is in give_up_on")
    assert decide(Retry(retry_on=(OSError,)), KeyError(), 1, NOW, 0) == GiveUp("KeyError is not in retry_on")


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (7, 7.0),
        (timedelta(minutes=5), 300.0),  # longer than max_delay, and obeyed all the same
        (0.1, 1.0),  # shorter than our own pause: ours holds
        (0, 1.0),
        (-5, 1.0),
        (None, 1.0),
        ("soon", 1.0),
        (float("nan"), 1.0),
        (True, 1.0),
    ],
)
def test_retry_after_is_obeyed(asked: object, expected: float) -> None:
    policy = Retry(jitter="none", max_delay=60)
    for error in (Busy(asked), RecordedError.of(Busy(asked))):
        assert decide(policy, error, 1, NOW, 0) == RetryAt(NOW + timedelta(seconds=expected), expected)


@pytest.mark.parametrize("asked", [86_401, float("inf"), 10**400, timedelta.max])
def test_a_retry_after_beyond_the_cap_ends_the_retries_and_is_never_shortened(asked: float) -> None:
    decision = decide(Retry(), Busy(asked), 1, NOW, 0)
    assert isinstance(decision, GiveUp)
    assert "max_retry_after" in decision.reason
    assert isinstance(decide(Retry(max_retry_after=100_000), Busy(86_401), 1, NOW, 0), RetryAt)
    recorded = RecordedError.of(Busy(asked))
    assert isinstance(decide(Retry(), recorded, 1, NOW, 0), GiveUp)
    assert canonical(recorded.retry_after)  # the journal has a number for it


@pytest.mark.parametrize(("seconds", "retries"), [(0.5, False), (1, False), (1.001, True)])
def test_no_retry_starts_at_or_after_the_deadline(seconds: float, retries: bool) -> None:
    deadline = NOW + timedelta(seconds=seconds)
    decision = decide(Retry(jitter="none"), OSError(), 1, NOW, 0, deadline=deadline)
    assert isinstance(decision, RetryAt) is retries
    if isinstance(decision, GiveUp):
        assert decision.reason.startswith("deadline 2026-01-01T00:00:0")


@pytest.mark.parametrize(
    "bad",
    [
        {"max_attempts": 0},
        {"max_attempts": 1.5},
        {"max_attempts": True},
        {"initial": -1},
        {"initial": float("nan")},
        {"factor": 0.5},
        {"max_delay": float("inf")},
        {"max_delay": 1e12},
        {"jitter": "some"},
        {"retry_on": (int,)},
        {"give_up_on": (5,)},
    ],
)
def test_an_impossible_policy_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(bad))):
        Retry(**bad)


def test_attempts_that_did_not_reach_the_other_side_have_a_number_of_their_own() -> None:
    policy = Retry(max_attempts=2, max_away=4, jitter="none", away_on=(ConnectionRefusedError,))
    for attempt, error, expected in (
        (2, OSError(), GiveUp("attempt 2 of 2 failed")),
        (3, ConnectionRefusedError(), RetryAt(NOW + timedelta(seconds=4), 4.0)),
        (4, ConnectionRefusedError(), GiveUp("attempt 4 of 4 failed")),
    ):
        assert decide(policy, error, attempt, NOW, 0) == expected
    assert decide(replace(policy, give_up_on=(OSError,)), ConnectionRefusedError(), 1, NOW, 0) == GiveUp(
        "ConnectionRefusedError is in give_up_on"
    )
    for wrong in ({"max_away": 0}, {"max_away": True}, {"away_on": (int,)}):
        with pytest.raises(InvalidValue, match=next(iter(wrong))):
            Retry(**wrong)
