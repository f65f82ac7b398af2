"""One model call as a step: admitted by the budget, streamed to watchers, recorded, and never repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

from holdfast.agent.budget import PRESSURE_FLAG, Accounting
from holdfast.agent.budget_figures import Need
from holdfast.agent.fixed_arguments import FixedArguments
from holdfast.agent.model import Model, ModelError, Request
from holdfast.agent.prompt import estimate_prompt
from holdfast.agent.run_state import ENGINE, StateKeeper
from holdfast.agent.text_stream import TextStream
from holdfast.agent.transcript import LLM, RecordedAnswer
from holdfast.agent.usage import lost_usage, settled_usage
from holdfast.engine.attempt.attempt import Attempt
from holdfast.engine.attempt.journal import reopened
from holdfast.engine.steps.call import Call
from holdfast.engine.steps.step import perform
from holdfast.model.codec import encode
from holdfast.model.errors import BudgetExceeded, CodecError, InvalidValue, StepFailed
from holdfast.model.limits import DEFAULT_LIMITS
from holdfast.model.message import Message, Reply, ToolCall, ToolSpec, Usage
from holdfast.model.operations import Operation, WriteStep
from holdfast.model.patch import StatePatch
from holdfast.model.retry import Retry, qualified_name
from holdfast.model.step import StepState

LONG_ANSWER = 8_192
"""Tokens."""

_MOST_BYTES_OF_A_CHARACTER = 6
"""In JSON, which writes some characters as escapes."""


class ModelCalls:
    """The model calls of one attempt."""

    def __init__(
        self,
        attempt: Attempt,
        model: Model,
        accounting: Accounting,
        keeper: StateKeeper,
        *,
        read: Callable[[ToolCall], FixedArguments] | None = None,
        retry: Retry,
        timeout: float,
        max_output_tokens: int | None,
        limits: tuple[str, ...] = (),
    ) -> None:
        """``read`` reads the arguments of a tool call, once: its result is recorded with the answer.

        ``max_output_tokens`` is the most an answer may have if the budget allows more.

        None: the model decides; with a limited budget, LONG_ANSWER is then reserved. ``limits`` are keys of
        limits: each try of a call needs a permit for them, which counts the tokens that the call used.
        """
        self._attempt = attempt
        self._model = model
        self._accounting = accounting
        self._keeper = keeper
        self._read = read
        self._retry = retry
        self._timeout = timeout
        self._max_output_tokens = max_output_tokens
        self._limits = limits

    def is_recorded(self, key: str) -> bool:
        """Return whether the answer is in the journal: then it counts, and the model is not called."""
        recorded = self._attempt.journal.get(key)
        return recorded is not None and recorded.state is StepState.COMPLETED

    async def ask(
        self,
        key: str,
        prompt: Callable[[], tuple[Message, ...]],
        tools: tuple[ToolSpec, ...] = (),
        *,
        turn: int,
        then: Callable[[RecordedAnswer, Call], tuple[Operation, ...]] = lambda _answer, _call: (),
        is_lazy: bool = False,
    ) -> RecordedAnswer:
        """Return the answer under ``key``: the recorded one, or a new one.

        ``prompt`` is called only for a new one. ``then`` returns what is written together with the answer.
        """
        while True:
            held = _Held(self._accounting, key)
            messages: tuple[Message, ...] = ()
            if not self.is_recorded(key):
                await self._attempt.check()
                messages = prompt()
                held.room = await self._accounting.admit(key, self._need(messages, tools))
                held.is_taken = True
            call = self._call(key, messages, tools, turn, held)
            call.is_lazy = is_lazy
            call.also = partial(self._consequences, call, then)
            try:
                return RecordedAnswer.of(await perform(self._attempt, call))
            except StepFailed as failed:
                if not self._attempt.discovery.is_under_way:
                    await held.give_back()
                if qualified_name(BudgetExceeded) not in failed.failure.type_names:
                    raise
                # The budget was spent between two tries of the call: ask for more, as before any other call.
                step = self._attempt.journal.get(key)
                assert step is not None  # noqa: S101 - it has just failed
                await self._attempt.check()
                await self._attempt.outbox.commit(WriteStep(reopened(step)))

    def _need(self, messages: tuple[Message, ...], tools: tuple[ToolSpec, ...]) -> Need:
        return Need(input_tokens=estimate_prompt(messages, tools), output_tokens=self._max_output_tokens or LONG_ANSWER)

    def _call(
        self, key: str, messages: tuple[Message, ...], tools: tuple[ToolSpec, ...], turn: int, held: _Held
    ) -> Call:
        tries, need = count(1), partial(self._need, messages, tools)

        async def complete(effect_id: str) -> dict[str, Any]:
            await held.take(need())
            most = self._max_output_tokens if held.room is None else held.room
            request = Request(messages=messages, tools=tools, max_output_tokens=most, effect_id=effect_id, turn=turn)
            stream = TextStream(self._attempt, key, next(tries))
            try:
                reply = await self._model.complete(request, stream)
                self._check(reply)
            except asyncio.CancelledError:
                held.lost = lost_usage(request, stream)  # it may be a timeout: then another try follows
                _count(call, held.lost)
                raise
            except Exception:
                # An endpoint that refused at once has sent nothing. If it failed in mid-stream, it has used tokens.
                held.lost = lost_usage(request, stream) if stream.has_begun else Usage()
                _count(call, held.lost)
                await held.give_back()  # now: the next try may come much later
                raise
            else:
                usage = settled_usage(request, reply, stream)
                _count(call, usage)
            finally:
                await stream.close()
            if reply.tool_calls:
                await self._keeper.refresh()  # a rule that requires an approval may be new: it counts for these calls
            return self._answer(replace(reply, usage=usage)).to_data()

        async def reserve() -> None:
            with suppress(BudgetExceeded):  # the call raises it again, as the failure of its try
                await held.take(need())

        call = Call(key, complete, (), self._retry, self._timeout, dict, kind=LLM)
        if self._limits:
            estimate = need()
            call.limits, call.tokens = self._limits, estimate.input_tokens + estimate.output_tokens
            call.prepare = reserve
        return call

    def _consequences(
        self, call: Call, then: Callable[[RecordedAnswer, Call], tuple[Operation, ...]], data: dict[str, Any]
    ) -> tuple[Operation, ...]:
        answer = RecordedAnswer.of(data)
        usage = answer.reply.usage or Usage()
        booked = self._accounting.settle(call.key, usage, answer.steps)
        return booked + self._pressure(call.key, usage, answer.steps) + then(answer, call)

    def _check(self, reply: object) -> None:
        """Refuse a value that is not a Reply, and a reply that is too large for the journal."""
        if not isinstance(reply, Reply):
            raise InvalidValue(f"model {self._model.name} returned {reply!r}; complete() has to return a Reply")
        written = [reply.content, *(call.name + call.arguments for call in reply.tool_calls)]
        if sum(map(len, written)) * _MOST_BYTES_OF_A_CHARACTER < DEFAULT_LIMITS.max_bytes // 2:
            return
        try:
            encode(RecordedAnswer(reply, 1).to_data(), name="the answer")
        except CodecError as error:
            raise ModelError(f"model {self._model.name} wrote more than can be stored ({error})") from error

    def _answer(self, reply: Reply) -> RecordedAnswer:
        calls = len(reply.tool_calls)
        readings = None if self._read is None else tuple(map(self._read, reply.tool_calls))
        return RecordedAnswer(reply, 1 + calls if self._accounting.can_afford(calls) else 1, readings)

    def _pressure(self, key: str, usage: Usage, steps: int) -> tuple[Operation, ...]:
        flags = self._keeper.state.risk_flags
        books = self._accounting.books
        is_pressed = books.pressure(books.amounts(usage, steps))
        if is_pressed == (PRESSURE_FLAG in flags):
            return ()
        flag = (PRESSURE_FLAG,)
        patch = StatePatch(set_flags=flag) if is_pressed else StatePatch(clear_flags=flag)
        return self._keeper.change(patch, author=ENGINE, reason="budget", step_key=key)


def _count(call: Call, usage: Usage) -> None:
    """Note what a try has used, for the limits of its permit."""
    if call.permit is not None:
        call.permit.tokens = usage.input_tokens + usage.output_tokens


class _Held:
    """The reservation of one model call, over its tries."""

    def __init__(self, accounting: Accounting, key: str) -> None:
        self._accounting = accounting
        self._key = key
        self.is_taken = False
        self.room: int | None = None
        """Tokens the answer may have; None: no limit."""
        self.lost: Usage | None = None
        """What a failed try has probably used."""

    async def take(self, need: Need) -> None:
        """Make the reservation for a try, unless it exists."""
        if self.lost is not None:
            await self.give_back()
        if not self.is_taken:
            self.room = await self._accounting.take(self._key, need)
            self.is_taken = True

    async def give_back(self) -> None:
        """Book what was lost, and release the rest."""
        if self.is_taken:
            self.is_taken, lost = False, self.lost or Usage()
            self.lost = None
            await self._accounting.give_back(self._key, lost)
