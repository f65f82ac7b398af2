"""One attempt at an agent's task: think, act, read new messages, until the model has nothing left to do.

Everything here is a step of the journal. So an attempt after a crash replays the same steps up to where the last one
got, without calling a model or a tool again, and then continues.
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
from holdfast.agent.model_call import ModelCalls
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
from holdfast.engine.runtime.store_retry import call_store
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
        """``text`` is the request, ``after`` the task whose conversation it continues.

        ``start`` is the patch that its state was submitted with.
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
        self._model_calls: ModelCalls
        self.past: EarlierCalls
        self._dispatcher = Dispatcher(self)
        self._turn = 0
        self._excerpts: dict[str, str] = {}
        """Excerpts of artifacts, by their id: an artifact never changes."""
        self._last_read = 0
        """The number of the last message that was read."""
        self._unread: list[Step] = []
        """Messages of the journal that are not part of the conversation yet."""

    # The run, as a sentence

    async def run(self) -> str:
        """Think and act until there is a final answer and no new message."""
        await self._begin()
        while True:
            answer = await self._think()
            self.conversation.append(answer_message(answer.reply))
            if answer.reply.tool_calls:
                await self._act(answer)
            else:
                is_empty = not answer.reply.content.strip()
                self._progress.note_answer(is_senseless=is_empty)
                if not is_empty and not self._has_gone_on and not await self._read_messages():
                    break
        await self.save_before_change()
        # If a message comes before the end is recorded, the task does not end: it continues and reads the message.
        self.attempt.provided = (RequireQuiet(channel=inbox(self.attempt.task.id), after=self._last_read),)
        return answer.reply.content

    async def _begin(self) -> None:
        attempt, agent = self.attempt, self.agent
        checkpoint, patches, number = await stored_state(attempt)
        self._saver = Saver(agent.checkpoints, checkpoint, number)
        self.keeper = StateKeeper(attempt, checkpoint, patches, noted=self._saver.note)
        await check_freshness(attempt, agent.checkpoints)
        await self.accounting.open()
        self.past = await EarlierCalls.read(attempt)
        self._model_calls = ModelCalls(
            attempt,
            agent.model,
            self.accounting,
            self.keeper,
            read=self._dispatcher.read,
            retry=agent.model_retry,
            timeout=agent.model_timeout,
            max_output_tokens=agent.max_output_tokens,
            limits=agent.limits,
        )
        began = await first_messages.begin(self)
        self.conversation += began.messages
        self._last_read, self._unread = began.last_read, began.unread
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
            self._replay_messages(before=recorded.position)
        else:
            await self.attempt.check()
            await self._look_up()
        answered = sum(map(is_answer, self.conversation))
        answer = await self._model_calls.ask(
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
        """Whether the journal also has the next answer: then the attempt that recorded it has finished this turn."""
        return self._model_calls.is_recorded(model_key(self._turn + 1))

    async def _look_up(self) -> None:
        """Read what others have sent and changed, before a new model call."""
        await check_caller(self.attempt)
        await self._read_messages()
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
        """Read the excerpts of the current step's artifacts that the model may see."""
        state, artifacts = self.keeper.state, Artifacts(lambda: self.attempt.services)
        for artifact in prompt.artifacts_to_show(state, self.conversation):
            if artifact.artifact_id not in self._excerpts:
                with suppress(NotFound):  # pruned, or only mentioned in a patch
                    self._excerpts[artifact.artifact_id] = await artifacts.excerpt(
                        artifact.artifact_id, how="head_tail", max_bytes=prompt.EXCERPT_BYTES
                    )

    def _prompt(self) -> tuple[Message, ...]:
        agent, state = self.agent, self.keeper.state
        return prompt.build_prompt(agent.instructions, state, self.conversation, agent.room(state), self._excerpts)

    @property
    def is_lazy(self) -> bool:
        """Whether answers and results of pure tools may wait for the next Commit."""
        # Tasks that share an account have to see what is spent.
        return self.agent.checkpoints.strategy is not _S.EVERY_STEP and not self.accounting.is_shared

    def _after_answer(self, answer: RecordedAnswer, call: Call) -> tuple[Operation, ...]:
        """Return the intents of the calls that follow. They make their answer durable at once."""
        calls = answer.reply.tool_calls
        if answer.steps <= len(calls):
            return ()  # the budget does not allow them: a person has to grant more first
        if self._dispatcher.has_side_effects(calls):
            call.is_lazy = False
        return self._dispatcher.arm(self._turn, answer)

    # Acting

    async def _act(self, answer: RecordedAnswer) -> None:
        """Make the calls that an answer asks for, concurrently, and add their results to the conversation."""
        calls, turn = answer.reply.tool_calls, self._turn
        if not self.attempt.discovery.is_under_way and not self._dispatcher.is_over(turn, calls):
            if answer.steps <= len(calls):
                await self.accounting.admit_steps(model_key(turn), len(calls))
            await self.accounting.check_time()
            await check_caller(self.attempt)
            await self.keeper.refresh()  # a rule that requires an approval may be new: it counts for these calls
        performing = [self._dispatcher.perform(turn, index, answer) for index in range(len(calls))]
        if len(performing) == 1:
            results = [await performing[0]]  # a single call needs no branch of its own
        else:
            with self.keeper.concurrent_calls():
                results = await asyncio.gather(*performing)
            self.save(_S.EVERY_STEP)
        for call, result in zip(calls, results, strict=True):
            self.conversation.append(self._noting_repetition(call, result.message))
        self._progress.note_answer(is_senseless=all(result.is_senseless for result in results))
        await self._end_iteration()

    def _noting_repetition(self, call: ToolCall, result: Message) -> Message:
        """Return a result as the model sees it: with a note if the call repeats itself."""
        note = self._progress.note_call(call.name, call.arguments, result.content)
        if note is None:
            return result
        if not self._has_gone_on:  # otherwise the flag was set then, and may have been cleared since
            flag = StatePatch(set_flags=(LOOP_FLAG,))
            self.attempt.outbox.buffer(
                *self.keeper.change(flag, author=ENGINE, reason=note, step_key=model_key(self._turn))
            )
        return replace(result, content=f"{result.content}\n{note}")

    def tool_context(self, key: str, effect_id: str) -> ToolContext:
        """Return the context for a tool."""
        task = self.attempt.task
        # A process that does not know the agent submits the task without its id. Such agents must not share one id.
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
                return  # its snapshot is saved
            # First store the patches of the iteration: a snapshot is made only of a stored state. The snapshot itself
            # goes into the next Commit.
            await self.attempt.outbox.flush()
            if not self.keeper.catch_up():
                await self.keeper.refresh()
            self.save(_S.EVERY_ITERATION)

    # Messages

    async def _read_messages(self) -> bool:
        """Read the new messages; return whether there were any."""
        before = len(self.conversation)
        self._replay_messages(before=None)
        attempt = self.attempt
        if not attempt.discovery.is_under_way:
            channel = inbox(attempt.task.id)
            while page := await call_store(partial(attempt.services.store.events, channel, after=self._last_read)):
                for event in page:
                    self._last_read = event.number
                    if is_message(event.payload):
                        read = {"text": event.payload["text"], "by": event.actor, "number": event.number}
                        attempt.outbox.buffer(WriteStep(noted(attempt, f"{MESSAGE}:{event.number}", MESSAGE, read)))
                        self._add_message(event.payload["text"])
        return len(self.conversation) > before

    def _replay_messages(self, before: int | None) -> None:
        """Add the recorded messages before a position of the journal, or all that are left, to the conversation."""
        while self._unread and (before is None or self._unread[0].position < before):
            self._add_message(decode(self._unread.pop(0).output or b"")["text"])

    def _add_message(self, text: str) -> None:
        self.conversation.append(user_message(text))
        self._progress.restart()

    # Checkpoints

    async def save_before_change(self) -> None:
        """Save a snapshot before the task's own state changes: it ends, or waits for a person or a sub-agent."""
        if not self.attempt.discovery.is_under_way:
            if not self.keeper.catch_up():
                await self.attempt.outbox.flush()
            self.save(_S.ON_STATE_CHANGE)

    def save(self, trigger: CheckpointStrategy) -> None:
        """Put a snapshot of the state into the next Commit, if the agent's strategy saves one now."""
        chosen = self.agent.checkpoints.strategy
        is_wanted = trigger is chosen or trigger is _S.ON_STATE_CHANGE
        if not is_wanted or self.attempt.discovery.is_under_way or not self.keeper.catch_up():
            return
        attempt, keeper = self.attempt, self.keeper
        position, now = attempt.journal.last_position, attempt.services.time.now()
        ends_iteration = trigger is _S.EVERY_ITERATION
        saved = self._saver.save(keeper.state, keeper.version, position, now, ends_iteration=ends_iteration)
        attempt.outbox.buffer(*saved)
