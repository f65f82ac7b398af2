"""The clock of max_wall_time_ms, as a pure function: what it counts, and laws that hold whatever happened."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.transitions import MOVES, TaskState, Transition
from holdfast.model.walltime import wall_time_ms

START = datetime(2026, 1, 1, tzinfo=UTC)
P, R, W, F, C = TaskState.PENDING, TaskState.RUNNING, TaskState.WAITING, TaskState.FAILED, TaskState.COMPLETED


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def moves(*steps: tuple[float, TaskState]) -> list[Transition]:
    """The history of a task that was in these states from these seconds on."""
    before: TaskState | None = None
    history = []
    for number, (at, state) in enumerate(steps, start=1):
        history.append(
            Transition(
                task_id="t",
                number=number,
                from_state=before,
                to_state=state,
                reason="",
                actor="a",
                fence=1,
                at=after(at),
            )
        )
        before = state
    return history


def asked(created: float, decided: float | None) -> Approval:
    return Approval(
        task_id="t",
        question="May I?",
        step_key="ask",
        state=ApprovalState.OPEN if decided is None else ApprovalState.APPROVED,
        created_at=after(created),
        decided_at=None if decided is None else after(decided),
    )


@pytest.mark.parametrize(
    ("history", "approvals", "now", "seconds"),
    [
        pytest.param([(0, P)], [], 50, 0, id="in its queue, before the first claim"),
        pytest.param([(0, P), (10, R)], [], 50, 40, id="from the first claim on"),
        pytest.param([(0, P), (10, R), (20, P), (30, R)], [], 50, 40, id="through a crash and the queue after it"),
        pytest.param([(0, P), (10, R), (20, W)], [], 50, 40, id="while it waits for a timer or a child"),
        pytest.param([(0, P), (10, R), (20, W)], [(20, None)], 50, 10, id="not while a person decides"),
        pytest.param([(0, P), (10, R), (20, W), (30, P)], [(20, 30)], 50, 30, id="again once they have"),
        pytest.param([(0, P), (10, R)], [(15, 25), (20, 30)], 50, 25, id="two questions at once stop it once"),
        pytest.param([(0, P), (10, R)], [(15, 25), (25, 30)], 50, 25, id="one question after the other"),
        pytest.param([(0, P), (10, R)], [(15, 40), (20, 30)], 50, 15, id="one question inside another"),
        pytest.param([(0, P), (10, R), (20, F)], [], 50, 10, id="not while it lies failed"),
        pytest.param([(0, P), (10, R), (20, F), (30, P)], [], 50, 10, id="nor in the queue after that"),
        pytest.param([(0, P), (10, R), (20, F), (30, P), (40, R)], [], 50, 20, id="again when it is claimed again"),
        pytest.param([(0, P), (10, R), (20, C)], [], 50, 10, id="not after its end"),
        pytest.param([(0, P), (10, R), (20, F)], [(15, 30)], 50, 5, id="a question that was open when it failed"),
        pytest.param([(0, P), (10, R)], [], 5, 0, id="a clock that went back"),
    ],
)
def test_what_the_clock_counts(
    history: list[tuple[float, TaskState]], approvals: list[tuple[float, float | None]], now: float, seconds: float
) -> None:
    questions = [asked(*one) for one in approvals]
    assert wall_time_ms(moves(*history), questions, after(now)) == seconds * 1000


@st.composite
def lives(draw: st.DrawFn) -> tuple[list[Transition], list[Approval], float]:
    """A legal history, questions asked during it, and a moment at or after all of it."""
    state, at = P, 0.0
    steps = [(at, state)]
    for _ in range(draw(st.integers(0, 10))):
        following = sorted(MOVES[state])
        if not following:
            break
        state, at = draw(st.sampled_from(following)), at + draw(st.integers(0, 100))
        steps.append((at, state))
    questions = []
    for _ in range(draw(st.integers(0, 5))):
        created = draw(st.integers(0, int(at)))
        decided = draw(st.none() | st.integers(created, max(created, int(at))))
        questions.append(asked(created, decided))
    return moves(*steps), questions, at


@given(lives(), st.integers(0, 1000), st.integers(0, 1000))
def test_it_never_goes_back(life: tuple[list[Transition], list[Approval], float], some: int, more: int) -> None:
    history, questions, last = life
    earlier = wall_time_ms(history, questions, after(last + some))
    assert earlier <= wall_time_ms(history, questions, after(last + some + more))


@given(lives(), st.integers(0, 1000))
def test_it_is_never_ahead_of_the_world(life: tuple[list[Transition], list[Approval], float], some: int) -> None:
    history, questions, last = life
    claimed = next((move.at for move in history if move.to_state is R), None)
    elapsed = timedelta() if claimed is None else after(last + some) - claimed
    assert 0 <= wall_time_ms(history, questions, after(last + some)) <= elapsed.total_seconds() * 1000


@given(lives(), st.integers(0, 1000))
def test_a_question_never_costs_time(life: tuple[list[Transition], list[Approval], float], some: int) -> None:
    history, questions, last = life
    now = after(last + some)
    without = wall_time_ms(history, [], now)
    assert wall_time_ms(history, questions, now) <= without
    # Asked twice at the same time, a question stops the clock once.
    assert wall_time_ms(history, questions * 2, now) == wall_time_ms(history, questions, now)


@given(lives(), st.integers(0, 1000))
def test_it_is_the_seconds_in_which_it_worked_and_nobody_was_asked(
    life: tuple[list[Transition], list[Approval], float], some: int
) -> None:
    """Counted second by second: everything in a life happens at whole seconds."""
    history, questions, last = life
    end = int(last + some)
    counted = 0
    for second in range(end):
        moment = after(second + 0.5)
        before = [move.to_state for move in history if move.at < moment]
        terminal = max((i for i, state in enumerate(before) if state.is_terminal), default=-1)
        at_work = R in before[terminal + 1 :]
        deciding = any(
            one.created_at is not None and one.created_at < moment < (one.decided_at or after(end)) for one in questions
        )
        counted += at_work and not deciding
    assert wall_time_ms(history, questions, after(end)) == counted * 1000
