"""The pure part of the guard: tables, no store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.model.commit import Commit, Expect, Held, Refusal, Verdict, effect_move_refused, judge
from holdfast.model.effect import EFFECT_MOVES, EffectState
from holdfast.model.errors import BudgetExceeded, Conflict, IllegalMove, LeaseHeld, LeaseLost, NotFound
from holdfast.model.operations import Move
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState

RUNNING = Task(id="t", state=TaskState.RUNNING, owner="w", fence=3, sequence=7, revision=20, version=2)
WAITING = replace(RUNNING, state=TaskState.WAITING, owner=None)


def commit(guard: Held | Expect, to: TaskState | None = None) -> Commit:
    return Commit(task_id="t", guard=guard, operations=() if to is None else (Move(to=to, reason="r"),))


@pytest.mark.parametrize(
    ("task", "sent", "refusal"),
    [
        (None, commit(Held("w", 3, 8)), Refusal.NOT_FOUND),
        (RUNNING, commit(Held("w", 3, 8)), None),
        (RUNNING, commit(Held("w", 2, 8)), Refusal.SUPERSEDED),
        (RUNNING, commit(Held("w", 4, 1)), Refusal.SUPERSEDED),
        (RUNNING, commit(Held("other", 3, 8)), Refusal.SUPERSEDED),
        (WAITING, commit(Held("w", 3, 8)), Refusal.SUPERSEDED),
        (RUNNING, commit(Held("w", 3, 9)), Refusal.OUT_OF_ORDER),
        (RUNNING, commit(Held("w", 3, 8), TaskState.COMPLETED), None),
        (RUNNING, commit(Held("w", 3, 8), TaskState.RUNNING), Refusal.ILLEGAL_MOVE),
        (RUNNING, commit(Expect()), None),
        (RUNNING, commit(Expect(), TaskState.CANCELLED), Refusal.LEASED),
        (WAITING, commit(Expect(), TaskState.CANCELLED), None),
        (WAITING, commit(Expect(), TaskState.RUNNING), Refusal.ILLEGAL_MOVE),
        (WAITING, commit(Expect(states=frozenset({TaskState.WAITING}), revision=20, version=2)), None),
        (WAITING, commit(Expect(states=frozenset({TaskState.PENDING}))), Refusal.CONFLICT),
        (WAITING, commit(Expect(revision=19)), Refusal.CONFLICT),
        (WAITING, commit(Expect(version=1)), Refusal.CONFLICT),
    ],
)
def test_a_guard_holds_or_says_why_not(task: Task | None, sent: Commit, refusal: Refusal | None) -> None:
    verdict = judge(task, sent)
    assert (verdict and verdict[0]) == refusal
    assert verdict is None or "t" in verdict[1]


@pytest.mark.parametrize("after", EffectState)
@pytest.mark.parametrize("before", [None, *EffectState])
def test_effects_move_by_the_table_and_stay_only_for_a_worker(before: EffectState | None, after: EffectState) -> None:
    if before is after:
        assert not effect_move_refused(before, after, fenced=True)
        assert effect_move_refused(before, after, fenced=False)
    else:
        assert effect_move_refused(before, after, fenced=True) == (after not in EFFECT_MOVES[before])


def test_a_done_effect_never_becomes_intended_again() -> None:
    assert EffectState.INTENDED not in EFFECT_MOVES[EffectState.DONE]
    assert EffectState.INTENDED not in EFFECT_MOVES[EffectState.COMPENSATED]


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (Refusal.NOT_FOUND, NotFound),
        (Refusal.SUPERSEDED, LeaseLost),
        (Refusal.LEASED, LeaseHeld),
        (Refusal.ILLEGAL_MOVE, IllegalMove),
        (Refusal.CONFLICT, Conflict),
        (Refusal.OUT_OF_ORDER, Conflict),
        (Refusal.APPROVAL, Conflict),
        (Refusal.EFFECT, Conflict),
        (Refusal.KEY, Conflict),
        (Refusal.BUDGET, BudgetExceeded),
    ],
)
def test_every_refusal_is_an_exception_a_caller_can_raise(refusal: Refusal, error: type[Exception]) -> None:
    budget = BudgetExceeded(meter="steps", limit=5, spent=5, reserved=0, asked=1)
    assert type(Verdict(task_id="t", refusal=refusal, budget=budget).error()) is error
