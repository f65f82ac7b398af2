"""The books of an agent's budget, as last read: what is left, what a call may take, and which account is short."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from holdfast.agent.prices import Price
from holdfast.model.budget import PRESSURE, Budget, Meter, from_micros
from holdfast.model.errors import BudgetExceeded
from holdfast.model.message import Usage
from holdfast.model.patch import StatePatch
from holdfast.model.records import Account

LEAST_OUTPUT = 16
"""Tokens. With less room than this for its answer, a model is not called, unless its answers are limited to less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a model call will take, as estimated before it."""

    input_tokens: int
    output_tokens: int
    """At most."""

    @property
    def least(self) -> Usage:
        """The least room that the call needs; with less it is not made."""
        return Usage(input_tokens=self.input_tokens, output_tokens=min(LEAST_OUTPUT, self.output_tokens))


@dataclass(frozen=True, slots=True)
class ShortAccount:
    """An account that does not have the requested amount."""

    line: Account
    asked: int

    @property
    def missing(self) -> int:
        """By how much its limit would have to be higher; that includes what was overspent."""
        return self.asked - _left(self.line)

    @property
    def is_only_reserved(self) -> bool:
        """Whether the amount would fit if other tasks had nothing reserved."""
        return self.line.reserved > 0 and self.asked <= (self.line.limit or 0) - self.line.spent

    @property
    def error(self) -> BudgetExceeded:
        """The exception for it."""
        line = self.line
        return BudgetExceeded(
            meter=line.meter, limit=line.limit or 0, spent=line.spent, reserved=line.reserved, asked=self.asked
        )


class Books:
    """The accounts that an agent uses: its own first, then those of the agents that called it."""

    def __init__(self, own: str, price: Price) -> None:
        """``own`` is the account of the agent's task."""
        self.own = own
        self.price = price
        self.lines: dict[str, dict[str, Account]] = {own: {}}

    @property
    def is_limited(self) -> bool:
        """Whether any account has a limit."""
        return any(line.limit is not None for lines in self.lines.values() for line in lines.values())

    def limit(self, meter: Meter) -> int | None:
        """Return the limit of the agent's own account."""
        line = self.lines[self.own].get(meter)
        return None if line is None else line.limit

    def left(self, meter: Meter) -> int | None:
        """Return what is left on the tightest of the accounts; None if nothing limits it."""
        return min(map(_left, self._limited(meter)), default=None)

    def room(self, need: Need) -> int | None:
        """Return how many tokens the answer may have for the call to fit; None if nothing limits them."""
        rooms = [room for _, room in self._rooms(need)]
        return min([need.output_tokens, *rooms]) if rooms else None

    def _rooms(self, need: Need) -> list[tuple[Account, int]]:
        """Return the accounts that limit an answer, each with the tokens it leaves for it."""
        rooms = [(line, _left(line) - need.input_tokens) for line in self._limited(Meter.LLM_TOKENS)]
        if self.price.output:
            paid, each = self.price.micros(Usage(input_tokens=need.input_tokens)), Fraction(self.price.output)
            rooms += [(line, math.floor((_left(line) - paid) / each)) for line in self._limited(Meter.COST_MICROS)]
        return rooms

    def amounts(self, usage: Usage, steps: int) -> dict[str, int]:
        """Return these tokens and steps as amounts by meter; meters with zero are left out."""
        amounts = {
            Meter.STEPS: steps,
            Meter.LLM_TOKENS: usage.total,
            Meter.COST_MICROS: self.price.micros(usage),
        }
        return {str(meter): amount for meter, amount in amounts.items() if amount > 0}

    def first_short(self, amounts: Mapping[str, int], need: Need | None = None) -> ShortAccount | None:
        """Return the first account without these amounts, or without enough room for an answer to this call."""
        clock = self.lines[self.own].get(Meter.WALL_TIME_MS)
        if clock is not None and clock.limit is not None and clock.spent >= clock.limit:
            return ShortAccount(clock, 1)
        least = {} if need is None else self.amounts(need.least, 0)
        for lines in self.lines.values():
            for meter, asked in amounts.items():
                line = lines.get(meter)
                if line is not None and line.limit is not None and asked > _left(line):
                    return ShortAccount(line, max(asked, least.get(meter, 0)))
        tight = None if need is None else min(self._rooms(need), key=lambda one: one[1], default=None)
        if need is None or tight is None or tight[1] >= need.least.output_tokens:
            return None
        return ShortAccount(tight[0], least[tight[0].meter])

    def _limited(self, meter: Meter) -> list[Account]:
        lines = [lines[meter] for lines in self.lines.values() if meter in lines]
        return [line for line in lines if line.limit is not None]

    def pressure(self, amounts: Mapping[str, int]) -> bool:
        """Return whether these amounts bring any limit of its own account near its end."""
        return any(
            line.limit is not None and line.spent + amounts.get(meter, 0) >= PRESSURE * line.limit
            for meter, line in self.lines[self.own].items()
        )


def _left(line: Account) -> int:
    return (line.limit or 0) - line.spent - line.reserved


def limits_patch(budget: Budget, lines: Mapping[str, Account]) -> StatePatch | None:
    """Return the patch that copies the limits of the account into the agent's state; None if they are equal."""
    limits = {meter: line.limit for meter, line in lines.items()}
    cost = limits.get(Meter.COST_MICROS)
    current = replace(
        budget,
        max_steps=limits.get(Meter.STEPS),
        max_wall_time_ms=limits.get(Meter.WALL_TIME_MS),
        max_llm_tokens=limits.get(Meter.LLM_TOKENS),
        max_cost=None if cost is None else from_micros(cost),
    )
    return None if current == budget else StatePatch(budget=current)


def in_words(meter: str, amount: int) -> str:
    """Return an amount with its unit, for people."""
    match meter:
        case Meter.COST_MICROS:
            return f"{from_micros(amount)}"
        case Meter.WALL_TIME_MS:
            return f"{amount / 1000:g} s"
        case Meter.LLM_TOKENS:
            return f"{amount} tokens"
        case _:
            return f"{amount} {meter}"
