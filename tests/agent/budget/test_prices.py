"""Money: exact to the millionth, whatever the caller's decimal context, and refused where it is not a price."""

from __future__ import annotations

from decimal import ROUND_CEILING, Context, Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Agent, Budget, InvalidValue, Judge, Price, ScriptedModel, Usage
from holdfast.agent.prices import FREE, price_of

prices = st.decimals(0, 10_000, allow_nan=False, allow_infinity=False, places=8)
tokens = st.integers(0, 10**9)


@given(prices, prices, tokens, tokens)
def test_the_cost_is_that_of_exact_arithmetic_rounded_up(
    each_in: Decimal, each_out: Decimal, tokens_in: int, tokens_out: int
) -> None:
    wide = Context(prec=100)
    million = Decimal(1_000_000)
    cost = wide.add(wide.multiply(each_in, Decimal(tokens_in)), wide.multiply(each_out, Decimal(tokens_out)))
    in_currency = wide.divide(cost, million)
    expected = wide.multiply(in_currency, million).to_integral_value(rounding=ROUND_CEILING)
    usage = Usage(input_tokens=tokens_in, output_tokens=tokens_out)
    with localcontext() as coarse:  # the user's program may round to three digits; Holdfast does not
        coarse.prec = 3
        assert Price(each_in, each_out).micros(usage) == expected


@given(prices, tokens, tokens)
def test_paying_in_two_calls_costs_at_most_a_millionth_more(each: Decimal, one: int, other: int) -> None:
    price = Price(each, 0)
    apart = price.micros(Usage(input_tokens=one)) + price.micros(Usage(input_tokens=other))
    assert 0 <= apart - price.micros(Usage(input_tokens=one + other)) <= 1


@pytest.mark.parametrize(
    ("price", "usage", "micros"),
    [
        (Price(0.15, 0.60), Usage(input_tokens=1_000_000, output_tokens=1_000_000), 750_000),
        (Price(0.1, 0.2), Usage(input_tokens=1, output_tokens=1), 1),
        (Price(3, 15), Usage(input_tokens=7, output_tokens=2), 51),
        (Price(Decimal("0.15"), 0), Usage(input_tokens=20), 3),
        (FREE, Usage(input_tokens=10**9, output_tokens=10**9), 0),
        (Price(2.5, 10), Usage(), 0),
    ],
)
def test_known_costs(price: Price, usage: Usage, micros: int) -> None:
    assert price.micros(usage) == micros


@pytest.mark.parametrize("wrong", [-1, -0.0001, float("nan"), float("inf"), True, None, "0.15", Decimal("sNaN")])
def test_what_is_not_a_price_is_refused(wrong: float) -> None:
    with pytest.raises(InvalidValue, match=r"the input price is .* give the price of a million tokens, at least 0"):
        Price(wrong, 1)
    with pytest.raises(InvalidValue, match="the output price is"):
        Price(1, wrong)


def test_a_model_without_a_price_costs_nothing() -> None:
    prices = {"large": Price(3, 15)}
    assert price_of(prices, "large") == Price(3, 15)
    assert price_of(prices, "small") is FREE


def test_a_limit_of_cost_needs_a_price() -> None:
    model = ScriptedModel(["hi"], name="large")
    with pytest.raises(InvalidValue, match=r"the price of large is not known; pass prices=\{\"large\": Price\(input="):
        Agent("a", model=model, budget=Budget(max_cost=1), prices={"small": Price(1, 1)})
    assert Agent("a", model=model, budget=Budget(max_cost=1), prices={"large": Price(1, 1)}).budget.max_cost == 1


def test_so_do_those_it_pays_for() -> None:
    large, small = ScriptedModel(["hi"], name="large"), ScriptedModel(["hi"], name="small")
    budget, prices = Budget(max_cost=1), {"large": Price(1, 1)}
    helper = Agent("helper", model=small, description="Helps.")
    with pytest.raises(InvalidValue, match=r"the price of small is not known; .* to 'helper'"):
        Agent("a", model=large, budget=budget, prices=prices, tools=[helper])
    with pytest.raises(InvalidValue, match=r"the price of small is not known; .* to 'a'"):
        Agent("a", model=large, budget=budget, prices=prices, verify=Judge(model=small))
    assert Agent("a", model=large, tools=[helper], verify=Judge(model=small)).budget.max_cost is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_steps": -1}, "max_steps is -1; give a whole number of at least 0"),
        ({"max_steps": 1.5}, "max_steps is 1.5"),
        ({"max_steps": True}, "max_steps is True"),
        ({"max_llm_tokens": "many"}, "max_llm_tokens is 'many'"),
        ({"max_wall_time_ms": 0.5}, "max_wall_time_ms is 0.5"),
        ({"max_artifact_bytes_in_context": -8}, "max_artifact_bytes_in_context is -8"),
        ({"max_cost": -0.5}, "max_cost is -0.5; give 0 to 1,000,000,000 with at most six decimals"),
        ({"max_cost": 0.0000001}, "max_cost is 1e-07"),
        ({"max_cost": float("nan")}, "max_cost is nan"),
        ({"on_exhausted": "beg"}, "on_exhausted is 'beg'; choose fail or ask"),
    ],
)
def test_what_is_not_a_budget_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        Budget(**wrong)  # type: ignore[arg-type]
    assert message in str(refused.value)
