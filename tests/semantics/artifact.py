"""An artifact: bytes that a task keeps outside of its journal, by their digest."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

from holdfast import Agent, Handle, Holdfast, ScriptedModel, tool
from holdfast.agent.model import Request
from holdfast.agent.scripted import Answer, call
from tests.engine.support import ended, until
from tests.semantics.scene import AT_ONCE, DAY, ONE_TRY, SOON, Part, Scene

LOG = "a line of the log\n" * 1000


def writing(scene: Scene, written: list[str]) -> Part:
    """A step that stores the log, and returns its id."""

    async def write() -> str:
        written.append("write")
        return (await scene.hold.artifacts.write(LOG)).id

    return lambda ctx: ctx.step("write", write)


class Reader:
    """An agent whose tool returns a long log, which becomes an artifact of its task; then it may fail once."""

    def __init__(self, scene: Scene, *, fails: bool = False, asks: bool = False, **options: Any) -> None:  # noqa: ANN401
        self.reads = reads = list[str]()
        self.broken = fails
        self.asks = asks

        @tool(risk="read_only")
        async def read_log() -> str:
            """Read the log."""
            reads.append("read")
            return LOG

        self.model = ScriptedModel(self._think)
        options = {"retry": ONE_TRY, **options}
        self.definition = scene.hold.register(Agent("reader", model=self.model, tools=[read_log], **options))

    def _think(self, request: Request) -> Answer | BaseException:
        if request.messages[-1].role != "tool":
            return call("read_log")
        if self.broken:
            self.broken = False
            return RuntimeError("no such model")
        if self.asks and request.turn == 1:
            return call("ask_question", question="What now?")
        return "done"

    async def begin(self, scene: Scene, **options: Any) -> Handle[str]:  # noqa: ANN401
        return await scene.hold.submit(self.definition, "go", **options)


async def kept(scene: Scene, handle: Handle[Any]) -> str:
    """Return the id of the one artifact that a task keeps; it can be read."""
    [link] = await scene.hold.store.artifact_links(handle.id)
    assert LOG in await scene.hold.artifacts.read_text(link.artifact_id)
    return link.artifact_id


async def automatic_retry(scene: Scene) -> None:
    reader = Reader(scene, fails=True, retry=AT_ONCE)
    handle = await reader.begin(scene)
    await ended(handle)
    await kept(scene, handle)
    assert reader.reads == ["read"]


async def resume(scene: Scene) -> None:
    reader = Reader(scene, fails=True)
    handle = await reader.begin(scene)
    await scene.failure(handle)
    first = await kept(scene, handle)
    await scene.hold.resume(handle)
    await ended(handle)
    assert (await kept(scene, handle), reader.reads) == (first, ["read"])


async def retry(scene: Scene) -> None:
    """The call is made again; equal bytes are the same artifact, stored once."""
    reader = Reader(scene, fails=True)
    handle = await reader.begin(scene)
    await scene.failure(handle)
    first = await kept(scene, handle)
    await scene.hold.retry(handle)
    await ended(handle)
    assert (await kept(scene, handle), reader.reads) == (first, ["read", "read"])


async def new_round(scene: Scene) -> None:
    reader = Reader(scene, verify=lambda ctx, _: ctx.task.round == 2 or "again", retry=AT_ONCE)
    handle = await reader.begin(scene)
    await ended(handle)
    await kept(scene, handle)
    assert len((await scene.hold.state(handle)).artifacts) >= 1


async def fork(scene: Scene) -> None:
    """The fork keeps them too, also when its origin is pruned."""
    reader = Reader(scene)
    origin = await reader.begin(scene)
    await ended(origin)
    first = await kept(scene, origin)
    fork = await scene.hold.fork(origin)
    await ended(fork)
    assert (await kept(scene, fork), reader.reads) == (first, ["read"])


async def cancel(scene: Scene) -> None:
    handle = await _asking(scene)
    await scene.hold.cancel(handle)
    await scene.is_cancelled(handle)
    await kept(scene, handle)


async def cancel_amid_a_write(scene: Scene) -> None:
    """What was not written to its end is not an artifact."""
    begun: list[str] = []

    async def source() -> AsyncIterator[bytes]:
        yield LOG.encode()
        begun.append("begun")
        await asyncio.Event().wait()

    async def write() -> str:
        return (await scene.hold.artifacts.write(source())).id

    await scene.by_cancel(lambda ctx: ctx.step("write", write), when=lambda: begun)
    assert await scene.hold.store.artifact(hashlib.sha256(LOG.encode()).hexdigest()) is None


async def _asking(scene: Scene, **options: Any) -> Handle[str]:  # noqa: ANN401
    with scene.box.frozen():
        handle = await Reader(scene, asks=True).begin(scene, **options)
        await until(scene.hold.approvals)
    return handle


async def deadline(scene: Scene) -> None:
    handle = await _asking(scene, deadline=SOON)
    assert "DeadlineExceeded" in await scene.failure(handle)
    await kept(scene, handle)


async def suspension(scene: Scene) -> None:
    handle = await _asking(scene)
    await scene.waits(handle)
    await scene.prune()
    first = await kept(scene, handle)
    [question] = await scene.hold.approvals()
    await scene.hold.answer(question.id, "go on", by="anna")
    await ended(handle)
    assert await kept(scene, handle) == first


async def take_over(scene: Scene) -> None:
    """A write whose record got lost is made again, and is the same artifact."""
    written: list[str] = []
    scene.box.crash("write", when="after_effect")
    artifact_id = await ended(await scene.begun(writing(scene, written)))
    assert written == ["write", "write"]
    assert await scene.hold.artifacts.read_text(artifact_id) == LOG


async def deploy(scene: Scene) -> None:
    """An id depends on nothing but the bytes: what the old code wrote, the new code reads."""
    url = f"sqlite:///{scene.folder}/deployed.db"
    async with Holdfast(url) as old:
        artifact = await old.artifacts.write(LOG, media_type="text/plain")
    async with Holdfast(url) as new:
        assert await new.artifacts.read_text(artifact.id) == LOG
        assert (await new.artifacts.write(LOG.encode())).id == artifact.id


async def prune(scene: Scene) -> None:
    """It goes with the last task that keeps it."""
    reader = Reader(scene)
    origin = await reader.begin(scene)
    await ended(origin)
    artifact_id = await kept(scene, origin)
    with scene.box.frozen():
        await scene.box.advance(86_400)
        fork = await scene.hold.fork(origin)
    await ended(fork)
    with scene.box.frozen():
        await scene.box.advance(43_200)
        await scene.hold.store.prune(DAY)
    assert await scene.hold.store.get(origin.id) is None
    assert await kept(scene, fork) == artifact_id
    await scene.prune()
    assert await scene.hold.store.artifact(artifact_id) is None


async def prune_of_one_that_no_task_keeps(scene: Scene) -> None:
    """A plain ``hold.artifacts.write`` belongs to no task, and goes by its age."""
    artifact = await scene.hold.artifacts.write(LOG)
    await scene.prune()
    assert await scene.hold.store.artifact(artifact.id) is None
