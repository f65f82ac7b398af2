"""An agent in a process of its own: it claims a task, records a step, and works on the next one until it is killed."""

from __future__ import annotations

import asyncio
import json
import sys

from mcp import Client

from tests.proof.mcp.reaching import Reached, client_of

LEASE = 6.0
"""Seconds of silence after which its task is free again."""


async def work(client: Client, task_id: str) -> None:
    """Do the first step; begin the second."""
    claimed = (await client.call_tool("claim_task", {"task_id": task_id, "lease_seconds": LEASE})).structured_content
    lease = claimed["lease"]
    _say(lease=lease)
    recorded = await client.call_tool(
        "complete_step",
        {
            "lease": lease,
            "key": "look",
            "output": {"disk": "92%"},
            "facts": [{"key": "disk", "value": "92%", "source": "df"}],
            "plan_step": "look",
            "next_step": "clean",
        },
    )
    assert not recorded.is_error, recorded
    _say(recorded="look")
    while True:  # it cleans, and lives
        await client.call_tool("report_progress", {"lease": lease, "message": "cleaning"})
        await asyncio.sleep(LEASE / 4)


def _say(**words: str) -> None:
    print(json.dumps(words), flush=True)  # noqa: T201 - read by the test that started it


async def _main(url: str, address: str, mode: str, task_id: str) -> None:
    reached = Reached(url, None if address == "-" else address)
    async with client_of(reached, mode, name="first") as client:
        await work(client, task_id)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
