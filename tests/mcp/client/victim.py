"""A worker that is killed: python victim.py DATABASE-URL SERVER (JSON) DECLARED (JSON) PLACE

PLACE is where it is killed: "amid", by the test, or "answered", by itself when the tool has answered and
nothing of that is recorded yet.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

from holdfast import Agent, Holdfast, ScriptedModel, TaskDefinition
from holdfast.agent.scripted import call
from holdfast.mcp import Declared, ServerTools, tools
from holdfast.mcp.client.reach import Reach

LEASE = 5.0


def describe(
    hold: Holdfast,
    server: str | list[str],
    declared: dict[str, Any],
) -> tuple[TaskDefinition[..., str], ServerTools, ScriptedModel]:
    model = ScriptedModel([call("wait_and_send", to="ann"), "done"])
    source = tools(server, declare={"wait_and_send": Declared(**declared)})
    return hold.register(Agent("agent", model=model, tools=[source])), source, model


async def main() -> None:
    url, server, declared, place = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4]
    if place == "answered":
        kill_when_answered()
    hold = Holdfast(url)
    agent, _, _ = describe(hold, server, declared)
    async with hold:
        handle = await hold.submit(agent, "go", key="only")
        async with hold.worker(lease=LEASE):
            await handle.result()


def kill_when_answered() -> None:
    original = Reach.call

    async def call_and_die(self: Reach, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        answer = await original(self, *args, **options)
        print(answer, flush=True)  # noqa: T201 - the proof that the answer was there
        os.kill(os.getpid(), signal.SIGKILL)
        return answer

    Reach.call = call_and_die  # type: ignore[method-assign]


if __name__ == "__main__":
    asyncio.run(main())
