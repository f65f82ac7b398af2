from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from holdfast.model import effect as module
from holdfast.model.effect import EFFECT_MOVES, Effect, EffectClass, EffectState
from holdfast.model.errors import InvalidValue

S = EffectState
SETTLED = {S.DONE, S.FAILED, S.COMPENSATED, S.ABANDONED}
DRAWN = {
    (None, "intended"),
    (None, "armed"),
    (None, "done"),
    ("intended", "armed"),
    ("intended", "abandoned"),
    ("armed", "done"),
    ("armed", "failed"),
    ("armed", "in_doubt"),
    ("failed", "intended"),
    ("failed", "armed"),
    ("failed", "abandoned"),
    ("in_doubt", "done"),
    ("in_doubt", "intended"),
    ("in_doubt", "needs_human"),
    ("needs_human", "done"),
    ("needs_human", "intended"),
    ("needs_human", "compensating"),
    ("needs_human", "abandoned"),
    ("done", "compensating"),
    ("compensating", "compensated"),
    ("compensating", "needs_human"),
}
REOPENED = {(settled, "in_doubt") for settled in ("intended", "failed", "done", "compensated", "abandoned")}
"""By evidence to the contrary."""


def moves() -> set[tuple[str | None, str]]:
    return {(before, after.value) for before, afters in EFFECT_MOVES.items() for after in afters}


def reached(start: EffectState, *, without: set[EffectState]) -> set[EffectState]:
    """Return what can be reached from a state without passing through those."""
    found, frontier = set[EffectState](), [start]
    while frontier:
        for after in EFFECT_MOVES[frontier.pop()]:
            if after not in found and after not in without:
                found.add(after)
                frontier.append(after)
    return found


def test_the_table_is_the_life_of_an_effect_as_designed() -> None:
    assert moves() == DRAWN | REOPENED


def test_the_drawing_shows_no_move_that_is_not_allowed() -> None:
    drawing = [line for line in (module.__doc__ or "").splitlines() if re.match(r"    \w+ --", line)]
    drawn = set()
    for line in drawing:
        before, *parts = re.split(r" --(?:[^>-]+--)?> ", re.sub(r"\([^)]*\)|, same id", "", line).strip())
        for part in parts:
            afters = [after.strip() for after in part.split("|")]
            drawn |= {(before.strip(), after) for after in afters}
            before = afters[0]
    assert len(drawing) == 4
    assert len(drawn) == 14
    assert drawn <= moves()


def test_only_what_was_not_made_can_be_armed() -> None:
    assert {before for before, after in moves() if after == "armed"} == {None, "intended", "failed"}


@pytest.mark.parametrize("state", [S.DONE, S.COMPENSATED, S.ABANDONED])
def test_what_is_settled_is_not_done_again_without_a_doubt_in_between(state: EffectState) -> None:
    assert not reached(state, without={S.IN_DOUBT, S.NEEDS_HUMAN}) & {S.INTENDED, S.ARMED}


@pytest.mark.parametrize("state", [S.IN_DOUBT, S.NEEDS_HUMAN])
def test_a_doubt_is_never_dispatched_again_by_itself(state: EffectState) -> None:
    assert S.ARMED not in EFFECT_MOVES[state]
    assert S.FAILED not in EFFECT_MOVES[state], "only the call itself proves that nothing happened"


@pytest.mark.parametrize("state", [state for state in S if state not in {S.IN_DOUBT, S.NEEDS_HUMAN, S.COMPENSATING}])
def test_evidence_can_make_a_doubt_of_everything_that_seemed_certain(state: EffectState) -> None:
    assert S.IN_DOUBT in EFFECT_MOVES[state]


@pytest.mark.parametrize("state", list(S))
def test_no_state_is_a_trap(state: EffectState) -> None:
    assert reached(state, without=set()) >= SETTLED - {S.FAILED} or state in {S.COMPENSATED, S.ABANDONED}


def make(**options: object) -> Effect:
    known: dict[str, object] = {
        "effect_id": "e",
        "step_key": "pay",
        "effect_class": EffectClass.ONCE,
        "state": S.ARMED,
        **options,
    }
    return Effect(**known)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"effect_id": ""},
        {"effect_id": "x" * 10_000},
        {"effect_id": "nul\0"},
        {"dispatch_by": datetime(2026, 1, 1)},  # noqa: DTZ001
        {"settle_at": datetime(2026, 1, 1)},  # noqa: DTZ001
    ],
    ids=["empty id", "long id", "id with NUL", "dispatch_by without zone", "settle_at without zone"],
)
def test_what_no_store_could_hold_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidValue):
        make(**options)


def test_an_effect_is_a_value() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    assert make(settle_at=moment) == make(settle_at=moment)
    assert make(settle_at=moment) != make()
    assert [one.value for one in EffectClass] == ["pure", "idempotent", "once"]
