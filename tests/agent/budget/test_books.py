"""The books: what is left on the tightest account, how long an answer may be, and which account is short."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Budget, Price, Usage
from holdfast.agent.budget_figures import LEAST_OUTPUT, Books, Need, in_words, limits_patch
from holdfast.agent.prices import FREE
from holdfast.model.budget import Meter
from holdfast.model.records import Account

Line = tuple[int | None, int, int]
"""Limit, spent, reserved."""
S, T, C, W = (str(meter) for meter in (Meter.STEPS, Meter.LLM_TOKENS, Meter.COST_MICROS, Meter.WALL_TIME_MS))
OWN, PARENT = "own", "parent"


def account(name: str, meter: str, line: Line) -> Account:
    return Account(account=name, meter=meter, limit=line[0], spent=line[1], reserved=line[2])


def books(own: dict[str, Line], parent: dict[str, Line] | None = None, price: Price = FREE) -> Books:
    made = Books(OWN, price)
    made.lines[OWN] = {meter: account(OWN, meter, line) for meter, line in own.items()}
    if parent is not None:
        made.lines[PARENT] = {meter: account(PARENT, meter, line) for meter, line in parent.items()}
    return made


@pytest.mark.parametrize(
    ("own", "parent", "left"),
    [
        ({}, {}, None),
        ({S: (None, 9, 0)}, {}, None),
        ({S: (10, 3, 2)}, {}, 5),
        ({S: (10, 3, 2)}, {S: (20, 17, 1)}, 2),
        ({S: (10, 3, 2)}, {S: (None, 100, 0)}, 5),
        ({}, {S: (4, 4, 0)}, 0),
        ({S: (10, 12, 0)}, {}, -2),
    ],
)
def test_left_is_what_the_tightest_account_has(own: dict[str, Line], parent: dict[str, Line], left: int | None) -> None:
    made = books(own, parent)
    assert made.left(Meter.STEPS) == left
    assert made.is_limited == (left is not None)


NEED = Need(input_tokens=100, output_tokens=1_000)


@pytest.mark.parametrize(
    ("own", "parent", "price", "room"),
    [
        pytest.param({}, {}, FREE, None, id="nothing limits it"),
        pytest.param({S: (10, 0, 0)}, {}, FREE, None, id="steps do not limit an answer"),
        pytest.param({T: (5_000, 0, 0)}, {}, FREE, 1_000, id="as long as the agent allows"),
        pytest.param({T: (500, 0, 0)}, {}, FREE, 400, id="what the prompt leaves"),
        pytest.param({T: (500, 100, 100)}, {}, FREE, 200, id="what is spent and reserved is gone"),
        pytest.param({T: (500, 0, 0)}, {T: (300, 0, 0)}, FREE, 200, id="the tighter account"),
        pytest.param({T: (50, 0, 0)}, {}, FREE, -50, id="not even the prompt fits"),
        pytest.param({C: (300, 0, 0)}, {}, Price(1, 2), 100, id="what the money left by the prompt buys"),
        pytest.param({C: (301, 0, 0)}, {}, Price(1, 2), 100, id="half a token cannot be bought"),
        pytest.param({C: (300, 0, 0)}, {}, Price(1, 0), None, id="an answer that costs nothing"),
        pytest.param({C: (300, 0, 0), T: (150, 0, 0)}, {}, Price(1, 2), 50, id="tokens tighter than money"),
        pytest.param({C: (1, 0, 0)}, {}, Price(Decimal("0.001"), Decimal("0.0001")), 0, id="a price below a millionth"),
        pytest.param({C: (90, 0, 0)}, {}, Price(1, 3), -4, id="the prompt alone costs too much"),
    ],
)
def test_room(own: dict[str, Line], parent: dict[str, Line], price: Price, room: int | None) -> None:
    assert books(own, parent, price).room(NEED) == room


@pytest.mark.parametrize(
    ("own", "parent", "amounts", "short"),
    [
        pytest.param({}, {}, {S: 10**9}, None, id="no limit"),
        pytest.param({S: (10, 9, 0)}, {}, {S: 1}, None, id="the last step"),
        pytest.param({S: (10, 9, 1)}, {}, {S: 1}, (OWN, S, 1), id="reserved by another call"),
        pytest.param({S: (10, 10, 0)}, {}, {}, None, id="nothing asked, nothing short"),
        pytest.param({S: (10, 0, 0)}, {S: (3, 2, 0)}, {S: 2}, (PARENT, S, 2), id="the caller's account"),
        pytest.param({S: (1, 1, 0)}, {S: (1, 1, 0)}, {S: 1}, (OWN, S, 1), id="its own first"),
        pytest.param({T: (10, 0, 0), C: (10, 0, 0)}, {}, {T: 11, C: 11}, (OWN, T, 11), id="the first of two"),
        pytest.param({W: (100, 100, 0)}, {}, {}, (OWN, W, 1), id="the time is up"),
        pytest.param({W: (100, 99, 0)}, {}, {}, None, id="a millisecond left"),
        pytest.param({}, {W: (100, 100, 0)}, {}, None, id="the caller's time is the caller's"),
        pytest.param({W: (100, 150, 0), S: (1, 1, 0)}, {}, {S: 1}, (OWN, W, 1), id="time before all else"),
    ],
)
def test_first_short(
    own: dict[str, Line], parent: dict[str, Line], amounts: dict[str, int], short: tuple[str, str, int] | None
) -> None:
    found = books(own, parent).first_short(amounts)
    assert (found and (found.line.account, found.line.meter, found.asked)) == short


def test_an_answer_needs_some_room_and_the_account_that_leaves_none_is_named() -> None:
    need = Need(input_tokens=100, output_tokens=1_000)
    made = books({T: (100 + LEAST_OUTPUT - 1, 0, 0), C: (10, 0, 0)}, price=Price(0, Decimal("0.001")))
    short = made.first_short({T: 100}, need)
    assert short is not None
    # Money has the smaller number and buys ten thousand tokens: it is not what runs out first.
    assert (short.line.meter, short.asked) == (T, 100 + LEAST_OUTPUT)
    assert made.first_short({T: 100}, Need(input_tokens=99, output_tokens=1_000)) is None


def test_what_is_asked_of_money_is_money() -> None:
    made = books({C: (30, 0, 0)}, price=Price(0, 3))
    short = made.first_short({}, Need(input_tokens=5, output_tokens=1_000))
    assert short is not None
    assert (short.line.meter, short.asked) == (C, 3 * LEAST_OUTPUT)


def test_an_agent_that_may_not_say_much_needs_no_more_room_than_that() -> None:
    made = books({T: (110, 0, 0)})
    assert made.first_short({}, Need(input_tokens=100, output_tokens=10)) is None
    assert made.first_short({}, Need(input_tokens=101, output_tokens=10)) is not None


lines = st.tuples(st.none() | st.integers(0, 5_000), st.integers(0, 3_000), st.integers(0, 3_000))
accounts = st.dictionaries(st.sampled_from([S, T, C]), lines)
price = st.builds(Price, st.decimals(0, 20, places=4), st.decimals(0, 20, places=4))


@given(accounts, accounts, price, st.integers(0, 3_000), st.integers(1, 3_000))
def test_a_call_that_is_not_short_fits_on_every_account(
    own: dict[str, Line], parent: dict[str, Line], each: Price, tokens_in: int, tokens_out: int
) -> None:
    made, need = books(own, parent, each), Need(input_tokens=tokens_in, output_tokens=tokens_out)
    room = made.room(need)
    output = tokens_out if room is None else max(0, room)
    assert output <= tokens_out
    amounts = made.amounts(Usage(input_tokens=tokens_in, output_tokens=output), 1)
    short = made.first_short(amounts, need)
    if short is None:
        assert output >= min(LEAST_OUTPUT, tokens_out)
        for held in made.lines.values():
            for meter, line in held.items():
                assert (
                    line.limit is None
                    or not amounts.get(meter)
                    or (line.spent + line.reserved + amounts[meter] <= line.limit)
                )
    else:
        assert short.line.limit is not None
        assert short.asked > short.line.limit - short.line.spent - short.line.reserved
        assert short.error.meter == short.line.meter


@pytest.mark.parametrize(
    ("line", "amounts", "pressed"),
    [
        ((10, 7, 0), {}, False),
        ((10, 7, 0), {S: 1}, True),
        ((10, 8, 0), {}, True),
        ((10, 7, 3), {}, False),
        ((None, 10**9, 0), {}, False),
        ((0, 0, 0), {}, True),
    ],
)
def test_pressure_begins_at_four_fifths_of_what_is_spent(line: Line, amounts: dict[str, int], pressed: bool) -> None:
    assert books({S: line}).pressure(amounts) is pressed
    assert books({}, {S: line}).pressure(amounts) is False  # the agent whose account it is gets the warning


def test_the_state_says_what_the_account_says() -> None:
    lines = {meter: account(OWN, meter, (limit, 0, 0)) for meter, limit in ((S, 5), (C, 1_500_000))}
    patch = limits_patch(Budget(max_steps=3, max_llm_tokens=9, max_artifact_bytes_in_context=7), lines)
    assert patch is not None
    assert patch.budget == Budget(max_steps=5, max_cost=1.5, max_artifact_bytes_in_context=7)
    assert limits_patch(patch.budget, lines) is None


def test_amounts_as_people_say_them() -> None:
    assert [in_words(meter, 1_500) for meter in (S, T, C, W)] == ["1500 steps", "1500 tokens", "0.0015", "1.5 s"]
