"""Going back to a step and trying something else from there: a fork shares the past and has its own future."""

import asyncio
import os

from holdfast import Agent, Holdfast, KnownFact, Request, ScriptedModel, StatePatch, diff, tool
from holdfast.agent.scripted import call

hold = Holdfast()
measured: list[str] = []


@tool(risk="read_only")
def measure() -> str:
    "Measure how long the query takes. It takes an hour."
    measured.append("once")
    return "900 ms"


def conclude(request: Request) -> str:
    state = request.messages[0].content
    return "Add an index." if "read-only" not in state else "Cache the result: the database is read-only."


analyst = hold.register(
    Agent(
        "analyst",
        instructions="You make queries fast.",
        tools=[measure],
        model=os.environ.get("HOLDFAST_MODEL") or ScriptedModel([call("measure"), conclude]),
    )
)


async def main() -> None:
    async with hold, hold.worker():
        first = await hold.submit(analyst, "The report is slow.")
        print("first: ", await first.result(timeout=60))
        fact = KnownFact(key="database", value="read-only", source="ann")
        second = await hold.fork(first, at="measure:1.0", patch=StatePatch(append_facts=(fact,)), by="ann")
        print("second:", await second.result(timeout=60))
        print(f"measured {len(measured)} time")
        for change in diff(await hold.state(first), await hold.state(second)):
            print(" ", change.to_text())


if __name__ == "__main__":
    asyncio.run(main())
