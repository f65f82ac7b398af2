"""A label: a name with a value, given with the submission."""

from typing import Any

from holdfast import Agent, Context, Handle, Holdfast, Retry, ScriptedModel, TaskFilter
from holdfast.agent.scripted import call
from tests.engine.support import ended
from tests.semantics.scene import AT_ONCE, DAY, HOUR, ONE_TRY, SOON, Scene

ACME = {"tenant": "acme"}
OWN = {"kind": "part"}


async def nothing() -> None: ...


class Labelled:
    """A task with a label, and a child with one of its own that begins before the code fails, waits or ends."""

    def __init__(self, scene: Scene, *, fails: bool = False, waits: bool = False, retry: Retry = ONE_TRY) -> None:
        self.scene = scene
        self.broken = fails

        @scene.hold.task
        async def part(ctx: Context) -> dict[str, str]:
            return dict(ctx.task.labels)

        @scene.hold.task(retry=retry)
        async def whole(ctx: Context) -> dict[str, str]:
            child = await ctx.submit(part, key="part", labels=OWN)
            assert await child.result() == ACME | OWN
            await ctx.step("mark", nothing)
            if waits:
                await ctx.sleep(HOUR, key="long")
            if self.broken:
                self.broken = False
                raise RuntimeError("no paper")
            return dict(ctx.task.labels)

        self.definition = whole

    async def begin(self, **options: Any) -> Handle[Any]:  # noqa: ANN401
        return await self.scene.hold.submit(self.definition, labels=ACME, **options)

    async def check(self, handle: Handle[Any]) -> None:
        """The code saw the label, the child has it beside its own, and both are found by it."""
        assert await ended(handle) == ACME
        [child] = await self.scene.children(handle)
        assert child.labels == ACME | OWN
        assert await found(self.scene, ACME) == {handle.id, child.id}
        assert await found(self.scene, ACME | OWN) == {child.id}


async def found(scene: Scene, labels: dict[str, str]) -> set[str]:
    page = await scene.hold.store.find(TaskFilter(labels=labels), limit=100)
    return {task.id for task in page.items}


async def automatic_retry(scene: Scene) -> None:
    labelled = Labelled(scene, fails=True, retry=AT_ONCE)
    await labelled.check(await labelled.begin())


async def resume(scene: Scene) -> None:
    labelled = Labelled(scene, fails=True)
    handle = await labelled.begin()
    await scene.failure(handle)
    await scene.hold.resume(handle)
    await labelled.check(handle)


async def take_over(scene: Scene) -> None:
    scene.box.crash("mark", when="before_effect")
    labelled = Labelled(scene)
    await labelled.check(await labelled.begin())


async def suspension(scene: Scene) -> None:
    labelled = Labelled(scene, waits=True)
    await labelled.check(await labelled.begin())


async def deploy(scene: Scene) -> None:
    """The task is submitted by old code and begun by code that gives its children other labels."""
    url = f"sqlite:///{scene.folder}/deployed.db"
    async with Holdfast(url) as old:

        @old.task(name="whole")
        async def before(ctx: Context) -> None: ...

        handle = await old.submit(before, labels=ACME)
    async with Holdfast(url) as new:

        @new.task
        async def part(ctx: Context) -> dict[str, str]:
            return dict(ctx.task.labels)

        @new.task(name="whole")
        async def after(ctx: Context) -> dict[str, str]:
            return await (await ctx.submit(part, labels={"tenant": "globex"})).result()

        async with new.worker():
            assert await ended(new.handle(handle.id)) == {"tenant": "globex"}
        assert (await new.handle(handle.id).task()).labels == ACME


async def retry(scene: Scene) -> None:
    labelled = Labelled(scene, fails=True)
    handle = await labelled.begin()
    await scene.failure(handle)
    await scene.hold.retry(handle)
    await labelled.check(handle)


async def new_round(scene: Scene) -> None:
    labelled = Labelled(scene, retry=AT_ONCE)

    @labelled.definition.verify
    async def second_round(ctx: Context, _: object) -> bool | str:
        return ctx.task.round == 2 or "better"

    await labelled.check(await labelled.begin())


async def fork(scene: Scene) -> None:
    labelled = Labelled(scene)
    origin = await labelled.begin()
    await labelled.check(origin)
    other = await scene.hold.fork(origin)
    assert await ended(other) == ACME
    assert other.id in await found(scene, ACME)


async def handed_to_a_sub_agent(scene: Scene) -> None:
    helper = Agent("helper", description="Helps.", model=ScriptedModel(["helped"] * 2), builtins=False)
    model = ScriptedModel([call("helper", request="Help."), "done"] * 2)
    boss = scene.hold.register(Agent("boss", model=model, tools=[helper], builtins=False))
    handle = await scene.hold.submit(boss, "go", labels=ACME)
    await ended(handle)
    [child] = await scene.children(handle)
    assert (child.name, child.labels) == ("helper", ACME)


async def cancel(scene: Scene) -> None:
    labelled = Labelled(scene)
    with scene.box.frozen():
        handle = await labelled.begin(delay=3600)
        await scene.hold.cancel(handle)
    assert await found(scene, ACME) == {handle.id}


async def deadline(scene: Scene) -> None:
    labelled = Labelled(scene)
    handle = await labelled.begin(delay=3600, deadline=SOON)
    assert "DeadlineExceeded" in await scene.failure(handle)
    assert await found(scene, ACME) == {handle.id}


async def prune(scene: Scene) -> None:
    labelled = Labelled(scene)
    handle = await labelled.begin()
    await labelled.check(handle)
    await scene.prune(DAY)
    assert await found(scene, ACME) == set()
    assert await scene.hold.store.count(TaskFilter(labels=ACME)) == {}
