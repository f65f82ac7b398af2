"""Chapter 11, "Step 4: Deadlines": one for the whole run and one for each step; both are kept across restarts."""

import asyncio
from datetime import timedelta

from holdfast import Context, Holdfast, StepFailed, TaskFailed

hold = Holdfast("memory://")


async def hang() -> str:
    await asyncio.Event().wait()  # an endpoint that never answers
    return "never"


@hold.task
async def ask(ctx: Context) -> str:
    try:
        return await ctx.step("ask the model", hang, timeout=0.2)  # for each try of this step
    except StepFailed as failed:
        return f"the step was stopped: {failed.failure.type_name}"


@hold.task(deadline=timedelta(seconds=1))  # for the whole run: queued, running, waiting
async def loop(ctx: Context) -> None:
    while True:
        await ctx.sleep(0.1)  # no check of the deadline here: the engine does it


async def main() -> None:
    async with hold, hold.worker():
        print(await (await hold.submit(ask)).result(timeout=60))
        try:
            await (await hold.submit(loop)).result(timeout=60)
        except TaskFailed as failed:
            print(f"the run was stopped: {failed.failure.type_name}")


if __name__ == "__main__":
    asyncio.run(main())
