"""An approval or a question: ``ctx.approval("Deploy?")``, ``ctx.ask("Which region?")``."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from holdfast import Approval, ApprovalState, Conflict, Context, Handle, TaskState
from tests.engine.support import ended, until
from tests.semantics.scene import AT_ONCE, HOUR, Part, Scene


async def asked(scene: Scene, handle: Handle[Any] | None = None) -> Approval:
    """Return the one open question, once there is one."""

    async def is_there() -> bool:
        return bool(await scene.hold.approvals(handle))

    await until(is_there)
    [approval] = await scene.hold.approvals(handle)
    return approval


@asynccontextmanager
async def person(scene: Scene) -> AsyncIterator[list[str]]:
    """Agree to everything, and answer every question with how many decisions there were; yields the questions."""
    decided: list[str] = []

    async def decide() -> None:
        while True:
            approval = await asked(scene)
            decided.append(approval.question)
            if approval.kind == "question":
                await scene.hold.answer(approval.id, len(decided), by="anna")
            else:
                await scene.hold.approve(approval.id, by="anna")

    deciding = asyncio.create_task(decide())
    try:
        yield decided
    finally:
        deciding.cancel()
        with suppress(asyncio.CancelledError):
            await deciding


def deploying(question: str = "Deploy?", **options: Any) -> Part:  # noqa: ANN401
    """Ask for an approval; return who gave it."""

    async def part(ctx: Context) -> str | None:
        return (await ctx.approval(question, **options)).by

    return part


async def both(ctx: Context) -> object:
    """Ask for an approval, then for an answer."""
    await ctx.approval("Deploy?")
    return await ctx.ask("Where?")


ONCE, TWICE = ["Deploy?", "Where?"], ["Deploy?", "Where?", "Deploy?", "Where?"]


async def automatic_retry(scene: Scene) -> None:
    async with person(scene) as decided:
        run = await scene.by_automatic_retry(both)
    assert (decided, run.result) == (ONCE, 2)


async def automatic_retry_of_a_rejection(scene: Scene) -> None:
    """A rejection is final for the task's own retries."""
    handle = await scene.begun(deploying(), retry=AT_ONCE)
    await scene.hold.reject((await asked(scene)).id, by="anna", note="no")
    assert "Rejected" in await scene.failure(handle)
    assert (await handle.task()).attempts == 1


async def resume(scene: Scene) -> None:
    async with person(scene) as decided:
        run = await scene.by_resume(both)
    assert (decided, run.result) == (ONCE, 2)


async def resume_of_a_rejection(scene: Scene) -> None:
    handle = await scene.begun(deploying())
    first = await asked(scene)
    await scene.hold.reject(first.id, by="anna")
    await scene.failure(handle)
    await scene.hold.resume(handle)
    second = await asked(scene)
    assert second.id != first.id
    await scene.hold.approve(second.id, by="anna")
    await ended(handle)


async def retry(scene: Scene) -> None:
    async with person(scene) as decided:
        run = await scene.by_retry(both)
    assert (decided, run.result) == (TWICE, 4)


async def new_round(scene: Scene) -> None:
    async with person(scene) as decided:
        run = await scene.by_new_round(both)
    assert (decided, run.result) == (TWICE, 4)


async def fork(scene: Scene) -> None:
    async with person(scene) as decided:
        run = await scene.by_fork(both)
    assert (decided, run.result) == (ONCE, 2)


async def fork_of_an_open_question(scene: Scene) -> None:
    origin = await scene.begun(lambda ctx: ctx.ask("Where?"))
    first = await asked(scene, origin)
    fork = await scene.hold.fork(origin)
    second = await asked(scene, fork)
    await scene.hold.answer(second.id, "east", by="anna")
    assert await ended(fork) == "east"
    await scene.hold.answer(first.id, "west", by="anna")
    assert await ended(origin) == "west"


async def _is_closed(scene: Scene, approval: Approval) -> None:
    [closed] = await scene.hold.approvals(states=list(ApprovalState))
    assert (closed.id, closed.state) == (approval.id, ApprovalState.CLOSED)
    with pytest.raises(Conflict):
        await scene.hold.approve(approval.id, by="anna")


async def cancel(scene: Scene) -> None:
    handle = await scene.begun(deploying())
    approval = await asked(scene)
    await scene.waits(handle)
    assert await scene.hold.cancel(handle) is TaskState.CANCELLED
    await _is_closed(scene, approval)


async def deadline(scene: Scene) -> None:
    with scene.box.frozen():
        handle = await scene.begun(deploying(), deadline=HOUR)
        approval = await asked(scene)
    assert "DeadlineExceeded" in await scene.failure(handle)
    await _is_closed(scene, approval)


async def suspension(scene: Scene) -> None:
    handle = await scene.begun(lambda ctx: ctx.ask("Where?"))
    approval = await asked(scene)
    await scene.waits(handle)
    assert (await handle.task()).owner is None, "no worker holds it"
    await scene.hold.answer(approval.id, "west", by="anna")
    assert await ended(handle) == "west"


async def take_over(scene: Scene) -> None:
    async with person(scene) as decided:
        run = await scene.by_take_over(both)
    assert (decided, run.result) == (ONCE, 2)


async def take_over_of_an_open_question(scene: Scene) -> None:
    """The question stays open while its task changes hands, and its time goes on."""

    async def part(ctx: Context) -> object:
        asking = asyncio.ensure_future(ctx.ask("Where?", expires=2 * HOUR))
        await until(lambda: scene.hold.approvals(ctx.task_id, states=list(ApprovalState)))
        await ctx.step("mark", lambda: None)
        return await asking

    scene.box.crash("mark", when="before_effect")
    with scene.box.frozen():
        handle = await scene.begun(part)
        first = await asked(scene, handle)
    await scene.waits(handle)
    second = await asked(scene, handle)
    assert (first.id, first.expires_at) == (second.id, second.expires_at)
    await scene.hold.answer(second.id, "west", by="anna")
    assert await ended(handle) == "west"


async def deploy(scene: Scene) -> None:
    """Other details void the approval: the person is asked about them."""

    def about(service: str) -> Part:
        return deploying(details={"service": service})

    async with person(scene) as decided:
        await scene.by_deploy(about("billing"), about("mail"))
    assert decided == ["Deploy?", "Deploy?"]


async def deploy_with_another_wording(scene: Scene) -> None:
    def worded(question: str) -> Part:
        return deploying(question, details={"service": "billing"})

    async with person(scene) as decided:
        await scene.by_deploy(worded("Deploy?"), worded("Shall I deploy?"))
    assert decided == ["Deploy?"]


async def prune(scene: Scene) -> None:
    """The record of a decision goes with its task; an open question keeps its task open."""
    async with person(scene):
        await scene.by_prune(both)
    assert await scene.hold.approvals(states=list(ApprovalState)) == []


async def prune_of_an_open_question(scene: Scene) -> None:
    handle = await scene.begun(lambda ctx: ctx.ask("Where?"))
    approval = await asked(scene)
    await scene.prune()
    await scene.hold.answer(approval.id, "west", by="anna")
    assert await ended(handle) == "west"
