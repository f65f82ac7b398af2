"""Chapter 11, "Exercise 1: Implement Retry with Backoff": by hand, and as a policy that survives a restart."""

import asyncio
from collections.abc import Awaitable, Callable

from holdfast import Context, Holdfast, Retry, testing

hold = Holdfast()
Sleep = Callable[[float], Awaitable[None]]


async def execute_with_retry(function: Callable[[], str], max_retries: int, sleep: Sleep = asyncio.sleep) -> str:
    """The exercise. If the process dies during a pause, the count and the pause are lost."""
    for attempt in range(max_retries):
        try:
            return function()
        except ConnectionError as error:
            if attempt == max_retries - 1:
                raise RuntimeError(f"failed after {max_retries} retries: {error}") from error
            await sleep(2**attempt)  # 1 s, 2 s, 4 s ... and no pause after the last try
    raise ValueError("max_retries must be at least 1")


class Service:
    """Fails a few times, then answers."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def call(self) -> str:
        self.failures -= 1
        if self.failures >= 0:
            raise ConnectionError("no answer")
        return "ok"


EXACTLY = Retry(max_attempts=4, initial=1, factor=2, jitter="none")  # without jitter="none" the pauses are spread


service = Service(failures=3)


@hold.task
async def ask(ctx: Context) -> str:
    return await ctx.step("call", service.call, retry=EXACTLY)


async def main() -> None:
    pauses: list[float] = []

    async def note(seconds: float) -> None:
        pauses.append(seconds)

    print("by hand:", await execute_with_retry(Service(2).call, 4, note), pauses)
    try:
        await execute_with_retry(Service(9).call, 3, note)
    except RuntimeError as error:
        print("by hand:", error)

    print("as a policy: pauses of", [EXACTLY.backoff(attempt, random=0) for attempt in (1, 2, 3)])
    async with testing.sandbox(hold) as box:  # a store in memory, and a clock that skips the pauses
        task = await hold.submit(ask)
        print("as a policy:", await task.result())
        print("as a policy:", (await box.trace(task)).runs["call"], "tries")


if __name__ == "__main__":
    asyncio.run(main())
