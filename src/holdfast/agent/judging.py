"""A model's look at an agent's result: a model call like any other, recorded and paid for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.agent.accounting import accounting_of
from holdfast.agent.agent import as_model
from holdfast.agent.keeping import StateKeeper
from holdfast.agent.resuming import stored_state
from holdfast.agent.thinking import Thinker
from holdfast.engine.context import Context, attempt_of
from holdfast.engine.journal import VERIFY
from holdfast.model.message import Message

if TYPE_CHECKING:
    from holdfast.agent.agent import Agent
    from holdfast.agent.verifying import Judge


async def judged(agent: Agent, judge: Judge, ctx: Context, instructions: str, result: str) -> str:
    """Return what the judge says."""
    attempt = attempt_of(ctx)
    model = agent.model if judge.model is None else as_model(judge.model)
    checkpoint, patches, _ = await stored_state(attempt)
    keeper = StateKeeper(attempt, checkpoint, patches, noted=lambda _: None)
    accounting = accounting_of(attempt, agent, model.name)
    await accounting.open()
    thinker = Thinker(
        attempt,
        model,
        accounting,
        keeper,
        retry=agent.model_retry,
        timeout=agent.model_timeout,
        max_output_tokens=agent.max_output_tokens,
    )
    await keeper.refresh()
    prompt = (
        Message(role="system", content=instructions),
        Message(role="user", content=f"The task:\n{keeper.state.goal}\n\nThe result:\n{result}"),
    )
    answer = await thinker.ask(f"{VERIFY}judge", lambda: prompt, turn=0)
    return answer.reply.content
