"""The first state: what an agent's state was submitted with, and what becomes of it."""

from typing import Any

import pytest

from holdfast import Agent, AgentState, Budget, Handle, Holdfast, Request, ScriptedModel, TaskCancelled
from holdfast.agent.scripted import Answer, call
from holdfast.engine.api.first_state import GIVEN
from tests.engine.support import ended, until
from tests.semantics.scene import AT_ONCE, ONE_TRY, SOON, Scene

START = AgentState(goal="go", plan=("look", "mend"), open_questions=("why?",))


class Planned:
    """An agent that begins with a plan, replaces it, may ask or fail once behind that, and ends."""

    def __init__(self, scene: Scene, *, fails: bool = False, asks: bool = False, **options: Any) -> None:  # noqa: ANN401
        self.scene = scene
        self.broken = fails
        self.asks = asks
        model = ScriptedModel(self._think)
        self.definition = scene.hold.register(Agent("planned", model=model, **{"retry": ONE_TRY, **options}))

    def _think(self, request: Request) -> Answer | BaseException:
        if not any(message.role == "tool" for message in request.messages):
            return call("update_plan", plan=["mended"])
        if self.broken:
            self.broken = False
            return RuntimeError("no such model")
        if self.asks:
            self.asks = False
            return call("ask_question", question="Clean?")
        return "done"

    async def begin(self, **options: Any) -> Handle[str]:  # noqa: ANN401
        return await self.scene.hold.submit(self.definition, "go", state=START, **options)


async def went_on(scene: Scene, handle: Handle[Any]) -> bool:
    """Say whether the state was begun once, with what was given, and went on from there."""
    first, *later = await scene.hold.state_history(handle)
    assert (first.version, first.reason) == (1, GIVEN)
    assert (await scene.hold.state(handle, at=1)).plan == START.plan
    assert all(one.reason != GIVEN for one in later)
    return (await scene.hold.state(handle)).plan == ("mended",)


async def automatic_retry(scene: Scene) -> None:
    handle = await Planned(scene, fails=True, retry=AT_ONCE).begin()
    await ended(handle)
    assert await went_on(scene, handle)


async def resume(scene: Scene) -> None:
    handle = await Planned(scene, fails=True).begin()
    await scene.failure(handle)
    await scene.hold.resume(handle)
    await ended(handle)
    assert await went_on(scene, handle)


async def take_over(scene: Scene) -> None:
    scene.box.crash("llm:2", when="before_effect")
    handle = await Planned(scene).begin()
    await ended(handle)
    assert await went_on(scene, handle)


async def suspension(scene: Scene) -> None:
    planned = Planned(scene, asks=True)
    with scene.box.frozen():
        handle = await planned.begin()
        await until(scene.hold.approvals)
    await scene.waits(handle)
    [question] = await scene.hold.approvals()
    await scene.hold.answer(question.id, "yes", by="anna")
    await ended(handle)
    assert await went_on(scene, handle)


async def deploy(scene: Scene) -> None:
    """The task is submitted by old code and begun by new one."""
    url = f"sqlite:///{scene.folder}/deployed.db"
    async with Holdfast(url) as old:
        agent = Agent("agent", model=ScriptedModel(["never"]), budget=Budget(max_steps=20))
        handle = await old.submit(old.register(agent), "go", state=START)
    async with Holdfast(url) as new:
        budget = Budget(max_steps=90, max_artifact_bytes_in_context=100)
        new.register(Agent("agent", model=ScriptedModel(["done"]), approve=["external_action"], budget=budget))
        async with new.worker():
            assert await ended(new.handle(handle.id)) == "done"
        state = await new.state(handle.id)
    assert state.plan == START.plan
    assert state.constraints.human_in_the_loop is not None
    assert state.budget == Budget(max_steps=20, max_artifact_bytes_in_context=100)


async def retry(scene: Scene) -> None:
    handle = await Planned(scene, fails=True).begin()
    await scene.failure(handle)
    await scene.hold.retry(handle)
    await ended(handle)
    assert await went_on(scene, handle)


async def new_round(scene: Scene) -> None:
    planned = Planned(scene, verify=lambda ctx, _: ctx.task.round == 2 or "again", retry=AT_ONCE)
    handle = await planned.begin()
    await ended(handle)
    assert await went_on(scene, handle)


async def fork(scene: Scene) -> None:
    origin = await Planned(scene).begin()
    await ended(origin)
    assert (await scene.hold.state(await scene.hold.fork(origin, at="llm:1"))).plan == START.plan
    later = await scene.hold.fork(origin, at="update_plan:1.0")
    await ended(later)
    assert await went_on(scene, later)


async def _gone_on_from(scene: Scene, planned: Planned, handle: Handle[Any]) -> None:
    state = await scene.hold.state(await scene.hold.submit(planned.definition, "on", after=handle))
    assert (state.goal, state.plan, state.open_questions) == ("on", START.plan, START.open_questions)


async def cancel(scene: Scene) -> None:
    planned = Planned(scene)
    with scene.box.frozen():
        handle = await planned.begin(delay=3600)
        await scene.hold.cancel(handle)
        with pytest.raises(TaskCancelled):  # a worker may have claimed it between the request and the end
            await ended(handle)
        await _gone_on_from(scene, planned, handle)


async def deadline(scene: Scene) -> None:
    planned = Planned(scene)
    handle = await planned.begin(delay=3600, deadline=SOON)
    assert "DeadlineExceeded" in await scene.failure(handle)
    with scene.box.frozen():
        await _gone_on_from(scene, planned, handle)


async def prune(scene: Scene) -> None:
    handle = await Planned(scene).begin()
    await ended(handle)
    await scene.prune()
    assert await scene.hold.store.get(handle.id) is None
    assert await scene.hold.store.patches(handle.id) == []
