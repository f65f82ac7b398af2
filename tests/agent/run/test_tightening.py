"""A user tightens the constraints between the intent of a call and the call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast import Constraints, Holdfast, HumanInTheLoop, RiskLevel, StatePatch, tool
from holdfast.agent.scripted import call
from holdfast.model.commit import Commit, Verdict
from holdfast.model.operations import WriteEffect
from tests.agent.support import PATIENCE, asked, register
from tests.engine.conftest import watch
from tests.engine.support import Watched

__all__ = ["watch"]

GATED = Constraints(human_in_the_loop=HumanInTheLoop(required_for_risk_levels=(RiskLevel.EXTERNAL_ACTION,)))


async def test_a_call_that_is_armed_already_needs_an_approval_too(url: str, watch: Callable[[], list[Watched]]) -> None:
    watches = watch()
    acted: list[str] = []
    armed: list[str] = []

    @tool
    async def act() -> str:
        """Act."""
        acted.append("act")
        return "acted"

    async with Holdfast(url) as hold:
        agent, _ = register(hold, [call("act"), "done"], tools=[act])

        async def tighten(commits: Sequence[Commit], _: list[Verdict]) -> None:
            for commit in commits:
                if not armed and any(isinstance(operation, WriteEffect) for operation in commit.operations):
                    armed.append(commit.task_id)
                    version = (await hold.handle(commit.task_id).task()).version
                    await hold.patch_state(commit.task_id, StatePatch(constraints=GATED), version=version, by="alice")

        watches[-1].after_commit = tighten
        task = await hold.submit(agent, "go")
        async with hold.worker():
            question = await asked(hold, task)
            assert acted == []
            await hold.approve(question.id, by="alice")
            assert await task.result(timeout=PATIENCE) == "done"
    assert armed, "nothing was armed with the answer: this proves nothing"
    assert acted == ["act"]
