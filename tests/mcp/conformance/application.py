"""What a worker does while the suites look on: the tasks they expect to find behind tools."""

from __future__ import annotations

from holdfast import Context, Holdfast, Retry

hold = Holdfast()


@hold.task
async def slow_compute(ctx: Context, seconds: float, label: str) -> str:
    if seconds:
        await ctx.sleep(seconds)
    return label


@hold.task(retry=Retry(max_attempts=1))
async def failing_job(ctx: Context) -> None:
    raise RuntimeError(ctx.task_id)


@hold.task
async def confirm_delete(ctx: Context, filename: str) -> str:
    """No task has its client answer questions. The suite stops waiting for one when the task has ended."""
    return f"{filename} as {ctx.task_id}"
