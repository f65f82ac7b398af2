from __future__ import annotations

import itertools

import pytest

from holdfast.model.errors import IllegalMove
from holdfast.model.transitions import MOVES, OPEN, TERMINAL, TaskState, check_move, is_legal

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
