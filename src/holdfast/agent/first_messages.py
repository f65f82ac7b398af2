"""How an agent's conversation begins: with what it is asked, what it goes on from, or why its work was rejected."""

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
from holdfast.engine.runtime.store_retry import insist
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
"""Of an earlier conversation, at most so much is taken over. It is stored with the new task: the old one may be pruned,
and a chain of a thousand tasks must not store its beginning a thousand times."""

REJECTED = "Your work was not accepted: {reason}\nMend it, then give your final answer again."
_FEEDBACK = "feedback"


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a conversation stands when an attempt begins."""

    messages: list[Message]
    heard: int
    """The number of the last message that was read, in whichever round."""
    unheard: list[Step]
    """The messages of this round, which come at their place."""
    earlier: list[tuple[int, RecordedAnswer]]
    """The answers of the rounds before this one, with their turns."""

    @property
    def turns(self) -> int:
        """The last turn before this round."""
        return max((turn for turn, _ in self.earlier), default=0)


async def begin(run: AgentRun) -> Beginning:
    """Return how the conversation begins, and see that the state does."""
    attempt = run.attempt
    store, task = attempt.services.store, attempt.task
    earlier: list[Step] = []
    if task.round > 1:
        every = await insist(partial(store.steps, task.id))
        earlier = [step for step in every if step.round < task.round]
    messages = await _first_messages(run, [step for step in earlier if step.kind == BEGIN])
    if not attempt.discovery.is_under_way and not _has_answered(attempt, earlier):
        attempt.outbox.buffer(*_held_to_rules(run))
    if attempt.journal.get(OTHER_INPUT) is not None:
        # A new piece of work, by an agent that knows what it did for the one before.
        messages = [user_message(run.text)]
        goal = run.start.goal or run.text
        if run.keeper.state.goal != goal:
            attempt.outbox.buffer(*run.keeper.change(StatePatch(goal=goal), author=SUBMITTER))
    elif task.round > 1 and task.feedback is not None:
        messages += read_transcript(step for step in earlier if step.kind != BEGIN)
        messages.append(user_message(REJECTED.format(reason=task.feedback)))
        _record_feedback(run, task)
    elif task.round > 1:
        # It starts over with what people have asked for, and that is also what they said later.
        messages += read_transcript(step for step in earlier if step.kind == MESSAGE and step.key != _FEEDBACK)
    unheard = sorted(attempt.journal.completed(MESSAGE), key=lambda step: step.position)
    numbers = [decode(step.output or b"")["number"] for step in [*earlier, *unheard] if step.kind == MESSAGE]
    unheard = [step for step in unheard if step.key != _FEEDBACK]
    return Beginning(messages, max(numbers, default=0), unheard, read_answers(earlier))


def _has_answered(attempt: Attempt, earlier: Sequence[Step]) -> bool:
    """Say whether the model has answered in any round: one may have ended before it did."""
    return bool(attempt.journal.completed(LLM)) or any(
        step.kind == LLM and step.state is StepState.COMPLETED for step in earlier
    )


async def _first_messages(run: AgentRun, earlier: Sequence[Step]) -> list[Message]:
    attempt = run.attempt
    if earlier:  # an earlier round has seen to it: its state goes on, and the task before may be pruned by now
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


def _held_to_rules(run: AgentRun) -> tuple[Operation, ...]:
    """Return what tightens a state that was patched before the agent began: by a process with older code, or a person.

    From its first answer on, what a person changes in its rules counts.
    """
    state, rules = run.keeper.state, run.agent.rules
    tight = StatePatch(
        constraints=rules.constraints.tightened(state.constraints), budget=rules.budget.tightened(state.budget)
    )
    return run.keeper.change(tight, author=ENGINE, reason="the rules of its agent")


# Going on from another task


class _Previous:
    """The task that a conversation goes on from."""

    def __init__(self, run: AgentRun) -> None:
        self._run = run
        self._opening: Opening | None = None

    async def read(self, task_id: str) -> dict[str, JsonValue]:
        """Read its state and conversation; the conversation is what the step records."""
        services = self._run.attempt.services
        store = services.store
        task = await insist(partial(store.get, task_id))
        if task is None:  # it was there when this one was submitted
            raise NotFound("task", task_id, where=PRUNED)
        steps = await insist(partial(store.steps, task_id))
        if (
            self._run.attempt.outbox.version == 0
        ):  # otherwise a patch from outside came before this attempt, and opened it
            self._opening = await _open(self._run, await state_before(store, services.definitions, task_id))
        said = compact([*_opening(task, steps), *read_transcript(steps)], max_bytes=CARRIED_BYTES)
        return {"messages": [message.to_json() for message in (*said, user_message(self._run.text))]}

    def adopt(self, _recorded: object) -> tuple[Operation, ...]:
        """Return what makes its state the first of this task."""
        return () if self._opening is None else _written(self._run, self._opening)


def _opening(task: Task, steps: Sequence[Step]) -> list[Message]:
    """Return what a task was asked, unless its journal says so itself."""
    if any(step.kind == BEGIN for step in steps):
        return []
    given = task.user_input["args"] if isinstance(task.user_input, dict) else task.user_input
    return [user_message(given[0])] if isinstance(given, list) and given and isinstance(given[0], str) else []


# After a rejection


def _record_feedback(run: AgentRun, task: Task) -> None:
    """Have the reason stand in the journal as what it is in the conversation, for the rounds after this one."""
    attempt = run.attempt
    if attempt.journal.get(_FEEDBACK) is not None:
        return
    said = {"text": REJECTED.format(reason=task.feedback), "by": "verifier", "number": 0}
    attempt.outbox.buffer(WriteStep(noted(attempt, _FEEDBACK, MESSAGE, said)))
