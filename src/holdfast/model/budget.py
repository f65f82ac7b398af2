"""Budget: what a task may use. Ledger: what it has used and what it has set aside.

All arithmetic is on whole numbers; money is counted in millionths of the user's currency. The stores keep one row
for each meter and do the same arithmetic in SQL; this module defines the expected result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal, InvalidOperation
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from holdfast.model.errors import BudgetExceeded, InvalidValue
from holdfast.model.json_object import JsonObject, without_none
from holdfast.model.task import JsonValue

OnExhausted: TypeAlias = Literal["fail", "ask"]

PRESSURE: Final = 0.8
"""The share of a limit from which the risk flag ``budget_pressure`` is set."""

_LIMITS: Final = ("max_steps", "max_wall_time_ms", "max_llm_tokens", "max_artifact_bytes_in_context")
_MOST_COST: Final = 1_000_000_000
_MICRO: Final = Decimal("0.000001")
# Our own context, because the caller's may round coarsely.
_EXACT: Final = Context(prec=28)


class Meter(StrEnum):
    """What is counted."""

    STEPS = "steps"
    WALL_TIME_MS = "wall_time_ms"
    LLM_TOKENS = "llm_tokens"
    COST_MICROS = "cost_micros"


Amounts: TypeAlias = Mapping[Meter, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The limits of one task; None means no limit. ``max_cost`` is in the currency of the prices."""

    max_steps: int | None = None
    max_wall_time_ms: int | None = None
    max_llm_tokens: int | None = None
    max_artifact_bytes_in_context: int | None = None
    max_cost: Decimal | float | None = None
    on_exhausted: OnExhausted = "fail"
    """"fail" ends the task, "ask" lets it wait for a person to extend the budget."""

    def __post_init__(self) -> None:
        """Reject limits that are not valid; keep the cost as an exact Decimal."""
        for name in _LIMITS:
            limit = getattr(self, name)
            if limit is not None and (type(limit) is not int or limit < 0):
                raise InvalidValue(f"{name} is {limit!r}; give a whole number of at least 0, or None for no limit")
        if self.max_cost is not None:
            object.__setattr__(self, "max_cost", from_micros(as_micros(self.max_cost, what="max_cost")))
        if self.on_exhausted not in get_args(OnExhausted):
            raise InvalidValue(f"on_exhausted is {self.on_exhausted!r}; choose fail or ask")

    def limits(self) -> dict[Meter, int]:
        """Return the limit of each meter that has one."""
        named = {
            Meter.STEPS: self.max_steps,
            Meter.WALL_TIME_MS: self.max_wall_time_ms,
            Meter.LLM_TOKENS: self.max_llm_tokens,
            Meter.COST_MICROS: None if self.max_cost is None else as_micros(self.max_cost, what="max_cost"),
        }
        return {meter: limit for meter, limit in named.items() if limit is not None}

    def tightened(self, other: Budget) -> Budget:
        """Return the smaller of each two limits; ``on_exhausted`` stays as in this budget."""
        named = {name: (getattr(self, name), getattr(other, name)) for name in (*_LIMITS, "max_cost")}
        least: dict[str, Any] = {
            name: min((one for one in both if one is not None), default=None) for name, both in named.items()
        }
        return replace(self, **least)

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON form, without what is not set."""
        cost: int | float | None = None
        if self.max_cost is not None:
            cost = int(self.max_cost) if self.max_cost == int(self.max_cost) else float(self.max_cost)
        return without_none(
            {name: getattr(self, name) for name in _LIMITS}
            | {"max_cost": cost, "on_exhausted": None if self.on_exhausted == "fail" else self.on_exhausted}
        )

    @classmethod
    def from_json(cls, value: JsonValue, path: str = "budget") -> Budget:
        """Read the JSON form; InvalidValue names the path of what is wrong."""
        read = JsonObject(value, path, (*_LIMITS, "max_cost", "on_exhausted"))
        limits = {name: read.optional_integer(name) for name in _LIMITS}
        try:
            return cls(
                **limits,
                max_cost=read.raw("max_cost") if "max_cost" in read else None,
                on_exhausted=cast("OnExhausted", read.optional_text("on_exhausted") or "fail"),  # checked there
            )
        except InvalidValue as error:
            raise InvalidValue(f"{path}: {error}") from None


@dataclass(frozen=True, slots=True)
class MeterLine:
    """One meter of a ledger."""

    limit: int | None = None
    spent: int = 0
    reserved: int = 0

    @property
    def remaining(self) -> int | None:
        """What can still be reserved; None without a limit, 0 when overspent."""
        return None if self.limit is None else max(0, self.limit - self.spent - self.reserved)


@dataclass(frozen=True, slots=True)
class Ledger:
    """The amounts of every meter. Each operation returns a new ledger and loses nothing between the columns."""

    lines: Mapping[Meter, MeterLine] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Give every meter a line, and make the lines read-only."""
        every = {meter: self.lines.get(meter, MeterLine()) for meter in Meter}
        object.__setattr__(self, "lines", MappingProxyType(every))

    @classmethod
    def of(cls, budget: Budget) -> Ledger:
        """Return the empty ledger of ``budget``."""
        return cls({meter: MeterLine(limit) for meter, limit in budget.limits().items()})

    def can_reserve(self, amounts: Amounts) -> bool:
        """Return whether ``reserve`` would succeed."""
        return self._first_exceeded(amounts) is None

    def reserve(self, amounts: Amounts) -> Ledger:
        """Set ``amounts`` aside before a call: all of them, or none and BudgetExceeded is raised."""
        exceeded = self._first_exceeded(amounts)
        if exceeded is not None:
            line = self.lines[exceeded]
            raise BudgetExceeded(
                meter=exceeded,
                limit=line.limit or 0,
                spent=line.spent,
                reserved=line.reserved,
                asked=amounts[exceeded],
            )
        return self._changed(reserved=amounts)

    def settle(self, reserved: Amounts, actual: Amounts) -> Ledger:
        """Turn a reservation into what was really used.

        An amount above the reservation is booked too, even past the limit. It has been used, and a ledger that hid it
        would let the next call overspend as well.
        """
        for meter, amount in reserved.items():
            if _check_amount(meter, amount) > self.lines[meter].reserved:
                raise InvalidValue(
                    f"cannot settle {amount} {meter}: only {self.lines[meter].reserved} are reserved; "
                    "settle each reservation once"
                )
        return self._changed(reserved={meter: -amount for meter, amount in reserved.items()}, spent=actual)

    def remaining(self, meter: Meter) -> int | None:
        """What can still be reserved; None without a limit."""
        return self.lines[meter].remaining

    def pressure(self, threshold: float = PRESSURE) -> tuple[Meter, ...]:
        """Return the meters of which at least ``threshold`` of the limit is spent or reserved."""
        return tuple(
            meter
            for meter, line in self.lines.items()
            if line.limit is not None and line.spent + line.reserved >= threshold * line.limit
        )

    def _first_exceeded(self, amounts: Amounts) -> Meter | None:
        for meter, amount in amounts.items():
            line = self.lines[meter]
            # A request for 0 always fits, even when the budget is overspent.
            asked = _check_amount(meter, amount)
            if asked and line.limit is not None and line.spent + line.reserved + asked > line.limit:
                return meter
        return None

    def _changed(self, *, reserved: Amounts, spent: Amounts = MappingProxyType({})) -> Ledger:
        for meter, amount in spent.items():
            _check_amount(meter, amount)
        return Ledger(
            {
                meter: MeterLine(line.limit, line.spent + spent.get(meter, 0), line.reserved + reserved.get(meter, 0))
                for meter, line in self.lines.items()
            }
        )


def as_micros(cost: Decimal | float | str, *, what: str = "cost") -> int:
    """Return an amount of money in millionths; a finer amount is rejected, not rounded."""
    try:
        # Convert through text: 0.1 is then exactly a tenth, not the nearest float.
        exact = Decimal(str(cost))
    except InvalidOperation:
        exact = Decimal("NaN")
    # Check the range first: infinity cannot be rounded, and a huge exponent would give a million digits.
    in_range = not isinstance(cost, bool) and not exact.is_nan() and 0 <= exact <= _MOST_COST
    if not in_range or exact != (rounded := exact.quantize(_MICRO, context=_EXACT)):
        raise InvalidValue(f"{what} is {cost!r}; give 0 to {_MOST_COST:,} with at most six decimals")
    return int(rounded.scaleb(6, context=_EXACT))


def from_micros(micros: int) -> Decimal:
    """Return millionths as an amount of money."""
    exact = _EXACT.multiply(Decimal(micros), _MICRO)
    # Normalised, 100.000000 would read 1E+2.
    return Decimal(int(exact)) if exact == int(exact) else exact.normalize(_EXACT)


def _check_amount(meter: Meter, amount: int) -> int:
    if type(amount) is not int or amount < 0:
        raise InvalidValue(f"{amount!r} {meter} cannot be booked; amounts are whole numbers of at least 0")
    return amount
