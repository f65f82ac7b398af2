"""Chapter 11, "Mini Code Example": the same loop with ``ctx.step``: no finished step runs again.

Kill it at any point and start it again. The code runs from its beginning, recorded steps and patches replay, and the
loop continues with the first call that was not recorded.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast import (
    Budget,
    Context,
    Holdfast,
    KnownFact,
    Message,
    Meter,
    Reply,
    Request,
    Retry,
    ScriptedModel,
    StatePatch,
)
from holdfast.agent.scripted import call

TOOLS: dict[str, Callable[[], str]] = {
    "check_disk": lambda: "Disk Usage: 95% (CRITICAL). Large folder: /var/log",
    "clean_logs": lambda: "Logs cleaned. Freed 20GB.",
}
model = ScriptedModel([call("check_disk"), call("clean_logs"), "The disk was full of logs. I freed 20GB."])
hold = Holdfast()
THREE_TRIES = Retry(max_attempts=3, initial=1.0)  # after 1 s, then 2 s


async def ask(messages: list[Any], turn: int) -> dict[str, Any]:
    """Ask the model. A step takes and returns plain data."""
    request = Request(messages=tuple(Message.from_json(said) for said in messages), turn=turn)
    return (await model.complete(request, lambda _: None)).to_json()


@hold.task(deadline=300, budget=Budget(max_steps=20))
async def devops(ctx: Context, user_input: str) -> str:
    await ctx.patch(StatePatch(goal=user_input, replace_plan=("look", "clean"), current_step="look"))
    messages: list[Any] = [
        Message(role="system", content="You are an autonomous DevOps agent.").to_json(),
        Message(role="user", content=user_input).to_json(),
    ]
    for turn in range(5):
        await ctx.charge(steps=1)  # counted once, even if this line replays
        reply = Reply.from_json(await ctx.step("think", ask, messages, turn, retry=THREE_TRIES, timeout=60))
        messages.append(reply.message.to_json())
        if not reply.tool_calls:
            return reply.content
        for asked in reply.tool_calls:
            print("Executing tool:", asked.name)
            output = await ctx.step(asked.name, TOOLS[asked.name], retry=THREE_TRIES)
            found = KnownFact(key=asked.name, value=output, source="tool")
            await ctx.patch(StatePatch(append_facts=(found,)))
            messages.append(Message(role="tool", content=output, tool_call_id=asked.id).to_json())
    return f"gave up after {len(ctx.state.known_facts)} tool calls"


async def main() -> None:
    async with hold, hold.worker():
        fix = await hold.submit(devops, "I'm out of disk space. Fix it.", key="disk-space")  # the same task next time
        print("AI:", await fix.result(timeout=300))
        print("known:", [fact.key for fact in (await hold.state(fix)).known_facts])
        print("steps of the budget:", (await hold.budget(fix)).lines[Meter.STEPS].spent)


if __name__ == "__main__":
    asyncio.run(main())
