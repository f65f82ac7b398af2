from __future__ import annotations

from decimal import Decimal, localcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.budget import Budget, Ledger, Meter, MeterLine, as_micros, from_micros
from holdfast.model.errors import BudgetExceeded, InvalidValue

amounts = st.dictionaries(st.sampled_from(Meter), st.integers(0, 60))


def test_a_budget_lists_the_limits_that_are_set() -> None:
    budget = Budget(max_steps=20, max_llm_tokens=0, max_artifact_bytes_in_context=8000, max_cost=1.5)
    assert budget.limits() == {Meter.STEPS: 20, Meter.LLM_TOKENS: 0, Meter.COST_MICROS: 1_500_000}


@pytest.mark.parametrize(
    ("cost", "micros"), [(0, 0), (1.5, 1_500_000), ("0.000001", 1), (Decimal("1.50000000"), 1_500_000), (0.1, 100_000)]
)
def test_money_is_counted_in_exact_millionths(cost: float | str | Decimal, micros: int) -> None:
    with localcontext() as context:
        context.prec = 2
        assert as_micros(cost) == micros
        assert as_micros(from_micros(micros)) == micros


@given(st.integers(0, 10**15))
def test_every_number_of_millionths_survives_json(micros: int) -> None:
    budget = Budget(max_cost=from_micros(micros))
    assert Budget.from_json(budget.to_json()) == budget
    assert budget.limits() == {Meter.COST_MICROS: micros}


@pytest.mark.parametrize("cost", ["1e-7", -1, 1e10, "NaN", "Infinity", "x", True, Decimal("1e-999999"), 1 / 3])
def test_money_that_cannot_be_counted_is_refused(cost: float | Decimal) -> None:
    with pytest.raises(InvalidValue, match="max_cost"):
        Budget(max_cost=cost)


def test_json_omits_what_is_not_set() -> None:
    assert Budget().to_json() == {}
    assert Budget(max_steps=1, max_cost=5, on_exhausted="ask").to_json() == {
        "max_steps": 1,
        "max_cost": 5,
        "on_exhausted": "ask",
    }


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"max_step": 1}, r"budget\.max_step: unknown key"),
        ({"max_steps": -1}, r"budget\.max_steps"),
        ({"max_steps": 1.0}, r"budget\.max_steps"),
        ({"max_steps": True}, r"budget\.max_steps"),
        ({"max_cost": [1]}, "budget: max_cost"),
        ({"on_exhausted": "beg"}, "budget: on_exhausted"),
        ([], "budget: expected an object"),
    ],
)
def test_wrong_json_is_refused_with_its_place(value: object, place: str) -> None:
    with pytest.raises(InvalidValue, match=place):
        Budget.from_json(value)


@pytest.mark.parametrize("bad", [{"max_steps": -1}, {"max_llm_tokens": 1.5}, {"on_exhausted": "maybe"}])
def test_invalid_limits_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(bad))):
        Budget(**bad)


def test_a_reservation_that_does_not_fit_says_what_is_left_and_reserves_nothing() -> None:
    ledger = Ledger.of(Budget(max_steps=10, max_llm_tokens=100)).reserve({Meter.LLM_TOKENS: 70})
    asked = {Meter.STEPS: 1, Meter.LLM_TOKENS: 31}
    assert not ledger.can_reserve(asked)
    with pytest.raises(BudgetExceeded, match="30 left of 100") as refused:
        ledger.reserve(asked)
    error = refused.value
    assert (error.meter, error.limit, error.spent, error.reserved, error.asked) == ("llm_tokens", 100, 0, 70, 31)
    assert ledger.remaining(Meter.STEPS) == 10
    assert ledger.reserve({Meter.LLM_TOKENS: 30}).remaining(Meter.LLM_TOKENS) == 0


def test_a_meter_without_a_limit_never_runs_out() -> None:
    ledger = Ledger.of(Budget()).reserve({Meter.STEPS: 10**12})
    assert ledger.remaining(Meter.STEPS) is None
    assert ledger.pressure() == ()


def test_what_was_used_is_booked_even_past_the_limit() -> None:
    ledger = Ledger.of(Budget(max_llm_tokens=100)).reserve({Meter.LLM_TOKENS: 60})
    ledger = ledger.settle({Meter.LLM_TOKENS: 60}, {Meter.LLM_TOKENS: 130, Meter.STEPS: 1})
    assert ledger.lines[Meter.LLM_TOKENS] == MeterLine(100, 130, 0)
    assert ledger.lines[Meter.STEPS] == MeterLine(None, 1, 0)
    assert ledger.remaining(Meter.LLM_TOKENS) == 0
    assert not ledger.can_reserve({Meter.LLM_TOKENS: 1})
    assert ledger.can_reserve({Meter.LLM_TOKENS: 0})


def test_a_reservation_is_settled_once() -> None:
    ledger = Ledger.of(Budget(max_steps=5)).reserve({Meter.STEPS: 1})
    settled = ledger.settle({Meter.STEPS: 1}, {Meter.STEPS: 1})
    with pytest.raises(InvalidValue, match="only 0 are reserved"):
        settled.settle({Meter.STEPS: 1}, {Meter.STEPS: 1})


@pytest.mark.parametrize("bad", [-1, 1.0, True])
def test_only_whole_amounts_can_be_booked(bad: int) -> None:
    ledger = Ledger.of(Budget(max_steps=5))
    with pytest.raises(InvalidValue, match="whole numbers"):
        ledger.reserve({Meter.STEPS: bad})
    with pytest.raises(InvalidValue, match="whole numbers"):
        ledger.settle({}, {Meter.STEPS: bad})
    with pytest.raises(InvalidValue, match="whole numbers"):
        ledger.settle({Meter.STEPS: bad}, {})


@pytest.mark.parametrize(("used", "pressed"), [(79, ()), (80, (Meter.LLM_TOKENS,)), (100, (Meter.LLM_TOKENS,))])
def test_pressure_begins_at_four_fifths_spent_or_reserved(used: int, pressed: tuple[Meter, ...]) -> None:
    ledger = Ledger.of(Budget(max_llm_tokens=100)).reserve({Meter.LLM_TOKENS: used})
    assert ledger.pressure() == pressed
    assert ledger.settle({Meter.LLM_TOKENS: used}, {Meter.LLM_TOKENS: used}).pressure() == pressed


def test_the_ledger_is_written_by_its_process_alone() -> None:
    with pytest.raises(TypeError):
        Ledger().lines[Meter.STEPS] = MeterLine()  # type: ignore[index]


@given(st.lists(st.tuples(amounts, st.fractions(0, 1), st.booleans()), max_size=30))
def test_no_sequence_of_reservations_overspends_and_nothing_is_lost(
    calls: list[tuple[dict[Meter, int], Any, bool]],
) -> None:
    limit = 200
    ledger = Ledger.of(Budget(max_steps=limit, max_wall_time_ms=limit, max_llm_tokens=limit, max_cost="0.0002"))  # type: ignore[arg-type]
    spent, held = dict.fromkeys(Meter, 0), []
    for asked, share, settles in calls:
        fits = ledger.can_reserve(asked)
        try:
            ledger = ledger.reserve(asked)
            assert fits
            held.append((asked, {meter: int(amount * share) for meter, amount in asked.items()}))
        except BudgetExceeded:
            assert not fits
        if settles and held:
            reserved, actual = held.pop(0)
            ledger = ledger.settle(reserved, actual)
            spent = {meter: spent[meter] + actual.get(meter, 0) for meter in Meter}
        for meter, line in ledger.lines.items():
            assert line.spent + line.reserved <= limit
            assert line.spent == spent[meter]
            assert line.reserved == sum(reserved.get(meter, 0) for reserved, _ in held)
