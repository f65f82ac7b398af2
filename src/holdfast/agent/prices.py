"""The cost of model calls. Prices come from the user: they change, and differ between contracts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from holdfast.model.errors import InvalidValue
from holdfast.model.message import Usage


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a million tokens, in the currency of ``Budget.max_cost``: ``Price(input=0.15, output=0.60)``."""

    input: Decimal | float
    output: Decimal | float

    def __post_init__(self) -> None:
        """Refuse a value that is not a price; keep the exact value."""
        for name in ("input", "output"):
            given = getattr(self, name)
            # From its text, so that 0.15 stays 0.15 and does not become the nearest float.
            is_number = isinstance(given, int | float | Decimal) and not isinstance(given, bool)
            exact = Decimal(str(given)) if is_number else Decimal("NaN")
            if not exact.is_finite() or exact < 0:
                raise InvalidValue(f"the {name} price is {given!r}; give the price of a million tokens, at least 0")
            object.__setattr__(self, name, exact)

    def micros(self, usage: Usage) -> int:
        """Return what this many tokens cost, in millionths, rounded up."""
        # Millionths of the currency, and prices of a million tokens: the two millions cancel. With fractions, because
        # the caller's decimal context may round.
        return math.ceil(Fraction(self.input) * usage.input_tokens + Fraction(self.output) * usage.output_tokens)


FREE = Price(0, 0)


def unpriced(model: str, agent: str) -> str:
    """Return the message that a model has no price, and how to give it one."""
    return (
        f"the price of {model} is not known; pass "
        f'prices={{"{model}": Price(input=..., output=...)}}, for a million tokens each, to {agent!r}'
    )


def price_of(prices: Mapping[str, Price], model: str) -> Price:
    """Return the price of a model; FREE if none was given."""
    return prices.get(model, FREE)
