"""Chapter 21: the same in production. Sections that repeat chapter 11 are proven there."""

import asyncio
from collections import Counter

from holdfast import Context, Holdfast, StepState, TaskState
from tests.engine.support import crashing_worker, ended, reaches
from tests.seeds.chapters import PRODUCTION, section


@section(PRODUCTION, "Why This Chapter?", ours="`queue=`, `priority=`, `hold.worker(lease=)`")
async def test_why_this_chapter(hold: Holdfast) -> None:
    started: list[str] = []
    together = asyncio.Barrier(2)

    @hold.task(queue="deploys")
    async def deploy(_: Context, service: str) -> str:
        started.append(service)
        await together.wait()  # two tasks meet here; each worker has one slot, so each has one of them
        return service

    services = ["billing", "search", "mail"]
    tasks = await hold.submit_many(deploy, [(one,) for one in services])  # asynchronously: no worker is there yet
    tasks.append(await hold.submit(deploy, "hotfix", priority=10))
    queued = await hold.store.queued(queue="deploys")
    assert [task.user_input for task in queued.items] == [["hotfix"], *([one] for one in services)]

    async with hold.worker(concurrency=1), hold.worker(concurrency=1):
        assert [await ended(task) for task in tasks] == [*services, "hotfix"]
    assert "hotfix" in started[:2]
    claims = [move.actor for task in tasks for move in await hold.store.history(task.id) if move.reason == "claimed"]
    assert sorted(Counter(claims).values()) == [2, 2], "each task was claimed once, and both workers had their part"


@section(PRODUCTION, "What Is Workflow?", ours="`@hold.task`, `ctx.step`, `StepState`")
async def test_what_is_workflow(hold: Holdfast) -> None:
    reached = asyncio.Event()

    async def publish() -> str:
        if not reached.is_set():
            reached.set()
            await asyncio.Event().wait()
        return "published"

    @hold.task
    async def release(ctx: Context) -> str:
        await ctx.step("build", lambda: "built")
        return await ctx.step("publish", publish)

    task = await hold.submit(release)
    async with crashing_worker(hold):
        await reached.wait()
        await reaches(task, TaskState.RUNNING)
    async with hold.worker():  # another process takes the workflow over, step by step
        assert await ended(task) == "published"
    states = {step.key: step.state for step in await hold.store.steps(task.id)}
    assert states == {"build": StepState.COMPLETED, "publish": StepState.COMPLETED}
