"""A child: ``child = await ctx.submit(task)``, ``await child.result()``."""

from typing import Any

from holdfast import Context, TaskDefinition, TaskState
from tests.engine.support import ended, reaches, until
from tests.semantics.scene import AT_ONCE, DAY, ONE_TRY, Calls, Part, Run, Scene


def paying(scene: Scene, calls: Calls) -> TaskDefinition[..., Any]:
    """A child that counts, and pays."""

    @scene.hold.task(retry=ONE_TRY)
    async def child(ctx: Context, what: str = "letter") -> str:
        await ctx.step("count", calls.do, f"count {what}")
        await ctx.step("pay", calls.do, f"pay {what}", effect="once")
        return f"{ctx.task.round}, {ctx.feedback}"

    return child


def parent(child: TaskDefinition[..., Any]) -> Part:
    """Submit it and wait for it."""

    async def part(ctx: Context) -> Any:  # noqa: ANN401
        return await (await ctx.submit(child)).result()

    return part


def failing_once(scene: Scene, calls: Calls) -> TaskDefinition[..., Any]:
    """A child whose only attempt fails, behind a step, until it is begun again."""

    @scene.hold.task(retry=ONE_TRY)
    async def child(ctx: Context) -> int:
        await ctx.step("count", calls.do, "count")
        calls.append("child")
        if calls.count("child") == 1:
            raise ConnectionError("service down")
        return ctx.task.round

    return child


async def automatic_retry(scene: Scene) -> None:
    calls = Calls()
    run = await scene.by_automatic_retry(parent(paying(scene, calls)))
    assert calls == ["count letter", "pay letter"]
    assert len(await scene.children(run.handle)) == 1


async def automatic_retry_of_a_failed_child(scene: Scene) -> None:
    """It goes on in its round."""
    calls = Calls()
    handle = await scene.begun(parent(failing_once(scene, calls)), retry=AT_ONCE)
    assert await ended(handle) == 1
    assert calls == ["count", "child", "child"]
    assert len(await scene.children(handle)) == 1


async def resume(scene: Scene) -> None:
    calls = Calls()
    run = await scene.by_resume(parent(paying(scene, calls)))
    assert calls == ["count letter", "pay letter"]
    assert len(await scene.children(run.handle)) == 1


async def resume_of_a_failed_child(scene: Scene) -> None:
    calls = Calls()
    handle = await scene.begun(parent(failing_once(scene, calls)))
    assert "service down" in await scene.failure(handle)
    await scene.hold.resume(handle)
    assert await ended(handle) == 1
    assert calls == ["count", "child", "child"]


async def _is_in_its_second_round(scene: Scene, run: Run, calls: Calls) -> None:
    assert run.result == "2, better"
    assert calls == ["count letter", "pay letter", "count letter"]
    [child] = await scene.children(run.handle)
    assert (child.round, child.state) == (2, TaskState.COMPLETED)


async def retry(scene: Scene) -> None:
    calls = Calls()
    run = await scene.by_retry(parent(paying(scene, calls)))
    await _is_in_its_second_round(scene, run, calls)


async def new_round(scene: Scene) -> None:
    calls = Calls()
    run = await scene.by_new_round(parent(paying(scene, calls)))
    await _is_in_its_second_round(scene, run, calls)


async def new_round_without_a_call(scene: Scene) -> None:
    """A child that the new round does not submit is left as it is."""
    calls = Calls()
    child = paying(scene, calls)

    async def part(ctx: Context) -> None:
        if ctx.task.round == 1:
            await (await ctx.submit(child)).result()

    run = await scene.by_new_round(part)
    [only] = await scene.children(run.handle)
    assert (only.round, only.state) == (1, TaskState.COMPLETED)


async def fork(scene: Scene) -> None:
    """An ended child is shared, and stays the origin's."""
    calls = Calls()
    run = await scene.by_fork(parent(paying(scene, calls)))
    assert calls == ["count letter", "pay letter"]
    assert await scene.children(run.handle) == []


def waiting(scene: Scene) -> TaskDefinition[..., Any]:
    """A child that waits for an event."""

    @scene.hold.task(retry=ONE_TRY)
    async def child(ctx: Context) -> object:
        return await ctx.wait_event("go")

    return child


async def fork_of_an_open_child(scene: Scene) -> None:
    """The fork submits one of its own."""
    origin = await scene.begun(parent(waiting(scene)))
    await scene.waits(origin)
    fork = await scene.hold.fork(origin)
    await scene.waits(fork)
    [own], [other] = await scene.children(fork), await scene.children(origin)
    assert own.id != other.id


async def cancel(scene: Scene) -> None:
    handle = await scene.begun(parent(waiting(scene)))
    await scene.waits(handle)
    await scene.hold.cancel(handle)
    await scene.is_cancelled(handle)
    [child] = await scene.children(handle)
    await scene.is_cancelled(scene.hold.handle(child.id))


async def deadline(scene: Scene) -> None:
    """A deadline is its own task's: the child goes on."""
    handle = await scene.by_deadline(parent(waiting(scene)))
    [child] = await scene.children(handle)
    assert child.state is TaskState.WAITING
    await scene.hold.emit("go", "on")
    assert await ended(scene.hold.handle(child.id)) == "on"


async def suspension(scene: Scene) -> None:
    """A parent that waits for its child holds no worker; the child's end wakes it."""
    handle = await scene.begun(parent(waiting(scene)))
    await scene.waits(handle)
    await scene.hold.emit("go", "on")
    assert await ended(handle) == "on"


async def take_over(scene: Scene) -> None:
    calls = Calls()
    run = await scene.by_take_over(parent(paying(scene, calls)))
    assert calls == ["count letter", "pay letter"]
    assert len(await scene.children(run.handle)) == 1


async def take_over_before_the_wait(scene: Scene) -> None:
    """A submission that is recorded is not made again."""
    child = waiting(scene)

    async def part(ctx: Context) -> object:
        submitted = await ctx.submit(child)
        await ctx.step("mark", lambda: None)
        return await submitted.result()

    scene.box.crash("mark", when="before_effect")
    handle = await scene.begun(part)
    await scene.waits(handle)
    await scene.hold.emit("go", "on")
    assert await ended(handle) == "on"
    assert len(await scene.children(handle)) == 1


async def deploy(scene: Scene) -> None:
    """What was submitted counts, with the input it had; another name of the task is another child."""
    calls = Calls()
    child = paying(scene, calls)

    async def new(ctx: Context) -> Any:  # noqa: ANN401
        return await (await ctx.submit(child, "parcel")).result()

    run = await scene.by_deploy(parent(child), new)
    assert calls == ["count letter", "pay letter"]
    assert len(await scene.children(run.handle)) == 1


async def prune(scene: Scene) -> None:
    """A child stays while its parent is open, and a parent while a child is."""
    calls = Calls()
    child = paying(scene, calls)

    async def part(ctx: Context) -> None:
        await (await ctx.submit(child)).result()
        await ctx.wait_event("go")

    handle = await scene.begun(part)
    await until(lambda: len(calls) == 2)
    await reaches(handle, TaskState.WAITING)
    await scene.prune()
    [kept] = await scene.children(handle)
    assert kept.state is TaskState.COMPLETED
    await scene.hold.emit("go")
    await ended(handle)
    await scene.prune()
    assert await scene.hold.store.get(handle.id) is None
    assert await scene.hold.store.get(kept.id) is None


async def prune_between_two_rounds(scene: Scene) -> None:
    """Children are pruned only with their parent: a failed parent may still be retried."""
    calls = Calls()
    broken = [True]
    child = paying(scene, calls)

    @scene.hold.task(retry=ONE_TRY)
    async def job(ctx: Context) -> Any:  # noqa: ANN401
        result = await (await ctx.submit(child)).result()
        if broken:
            await ctx.sleep(DAY)
            raise RuntimeError("no paper")
        return result

    handle = await scene.hold.submit(job)
    await scene.failure(handle)
    with scene.box.frozen():
        await scene.hold.store.prune(DAY / 2)
        assert await scene.hold.store.get(handle.id) is not None
        broken.clear()
        await scene.hold.retry(handle)
    await ended(handle)
    assert calls.count("pay letter") == 1
