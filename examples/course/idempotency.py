"""Chapter 11, "Exercise 2: Implement Idempotency": by hand on the store, and with a key."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from holdfast import Context, Holdfast, Task, TaskState

hold = Holdfast("memory://")
done: list[str] = []


def clean_logs(text: str) -> str:
    done.append(text)
    return "Freed 20GB."


async def execute_task_if_not_done(task_id: str, work: Callable[[str], str]) -> str:
    """The exercise. ``execute_step`` leases the task, so two callers cannot both find it undone."""
    task = await hold.store.get(task_id)
    if task is None:
        raise LookupError(f"task not found: {task_id}")
    if task.state is TaskState.COMPLETED:
        return str(task.result)  # done before: nothing runs
    if task.state in {TaskState.PENDING, TaskState.FAILED}:
        task = await hold.store.save(replace(task, state=TaskState.PENDING, result=None, error=None))
        await hold.store.save(replace(task, state=TaskState.RUNNING))

    def step(task: Task) -> Task:
        return replace(task, state=TaskState.COMPLETED, result=work(task.user_input))

    return str((await hold.store.execute_step(task_id, step)).result)


@hold.task
async def free_disk(ctx: Context, text: str) -> str:
    return await ctx.step("clean", clean_logs, text)


async def main() -> None:
    async with hold, hold.worker():
        await hold.store.save(Task(id="disk-1", user_input="by hand"))
        for _ in range(2):
            print("by hand:", await execute_task_if_not_done("disk-1", clean_logs))

        for _ in range(2):  # the same key is the same task, from any process
            task = await hold.submit(free_disk, "with a key", key="disk-2")
            print("with a key:", await task.result(timeout=60))
        print("done:", done)


if __name__ == "__main__":
    asyncio.run(main())
