"""Chapter 11, "Mini Code Example": the lab's DevOps agent. Kill it at any point, start it again, and it continues."""

import asyncio
import os
from datetime import timedelta

from holdfast import Agent, Budget, Holdfast, Retry, ScriptedModel, tool
from holdfast.agent.scripted import call

hold = Holdfast()


@tool(risk="read_only", retry=Retry(max_attempts=3), timeout=30)
def check_disk() -> str:
    "Check current disk usage."
    return "Disk Usage: 95% (CRITICAL). Large folder: /var/log"


@tool(risk="write_local", effect="idempotent")
def clean_logs() -> str:
    "Delete old logs to free space."
    return "Logs cleaned. Freed 20GB."


script = ScriptedModel([call("check_disk"), call("clean_logs"), "The disk was full of logs. I freed 20GB."])
devops = hold.register(
    Agent(
        "devops",
        instructions="You are an autonomous DevOps agent.",
        tools=[check_disk, clean_logs],
        model=os.environ.get("HOLDFAST_MODEL") or script,
        budget=Budget(max_steps=20, max_wall_time_ms=300_000, max_llm_tokens=200_000),
    )
)


async def main() -> None:
    async with hold, hold.worker():
        # The same key is the same task the next time; the deadline holds for the whole run, restarts included.
        text, deadline = "I'm out of disk space. Fix it.", timedelta(minutes=5)
        fix = await hold.submit(devops, text, key="disk-space", deadline=deadline)
        print("AI:", await fix.result(timeout=300))
        for step in await hold.store.steps(fix.id):
            print(f"  {step.key:16} {step.state}")


if __name__ == "__main__":
    asyncio.run(main())
