"""Chapter 11, "Step 4: Deadlines": one for the whole run and one for each step; both are kept across restarts."""

import asyncio
from datetime import timedelta

from holdfast import Context, Holdfast, StepFailed, TaskFailed, testing

hold = Holdfast()


async def hang() -> str:
    await asyncio.Event().wait()  # an endpoint that never answers
    return "never"


@hold.task
async def ask(ctx: Context) -> str:
    try:
        return await ctx.step("ask the model", hang, timeout=30)  # for each try of this step
    except StepFailed as failed:
        return f"the step was stopped: {failed.failure.message}"


@hold.task(deadline=timedelta(minutes=5))  # for the whole run: in the queue, at work, waiting
async def loop(ctx: Context) -> None:
    while True:
        await ctx.sleep(60)  # no check of the deadline here: the engine has it


async def main() -> None:
    async with testing.sandbox(hold) as box:  # a store in memory, and a clock that skips what is only waited for
        task = await hold.submit(ask)
        print(await task.result())
        print(f"  after {(await box.trace(task)).took}")

        endless = await hold.submit(loop)
        try:
            await endless.result()
        except TaskFailed as failed:
            print(f"the run was stopped: {failed.failure.message}")
        print(f"  after {(await box.trace(endless)).took}")


if __name__ == "__main__":
    asyncio.run(main())
