"""State page, "State Transitions": the same loop on the task's own states, with a verifier; no machine is needed."""

import asyncio

from holdfast import Context, Holdfast, Retry, TaskFailed

hold = Holdfast("memory://")


@hold.task
async def report(ctx: Context) -> str:
    return "a draft" if ctx.feedback is None else f"a report, because: {ctx.feedback}"


@report.verify  # runs in the state review
async def has_sources(ctx: Context, result: str) -> bool | str:
    return "report" in result or "it names no sources"


@hold.task(retry=Retry(max_attempts=2, initial=0))
async def hopeless(ctx: Context) -> str:
    return "a draft"


@hopeless.verify
async def never(ctx: Context, result: str) -> bool:
    return False


async def main() -> None:
    async with hold, hold.worker():
        task = await hold.submit(report)
        print(await task.result(timeout=60))
        for move in await hold.store.history(task.id):
            print(f"  {move.from_state or 'new'} -> {move.to_state}: {move.reason}")

        task = await hold.submit(hopeless)
        try:
            await task.result(timeout=60)
        except TaskFailed:
            print(f"given up after {(await task.task()).attempts} attempts")
        await hold.retry(task, feedback="one more time")  # failed -> pending, by a person
        print("  failed -> pending:", (await hold.store.history(task.id))[-1].actor)


if __name__ == "__main__":
    asyncio.run(main())
