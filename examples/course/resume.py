"""Chapter 11, "Real-World Case Study": a deployment of ten steps is killed in step 8, and continues with step 8."""

import asyncio
import os
import signal
import subprocess
import sys

from holdfast import Context, Holdfast

hold = Holdfast()
FATAL = 8
CRASH = "--crash" in sys.argv


def do(number: int) -> int:
    print(f"{'first' if CRASH else 'second'} process: step {number}", flush=True)
    if CRASH and number == FATAL:
        os.kill(os.getpid(), signal.SIGKILL)  # the server reboots
    return number


@hold.task
async def deploy(ctx: Context, service: str) -> str:
    for number in range(1, 11):
        await ctx.step(f"step {number}", do, number)
    return f"{service} is deployed"


async def main() -> None:
    async with hold, hold.worker(lease=1):
        # The same key is the same task, so a program that starts again does not start the work again.
        task = await hold.submit(deploy, "billing", key="deploy-billing-42")
        print(await task.result(timeout=60))
        for move in await hold.store.history(task.id):
            print(f"  {move.from_state or 'new'} -> {move.to_state}: {move.reason}")


if __name__ == "__main__":
    if not CRASH:
        subprocess.run([sys.executable, __file__, "--crash"], check=False)  # noqa: S603 - this file itself
    asyncio.run(main())
