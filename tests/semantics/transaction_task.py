"""A task that a transaction submits: ``await tx.submit(task)`` in ``ctx.transaction``."""

from __future__ import annotations

from datetime import timedelta

from holdfast import Context, Task, TaskFilter, TaskState, Transaction
from tests.engine.support import ended
from tests.semantics.scene import AT_ONCE, DAY, HOUR, Calls, Part, Scene


def _letters(scene: Scene, *, delay: timedelta | None = None) -> Part:
    """Define the task, and return the part that submits it in a transaction."""

    @scene.hold.task
    async def letter(ctx: Context, name: str) -> str:
        del ctx
        return f"letter to {name}"

    async def write(tx: Transaction, name: str) -> str:
        handle = await tx.submit(letter, name, delay=delay)
        return handle.id

    return lambda ctx: ctx.transaction("write", write, "Ada")


async def _submitted(scene: Scene) -> list[Task]:
    return list((await scene.hold.store.find(TaskFilter(name="letter"))).items)


async def _is_once(scene: Scene, task_id: str) -> None:
    """There is one letter: the one that the transaction's result names, a child of none, and it is written."""
    [task] = await _submitted(scene)
    assert (task.id, task.parent_id) == (task_id, None)
    assert await ended(scene.hold.handle(task_id)) == "letter to Ada"


async def automatic_retry(scene: Scene) -> None:
    run = await scene.by_automatic_retry(_letters(scene))
    await _is_once(scene, run.result)


async def automatic_retry_of_a_failed_one(scene: Scene) -> None:
    """What was not committed left no task."""
    _letters(scene)
    calls = Calls()

    async def fails_once(tx: Transaction) -> str:
        handle = await tx.submit("letter", "Ada")
        calls.append("call")
        if len(calls) == 1:
            raise ConnectionError("service down")
        return handle.id

    handle = await scene.begun(lambda ctx: ctx.transaction("write", fails_once), retry=AT_ONCE)
    await _is_once(scene, await ended(handle))
    assert len(calls) == 2


async def resume(scene: Scene) -> None:
    run = await scene.by_resume(_letters(scene))
    await _is_once(scene, run.result)


async def take_over(scene: Scene) -> None:
    run = await scene.by_take_over(_letters(scene))
    await _is_once(scene, run.result)


async def suspension(scene: Scene) -> None:
    """It does not wait for the task that submitted it."""
    run = await scene.by_suspension(_letters(scene))
    await _is_once(scene, run.result)
    [letter], job = await _submitted(scene), await run.handle.task()
    assert letter.finished_at is not None
    assert job.finished_at is not None
    assert letter.finished_at < job.finished_at - timedelta(minutes=50)


async def deploy(scene: Scene) -> None:
    """The transaction is known by its name: what it would submit now is not submitted."""
    part = _letters(scene)

    async def other(tx: Transaction, name: str) -> str:
        handle = await tx.submit("letter", f"{name} again")
        return handle.id

    run = await scene.by_deploy(part, lambda ctx: ctx.transaction("write", other, "Ada"))
    await _is_once(scene, run.result)


async def retry(scene: Scene) -> None:
    run = await scene.by_retry(_letters(scene))
    await _is_once(scene, run.result)


async def retry_with_repeat(scene: Scene) -> None:
    """Each round submits one; with a key, it is the same one."""
    _letters(scene)

    async def write(tx: Transaction) -> list[str]:
        return [(await tx.submit("letter", "Ada", key=key)).id for key in (None, "Ada")]

    run = await scene.by_retry(lambda ctx: ctx.transaction("write", write, repeat=True))
    assert len(await _submitted(scene)) == 3
    assert run.result[1] in {task.id for task in await _submitted(scene) if task.key == "Ada"}


async def new_round(scene: Scene) -> None:
    run = await scene.by_new_round(_letters(scene))
    await _is_once(scene, run.result)


async def fork(scene: Scene) -> None:
    run = await scene.by_fork(_letters(scene))
    await _is_once(scene, run.result)


async def cancel(scene: Scene) -> None:
    """What was submitted is independent, and is done."""
    part = _letters(scene, delay=HOUR)

    async def write_and_wait(ctx: Context) -> None:
        await part(ctx)
        await ctx.wait_event("never")

    handle = await scene.begun(write_and_wait)
    await scene.waits(handle)
    assert await scene.hold.cancel(handle) is TaskState.CANCELLED
    [letter] = await _submitted(scene)
    assert letter.state is TaskState.PENDING
    await _is_once(scene, letter.id)


async def deadline(scene: Scene) -> None:
    """It has a deadline only if it was submitted with one."""
    part = _letters(scene, delay=HOUR)

    async def write_and_wait(ctx: Context) -> None:
        await part(ctx)
        await ctx.wait_event("never")

    await scene.by_deadline(write_and_wait)
    [letter] = await _submitted(scene)
    assert (letter.state, letter.deadline) == (TaskState.PENDING, None)
    await _is_once(scene, letter.id)


async def prune(scene: Scene) -> None:
    """One that has not ended stays, whatever becomes of the task that submitted it."""
    run = await scene.by_prune(_letters(scene, delay=9 * DAY))
    [letter] = await _submitted(scene)
    assert letter.id == run.result
    await _is_once(scene, letter.id)
    await scene.prune()
    assert await _submitted(scene) == []
