from __future__ import annotations

import itertools
from datetime import UTC, datetime

import pytest

from holdfast.model.errors import IllegalMove
from holdfast.model.transitions import (
    MOVES,
    OPEN,
    TERMINAL,
    WORKER_DIED,
    TaskState,
    Transition,
    check_move,
    is_legal,
    is_take_over,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PAIRS = list(itertools.product(TaskState, TaskState))


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_move_is_legal_or_says_what_is(source: TaskState, target: TaskState) -> None:
    if is_legal(source, target):
        check_move("t1", source, target)
    else:
        with pytest.raises(IllegalMove, match=f"t1 is {source} and cannot become {target}; from {source} it may"):
            check_move("t1", source, target)


def test_the_table_is_the_life_of_a_task_as_designed() -> None:
    assert {(source.value, target.value) for source, target in PAIRS if is_legal(source, target)} == {
        *(("pending", to) for to in ("running", "failed", "cancelled")),
        *(("running", to) for to in ("pending", "waiting", "review", "completed", "failed", "cancelled")),
        *(("waiting", to) for to in ("pending", "failed", "cancelled")),
        *(("review", to) for to in ("pending", "waiting", "completed", "failed", "cancelled")),
        ("failed", "pending"),
    }
    assert {pair for pair in PAIRS if is_legal(*pair, by_parent=True) and not is_legal(*pair)} == {
        (TaskState.COMPLETED, TaskState.PENDING),
        (TaskState.CANCELLED, TaskState.PENDING),
    }


def test_a_state_that_only_a_parent_ends_is_called_final() -> None:
    for state in (TaskState.COMPLETED, TaskState.CANCELLED):
        with pytest.raises(IllegalMove, match="nothing: that state is final"):
            check_move("t1", state, TaskState.PENDING)
        check_move("t1", state, TaskState.PENDING, by_parent=True)


def test_every_open_state_can_be_cancelled_and_no_state_is_a_trap() -> None:
    assert all(is_legal(state, TaskState.CANCELLED) for state in OPEN)
    for start in OPEN:
        reached, frontier = {start}, [start]
        while frontier:
            for target in MOVES[frontier.pop()]:
                if target not in reached:
                    reached.add(target)
                    frontier.append(target)
        assert reached >= TERMINAL


def test_which_claims_are_take_overs() -> None:
    pending, running, review, failed = TaskState.PENDING, TaskState.RUNNING, TaskState.REVIEW, TaskState.FAILED
    born = (None, pending, "submitted")
    claimed, died, done = (pending, running, "claimed"), (running, pending, WORKER_DIED), (running, review, "work done")
    rejected, revived = (review, pending, "rejected"), (failed, pending, "resumed")
    gave_up = (running, failed, "gave up")
    for expected, state, deaths, moves in (
        (False, running, 0, [born]),
        (True, running, 1, [born, claimed, died]),
        (False, running, 1, [born, claimed, died, claimed, (running, pending, "handed back")]),
        (False, review, 0, [born, claimed, done]),
        (True, review, 1, [born, claimed, done]),
        (False, review, 1, [born, claimed, died, claimed, done]),
        (True, review, 2, [born, claimed, died, claimed, done]),
        (True, review, 1, [born, claimed, died, claimed, done, rejected, claimed, done]),
        (False, review, 3, [born, claimed, gave_up, revived, claimed, done]),
    ):
        before = [
            Transition(
                task_id="t",
                number=number,
                from_state=source,
                to_state=target,
                reason=reason,
                actor="a",
                fence=1,
                at=NOW,
            )
            for number, (source, target, reason) in enumerate(moves, start=1)
        ]
        assert is_take_over(before, state, deaths=deaths) is expected, (state, deaths, moves)
