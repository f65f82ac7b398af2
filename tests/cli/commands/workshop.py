"""Tasks that end in every way that needs a person, for processes that run in this folder."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast import Agent, Context, Holdfast, Retry, ScriptedModel, tool
from holdfast.agent.model import Request
from holdfast.agent.scripted import ScriptedCall, call

ESCAPE = "\x1b[31m"
"""What turns a terminal red, in data that people are shown."""


@dataclass
class Order:
    item: str
    count: int


def define(hold: Holdfast) -> Holdfast:
    """Give a Holdfast the tasks."""
    once = Retry(max_attempts=1)

    @hold.task(retry=once)
    async def fail(ctx: Context, reason: str = "no luck") -> None:
        await ctx.step("prepare", str, reason)
        raise ValueError(reason)

    @hold.task(queue="elsewhere", retry=once)
    async def deploy(ctx: Context, service: str) -> str:
        decision = await ctx.approval(
            f"Deploy {service}{ESCAPE} to production?", risk="external_action", details={"service": service, "to": "eu"}
        )
        return f"{service}, says {decision.by}"

    @hold.task
    async def guarded(ctx: Context) -> None:
        await ctx.approval("Open the vault?", deciders=("anna",), expires=3600)

    @hold.task
    async def wonder(ctx: Context) -> list[object]:
        return [await ctx.ask("Which region?")]

    @hold.task(retry=once)
    async def pay(ctx: Context, amount: int) -> str:
        return await ctx.step("pay", _lose_the_answer, amount, effect="once", settle=0)

    @hold.task
    async def greet(ctx: Context, name: str, times: int = 1) -> str:
        said = await ctx.step("first", str, f"hello {name}")
        return await ctx.step("second", str, said * times)

    @hold.task
    async def order(ctx: Context, what: Order) -> int:
        return await ctx.step("count", int, what.count)

    hold.register(Agent("helper", model=ScriptedModel(_think), tools=[_send_mail], approve=["external_action"]))
    return hold


async def _lose_the_answer(amount: int) -> str:
    raise ConnectionResetError(f"the connection was lost while paying {amount}")


@tool(risk="external_action")
def _send_mail() -> str:
    """Send a mail."""
    return "sent"


def _think(request: Request) -> str | ScriptedCall:
    conversation = " ".join(message.content for message in request.messages)
    if "be brief" in conversation:
        return "OK."
    return "It is done, dear user." if "sent" in conversation else call("_send_mail")


hold = define(Holdfast())
