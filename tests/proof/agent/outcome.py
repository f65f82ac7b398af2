"""What an agent's task came to: all that must be the same whether or not a worker was killed meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, replace

from holdfast import AgentState, Holdfast, Message, Meter, StepState, Task, TaskState, Usage
from holdfast.agent.transcript import LLM, read_answers, read_transcript
from holdfast.engine.attempt.journal import RESERVED
from holdfast.model.effect import EffectState


@dataclass(frozen=True)
class Outcome:
    """The end of a task, without the times."""

    state: TaskState
    result: object
    transcript: list[Message]
    agent_state: AgentState
    """Its goal, which has the task's number, is left out."""
    steps: set[tuple[str, str, StepState]]
    """Of the journal. Not in order, as parallel calls have none; without the lines that clear up after a worker."""
    spent_steps: int


async def outcome_of(hold: Holdfast, task: Task) -> Outcome:
    """Read it, and see that nothing is left open."""
    accounts = await hold.store.accounts(task.id)
    assert not [account for account in accounts if account.reserved], accounts
    assert await hold.doubts(task.id) == []
    assert {effect.state for effect in await hold.store.effects(task_id=task.id)} <= {EffectState.DONE}
    steps = await hold.store.steps(task.id)
    asked = [step for step in steps if step.kind == LLM]
    assert len({step.key for step in asked}) == len(asked) == len(read_answers(steps))
    state = await hold.state(task.id)
    return Outcome(
        state=task.state,
        result=task.result,
        transcript=read_transcript(steps),
        agent_state=replace(state, goal="", known_facts=tuple(replace(fact, at=None) for fact in state.known_facts)),
        steps={(step.key, step.kind, step.state) for step in steps if not step.key.startswith(RESERVED)},
        spent_steps=(await hold.budget(task.id)).lines[Meter.STEPS].spent,
    )


async def recorded(hold: Holdfast, task: Task) -> list[Usage]:
    """Return what each answer of the model took that is in the journal."""
    return [answer.reply.usage or Usage() for _, answer in read_answers(await hold.store.steps(task.id))]


async def spent_tokens(hold: Holdfast, task: Task) -> int:
    """Return how many tokens the task is said to have used."""
    return (await hold.budget(task.id)).lines[Meter.LLM_TOKENS].spent
