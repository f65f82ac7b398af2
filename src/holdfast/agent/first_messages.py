"""How an agent's conversation begins: with its request, an earlier conversation, or the reason of a rejection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.agent.notes import noted
from holdfast.agent.run_state import ENGINE
from holdfast.agent.transcript import BEGIN, LLM, RecordedAnswer, read_answers, read_transcript, user_message
from holdfast.engine.api.first_state import Opening, opening, state_before
from holdfast.engine.api.start import SUBMITTER
from holdfast.engine.attempt.journal import OTHER_INPUT
from holdfast.engine.manage.message import MESSAGE
from holdfast.engine.manage.past_state import EMPTY
from holdfast.engine.runtime.store_retry import call_store
from holdfast.engine.steps.call import ONE_TRY, Call
from holdfast.engine.steps.step import perform
from holdfast.model.agent_state import AgentState
from holdfast.model.codec import decode
from holdfast.model.errors import PRUNED, NotFound
from holdfast.model.history import compact
from holdfast.model.message import Message
from holdfast.model.operations import Operation, WriteStep
from holdfast.model.patch import StatePatch
from holdfast.model.step import Step, StepState
from holdfast.model.task import JsonValue, Task

if TYPE_CHECKING:
    from holdfast.agent.run import AgentRun
    from holdfast.engine.attempt.attempt import Attempt

CARRIED_BYTES = 32_000
"""The most that is copied from an earlier conversation. It is stored with the new task, because the old one may be
pruned. A chain of a thousand tasks must not store its beginning a thousand times."""

REJECTED = "Your work was not accepted: {reason}\nCorrect it, then give your final answer again."
_FEEDBACK = "feedback"


@dataclass(frozen=True, slots=True)
class Beginning:
    """The state of a conversation when an attempt begins."""

    messages: list[Message]
    last_read: int
    """The number of the last message that was read, in any round."""
    unread: list[Step]
    """The recorded messages of this round, which join the conversation at their places."""
    earlier: list[tuple[int, RecordedAnswer]]
    """The answers of the rounds before this one, with their turns."""

    @property
    def turns(self) -> int:
        """The last turn before this round."""
        return max((turn for turn, _ in self.earlier), default=0)


async def begin(run: AgentRun) -> Beginning:
    """Return how the conversation begins, and begin the state if necessary."""
    attempt = run.attempt
    store, task = attempt.services.store, attempt.task
    earlier: list[Step] = []
    if task.round > 1:
        every = await call_store(partial(store.steps, task.id))
        earlier = [step for step in every if step.round < task.round]
    messages = await _first_messages(run, [step for step in earlier if step.kind == BEGIN])
    if not attempt.discovery.is_under_way and not _has_answered(attempt, earlier):
        attempt.outbox.buffer(*_with_rules(run))
    if attempt.journal.get(OTHER_INPUT) is not None:
        # A new request, for an agent that keeps its state from the request before.
        messages = [user_message(run.text)]
        goal = run.start.goal or run.text
        if run.keeper.state.goal != goal:
            attempt.outbox.buffer(*run.keeper.change(StatePatch(goal=goal), author=SUBMITTER))
    elif task.round > 1 and task.feedback is not None:
        messages += read_transcript(step for step in earlier if step.kind != BEGIN)
        messages.append(user_message(REJECTED.format(reason=task.feedback)))
        _record_feedback(run, task)
    elif task.round > 1:
        # It starts over with all that people asked for, their later messages included.
        messages += read_transcript(step for step in earlier if step.kind == MESSAGE and step.key != _FEEDBACK)
    unread = sorted(attempt.journal.completed(MESSAGE), key=lambda step: step.position)
    numbers = [decode(step.output or b"")["number"] for step in [*earlier, *unread] if step.kind == MESSAGE]
    unread = [step for step in unread if step.key != _FEEDBACK]
    return Beginning(messages, max(numbers, default=0), unread, read_answers(earlier))


def _has_answered(attempt: Attempt, earlier: Sequence[Step]) -> bool:
    """Return whether the model has answered in any round: a round may have ended before its first answer."""
    return bool(attempt.journal.completed(LLM)) or any(
        step.kind == LLM and step.state is StepState.COMPLETED for step in earlier
    )


async def _first_messages(run: AgentRun, earlier: Sequence[Step]) -> list[Message]:
    attempt = run.attempt
    if earlier:  # an earlier round has copied the messages: the task before may be pruned by now
        return read_transcript(earlier[:1])
    if run.after is not None:
        previous = _Previous(run)
        call = Call(BEGIN, previous.read, (run.after,), ONE_TRY, None, Any, kind=BEGIN, also=previous.adopt)
        return [Message.from_json(message) for message in (await perform(attempt, call))["messages"]]
    if attempt.outbox.version == 0 and not attempt.discovery.is_under_way:
        await attempt.check()
        await attempt.outbox.commit(*_written(run, await _open(run)))
    return [user_message(run.text)]


async def _open(run: AgentRun, before: AgentState = EMPTY) -> Opening:
    store, task = run.attempt.services.store, run.attempt.task
    return await opening(store, run.agent.rules, task.id, run.text, start=run.start, before=before)


def _written(run: AgentRun, made: Opening) -> tuple[Operation, ...]:
    return (*made.links, *run.keeper.change(made.patch, author=made.author, reason=made.reason))


def _with_rules(run: AgentRun) -> tuple[Operation, ...]:
    """Return the patch that applies the agent's rules to a state that a person or older code patched before it began.

    From the agent's first answer on, a person may change its rules.
    """
    state, rules = run.keeper.state, run.agent.rules
    tight = StatePatch(
        constraints=rules.constraints.tightened(state.constraints), budget=rules.budget.tightened(state.budget)
    )
    return run.keeper.change(tight, author=ENGINE, reason="the rules of its agent")


# Continuing from another task


class _Previous:
    """The task whose conversation is continued."""

    def __init__(self, run: AgentRun) -> None:
        self._run = run
        self._opening: Opening | None = None

    async def read(self, task_id: str) -> dict[str, JsonValue]:
        """Read its state and conversation; the step records the conversation."""
        services = self._run.attempt.services
        store = services.store
        task = await call_store(partial(store.get, task_id))
        if task is None:  # it was there when this one was submitted
            raise NotFound("task", task_id, where=PRUNED)
        steps = await call_store(partial(store.steps, task_id))
        if (
            self._run.attempt.outbox.version == 0
        ):  # otherwise a patch from outside came before this attempt, and opened it
            self._opening = await _open(self._run, await state_before(store, services.definitions, task_id))
        earlier = compact([*_opening(task, steps), *read_transcript(steps)], max_bytes=CARRIED_BYTES)
        return {"messages": [message.to_json() for message in (*earlier, user_message(self._run.text))]}

    def adopt(self, _recorded: object) -> tuple[Operation, ...]:
        """Return the operations that make its state the first state of this task."""
        return () if self._opening is None else _written(self._run, self._opening)


def _opening(task: Task, steps: Sequence[Step]) -> list[Message]:
    """Return the request of a task, unless its journal contains it."""
    if any(step.kind == BEGIN for step in steps):
        return []
    given = task.user_input["args"] if isinstance(task.user_input, dict) else task.user_input
    return [user_message(given[0])] if isinstance(given, list) and given and isinstance(given[0], str) else []


# After a rejection


def _record_feedback(run: AgentRun, task: Task) -> None:
    """Record the reason in the journal, as a message of the conversation, for later rounds."""
    attempt = run.attempt
    if attempt.journal.get(_FEEDBACK) is not None:
        return
    message = {"text": REJECTED.format(reason=task.feedback), "by": "verifier", "number": 0}
    attempt.outbox.buffer(WriteStep(noted(attempt, _FEEDBACK, MESSAGE, message)))
