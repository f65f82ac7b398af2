"""One attempt at an agent's task: think, act, hear what was said meanwhile, until the model has nothing left to do.

Whatever happens here is a step of the journal, so an attempt that follows a crash goes the same way up to where the
last one got, without asking a model or calling a tool again, and then goes on.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from holdfast.agent import first_messages, prompt
from holdfast.agent.budget import accounting_of
from holdfast.agent.budget_figures import limits_patch
from holdfast.agent.earlier_calls import EarlierCalls
from holdfast.agent.model_call import Thinker
from holdfast.agent.notes import noted
from holdfast.agent.progress import LOOP_FLAG, Progress
from holdfast.agent.resumption import check_freshness, stored_state
from holdfast.agent.run_state import ENGINE, StateKeeper
from holdfast.agent.tool_calls import Dispatcher
from holdfast.agent.tool_context import ToolContext
from holdfast.agent.transcript import LLM, RecordedAnswer, answer_message, is_answer, model_key, turn_of, user_message
from holdfast.engine.attempt.attempt import Attempt
from holdfast.engine.manage.artifacts import Artifacts
from holdfast.engine.manage.memory import Memory
from holdfast.engine.manage.message import MESSAGE, inbox, is_message
from holdfast.engine.runtime.store_retry import insist
from holdfast.engine.steps.call import Call
from holdfast.engine.steps.children import check_caller
from holdfast.model.checkpoints import CheckpointStrategy, Saver
from holdfast.model.codec import decode
from holdfast.model.errors import NotFound
from holdfast.model.message import Message, ToolCall
from holdfast.model.operations import Operation, RequireQuiet, WriteStep
from holdfast.model.patch import StatePatch
from holdfast.model.step import Step, StepState
from holdfast.model.task import NO_AGENT

if TYPE_CHECKING:
    from holdfast.agent.agent import Agent

_S = CheckpointStrategy


class AgentRun:
    """An agent at work on one task."""

    def __init__(self, agent: Agent, attempt: Attempt, text: str, after: str | None, start: StatePatch) -> None:
        """``text`` is what it is asked to do, ``after`` the task whose conversation it goes on with.

        ``start`` is what its state was submitted with.
        """
        self.agent = agent
        self.attempt = attempt
        self.text = text
        self.after = after
        self.start = start
        self.conversation: list[Message] = []
        self.accounting = accounting_of(attempt, agent, agent.model.name)
        self._progress = Progress(most_identical=agent.max_identical_calls, most_senseless=agent.max_senseless_answers)
        self.keeper: StateKeeper
        self._saver: Saver
        self._thinker: Thinker
        self.past: EarlierCalls
        self._dispatcher = Dispatcher(self)
        self._turn = 0
        self._excerpts: dict[str, str] = {}
        """Of artifacts, by their id: what is in them never changes."""
        self._heard = 0
        """The number of the last message that was read."""
        self._unheard: list[Step] = []
        """Messages of the journal that are not part of the conversation yet."""

    # The run, as a sentence

    async def run(self) -> str:
        """Think and act until there is a final answer, and nobody has said anything since."""
        await self._begin()
        while True:
            answer = await self._think()
            self.conversation.append(answer_message(answer.reply))
            if answer.reply.tool_calls:
                await self._act(answer)
            else:
                is_empty = not answer.reply.content.strip()
                self._progress.note_answer(is_senseless=is_empty)
                if not is_empty and not self._has_gone_on and not await self._hear():
                    break
        await self.save_before_change()
        # Should a message come before the end is recorded, there is no end: the task goes on and reads it.
        self.attempt.provided = (RequireQuiet(channel=inbox(self.attempt.task.id), after=self._heard),)
        return answer.reply.content

    async def _begin(self) -> None:
        attempt, agent = self.attempt, self.agent
        checkpoint, patches, number = await stored_state(attempt)
        self._saver = Saver(agent.checkpoints, checkpoint, number)
        self.keeper = StateKeeper(attempt, checkpoint, patches, noted=self._saver.note)
        await check_freshness(attempt, agent.checkpoints)
        await self.accounting.open()
        self.past = await EarlierCalls.read(attempt)
        self._thinker = Thinker(
            attempt,
            agent.model,
            self.accounting,
            self.keeper,
            read=self._dispatcher.read,
            retry=agent.model_retry,
            timeout=agent.model_timeout,
            max_output_tokens=agent.max_output_tokens,
        )
        began = await first_messages.begin(self)
        self.conversation += began.messages
        self._heard, self._unheard = began.heard, began.unheard
        self.past.note_own(began.earlier)
        for number, answer in began.earlier:
            self._dispatcher.announce(number, answer)
        turns = [turn for step in attempt.journal.completed(LLM) if (turn := turn_of(step)) is not None]
        self._turn = min(turns, default=began.turns + 1) - 1

    # Thinking

    async def _think(self) -> RecordedAnswer:
        """Return the next answer of the model: the recorded one if there is one."""
        self._turn += 1
        key = model_key(self._turn)
        recorded = self.attempt.journal.get(key)
        if recorded is not None and recorded.state is StepState.COMPLETED:
            self._hear_again(before=recorded.position)
        else:
            await self.attempt.check()
            await self._look_up()
        answered = sum(map(is_answer, self.conversation))
        answer = await self._thinker.ask(
            key,
            self._prompt,
            self.agent.specs,
            turn=answered,
            then=self._after_answer,
            is_lazy=self.is_lazy,
        )
        self.save(_S.EVERY_STEP)
        return answer

    @property
    def _has_gone_on(self) -> bool:
        """Whether the journal has the next answer too: what belongs to this turn was seen to by whoever recorded it."""
        return self._thinker.is_recorded(model_key(self._turn + 1))

    async def _look_up(self) -> None:
        """Before a new model call: see what others have said and changed."""
        await check_caller(self.attempt)
        await self._hear()
        self._progress.check()
        if await self.keeper.refresh():
            await self.attempt.outbox.flush()
        await self.accounting.read()
        books = self.accounting.books
        limits = limits_patch(self.keeper.state.budget, books.lines[books.own])
        if limits is not None:
            self.attempt.outbox.buffer(*self.keeper.change(limits, author=ENGINE, reason="the limits were changed"))
        await self._read_excerpts()

    async def _read_excerpts(self) -> None:
        """Read what the model may be shown of the artifacts of its current step."""
        state, artifacts = self.keeper.state, Artifacts(lambda: self.attempt.services)
        for artifact in prompt.artifacts_to_show(state, self.conversation):
            if artifact.artifact_id not in self._excerpts:
                with suppress(NotFound):  # pruned, or only mentioned by somebody
                    self._excerpts[artifact.artifact_id] = await artifacts.excerpt(
                        artifact.artifact_id, how="head_tail", max_bytes=prompt.EXCERPT_BYTES
                    )

    def _prompt(self) -> tuple[Message, ...]:
        agent, state = self.agent, self.keeper.state
        return prompt.build_prompt(agent.instructions, state, self.conversation, agent.room(state), self._excerpts)

    @property
    def is_lazy(self) -> bool:
        """Whether what was thought or looked up may wait for the next Commit."""
        # Whoever shares an account has to see what is spent.
        return self.agent.checkpoints.strategy is not _S.EVERY_STEP and not self.accounting.is_shared

    def _after_answer(self, answer: RecordedAnswer, call: Call) -> tuple[Operation, ...]:
        """Return the intents of the calls that follow; they make the answer that asks for them durable."""
        calls = answer.reply.tool_calls
        if answer.steps <= len(calls):
            return ()  # they cannot be afforded: somebody has to grant more first
        if self._dispatcher.touches_the_world(calls):
            call.is_lazy = False
        return self._dispatcher.arm(self._turn, answer)

    # Acting

    async def _act(self, answer: RecordedAnswer) -> None:
        """Make the calls an answer asks for, all at once, and tell the model what came of them."""
        calls, turn = answer.reply.tool_calls, self._turn
        if not self.attempt.discovery.is_under_way and not self._dispatcher.is_over(turn, calls):
            if answer.steps <= len(calls):
                await self.accounting.admit_steps(model_key(turn), len(calls))
            await self.accounting.check_time()
            await check_caller(self.attempt)
            await self.keeper.refresh()  # what needs leave by now needs it for these calls
        performing = [self._dispatcher.perform(turn, index, answer) for index in range(len(calls))]
        if len(performing) == 1:
            results = [await performing[0]]  # one alone needs no branch of its own
        else:
            with self.keeper.crowded():
                results = await asyncio.gather(*performing)
            self.save(_S.EVERY_STEP)
        for call, result in zip(calls, results, strict=True):
            self.conversation.append(self._noting_repetition(call, result.message))
        self._progress.note_answer(is_senseless=all(result.is_senseless for result in results))
        await self._end_iteration()

    def _noting_repetition(self, call: ToolCall, result: Message) -> Message:
        """Return a result as the model is told it: with a word about it if it repeats itself."""
        told = self._progress.note_call(call.name, call.arguments, result.content)
        if told is None:
            return result
        if not self._has_gone_on:  # somebody may have cleared it since
            flag = StatePatch(set_flags=(LOOP_FLAG,))
            self.attempt.outbox.buffer(
                *self.keeper.change(flag, author=ENGINE, reason=told, step_key=model_key(self._turn))
            )
        return replace(result, content=f"{result.content}\n{told}")

    def tool_context(self, key: str, effect_id: str) -> ToolContext:
        """Return what a tool may know."""
        task = self.attempt.task
        # A process that does not know the agent submits for it without its id. Agents must not share one by that.
        is_named = task.agent_id != NO_AGENT
        return ToolContext(
            task_id=task.id,
            agent_id=task.agent_id if is_named else self.attempt.definition.agent_id,
            step_key=key,
            effect_id=effect_id,
            state=self.keeper.state,
            artifacts=Artifacts(lambda: self.attempt.services),
            memory=Memory(lambda: self.attempt.services),
        )

    async def _end_iteration(self) -> None:
        if self.agent.checkpoints.strategy is _S.EVERY_ITERATION and not self.attempt.discovery.is_under_way:
            if self._has_gone_on:
                return  # what it had to save is saved
            # First what the iteration patched: only of a stored state a snapshot is made. It rides in the next Commit.
            await self.attempt.outbox.flush()
            if not self.keeper.catch_up():
                await self.keeper.refresh()
            self.save(_S.EVERY_ITERATION)

    # Hearing

    async def _hear(self) -> bool:
        """Read the messages that came since; say whether there were any."""
        before = len(self.conversation)
        self._hear_again(before=None)
        attempt = self.attempt
        if not attempt.discovery.is_under_way:
            channel = inbox(attempt.task.id)
            while page := await insist(partial(attempt.services.store.events, channel, after=self._heard)):
                for event in page:
                    self._heard = event.number
                    if is_message(event.payload):
                        said = {"text": event.payload["text"], "by": event.actor, "number": event.number}
                        attempt.outbox.buffer(WriteStep(noted(attempt, f"{MESSAGE}:{event.number}", MESSAGE, said)))
                        self._listen(event.payload["text"])
        return len(self.conversation) > before

    def _hear_again(self, before: int | None) -> None:
        """Take the recorded messages up to a place in the journal, or all that are left, into the conversation."""
        while self._unheard and (before is None or self._unheard[0].position < before):
            self._listen(decode(self._unheard.pop(0).output or b"")["text"])

    def _listen(self, text: str) -> None:
        self.conversation.append(user_message(text))
        self._progress.begin_anew()

    # Checkpoints

    async def save_before_change(self) -> None:
        """Save what is known before the task's own state changes: it ends, or waits for somebody."""
        if not self.attempt.discovery.is_under_way:
            if not self.keeper.catch_up():
                await self.attempt.outbox.flush()
            self.save(_S.ON_STATE_CHANGE)

    def save(self, trigger: CheckpointStrategy) -> None:
        """Have a snapshot of the state ride in the next Commit, if this is when the agent saves one."""
        chosen = self.agent.checkpoints.strategy
        is_wanted = trigger is chosen or trigger is _S.ON_STATE_CHANGE
        if not is_wanted or self.attempt.discovery.is_under_way or not self.keeper.catch_up():
            return
        attempt, keeper = self.attempt, self.keeper
        position, now = attempt.journal.last_position, attempt.services.time.now()
        ends_iteration = trigger is _S.EVERY_ITERATION
        saved = self._saver.save(keeper.state, keeper.version, position, now, ends_iteration=ends_iteration)
        attempt.outbox.buffer(*saved)
