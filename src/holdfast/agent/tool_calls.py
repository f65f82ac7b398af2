"""The tool calls of an answer: which tool, on which terms, and with whose approval."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from holdfast.agent.builtins import ASK_QUESTION
from holdfast.agent.earlier_calls import TakenEffect
from holdfast.agent.finish_reason import why_not_made
from holdfast.agent.fixed_arguments import FixedArguments
from holdfast.agent.subagent import SubAgent
from holdfast.agent.tool import BadArguments, Tool, ToolError
from holdfast.agent.tool_call import Invocation, approval_question, clear_up, record, refusal
from holdfast.agent.transcript import UNKNOWN, RecordedAnswer, error_message, tool_key, tool_message
from holdfast.engine.api.new_task import new_task
from holdfast.engine.attempt.journal import RESERVED
from holdfast.engine.effects.carried_intents import arm
from holdfast.engine.steps import approval, children
from holdfast.engine.steps.approval import QUESTION, decision
from holdfast.engine.steps.call import Call, arguments_of, effect_id
from holdfast.engine.steps.one_try import begin, failure_of
from holdfast.engine.steps.step import perform
from holdfast.model.agent_state import KnownFact
from holdfast.model.approval import Ask
from holdfast.model.canonical import canonical, digest, parse
from holdfast.model.checkpoints import CheckpointStrategy
from holdfast.model.codec import decode, encode
from holdfast.model.effect import NOT_MADE, Effect, EffectClass
from holdfast.model.errors import InvalidValue, Rejected, StepFailed, TaskCancelled, TaskFailed
from holdfast.model.failure import storable
from holdfast.model.message import Message, ToolCall
from holdfast.model.operations import Operation
from holdfast.model.patch import StatePatch
from holdfast.model.retry import qualified_name
from holdfast.model.state_size import TEXT_BYTES, check_size
from holdfast.model.step import OVER, Step, StepState
from holdfast.model.task import JsonValue

if TYPE_CHECKING:
    from holdfast.agent.run import AgentRun

MODEL = "model"
"""The author of the model's own changes."""

_SENSELESS = qualified_name(BadArguments)
_LONGEST_FAULT = 4_000
"""Characters of the error about a wrong call."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a call."""

    message: Message
    is_senseless: bool = False
    """There is no such tool, or it cannot be called like that."""


class Dispatcher:
    """Makes the calls of one attempt."""

    def __init__(self, run: AgentRun) -> None:
        """``run`` is the attempt they belong to."""
        self._run = run
        self._made: dict[str, Call] = {}
        """Calls that were armed in the Commit of their answer."""

    def read(self, asked: ToolCall) -> FixedArguments:
        """Read the arguments of a call that the model has just asked for: once, for all attempts."""
        tool = self._run.agent.tools.get(asked.name)
        try:
            if tool is None:
                raise self._no_such_tool(asked.name)
            return FixedArguments(tool.read(asked.arguments))
        except BadArguments as error:
            return FixedArguments({}, wrong=storable(str(error), _LONGEST_FAULT))

    def has_side_effects(self, calls: Iterable[ToolCall]) -> bool:
        """Return whether any of the calls does more than read: then the answer must be durable before it is made."""
        tools = [self._run.agent.tools.get(call.name) for call in calls]
        return any(
            isinstance(tool, SubAgent)
            or (isinstance(tool, Tool) and (tool.effect is not EffectClass.PURE or tool is ASK_QUESTION))
            for tool in tools
        )

    def arm(self, turn: int, answer: RecordedAnswer) -> tuple[Operation, ...]:
        """Return the intents of the ``once`` calls of a new answer that need no approval."""
        armed = []
        for index, asked in enumerate(answer.reply.tool_calls):
            tool, reading = self._run.agent.tools.get(asked.name), answer.reading(index)
            if reading is None or reading.wrong is not None:
                continue
            if not isinstance(tool, Tool) or tool.effect is not EffectClass.ONCE or self._ask_for(tool, {}) is not None:
                continue
            if why_not_made(asked, answer.reply.finish_reason) is not None:
                continue
            key = self._key(turn, index, asked)
            call = self._call(key, tool, reading.arguments)
            if not tool.terms.repeat and self._run.past.may_have_made(tool.name, call, asked.arguments):
                continue  # the step itself checks that
            self._made[key] = call
            armed.append(call)
        return arm(self._run.attempt, armed)

    def announce(self, turn: int, answer: RecordedAnswer) -> None:
        """Announce how calls of an earlier round can be undone: this round does not replay them."""
        for index, asked in enumerate(answer.reply.tool_calls):
            self._announce(self._key(turn, index, asked), asked, answer.reading(index))

    def _announce(self, key: str, asked: ToolCall, reading: FixedArguments | None) -> None:
        tool = self._run.agent.tools.get(asked.name)
        if not isinstance(tool, Tool) or (reading is not None and reading.wrong is not None):
            return
        with suppress(BadArguments):
            arguments = self._written_down(key) or (reading.arguments if reading else tool.read(asked.arguments))
            call = Invocation(self._run, key, tool, arguments).call(None)
            if call.terms is not None:
                self._run.attempt.discovery.announce(call)

    def is_over(self, turn: int, calls: Iterable[ToolCall]) -> bool:
        """Return whether the journal has the results of all these calls."""
        return all(self._is_over(self._key(turn, index, call)) for index, call in enumerate(calls))

    async def perform(self, turn: int, index: int, answer: RecordedAnswer) -> Result:
        """Make a call, or read its recorded result, and return what the model sees of it."""
        asked, reading = answer.reply.tool_calls[index], answer.reading(index)
        key = self._key(turn, index, asked)
        try:
            output = await self._perform(key, asked, reading, answer.reply.finish_reason)
        except StepFailed as failed:
            return Result(error_message(asked.id, failed.failure), is_senseless=failed.type_name == _SENSELESS)
        return Result(tool_message(asked.id, output))

    async def _perform(self, key: str, asked: ToolCall, reading: FixedArguments | None, finish_reason: str) -> Any:  # noqa: ANN401
        """Return a recorded result, even if the tool was changed; resolve a call in doubt; or make the call."""
        run, tool = self._run, self._run.agent.tools.get(asked.name)
        recorded = run.attempt.journal.get(key)
        if recorded is not None and self._is_over(key):
            return self._replay(key, asked, reading, recorded)
        effect = self._open_effect(recorded)
        if effect is not None:
            return await self._clear_up(key, tool, asked, effect)
        why_not = why_not_made(asked, finish_reason)
        if why_not is not None:
            return await perform(run.attempt, refusal(key, BadArguments(why_not)))
        try:
            return await self._begin(key, tool, asked, reading)
        except BadArguments as error:
            await approval.withdraw(run.attempt, self._effect_id(key), "the call cannot be made any more")
            return await perform(run.attempt, refusal(key, error))

    async def _begin(
        self, key: str, tool: Tool | SubAgent | None, asked: ToolCall, reading: FixedArguments | None
    ) -> Any:  # noqa: ANN401
        run = self._run
        if reading is not None and reading.wrong is not None:
            raise BadArguments(reading.wrong)
        if tool is None:
            raise self._no_such_tool(asked.name)
        arguments = await self._arguments(key, tool, asked, reading)
        if isinstance(tool, SubAgent):
            return await self._delegate(key, tool, str(arguments["request"]))
        if tool is ASK_QUESTION:
            return await self._ask(key, str(arguments["question"]))
        call = self._made.pop(key, None)
        if call is None or self._ask_for(tool, arguments) is not None:  # a new rule may require an approval
            call = self._call(key, tool, arguments)
        call.is_lazy = run.is_lazy and tool.effect is EffectClass.PURE
        recorded = run.attempt.journal.get(key)
        self._check_fits(call, tool, recorded)
        if tool.effect is EffectClass.ONCE and not tool.terms.repeat and (recorded is None or not recorded.effect_id):
            try:
                taken = await run.past.take(tool.name, call, asked.arguments)
            except ToolError as error:
                return await perform(run.attempt, refusal(key, error))
            if isinstance(taken, TakenEffect):
                return await self._take_over(call, taken)
            if taken is not None:  # with the arguments recorded then: a default factory would give other values
                arguments = arguments if taken.arguments is None else taken.arguments
                call = replace(self._call(key, tool, arguments), stands_for=taken.key)
        output = await self._make(call)
        run.save(CheckpointStrategy.EVERY_STEP)
        return output

    async def _take_over(self, call: Call, taken: TakenEffect) -> Any:  # noqa: ANN401
        """Record the call of a sibling as this call: it is not made again."""
        attempt, output = self._run.attempt, taken.output
        if output is None:  # the sibling died before it recorded the result, which a reconcile or a person gave
            assert call.accept_result is not None  # noqa: S101 - every call of a tool has it
            output = encode(await call.accept_result(parse(taken.effect.result or b"null")), name=f"step {call.key!r}")
        value = decode(output, name=f"step {call.key!r}")
        line = begin(attempt, call, attempt.journal.get(call.key), digest(arguments_of(call)))
        line.effect_id = taken.effect.effect_id
        now = attempt.services.time.now()
        done = line.written(attempt.task, StepState.COMPLETED, output=output, finished_at=now)
        await attempt.outbox.commit(done, *call.consequences(value))
        return value

    async def _make(self, call: Call) -> Any:  # noqa: ANN401
        try:
            return await perform(self._run.attempt, call)
        except Rejected as rejected:
            return await perform(self._run.attempt, refusal(call.key, rejected))

    def _replay(self, key: str, asked: ToolCall, reading: FixedArguments | None, recorded: Step) -> Any:  # noqa: ANN401
        """Return the recorded result of a call, even if the tool takes other arguments now."""
        self._announce(key, asked, reading)
        if recorded.state is StepState.FAILED:
            raise StepFailed(failure_of(recorded), step=key)
        return decode(recorded.output or b"", name=f"step {key!r}")

    # The arguments

    async def _arguments(
        self, key: str, tool: Tool | SubAgent, asked: ToolCall, reading: FixedArguments | None
    ) -> dict[str, JsonValue]:
        """Return the arguments of a call from their first record: its effect, its reading, or its question."""
        if (written := self._written_down(key)) is not None:
            return written
        if reading is not None:
            return reading.arguments
        # An older version recorded the answer. The arguments of its question to a person are those of the call.
        question = await approval.question_about(self._run.attempt, self._effect_id(key))
        if question is None:
            return tool.read(asked.arguments)
        [arguments] = decode(question.arguments_bytes, name=f"the arguments of {key!r}")
        return dict(arguments)

    def _written_down(self, key: str) -> dict[str, JsonValue] | None:
        """Return the arguments of a call's effect, in this round or an earlier one; None if it has no effect."""
        journal, effects = self._run.attempt.journal, self._run.attempt.intents.effects
        step = journal.get(key) or journal.earlier(key)
        effect = None if step is None else effects.get(step.effect_id or "")
        if effect is None or not effect.arguments_hash:
            return None
        [arguments] = decode(effect.arguments, name=f"the arguments of {key!r}")
        return dict(arguments)

    def _check_fits(self, call: Call, tool: Tool, recorded: Step | None) -> None:
        """Refuse a call whose tool was changed since. The model gets the error, and can call the changed tool.

        A call that a person has to approve, or has approved, goes to a person instead: see ``Call.misfit``.
        """
        why = call.why_unfit()
        if why is None:
            return
        effect = self._run.attempt.intents.effects.get((recorded and recorded.effect_id) or "")
        is_approved = effect is not None and effect.approval_id is not None
        is_asked_for = call.terms is not None and call.terms.ask is not None
        if tool.effect is not EffectClass.ONCE or not (is_approved or is_asked_for):
            raise BadArguments(why)

    def _effect_id(self, key: str) -> str:
        task, recorded = self._run.attempt.task, self._run.attempt.journal.get(key)
        known = "" if recorded is None else recorded.effect_id or ""
        if recorded is not None and known and recorded.undone_at is None:
            return known
        return effect_id(task.id, task.round, key, after=known)

    def _open_effect(self, recorded: Step | None) -> Effect | None:
        """Return the effect of a call that an earlier attempt may have made without recording its outcome."""
        intents = self._run.attempt.intents
        if recorded is None or recorded.effect_id is None or recorded.effect_id in intents.carried:
            return None
        effect = intents.effects.get(recorded.effect_id)
        return None if effect is None or effect.state in NOT_MADE or recorded.undone_at is not None else effect

    async def _clear_up(self, key: str, tool: Tool | SubAgent | None, asked: ToolCall, effect: Effect) -> Any:  # noqa: ANN401
        """Resolve such a call by its recorded arguments, even if the tool was changed or removed."""
        [arguments] = decode(effect.arguments, name=f"the arguments of {key!r}")
        if not isinstance(tool, Tool):
            return await self._make(clear_up(key, arguments, asked.name))
        call = self._call(key, tool, arguments)
        call.terms = replace(call.terms or tool.terms, effect=EffectClass.ONCE)
        return await self._make(call)

    def _no_such_tool(self, name: str) -> BadArguments:
        known = ", ".join(self._run.agent.tools) or "none"
        return BadArguments(f"there is no tool {storable(name, 100)!r}; there are: {known}")

    def _call(self, key: str, tool: Tool, arguments: dict[str, JsonValue]) -> Call:
        return Invocation(self._run, key, tool, arguments).call(self._ask_for(tool, arguments))

    def _ask_for(self, tool: Tool, arguments: dict[str, JsonValue]) -> Ask | None:
        """Return the question to a person before the call; None if it needs no approval."""
        run, agent = self._run, self._run.agent
        if not run.keeper.state.constraints.requires_approval(tool.risk):
            return None
        question = approval_question(tool, arguments) if arguments else f"May the agent call {tool.name}()?"
        return Ask(
            question,
            risk=tool.risk,
            deciders=agent.deciders,
            expires=agent.approval_expires,
            policy=digest(canonical(run.keeper.state.constraints.to_json()))[:12],
            requested_by=agent.name,
        )

    # Calls that wait

    async def _ask(self, key: str, question: str) -> Any:  # noqa: ANN401
        """Ask a person, and let the answer become a fact."""
        run, attempt = self._run, self._run.attempt
        asking = f"{RESERVED}question:{key}"
        try:
            ask = Ask(question, deciders=run.agent.deciders, requested_by=run.agent.name)
            if attempt.journal.get(asking) is None:
                check_size("the question", question, TEXT_BYTES)
        except InvalidValue as error:
            return await perform(attempt, refusal(key, BadArguments(str(error))))
        if attempt.journal.get(asking) is None:
            await attempt.check()
            await run.save_before_change()
            asked = StatePatch(add_questions=(question,))
            attempt.outbox.buffer(*run.keeper.change(asked, author=MODEL, step_key=key))
        try:
            decided = await decision(attempt, asking, ask, canonical(None), kind=QUESTION, about=key)
        except Rejected as rejected:
            attempt.outbox.buffer(*self._resolve(key, question, None))
            return await perform(attempt, refusal(key, rejected))
        fact = KnownFact(key=question, value=decided.answer, source=f"human:{decided.by}", at=decided.at)
        call = record(run, key, ASK_QUESTION.name, decided.answer, lambda: self._resolve(key, question, fact))
        return await perform(attempt, call)

    def _resolve(self, key: str, question: str, fact: KnownFact | None) -> tuple[Operation, ...]:
        keeper = self._run.keeper
        patch = StatePatch(
            resolve_questions=(question,) if question in keeper.state.open_questions else (),
            append_facts=() if fact is None else (fact,),
        )
        return keeper.change(patch, author=MODEL if fact is None else fact.source, step_key=key)

    async def _delegate(self, key: str, sub: SubAgent, request: str) -> Any:  # noqa: ANN401
        """Delegate the request to another agent: a child task. This task waits for it without holding a worker."""
        run, attempt = self._run, self._run.attempt
        now = attempt.services.time.now()
        definition = sub.agent.task_definition()
        new, _ = new_task(
            attempt.services.definitions,
            definition,
            (request,),
            now=now,
            labels=attempt.task.labels,
            by=attempt.lease.worker_id,
        )
        await run.accounting.read()  # its share is a part of what is left after the answer that asks for it
        # Not later than its caller's own deadline: a store that fails the caller then fails the sub-agent as well.
        deadlines = [moment for moment in (new.deadline, attempt.task.deadline) if moment is not None]
        new = replace(new, budget=sub.limits(run.accounting.books), deadline=min(deadlines, default=None))
        await attempt.check()
        await run.save_before_change()
        child_id = await children.submit_child(attempt, f"{RESERVED}child:{key}", new, has_own_key=False)
        try:
            value = await children.child_result(attempt, f"{RESERVED}result:{key}", replace(new, id=child_id), Any)
        except (TaskFailed, TaskCancelled) as error:
            return await perform(attempt, refusal(key, ToolError(f"{sub.name} did not do it: {error}")))
        return await perform(attempt, record(run, key, sub.name, value))

    # Names

    def _key(self, turn: int, index: int, asked: ToolCall) -> str:
        """Return the key of a call. The name of an unknown tool may be any text, so it is not part of the key."""
        named = tool_key(asked.name, turn, index)
        if asked.name in self._run.agent.tools or self._run.attempt.journal.get(named) is not None:
            return named
        return tool_key(UNKNOWN, turn, index)

    def _is_over(self, key: str) -> bool:
        recorded, is_replaying = self._run.attempt.journal.get(key), self._run.attempt.discovery.is_under_way
        if recorded is None or recorded.state not in OVER:
            return False
        return recorded.state is StepState.FAILED or recorded.undone_at is None or is_replaying
