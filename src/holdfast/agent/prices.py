"""What model calls cost. Prices come from the user: they change, and differ from contract to contract."""

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
        """Refuse what is no price; keep it exact."""
        for name in ("input", "output"):
            given = getattr(self, name)
            # Through text, so that 0.15 is what was written and not the float nearest to it.
            is_number = isinstance(given, int | float | Decimal) and not isinstance(given, bool)
            exact = Decimal(str(given)) if is_number else Decimal("NaN")
            if not exact.is_finite() or exact < 0:
                raise InvalidValue(f"the {name} price is {given!r}; give the price of a million tokens, at least 0")
            object.__setattr__(self, name, exact)

    def micros(self, usage: Usage) -> int:
        """Return what this many tokens cost, in millionths, rounded up."""
        # A millionth of the currency for each token and unit of price: the two millions cancel. In fractions, because
        # the caller's decimal context may round coarsely.
        return math.ceil(Fraction(self.input) * usage.input_tokens + Fraction(self.output) * usage.output_tokens)


FREE = Price(0, 0)


def unpriced(model: str, agent: str) -> str:
    """Say that a model has no price, and how to give it one."""
    return (
        f"nobody said what {model} costs; pass "
        f'prices={{"{model}": Price(input=..., output=...)}}, for a million tokens each, to {agent!r}'
    )


def price_of(prices: Mapping[str, Price], model: str) -> Price:
    """Return the price of a model; nothing where none was given."""
    return prices.get(model, FREE)
