"""Chapter 21, "Why This Chapter?": a queue with priorities, and two workers that share it."""

import asyncio
from collections import Counter

from holdfast import Context, Holdfast

hold = Holdfast()
started: list[str] = []
together = asyncio.Barrier(2)


@hold.task(queue="deploys")
async def deploy(ctx: Context, service: str) -> str:
    started.append(service)
    await together.wait()  # each worker runs one task at a time, so the two tasks that meet here have different workers
    return f"{service} is up"


async def main() -> None:
    async with hold:
        tasks = await hold.submit_many(deploy, [("billing",), ("search",), ("mail",)])
        tasks.append(await hold.submit(deploy, "the hotfix", priority=10))

        async with hold.worker(concurrency=1, label="first"), hold.worker(concurrency=1, label="second"):
            for task in tasks:
                print(await task.result(timeout=60))

        print("the hotfix did not wait:", "the hotfix" in started[:2])
        claims = [
            move.actor for task in tasks for move in await hold.store.history(task.id) if move.reason == "claimed"
        ]
        print("tasks for each worker:", sorted(Counter(claims).values()))


if __name__ == "__main__":
    asyncio.run(main())
