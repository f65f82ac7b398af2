"""Chapter 11, "Mini Code Example": the agent's loop written by hand, only with ``store.save``.

Kill it at any point and start it again: it continues its conversation. After a crash, the call that was under way is
made again; ``loop_with_steps.py`` shows the same loop with steps that are not repeated.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from holdfast import (
    Budget,
    CheckpointManager,
    Holdfast,
    KnownFact,
    Message,
    Meter,
    NotFound,
    Request,
    ScriptedModel,
    StatePatch,
    Task,
    TaskState,
    filter_relevant_state,
)
from holdfast.agent.scripted import call

TOOLS: dict[str, Callable[[], str]] = {
    "check_disk": lambda: "Disk Usage: 95% (CRITICAL). Large folder: /var/log",
    "clean_logs": lambda: "Logs cleaned. Freed 20GB.",
}
model = ScriptedModel([call("check_disk"), call("clean_logs"), "The disk was full of logs. I freed 20GB."])
hold = Holdfast()


async def begin(manager: CheckpointManager, user_input: str) -> Task:
    """Continue the task of the last run, or begin a new one."""
    try:
        task = (await manager.validate_and_resume("fix-disk")).task
    except NotFound:
        task = await hold.store.save(Task(id="fix-disk", user_input=user_input, state=TaskState.RUNNING))
    if task.version == 0:  # also if the last run died between these lines: the patch comes last
        await hold.extend_budget(task.id, Budget(max_steps=20, max_wall_time_ms=300_000), by="loop")
        await hold.patch_state(task.id, StatePatch(goal=user_input), version=0, by="loop")
    return task


async def main() -> None:
    async with hold:
        manager = CheckpointManager(hold.store, "every_iteration", max_age=timedelta(days=1))
        task = await begin(manager, "I'm out of disk space. Fix it.")
        messages = [
            Message(role="system", content="You are an autonomous DevOps agent."),
            Message(role="user", content=task.user_input),
        ]
        if task.state is TaskState.RUNNING and task.result is not None:
            messages = [Message.from_json(said) for said in task.result]  # as the last run has left it
        while task.state is TaskState.RUNNING:
            await hold.charge(task.id, steps=1, by="loop")  # raises BudgetExceeded when 20 steps are spent
            turn = sum(said.role == "assistant" for said in messages)
            reply = await model.complete(Request(messages=tuple(messages), turn=turn), lambda _: None)
            messages.append(reply.message)
            if not reply.tool_calls:
                task = await hold.store.save(replace(task, state=TaskState.COMPLETED, result=reply.content))
                break
            for asked in reply.tool_calls:
                print("Executing tool:", asked.name)
                output = TOOLS[asked.name]()
                messages.append(Message(role="tool", content=output, tool_call_id=asked.id))
                version = ((await hold.store.get(task.id)) or task).version
                found = KnownFact(key=asked.name, value=output, source="tool")
                await hold.patch_state(task.id, StatePatch(append_facts=(found,)), version=version, by="loop")
            task = replace(task, result=[said.to_json() for said in messages])
            await manager.maybe_save(task, "every_iteration")  # the task, and a snapshot of its state
            task = (await hold.store.get(task.id)) or task
        print("AI:", task.result)
        state = await hold.state(task.id)
        shown = filter_relevant_state(state, "", 1000)
        print("known:", sorted(fact.key for fact in shown.facts))
        print("checkpoints:", len(await hold.store.checkpoints(task.id)))
        steps = (await hold.budget(task.id)).lines[Meter.STEPS]
        print(f"steps of the budget: {steps.spent} of {steps.limit}")


if __name__ == "__main__":
    asyncio.run(main())
