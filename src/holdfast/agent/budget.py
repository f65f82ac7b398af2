"""The agent's budget: reserved before a model call, settled in the Commit that records the answer.

An agent uses its own account and those of the agents that called it. What a dead worker had reserved counts as spent,
because the real amount is unknown. Only steps are known exactly, from the journal. They are not counted again when the
call is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from holdfast.agent.budget_figures import Books, Need, ShortAccount, in_words
from holdfast.agent.notes import noted
from holdfast.agent.prices import Price, price_of, unpriced
from holdfast.engine.attempt.attempt import Attempt
from holdfast.engine.attempt.journal import RESERVED
from holdfast.engine.manage.budget import BUDGET, new_limit
from holdfast.engine.runtime.store_retry import call_store
from holdfast.engine.steps.approval import KIND as APPROVAL_STEP
from holdfast.engine.steps.approval import decision
from holdfast.model.approval import Approval, Ask
from holdfast.model.budget import Budget, Meter
from holdfast.model.canonical import canonical
from holdfast.model.codec import decode
from holdfast.model.errors import BudgetExceeded, InvalidValue, Rejected
from holdfast.model.message import Usage
from holdfast.model.operations import Operation, Reserve, SetLimits, Settle, SettleStale, WriteStep
from holdfast.model.records import Account
from holdfast.model.task import JsonValue

if TYPE_CHECKING:
    from holdfast.agent.agent import Agent

PRESSURE_FLAG = "budget_pressure"
TAKEN_OVER = "taken_over"
"""The kind of the line that records what a dead worker had reserved."""

WAIT_FOR_OTHERS = 0.25
"""Seconds between two polls of an account whose rest other tasks have reserved."""

_ASKED = f"{RESERVED}{BUDGET}:"


class Accounting:
    """The accounts that one attempt at an agent's task uses."""

    def __init__(
        self,
        attempt: Attempt,
        budget: Budget,
        price: Price,
        deciders: Sequence[str] = (),
        *,
        has_no_price: str | None = None,
    ) -> None:
        """``budget`` is the agent's own: a person (one of ``deciders``) who approves more grants the same again.

        ``has_no_price`` is the reason why the price is not known, if it is not.
        """
        self._attempt = attempt
        self._budget = budget
        self._has_no_price = has_no_price
        self._deciders = tuple(deciders)
        self.books = Books(attempt.task.id, price)
        limit = attempt.time_limit
        self._names: tuple[str, ...] = (attempt.task.id, *(() if limit is None else limit.above))
        self._counted: dict[str, int] = {}
        """Steps that are already counted, by the key of the call: their worker died during it."""
        self._clock_ms = self._booked_ms = 0
        """The wall time when the books were last read, and how much of it was booked: a booking that waits to be sent
        is not stored yet. The wall time is computed again each time; the account is for people."""

    @property
    def is_shared(self) -> bool:
        """Whether other tasks may use the same accounts at the same time."""
        return len(self._names) > 1

    # The accounts

    async def open(self) -> None:
        """Count what dead workers had reserved."""
        for step in self._attempt.journal.completed(TAKEN_OVER):
            self._count(decode(step.output or b""))
        loaded = self._attempt.loaded
        stale = [] if loaded is None else [one for one in loaded.reservations if one.fence < self._attempt.task.fence]
        key = f"{RESERVED}{TAKEN_OVER}:{self._attempt.task.fence}"
        if not stale or self._attempt.discovery.is_under_way or self._attempt.journal.get(key) is not None:
            return
        left = [
            {"account": one.account, "meter": one.meter, "step": one.step_key, "amount": one.amount} for one in stale
        ]
        await self._attempt.outbox.commit(SettleStale(), WriteStep(noted(self._attempt, key, TAKEN_OVER, left)))
        self._count(left)

    def _count(self, left: list[dict[str, JsonValue]]) -> None:
        for one in left:
            if one["meter"] == Meter.STEPS and one["account"] == self._attempt.task.id:
                self._counted[one["step"]] = self._counted.get(one["step"], 0) + one["amount"]

    async def read(self) -> None:
        """Read the books again."""
        store = self._attempt.services.store
        for name in self._names:
            lines = await call_store(partial(store.accounts, name))
            self.books.lines[name] = {line.meter: line for line in lines}
            cost = self.books.lines[name].get(Meter.COST_MICROS)
            if self._has_no_price is not None and cost is not None and cost.limit is not None:
                # An agent was deployed without its prices, or the limit belongs to a caller in another process.
                raise InvalidValue(
                    f"task {name} has a max_cost, which would never be reached: {self._has_no_price}; then resume it"
                )
        limit = self._attempt.time_limit
        if limit is not None:
            await limit.read(self.books.lines)
            for name in self._names:
                self._read_clock(name, limit.spent(name))

    def _read_clock(self, name: str, spent: int | None) -> None:
        clock = self.books.lines[name].get(Meter.WALL_TIME_MS)
        if clock is None or spent is None:
            return
        self.books.lines[name][Meter.WALL_TIME_MS] = replace(clock, spent=spent)
        if name == self.books.own:
            self._clock_ms, self._booked_ms = spent, max(self._booked_ms, clock.spent)

    # Before a model call

    async def admit(self, key: str, need: Need) -> int | None:
        """Reserve what the call may take; return the tokens its answer may have, None if there is no limit.

        If it does not fit, it raises BudgetExceeded or waits for a person to raise the limit, as the budget defines.
        """
        while True:
            taken = await self._take(key, need)
            if not isinstance(taken, ShortAccount):
                return taken
            await self._exhausted(taken)

    async def take(self, key: str, need: Need) -> int | None:
        """Reserve what the call may take, if it fits. Raises BudgetExceeded."""
        taken = await self._take(key, need)
        if isinstance(taken, ShortAccount):
            raise taken.error
        return taken

    async def _take(self, key: str, need: Need) -> int | ShortAccount | None:
        while True:
            await self.read()
            room = self.books.room(need)
            output = need.output_tokens if room is None else max(0, room)
            usage = Usage(input_tokens=need.input_tokens, output_tokens=output)
            amounts = self.books.amounts(usage, 1 - self._counted.get(key, 0))
            short = self.books.first_short(amounts, need)
            if short is None:
                await self._attempt.check()  # the time of a task above may be spent
            if short is not None and short.is_only_reserved and self.is_shared:
                # Other tasks hold it for calls under way, and release what those calls do not use.
                await self._attempt.services.alarms.sleep(WAIT_FOR_OTHERS)
                await self._attempt.check()
                continue
            if short is not None:
                return short
            try:
                await self._reserve(key, amounts)
            except BudgetExceeded:
                continue  # another task that shares the account was faster
            return room

    async def _reserve(self, key: str, amounts: Mapping[str, int]) -> None:
        operations = []
        for name, lines in self.books.lines.items():
            limited = {
                meter: amount
                for meter, amount in amounts.items()
                if (line := lines.get(meter)) is not None and line.limit is not None
            }
            if limited:
                operations.append(Reserve(account=name, step_key=key, amounts=limited))
        if operations:
            await self._attempt.outbox.commit(*operations)

    async def admit_steps(self, key: str, count: int) -> None:
        """Count, once, ``count`` more steps that the answer to the call ``key`` asked for and could not afford."""
        marker = f"{RESERVED}steps:{key}"
        while self._attempt.journal.get(marker) is None:
            await self.read()
            short = self.books.first_short({str(Meter.STEPS): count})
            if short is not None:
                await self._exhausted(short)
                continue
            amounts = {str(Meter.STEPS): count}
            reserve = [Reserve(account=name, step_key=marker, amounts=amounts) for name in self._names]
            settle = [Settle(account=name, step_key=marker, amounts=amounts) for name in self._names]
            try:
                await self._attempt.outbox.commit(
                    *reserve, *settle, WriteStep(noted(self._attempt, marker, "steps", count))
                )
            except BudgetExceeded:
                continue  # another task that shares the account was faster

    async def check_time(self) -> None:
        """Raise BudgetExceeded, or ask a person, if the time is up. Called before something new begins."""
        while True:
            await self.read()
            short = self.books.first_short({})
            if short is None:
                await self._attempt.check()
                return
            await self._exhausted(short)

    def can_afford(self, steps: int) -> bool:
        """Return whether so many steps fit in addition to the call under way, by the last read of the books."""
        left = self.books.left(Meter.STEPS)
        # What is left in a shared account may have changed since: it has to be reserved.
        return left is None or (not self.is_shared and steps + 1 <= left)

    # After it

    def settle(self, key: str, usage: Usage, steps: int) -> tuple[Operation, ...]:
        """Return the operations that book the real use of a call, for the Commit that records it."""
        amounts = self.books.amounts(usage, steps - self._counted.get(key, 0))
        booked = [Settle(account=name, step_key=key, amounts=amounts) for name in self._names]
        if self._clock_ms > self._booked_ms:
            passed = {str(Meter.WALL_TIME_MS): self._clock_ms - self._booked_ms}
            booked.append(Settle(account=self.books.own, step_key=key, amounts=passed))
            self._booked_ms = self._clock_ms
        return tuple(booked)

    async def give_back(self, key: str, usage: Usage) -> None:
        """Book what a failed call used, and release the rest of its reservation."""
        used = self.books.amounts(usage, 0)
        if used or self.books.is_limited:
            await self._attempt.outbox.commit(
                *(Settle(account=name, step_key=key, amounts=used) for name in self._names)
            )

    # When it is spent

    async def _exhausted(self, short: ShortAccount) -> None:
        """Raise BudgetExceeded; or wait until a person grants more, and record the grant."""
        line = short.line
        is_time, limit = line.meter == Meter.WALL_TIME_MS, self._attempt.time_limit
        if self._budget.on_exhausted == "fail" or line.account != self.books.own:
            if is_time:
                await self._attempt.check()  # this ends the attempt as a deadline does
            raise short.error
        grant = max(self._budget.limits().get(Meter(line.meter)) or line.limit or 0, short.missing)
        question = (
            f"The budget is spent: {in_words(line.meter, line.spent)} of {in_words(line.meter, line.limit or 0)}. "
            f"Approve to grant {in_words(line.meter, grant)} more, or answer with a new limit in the same unit."
        )
        answered = sum(step.key.startswith(_ASKED) for step in self._attempt.journal.completed(APPROVAL_STEP))
        details = canonical({"meter": line.meter, "limit": line.limit, "grant": grant})
        ask = Ask(question, deciders=self._deciders)
        granted = partial(_granted, line, grant)
        try:
            # The new limit is written with the decision: after a crash, nothing is asked or granted twice.
            with limit.held() if is_time and limit is not None else nullcontext():
                await decision(self._attempt, f"{_ASKED}{answered + 1}", ask, details, kind=BUDGET, also=granted)
        except Rejected as rejected:
            raise short.error from rejected


def accounting_of(attempt: Attempt, agent: Agent, model: str) -> Accounting:
    """Return the accounts of an agent's task, for calls of a model."""
    has_no_price = None if model in agent.prices else unpriced(model, agent.name)
    price = price_of(agent.prices, model)
    return Accounting(attempt, agent.budget, price, agent.deciders, has_no_price=has_no_price)


def _granted(line: Account, grant: int, approval: Approval) -> tuple[Operation, ...]:
    """Return the new limit of the account after a person's decision."""
    if isinstance(approval.answer, dict):
        return ()  # the decider has set the limits with the answer
    limit = (line.limit or 0) + grant
    if approval.answer is not None:
        limit = new_limit(line.meter, approval.answer)
    return (SetLimits(account=line.account, limits={line.meter: limit}),)
