"""An agent that frees disk space. Kill it at any point and start it again: it goes on where it was."""

import asyncio
import os

from holdfast import Agent, Budget, Holdfast, ScriptedModel, tool
from holdfast.agent.scripted import call

hold = Holdfast()


@tool(risk="read_only")
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
        fix = await hold.submit(devops, "I'm out of disk space. Fix it.", key="disk-space")  # the same task next time
        print("AI:", await fix.result(timeout=300))
        for step in await hold.store.steps(fix.id):
            print(f"  {step.key:16} {step.state}")


if __name__ == "__main__":
    asyncio.run(main())
