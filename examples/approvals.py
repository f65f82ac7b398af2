"""An agent that waits for people: it asks what it cannot know, and needs an approval before it contacts others."""

import asyncio
import os

from holdfast import Agent, Approval, Handle, Holdfast, ScriptedModel, TaskState, tool
from holdfast.agent.scripted import call

hold = Holdfast()
outbox: list[str] = []


@tool(risk="external_action", effect="once")
def send_mail(to: str, text: str) -> str:
    "Send an e-mail."
    outbox.append(f"{to}: {text}")
    return "sent"


assistant = hold.register(
    Agent(
        "assistant",
        instructions="You write to customers. Ask if you do not know whom to write to.",
        tools=[send_mail],
        model=os.environ.get("HOLDFAST_MODEL")
        or ScriptedModel(
            [
                call("ask_question", question="Which customer?"),
                call("send_mail", to="acme@example.com", text="Your order is on its way."),
                "I have written to Acme.",
            ]
        ),
        approve=["external_action"],
        deciders=["ann"],
    )
)


async def main() -> None:
    async with hold:
        task = await hold.submit(assistant, "Tell the customer that the order is on its way.")
        async with hold.worker():
            asked = await wait_for_question(task)
            print(f"{asked.question} The task is {(await task.task()).state} and holds no worker.")
            await hold.answer(asked.id, "Acme", by="ann")
            asked = await wait_for_question(task)
            print(asked.question)
            await hold.approve(asked.id, by="ann", note="fine")
            print(await task.result(timeout=60))
        print("sent:", outbox)
        print("known:", [(fact.key, fact.value, fact.source) for fact in (await hold.state(task)).known_facts])


async def wait_for_question(task: Handle[str]) -> Approval:
    while True:
        asked = await hold.approvals(task)
        if asked and (await task.task()).state is TaskState.WAITING:
            return asked[0]
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(main())
