"""A message to an agent: ``hold.send(task, text)``."""

from typing import Any

import pytest

from holdfast import Agent, Conflict, Handle, Holdfast, NotFound, ScriptedModel, tool
from holdfast.agent.model import Request
from holdfast.agent.scripted import Answer, call
from tests.engine.support import ended, until
from tests.semantics.scene import AT_ONCE, ONE_TRY, SOON, Scene


def heard(request: Request) -> list[str]:
    """Return what people said, as the model was shown it."""
    return [message.content for message in request.messages if message.role == "user"]


class Parrot:
    """An agent that looks once, may fail once, and then says how many messages it heard."""

    def __init__(self, scene: Scene, *, fails: bool = False, **options: Any) -> None:  # noqa: ANN401
        self.scene = scene
        self.broken = fails

        @tool(risk="read_only")
        async def look() -> str:
            """Look."""
            return "nothing"

        self.model = ScriptedModel(self._think)
        options = {"retry": ONE_TRY, **options}
        agent = Agent("parrot", model=self.model, tools=[look], builtins=False, **options)
        self.definition = scene.hold.register(agent)

    def _think(self, request: Request) -> Answer | BaseException:
        if request.messages[-1].role != "tool":
            return call("look")
        if self.broken:
            self.broken = False
            return RuntimeError("no such model")
        return " / ".join(heard(request))

    async def begin(self, *said: str, **options: Any) -> Handle[str]:  # noqa: ANN401
        with self.scene.box.frozen():
            handle = await self.scene.hold.submit(self.definition, "go", delay=1, **options)
            for text in said:
                await self.scene.hold.send(handle, text)
        return handle


async def automatic_retry(scene: Scene) -> None:
    handle = await Parrot(scene, fails=True, retry=AT_ONCE).begin("one", "two")
    assert await ended(handle) == "go / one / two"


async def resume(scene: Scene) -> None:
    handle = await Parrot(scene, fails=True).begin("one")
    await scene.failure(handle)
    with pytest.raises(Conflict):
        await scene.hold.send(handle, "too late")
    await scene.hold.resume(handle, message="two")
    assert await ended(handle) == "go / one / two"


async def retry(scene: Scene) -> None:
    handle = await Parrot(scene, fails=True).begin("one")
    await scene.failure(handle)
    await scene.hold.retry(handle)
    assert await ended(handle) == "go / one"


async def new_round(scene: Scene) -> None:
    parrot = Parrot(scene, verify=lambda ctx, _: ctx.task.round == 2 or "louder", retry=AT_ONCE)
    handle = await parrot.begin("one")
    await ended(handle)
    assert heard(parrot.model.requests[-1])[:2] == ["go", "one"]
    assert heard(parrot.model.requests[-1]).count("one") == 1


async def fork(scene: Scene) -> None:
    """What was read is part of the conversation; the fork has a mailbox of its own."""
    parrot = Parrot(scene)
    origin = await parrot.begin("one")
    await ended(origin)
    with scene.box.frozen():
        fork = await scene.hold.fork(origin, at="look:1.0")
        await scene.hold.send(fork, "to the fork")
    await ended(fork)
    assert heard(parrot.model.requests[-1]) == ["go", "one", "to the fork"]


class Asking:
    """An agent that asks a person, and waits."""

    def __init__(self, scene: Scene) -> None:
        self.model = ScriptedModel([call("ask_question", question="Where?"), "done"])
        self.definition = scene.hold.register(Agent("asking", model=self.model))

    async def begin(self, scene: Scene, **options: Any) -> Handle[str]:  # noqa: ANN401
        with scene.box.frozen():
            handle = await scene.hold.submit(self.definition, "go", **options)
            await until(scene.hold.approvals)
        return handle


async def cancel(scene: Scene) -> None:
    asking = Asking(scene)
    handle = await asking.begin(scene)
    await scene.hold.send(handle, "unread")
    await scene.hold.cancel(handle)
    await scene.is_cancelled(handle)
    with pytest.raises(Conflict, match="after="):
        await scene.hold.send(handle, "too late")
    assert len(asking.model.requests) == 1


async def deadline(scene: Scene) -> None:
    handle = await Asking(scene).begin(scene, deadline=SOON)
    await scene.hold.send(handle, "unread")
    assert "DeadlineExceeded" in await scene.failure(handle)
    with pytest.raises(Conflict, match="resume"):
        await scene.hold.send(handle, "too late")


async def suspension(scene: Scene) -> None:
    """A message wakes no waiting agent: it is read when the agent goes on."""
    asking = Asking(scene)
    handle = await asking.begin(scene)
    await scene.waits(handle)
    await scene.hold.send(handle, "by the way")
    await scene.box.idle()
    await scene.waits(handle)
    assert len(asking.model.requests) == 1
    [question] = await scene.hold.approvals()
    await scene.hold.answer(question.id, "west", by="anna")
    await ended(handle)
    assert heard(asking.model.requests[-1]) == ["go", "by the way"]


async def take_over(scene: Scene) -> None:
    scene.box.crash("look:1.0", when="before_effect")
    handle = await Parrot(scene).begin("one", "two")
    assert await ended(handle) == "go / one / two"


async def deploy(scene: Scene) -> None:
    """An agent with other instructions and another model reads what was said to the old one."""
    url = f"sqlite:///{scene.folder}/deployed.db"
    async with Holdfast(url) as old:
        first = await old.submit(old.register(Agent("agent", model=ScriptedModel(["never"]))), "go")
        await old.send(first, "one")
    async with Holdfast(url) as new:
        model = ScriptedModel(["done"])
        new.register(Agent("agent", model=model, instructions="Be brief."))
        async with new.worker():
            assert await ended(new.handle(first.id)) == "done"
    assert heard(model.requests[0]) == ["go", "one"]


async def prune(scene: Scene) -> None:
    handle = await Parrot(scene).begin("one")
    await ended(handle)
    await scene.prune()
    with pytest.raises(NotFound):
        await scene.hold.send(handle, "too late")
    assert await scene.hold.store.events(f"inbox:{handle.id}") == []


async def prune_of_an_unread_message(scene: Scene) -> None:
    """A message to an open task stays until the task has read it, however long the task waits."""
    asking = Asking(scene)
    handle = await asking.begin(scene)
    await scene.hold.send(handle, "by the way")
    await scene.prune()
    [question] = await scene.hold.approvals()
    await scene.hold.answer(question.id, "west", by="anna")
    await ended(handle)
    assert heard(asking.model.requests[-1]) == ["go", "by the way"]
