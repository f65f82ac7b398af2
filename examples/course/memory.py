"""State page, "2. SQLite (Minna Memory)": entities, attributes and values that outlive every task."""

import asyncio

from holdfast import Agent, Holdfast, ScriptedModel
from holdfast.agent.scripted import call

hold = Holdfast()

learner = hold.register(
    Agent(
        "learner", model=ScriptedModel([call("remember", entity="billing", attribute="owner", value="Ada"), "Noted."])
    )
)
reader = hold.register(
    Agent("reader", model=ScriptedModel([call("recall", entity="billing"), "Ada owns billing."])),
)


async def main() -> None:
    async with hold, hold.worker():
        # By hand, as on the page: store(entity, attribute, value), recall(entity, attribute).
        await hold.memory.store(entity="task-7", attribute="status", value="in_progress")
        await hold.memory.store(entity="task-7", attribute="status", value="done")
        [status] = await hold.memory.recall(entity="task-7", attribute="status")
        print("now:", status.value)
        print("before:", [fact.value for fact in await hold.memory.history("task-7", "status")])

        # By agents: one agent remembers a fact, and another one recalls it.
        print(await (await hold.submit(learner, "Who owns billing?")).result(timeout=60))
        print(await (await hold.submit(reader, "Who owns billing?")).result(timeout=60))

        # If two sources do not agree, both facts are shown, and a person decides.
        await hold.memory.store("billing", "owner", "Grace", source="wiki")
        [conflict] = await hold.memory.conflicts("billing")
        print("in conflict:", sorted(str(fact.value) for fact in conflict.facts))
        [wiki] = [fact for fact in conflict.facts if fact.source == "wiki"]
        await hold.memory.verify(wiki.id, by="ann")
        print("settled:", [fact.value for fact in await hold.memory.recall("billing", "owner")])


if __name__ == "__main__":
    asyncio.run(main())
