"""An agent that looks at the disk. Kill its worker at any point: another one goes on where it was."""

import shutil

from holdfast import Agent, Budget, Holdfast, ScriptedModel, tool
from holdfast.agent.scripted import call

hold = Holdfast()  # the store that holdfast.toml names


@tool(risk="read_only")
def check_disk() -> str:
    """Say how full the disk is."""
    total, _, free = shutil.disk_usage(".")
    return f"{free / total:.0%} of {total / 1e9:.0f} GB are free"


# Answers written beforehand, so that the agent runs without a key and without a network.
script = ScriptedModel([call("check_disk"), lambda request: f"I have looked: {request.messages[-1].content}."])

devops = hold.register(
    Agent(
        "devops",
        instructions="You look after a machine. Use your tools, and answer in one sentence.",
        tools=[check_disk],
        model=script,  # a real one: model="gpt-4o-mini", with pip install 'holdfast[openai]' and OPENAI_API_KEY set
        budget=Budget(max_steps=20, max_llm_tokens=100_000),
    )
)
