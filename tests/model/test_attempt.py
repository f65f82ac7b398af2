from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.model.attempt import Attempt, attempts_of
from holdfast.model.transitions import TaskState, Transition

START = datetime(2026, 1, 1, tzinfo=UTC)


def history(*moves: tuple[str, str, str, int]) -> list[Transition]:
    states = [None, *(TaskState(to) for to, *_ in moves)]
    return [
        Transition(
            task_id="t",
            number=number,
            from_state=states[number - 1],
            to_state=TaskState(to),
            reason=reason,
            actor=actor,
            fence=fence,
            at=START + timedelta(minutes=number),
        )
        for number, (to, reason, actor, fence) in enumerate(moves, 1)
    ]


def test_attempts_are_read_off_the_transitions() -> None:
    moves = history(
        ("pending", "submitted", "cli", 0),
        ("running", "claimed", "first", 1),
        ("pending", "its worker died", "sweep", 2),
        ("running", "claimed", "second", 3),
        ("review", "work done", "second", 3),
        ("completed", "verified", "second", 3),
    )
    assert attempts_of(moves) == (
        Attempt(
            number=1,
            worker="first",
            fence=1,
            started_at=START + timedelta(minutes=2),
            ended_at=START + timedelta(minutes=3),
            outcome=TaskState.PENDING,
            reason="its worker died",
        ),
        Attempt(
            number=2,
            worker="second",
            fence=3,
            started_at=START + timedelta(minutes=4),
            ended_at=START + timedelta(minutes=6),
            outcome=TaskState.COMPLETED,
            reason="verified",
        ),
    )


def test_an_attempt_that_lasts_has_no_end() -> None:
    (attempt,) = attempts_of(history(("pending", "submitted", "cli", 0), ("running", "claimed", "w", 1)))
    assert (attempt.ended_at, attempt.outcome) == (None, None)


def test_a_task_never_claimed_has_no_attempts() -> None:
    assert attempts_of(history(("pending", "submitted", "cli", 0), ("cancelled", "by hand", "ann", 0))) == ()
