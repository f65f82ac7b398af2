"""A checkpoint: a snapshot of an agent's state. The journal is the truth; a checkpoint is a cached fold of it."""

from datetime import timedelta
from typing import Any

from holdfast import Agent, Checkpoints, Handle, Holdfast, Request, ScriptedModel
from holdfast.agent.scripted import Answer, Line, call
from tests.engine.support import ended, until
from tests.semantics.scene import AT_ONCE, ONE_TRY, SOON, Scene

POLICY = Checkpoints("every_step", max_age=timedelta(hours=1))


class Knowing:
    """An agent that records a fact, may ask or fail once behind that, and ends."""

    def __init__(self, scene: Scene, *, fails: bool = False, asks: bool = False, **options: Any) -> None:  # noqa: ANN401
        self.scene = scene
        self.broken = fails
        self.asks = asks
        self.model = ScriptedModel(self._think)
        options = {"retry": ONE_TRY, "checkpoint": POLICY, **options}
        self.definition = scene.hold.register(Agent("knowing", model=self.model, **options))

    def _think(self, request: Request) -> Answer | BaseException:
        if request.messages[-1].role != "tool":
            return call("record_fact", key="disk", value="full")
        if self.broken:
            self.broken = False
            return RuntimeError("no such model")
        if self.asks:
            self.asks = False
            return call("ask_question", question="Clean?")
        return "done"

    async def begin(self, **options: Any) -> Handle[str]:  # noqa: ANN401
        return await self.scene.hold.submit(self.definition, "go", **options)

    async def waiting(self, **options: Any) -> Handle[str]:  # noqa: ANN401
        with self.scene.box.frozen():
            handle = await self.begin(**options)
            await until(self.scene.hold.approvals)
        return handle


async def facts(scene: Scene, handle: Handle[Any]) -> list[str]:
    """Return what the agent knows; there is a checkpoint, and it is good."""
    saved = await scene.hold.store.checkpoints(handle.id)
    assert saved
    assert all(one.damaged is None for one in saved)
    return [fact.key for fact in (await scene.hold.state(handle)).known_facts]


async def automatic_retry(scene: Scene) -> None:
    knowing = Knowing(scene, fails=True, retry=AT_ONCE)
    handle = await knowing.begin()
    await ended(handle)
    assert await facts(scene, handle) == ["disk"]
    assert len(knowing.model.requests) == 3, "the recorded answer was not asked for again"


async def resume(scene: Scene) -> None:
    handle = await Knowing(scene, fails=True).begin()
    await scene.failure(handle)
    await scene.hold.resume(handle)
    await ended(handle)
    assert await facts(scene, handle) == ["disk"]


async def resume_of_an_old_one(scene: Scene) -> None:
    """What is older than ``max_age`` is refused, unless the caller accepts it."""
    handle = await Knowing(scene, fails=True).begin()
    await scene.failure(handle)
    with scene.box.frozen():
        await scene.box.advance(2 * 3600)
    await scene.hold.resume(handle)
    assert "CheckpointExpired" in await scene.failure(handle)
    await scene.hold.resume(handle, accept_stale=True)
    assert await ended(handle) == "done"


async def retry(scene: Scene) -> None:
    """The agent starts over, whatever its age."""
    knowing = Knowing(scene, fails=True)
    handle = await knowing.begin()
    await scene.failure(handle)
    with scene.box.frozen():
        await scene.box.advance(2 * 3600)
    await scene.hold.retry(handle)
    assert await ended(handle) == "done"
    assert [message.role for message in knowing.model.requests[2].messages if message.role != "system"] == ["user"]


async def new_round(scene: Scene) -> None:
    """The state goes on: what the first round knew, the second one knows."""
    knowing = Knowing(scene, verify=lambda ctx, _: ctx.task.round == 2 or "again", retry=AT_ONCE)
    handle = await knowing.begin()
    await ended(handle)
    assert "disk" in await facts(scene, handle)
    assert any(message.role == "tool" for message in knowing.model.requests[2].messages)


async def fork(scene: Scene) -> None:
    """The state right after the step, with or without a checkpoint there."""
    knowing = Knowing(scene, checkpoint="on_state_change")
    origin = await knowing.begin()
    await ended(origin)
    fork = await scene.hold.fork(origin, at="record_fact:1.0")
    await ended(fork)
    assert [fact.key for fact in (await scene.hold.state(fork)).known_facts] == ["disk"]
    before = await scene.hold.fork(origin, at="llm:1")
    assert (await scene.hold.state(before)).known_facts == ()


async def cancel(scene: Scene) -> None:
    handle = await Knowing(scene, asks=True).waiting()
    await scene.hold.cancel(handle)
    await scene.is_cancelled(handle)
    assert await facts(scene, handle) == ["disk"]


async def deadline(scene: Scene) -> None:
    handle = await Knowing(scene, asks=True).waiting(deadline=SOON)
    assert "DeadlineExceeded" in await scene.failure(handle)
    assert await facts(scene, handle) == ["disk"]


async def suspension(scene: Scene) -> None:
    """A task that waits has saved what it knows, and does not grow older by waiting."""
    handle = await Knowing(scene, asks=True).waiting()
    await scene.waits(handle)
    assert await facts(scene, handle) == ["disk"]
    with scene.box.frozen():
        await scene.box.advance(24 * 3600)
    [question] = await scene.hold.approvals()
    await scene.hold.answer(question.id, "yes", by="anna")
    assert await ended(handle) == "done"


async def take_over(scene: Scene) -> None:
    """With ``every_step`` a crash costs the call under way."""
    knowing = Knowing(scene)
    scene.box.crash("llm:2", when="before_effect")
    handle = await knowing.begin()
    await ended(handle)
    assert await facts(scene, handle) == ["disk"]
    assert len(knowing.model.requests) == 2


async def deploy(scene: Scene) -> None:
    """Another strategy counts from the next step on; what is known stays."""
    url = f"sqlite:///{scene.folder}/deployed.db"
    async with Holdfast(url) as old:
        script: list[Line] = [call("record_fact", key="disk", value="full"), RuntimeError("no such model")]
        agent = Agent("agent", model=ScriptedModel(script), checkpoint="every_step", retry=ONE_TRY)
        handle = await old.submit(old.register(agent), "go")
        async with old.worker():
            await scene.failure(handle)
    async with Holdfast(url) as new:
        new.register(Agent("agent", model=ScriptedModel(["never", "done"]), checkpoint="on_state_change"))
        async with new.worker():
            assert await ended(await new.resume(handle.id)) == "done"
        assert [fact.key for fact in (await new.state(handle.id)).known_facts] == ["disk"]


async def prune(scene: Scene) -> None:
    handle = await Knowing(scene).begin()
    await ended(handle)
    assert await scene.hold.store.checkpoints(handle.id)
    await scene.prune()
    assert await scene.hold.store.checkpoints(handle.id) == []
