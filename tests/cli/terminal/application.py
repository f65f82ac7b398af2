"""An application that does what strains a terminal; processes run in this folder."""

from __future__ import annotations

from holdfast import Agent, Budget, Context, Holdfast, Retry, ScriptedModel, tool
from holdfast.agent.scripted import call

hold = Holdfast()

print("the module speaks")  # noqa: T201 - what must not end up among the data

ONCE = Retry(max_attempts=1)


@hold.task
async def echo(ctx: Context, text: str) -> str:
    return await ctx.step("echo", lambda: text)


@hold.task
async def chat(ctx: Context, text: str) -> str:
    del ctx
    print("the task speaks")  # noqa: T201
    return text


@hold.task(retry=ONCE)
async def boom(ctx: Context, text: str) -> None:
    await ctx.step("strike", _strike, text, retry=ONCE)


def _strike(text: str) -> None:
    raise ValueError(text)


@hold.task
async def wonder(ctx: Context) -> str:
    return str(await ctx.ask("Which region?"))


@hold.task(retry=ONCE)
async def pay(ctx: Context, amount: int) -> str:
    """Lose the answer of a call that may still be on its way for an hour."""
    return await ctx.step("pay", _lose_the_answer, amount, effect="once", settle=3600)


async def _lose_the_answer(amount: int) -> str:
    raise ConnectionResetError(f"the connection was lost while paying {amount}")


@hold.task
async def family(ctx: Context) -> str:
    child = await ctx.submit(echo, "from the child")
    return await child.result()


@tool(risk="read_only")
def look() -> str:
    "Look around."
    return "nothing"


hold.register(
    Agent(
        "spender",
        tools=[look],
        model=ScriptedModel([call("look"), call("look"), "done at last"]),
        budget=Budget(max_steps=1),
    )
)
hold.register(
    Agent(
        "asker",
        tools=[look],
        model=ScriptedModel([call("look"), call("look"), "done at last"]),
        budget=Budget(max_steps=1, on_exhausted="ask"),
    )
)
hold.register(Agent("parrot", model=ScriptedModel(lambda request: f"heard {len(request.messages)}")))
