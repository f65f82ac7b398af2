"""A lead who has two researchers: agents as tools, child tasks with a share of the lead's budget."""

import asyncio
import os

from holdfast import Agent, Budget, Holdfast, ScriptedModel, tool
from holdfast.agent.scripted import call

hold = Holdfast()
LIBRARY = {"sqlite": "SQLite runs inside the process.", "postgresql": "PostgreSQL serves many machines."}


@tool(risk="read_only")
async def look_up(topic: str) -> str:
    "Look a topic up in the library."
    return LIBRARY.get(topic, "nothing found")


def researcher(name: str, topic: str) -> Agent:
    script = ScriptedModel([call("look_up", topic=topic), f"{topic}: {LIBRARY[topic]}"])
    return Agent(
        name,
        description=f"Finds out about {topic}.",
        tools=[look_up],
        model=os.environ.get("HOLDFAST_MODEL") or script,
    )


lead = hold.register(
    Agent(
        "lead",
        instructions="You write reports. Let your researchers find the facts.",
        tools=[
            researcher("local", "sqlite").as_tool(share=0.25),
            researcher("shared", "postgresql").as_tool(share=0.25),
        ],
        model=os.environ.get("HOLDFAST_MODEL")
        or ScriptedModel(
            [
                [call("local", request="What is SQLite for?"), call("shared", request="What is PostgreSQL for?")],
                "SQLite for one machine, PostgreSQL for many.",
            ]
        ),
        budget=Budget(max_steps=40, max_llm_tokens=100_000),
    )
)


async def main() -> None:
    async with hold, hold.worker():
        report = await hold.submit(lead, "Which database when?")
        print(await report.result(timeout=60))
        for meter, line in (await hold.budget(report)).lines.items():
            if line.limit is not None:
                print(f"  {meter}: {line.spent} of {line.limit}, the researchers' included")


if __name__ == "__main__":
    asyncio.run(main())
