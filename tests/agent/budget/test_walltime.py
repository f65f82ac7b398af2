"""The clock of max_wall_time_ms, as a pure function: what it counts, and laws that hold whatever happened."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.transitions import MOVES, TaskState, Transition
from holdfast.model.walltime import Life, wall_time_ms

START = datetime(2026, 1, 1, tzinfo=UTC)
P, R, W, F, C = TaskState.PENDING, TaskState.RUNNING, TaskState.WAITING, TaskState.FAILED, TaskState.COMPLETED
D = TaskState.CANCELLED
Steps = list[tuple[float, TaskState]]
Question = tuple[float, float | None] | tuple[float, float | None, float | None]


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


def asked(created: float, decided: float | None, expires: float | None = None) -> Approval:
    return Approval(
        task_id="t",
        question="May I?",
        step_key="ask",
        state=ApprovalState.OPEN if decided is None else ApprovalState.APPROVED,
        created_at=after(created),
        decided_at=None if decided is None else after(decided),
        expires_at=None if expires is None else after(expires),
    )


def life(steps: Steps, *questions: Question, below: tuple[Life, ...] = ()) -> Life:
    return Life(moves(*steps), [asked(*one) for one in questions], below)


def test_what_the_clock_counts() -> None:
    table: list[tuple[str, Steps, list[Question], float, float]] = [
        ("in its queue, before the first claim", [(0, P)], [], 50, 0),
        ("from the first claim on", [(0, P), (10, R)], [], 50, 40),
        ("through a crash and the queue after it", [(0, P), (10, R), (20, P), (30, R)], [], 50, 40),
        ("while it waits for a timer", [(0, P), (10, R), (20, W)], [], 50, 40),
        ("not while a person decides", [(0, P), (10, R), (20, W)], [(20, None)], 50, 10),
        ("again once they have", [(0, P), (10, R), (20, W), (30, P)], [(20, 30)], 50, 30),
        ("two questions at once stop it once", [(0, P), (10, R), (15, W), (30, R)], [(15, 25), (20, 30)], 50, 25),
        ("one question after the other", [(0, P), (10, R), (15, W), (30, R)], [(15, 25), (25, 30)], 50, 25),
        ("one question inside another", [(0, P), (10, R), (15, W), (40, R)], [(15, 40), (20, 30)], 50, 15),
        ("while it does something else beside the question", [(0, P), (10, R), (30, W)], [(15, None)], 50, 20),
        ("in the queue with a question still open", [(0, P), (10, R), (20, W), (30, P)], [(20, None)], 50, 30),
        ("not while it lies failed", [(0, P), (10, R), (20, F)], [], 50, 10),
        ("nor in the queue after that", [(0, P), (10, R), (20, F), (30, P)], [], 50, 10),
        ("again when it is claimed again", [(0, P), (10, R), (20, F), (30, P), (40, R)], [], 50, 20),
        ("not after its end", [(0, P), (10, R), (20, C)], [], 50, 10),
        ("a question that was open when it failed", [(0, P), (10, R), (15, W), (20, F)], [(15, 30)], 50, 5),
        ("a clock that went back", [(0, P), (10, R)], [], 5, 0),
        ("once no person can decide any more", [(0, P), (10, R), (20, W)], [(20, None, 35)], 50, 25),
        ("the same when the expiry was written down late", [(0, P), (10, R), (20, W)], [(20, 45, 35)], 50, 25),
    ]
    for name, steps, questions, now, seconds in table:
        assert wall_time_ms(life(steps, *questions), after(now)) == seconds * 1000, name


def test_what_the_clock_counts_above_others() -> None:
    """The task waits for its children from second 10 on."""
    asks = life([(10, P), (12, R), (15, W)], (15, None))
    answered = life([(10, P), (12, R), (15, W), (30, P), (32, R), (34, C)], (15, 30))
    works = life([(10, P), (12, R)])
    stopped = life([(10, P), (12, R), (15, W), (30, D)], (15, 30))
    expires = life([(10, P), (12, R), (15, W)], (15, None, 30))
    crashed = life([(10, P), (12, R), (15, P), (25, R), (28, W)], (28, None))
    sleeps = life([(10, P), (12, R), (15, W)])
    between = life([(10, P), (11, R), (12, W)], below=(asks,))
    both = life([(10, P), (11, R), (12, W)], (12, 40), below=(works,))
    table: list[tuple[str, tuple[Life, ...], float]] = [
        ("its child asks a person", (asks,), 15),
        ("and goes on", (answered,), 35),
        ("two children ask", (asks, asks), 15),
        ("one asks, the other works", (asks, works), 50),
        ("one asks, the other sleeps", (asks, sleeps), 50),
        ("one asks, the other has ended", (asks, life([(10, P), (12, R), (20, C)])), 20),
        ("one asks, the other stands in a queue", (asks, life([(10, P)])), 50),
        ("the child is cancelled", (stopped,), 35),
        ("the question expires", (expires,), 35),
        ("the child's worker died before it asked", (crashed,), 28),
        ("a child of its child asks", (between,), 15),
        ("its child asks, and a child of that one works", (both,), 50),
    ]
    for name, children, seconds in table:
        waits = life([(0, P), (0, R), (10, W)], below=children)
        assert wall_time_ms(waits, after(50)) == seconds * 1000, name
    asks_as_well = life([(0, P), (0, R), (10, W)], (10, None), below=(works,))
    assert wall_time_ms(asks_as_well, after(50)) == 50_000, "its own question, and a child that works"


def test_a_task_that_rests_on_its_worker_waits() -> None:
    asks = life([(10, P), (12, R), (15, W)], (15, None))
    table: list[tuple[str, Steps, list[Question], tuple[Life, ...], list[tuple[float, float | None]], float]] = [
        ("for a person", [(0, P), (10, R)], [(20, None)], (), [(20, None)], 10),
        ("until they decide", [(0, P), (10, R)], [(20, 30)], (), [(20, 31)], 30),
        ("and works beside the question otherwise", [(0, P), (10, R)], [(20, None)], (), [(20, 30)], 30),
        ("for a timer, and not for a person", [(0, P), (10, R)], [], (), [(20, 30)], 40),
        ("for a child that asks a person", [(0, P), (0, R)], [], (asks,), [(11, None)], 15),
        ("for a child that works", [(0, P), (0, R)], [], (life([(10, P), (12, R)]),), [(11, None)], 50),
        ("until its worker was found dead", [(0, P), (10, R), (30, P)], [(20, None)], (), [(20, None)], 30),
        ("and again after that", [(0, P), (10, R), (30, P), (32, R)], [(20, None)], (), [(20, None), (35, None)], 15),
        ("never beyond its end", [(0, P), (10, R), (30, F)], [(20, None)], (), [(20, 45)], 10),
    ]
    for name, steps, questions, children, rests, seconds in table:
        one = life(steps, *questions, below=children)
        rested = [(after(start), None if end is None else after(end)) for start, end in rests]
        assert wall_time_ms(replace(one, rests=rested), after(50)) == seconds * 1000, name


@st.composite
def lives(draw: st.DrawFn, depth: int = 2) -> Life:
    """A legal history, questions asked during it, and children that came after its beginning."""
    state, at = P, draw(st.integers(0, 50))
    steps = [(float(at), state)]
    for _ in range(draw(st.integers(0, 8))):
        following = sorted(MOVES[state])
        if not following:
            break
        state, at = draw(st.sampled_from(following)), at + draw(st.integers(0, 40))
        steps.append((float(at), state))
    questions = []
    for _ in range(draw(st.integers(0, 3))):
        created = draw(st.integers(0, at))
        decided = draw(st.none() | st.integers(created, created + 60))
        questions.append((created, decided, draw(st.none() | st.integers(created, created + 60))))
    below = draw(st.lists(lives(depth - 1), max_size=2)) if depth else []
    return life(steps, *questions, below=tuple(below))


LATE = 1000


@given(lives(), st.integers(0, 1000), st.integers(0, 1000))
def test_it_never_goes_back_nor_ahead_of_the_world(one: Life, some: int, more: int) -> None:
    now, later = after(LATE + some), after(LATE + some + more)
    earlier = wall_time_ms(one, now)
    assert earlier <= wall_time_ms(one, later)
    claimed = next((move.at for move in one.history if move.to_state is R), None)
    elapsed = timedelta() if claimed is None else now - claimed
    assert 0 <= earlier <= elapsed.total_seconds() * 1000


@given(lives())
def test_a_question_never_costs_time(one: Life) -> None:
    now = after(LATE)
    unasked, twice = replace(one, approvals=()), replace(one, approvals=[*one.approvals] * 2)
    assert wall_time_ms(one, now) <= wall_time_ms(unasked, now)
    # Asked twice at the same time, a question stops the clock once.
    assert wall_time_ms(twice, now) == wall_time_ms(one, now)


def state_at(one: Life, moment: datetime) -> TaskState | None:
    return next((move.to_state for move in reversed(one.history) if move.at < moment), None)


def is_open(one: Life, moment: datetime) -> bool:
    return (state := state_at(one, moment)) is not None and not state.is_terminal


def waits_for_people(one: Life, moment: datetime) -> bool:
    """Whether all of the family that are open wait for people."""
    is_asked = any(
        question.created_at is not None
        and question.created_at < moment < min(question.decided_at or after(9999), question.expires_at or after(9999))
        for question in one.approvals
    )
    below = [child for child in one.children if is_open(child, moment)]
    waits = state_at(one, moment) is W and (is_asked or bool(below))
    return (waits or not is_open(one, moment)) and all(waits_for_people(child, moment) for child in one.children)


@settings(max_examples=60)
@given(lives())
def test_it_is_the_seconds_in_which_one_of_them_did_not_wait_for_people(one: Life) -> None:
    """Counted second by second: everything in a life happens at whole seconds."""
    end, counted = 400, 0
    for second in range(end):
        moment = after(second + 0.5)
        before = [move.to_state for move in one.history if move.at < moment]
        terminal = max((i for i, state in enumerate(before) if state.is_terminal), default=-1)
        counted += R in before[terminal + 1 :] and not waits_for_people(one, moment)
    assert wall_time_ms(one, after(end)) == counted * 1000


@given(lives(), st.lists(st.tuples(st.integers(0, 300), st.none() | st.integers(0, 300)), max_size=4))
def test_a_rest_never_costs_time(one: Life, rests: list[tuple[int, int | None]]) -> None:
    rested = [(after(start), None if end is None else after(end)) for start, end in rests]
    resting = replace(one, rests=rested)
    assert 0 <= wall_time_ms(resting, after(LATE)) <= wall_time_ms(one, after(LATE))
    assert wall_time_ms(resting, after(LATE)) <= wall_time_ms(resting, after(LATE + 7))
