"""A model checks an agent's result: an ordinary model call, recorded and paid for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.agent.agent import as_model
from holdfast.agent.budget import accounting_of
from holdfast.agent.finish_reason import ended_well
from holdfast.agent.model_call import ModelCalls
from holdfast.agent.resumption import stored_state
from holdfast.agent.run_state import StateKeeper
from holdfast.agent.verifier import draw_code, question, read_judgement
from holdfast.engine.attempt.attempt import attempt_of
from holdfast.engine.attempt.context import Context
from holdfast.engine.attempt.journal import VERIFY
from holdfast.model.canonical import canonical, digest
from holdfast.model.failure import storable
from holdfast.model.message import Message

if TYPE_CHECKING:
    from holdfast.agent.agent import Agent
    from holdfast.agent.verifier import Judge


async def judged(agent: Agent, judge: Judge, ctx: Context, result: str) -> bool | str:
    """Return the judge's verdict: True, or the reason of a rejection."""
    attempt = attempt_of(ctx)
    # Recorded, so that an attempt after a crash can read the verdict. Each result has a code of its own, so no agent
    # could know the code when it wrote the result.
    code = await ctx.step("judge_code", draw_code, key=f"judge_code:{digest(canonical(result))[:16]}")
    model = agent.model if judge.model is None else as_model(judge.model)
    checkpoint, patches, _ = await stored_state(attempt)
    keeper = StateKeeper(attempt, checkpoint, patches, noted=lambda _: None)
    accounting = accounting_of(attempt, agent, model.name)
    await accounting.open()
    model_calls = ModelCalls(
        attempt,
        model,
        accounting,
        keeper,
        retry=agent.model_retry,
        timeout=agent.model_timeout,
        max_output_tokens=agent.max_output_tokens,
        limits=agent.limits,
    )
    await keeper.refresh()
    prompt = (
        Message(role="system", content=question(judge.criteria, code)),
        Message(role="user", content=f"The task:\n{keeper.state.goal}\n\nThe result:\n{result}"),
    )
    reply = (await model_calls.ask(f"{VERIFY}judge", lambda: prompt, turn=0)).reply
    if not ended_well(reply.finish_reason):
        return f"the judge's answer was not complete (finish_reason {storable(reply.finish_reason, 60)!r})"
    return read_judgement(reply.content, code)
