"""Chapter 11, "MCP for State": one agent records its progress; another one reads it over MCP and continues."""

import asyncio
import json
import sys
from typing import Any

from mcp import Client, StdioServerParameters


def server(name: str) -> StdioServerParameters:
    """Each agent starts its own server; both servers use the same store."""
    return StdioServerParameters(command=sys.executable, args=["-m", "holdfast", "mcp", "--name", name])


async def use(agent: Client, tool: str, **arguments: object) -> dict[str, Any]:
    return (await agent.call_tool(tool, arguments)).structured_content or {}


async def write_progress() -> str:
    """Agent A: plans, does the first step, and stops."""
    async with Client(server("agent-a")) as agent:
        task = await use(agent, "submit_task", goal="Free the disk", plan=["look", "clean"], agent_id="ops", take=True)
        fact = {"key": "disk", "value": "92%", "source": "df -h"}
        done = {"key": "look", "output": {"disk": "92%"}, "facts": [fact], "plan_step": "look", "next_step": "clean"}
        await use(agent, "complete_step", lease=task["lease"], **done)
        await use(agent, "release_task", lease=task["lease"], note="the logs are the largest")
        return str(task["uri"])


async def read_and_go_on(uri: str) -> None:
    """Agent B: reads ``state://agents/{agent_id}/tasks/{task_id}``, claims the task, and ends it."""
    async with Client(server("agent-b")) as agent:
        resource = (await agent.read_resource(uri)).contents[0]
        state = json.loads(resource.text)  # type: ignore[union-attr]
        print("agent B reads:", state["state"], state["plan"], "done:", state["agent_state"]["completed_steps"])
        claimed = await use(agent, "claim_task")
        await use(agent, "complete_step", lease=claimed["lease"], key="clean", output="20GB", plan_step="clean")
        ended = await use(agent, "finish_task", lease=claimed["lease"], result={"freed": "20GB"})
        print("agent B ends it:", ended["state"])


async def main() -> None:
    uri = await write_progress()
    print("agent A wrote to", uri.rpartition("/")[0])
    await read_and_go_on(uri)


if __name__ == "__main__":
    asyncio.run(main())
