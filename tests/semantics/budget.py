"""A budget: what a task may use, has used, and has set aside for a call under way."""

import asyncio
from typing import Any

import pytest

from holdfast import Agent, Budget, Handle, Holdfast, NotFound, Request, ScriptedModel, Usage, tool
from holdfast.agent.scripted import Answer, call
from holdfast.model.budget import Meter
from tests.engine.support import ended, until
from tests.semantics.scene import AT_ONCE, ONE_TRY, SOON, Scene

LIMITS = Budget(max_steps=10, max_llm_tokens=100_000)
EACH = Usage(input_tokens=90, output_tokens=10)


class Spender:
    """An agent that looks once, may fail once behind that, and ends: two answers and one tool call, 200 tokens."""

    def __init__(
        self,
        scene: Scene,
        *,
        fails: bool = False,
        hangs: bool = False,
        budget: Budget = LIMITS,
        **options: Any,  # noqa: ANN401
    ) -> None:
        self.scene = scene
        self.broken = fails
        self.hangs = hangs

        @tool(risk="read_only")
        async def look() -> str:
            """Look."""
            return "nothing"

        self.model = ScriptedModel(self._think, usage=EACH)
        options = {"retry": ONE_TRY, **options}
        agent = Agent("spender", model=self.model, tools=[look], builtins=False, budget=budget, **options)
        self.definition = scene.hold.register(agent)

    async def _think(self, request: Request) -> Answer | BaseException:
        if request.messages[-1].role != "tool":
            return call("look")
        if self.hangs:
            await asyncio.Event().wait()
        if self.broken:
            self.broken = False
            return RuntimeError("no such model")
        return "done"

    async def begin(self, **options: Any) -> Handle[str]:  # noqa: ANN401
        return await self.scene.hold.submit(self.definition, "go", **options)

    @property
    def calls(self) -> int:
        return len(self.model.requests)


async def spent(scene: Scene, handle: Handle[Any]) -> tuple[int, int]:
    """Return the steps and tokens that are spent; nothing is set aside."""
    lines = (await scene.hold.budget(handle)).lines
    assert all(line.reserved == 0 for line in lines.values())
    return lines[Meter.STEPS].spent, lines[Meter.LLM_TOKENS].spent


async def automatic_retry(scene: Scene) -> None:
    handle = await Spender(scene, fails=True, retry=AT_ONCE).begin()
    await ended(handle)
    assert await spent(scene, handle) == (3, 200), "each step once, however often it was tried"


async def resume(scene: Scene) -> None:
    handle = await Spender(scene, fails=True).begin()
    await scene.failure(handle)
    await scene.hold.resume(handle)
    await ended(handle)
    assert await spent(scene, handle) == (3, 200)


async def resume_of_a_spent_one(scene: Scene) -> None:
    """Without more it fails again and asks no model; with more it goes on."""
    spender = Spender(scene, budget=Budget(max_steps=2))
    handle = await spender.begin()
    assert "BudgetExceeded" in await scene.failure(handle)
    await scene.hold.resume(handle)
    assert "BudgetExceeded" in await scene.failure(handle)
    assert spender.calls == 1
    await scene.hold.extend_budget(handle, Budget(max_steps=3), by="anna")
    await scene.hold.resume(handle)
    assert await ended(handle) == "done"


async def retry(scene: Scene) -> None:
    """It is the task's, not the round's: a new round spends on top of the old one."""
    handle = await Spender(scene, fails=True).begin()
    await scene.failure(handle)
    before, _ = await spent(scene, handle)
    await scene.hold.retry(handle)
    await ended(handle)
    after, _ = await spent(scene, handle)
    assert after == before + 3


async def new_round(scene: Scene) -> None:
    spender = Spender(scene, verify=lambda ctx, _: ctx.task.round == 2 or "again", retry=AT_ONCE)
    handle = await spender.begin()
    await ended(handle)
    steps, tokens = await spent(scene, handle)
    assert steps > 3
    assert tokens == 100 * spender.calls


async def fork(scene: Scene) -> None:
    """The same limits, and nothing spent."""
    origin = await Spender(scene).begin()
    await ended(origin)
    fork = await scene.hold.fork(origin, at="look:1.0")
    await ended(fork)
    assert await spent(scene, fork) == (1, 100)
    assert (await scene.hold.budget(fork)).lines[Meter.STEPS].limit == 10
    assert await spent(scene, origin) == (3, 200)


async def cancel(scene: Scene) -> None:
    """A call that is cut off costs what it may have cost; nothing stays set aside."""
    spender = Spender(scene, hangs=True)
    handle = await spender.begin()
    await until(lambda: spender.calls == 2)
    await scene.hold.cancel(handle)
    await scene.is_cancelled(handle)
    steps, tokens = await spent(scene, handle)
    assert (steps, tokens > 200) == (3, True), f"{steps} steps, {tokens} tokens"


async def deadline(scene: Scene) -> None:
    spender = Spender(scene, hangs=True)
    handle = await spender.begin(deadline=SOON)
    assert "DeadlineExceeded" in await scene.failure(handle)
    steps, tokens = await spent(scene, handle)
    assert (steps, tokens > 200) == (3, True), f"{steps} steps, {tokens} tokens"


async def suspension(scene: Scene) -> None:
    """A task that waits for a person has nothing set aside, and its wall time stands still."""
    model = ScriptedModel([call("ask_question", question="Where?"), "done"], usage=EACH)
    budget = Budget(max_llm_tokens=100_000, max_wall_time_ms=60_000)
    agent = scene.hold.register(Agent("asking", model=model, budget=budget, retry=ONE_TRY))
    handle = await scene.hold.submit(agent, "go")
    await until(scene.hold.approvals)
    await scene.waits(handle)
    with scene.box.frozen():
        await scene.box.advance(3600)
    assert (await scene.hold.budget(handle)).lines[Meter.LLM_TOKENS].reserved == 0
    [question] = await scene.hold.approvals()
    await scene.hold.answer(question.id, "west", by="anna")
    assert await ended(handle) == "done"


async def suspension_of_a_sub_agent(scene: Scene) -> None:
    """The wall time of a caller stands still, too, while its sub-agent waits for a person."""
    asks = ScriptedModel([call("ask_question", question="Where?"), "west"], usage=EACH)
    helper = Agent("helper", description="Helps.", model=asks)
    model = ScriptedModel([call("helper", request="Ask."), "done"], usage=EACH)
    budget = Budget(max_wall_time_ms=60_000)
    agent = Agent("boss", model=model, tools=[helper], budget=budget, retry=ONE_TRY, builtins=False)
    handle = await scene.hold.submit(scene.hold.register(agent), "go")
    await until(scene.hold.approvals)
    await scene.waits(handle)
    [question] = await scene.hold.approvals()
    await scene.waits(scene.hold.handle(question.task_id))
    with scene.box.frozen():
        await scene.box.advance(3600)
    await scene.hold.answer(question.id, "west", by="anna")
    assert await ended(handle) == "done"


async def take_over(scene: Scene) -> None:
    """What a dead worker had set aside counts as spent; its steps are known by the journal, and count once."""
    scene.box.crash("llm:2", when="after_effect")
    handle = await Spender(scene).begin()
    await ended(handle)
    steps, tokens = await spent(scene, handle)
    assert steps == 3
    assert tokens > 300, "the answer that got lost may have cost all that was set aside for it"


async def deploy(scene: Scene) -> None:
    """A task keeps the limits that it was submitted with."""
    url = f"sqlite:///{scene.folder}/deployed.db"
    async with Holdfast(url) as old:
        agent = Agent("agent", model=ScriptedModel(["never"]), budget=Budget(max_steps=7))
        handle = await old.submit(old.register(agent), "go")
    async with Holdfast(url) as new:
        new.register(Agent("agent", model=ScriptedModel(["done"]), budget=Budget(max_steps=70)))
        async with new.worker():
            await ended(new.handle(handle.id))
        assert (await new.budget(handle.id)).lines[Meter.STEPS].limit == 7


async def prune(scene: Scene) -> None:
    handle = await Spender(scene).begin()
    await ended(handle)
    await scene.prune()
    with pytest.raises(NotFound):
        await scene.hold.budget(handle)
