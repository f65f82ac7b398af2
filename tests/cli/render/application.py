"""An application for the tests of what the command shows; its processes run in this folder."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from pathlib import Path

from holdfast import Agent, Budget, Context, Holdfast, KnownFact, Retry, ScriptedModel, StatePatch, tool
from holdfast.agent.scripted import call

hold = Holdfast()

ESCAPE = "\x1b[31mred\x1b[0m \x1b]0;title\x07"
"""What a task's input may hold to play tricks on a terminal."""


@hold.task
async def greet(ctx: Context, name: str, times: int = 1) -> str:
    return await ctx.step("greet", lambda: f"hello {name}" * times)


@hold.task(retry=Retry(max_attempts=1))
async def fail(ctx: Context) -> None:
    await ctx.step("prepare", lambda: "ready")
    await ctx.step("strike", _strike, retry=Retry(max_attempts=2, initial=0.01))


def _strike() -> None:
    raise ValueError(f"no luck {ESCAPE}")


@hold.task
async def ask(ctx: Context) -> str:
    await ctx.approval("Deploy to production?", risk="external_action", details={"service": "billing"})
    return "deployed"


@hold.task
async def nothing(ctx: Context) -> None:
    await ctx.step("nothing", lambda: None)


@hold.task
async def where(ctx: Context) -> list[int]:
    """Say in which process it ran, before and after it waited for a person."""
    before = await ctx.step("before", os.getpid)
    await ctx.approval("Go on?")
    return [before, await ctx.step("after", os.getpid)]


@hold.task
async def wonder(ctx: Context) -> str:
    return str(await ctx.ask("Which region?"))


@hold.task
async def doubt(ctx: Context) -> None:
    await ctx.step("charge", _charge, effect="once", timeout=0.05, settle=0, retry=Retry(max_attempts=1))


async def _charge() -> None:
    await asyncio.sleep(600)


@hold.task
async def doze(ctx: Context) -> None:
    await ctx.sleep(timedelta(days=1))


@hold.task
async def listen(ctx: Context) -> None:
    await ctx.wait_event("release")


@hold.task
async def delegate(ctx: Context) -> list[str]:
    children = [await ctx.submit(greet, name) for name in ("ann", "bob")]
    return [await child.result() for child in children]


@hold.task
async def delegate_elsewhere(ctx: Context) -> str:
    child = await ctx.submit(greet, "sophie", queue="remote")
    return await child.result()


@hold.task
async def journey(ctx: Context, folder: str) -> str:
    """Two steps that leave traces; the second one waits in its first try, for as long as the test needs."""
    await ctx.step("first", _trace, folder, "first")
    await ctx.step("second", _linger, folder)
    return "arrived"


def _trace(folder: str, name: str) -> None:
    with (Path(folder) / name).open("a") as file:
        file.write(f"{os.getpid()}\n")


async def _linger(folder: str) -> None:
    again = (Path(folder) / "second").exists()
    _trace(folder, "second")
    if not again:
        await asyncio.sleep(600)


@hold.task
async def gated(ctx: Context, gate: str) -> str:
    """Wait until a file is there."""
    await ctx.step("wait", _until_there, gate)
    return "through"


async def _until_there(gate: str) -> None:
    while not Path(gate).exists():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.05)


@tool(risk="read_only")
def check_disk() -> str:
    "Check how full the disk is."
    return "97 %"


@tool(risk="external_action", effect="once")
def order_disk(size: int) -> str:
    "Order a larger disk."
    return f"ordered {size} TB"


def _observe(name: str, arguments: object, result: object, state: object) -> StatePatch:
    del arguments, state
    fact = KnownFact(key="disk", value=str(result), source=name, confidence=0.9)
    return (
        StatePatch(append_facts=(fact,), complete_steps=("look",), current_step="order")
        if name == "check_disk"
        else StatePatch()
    )


_PLAN = call("update_plan", plan=["look", "order", "check"], current_step="look")

devops = hold.register(
    Agent(
        "devops",
        tools=[check_disk, order_disk],
        observe=_observe,
        model=ScriptedModel([_PLAN, call("check_disk"), call("order_disk", size=3), "done"]),
        budget=Budget(max_steps=20, max_llm_tokens=10_000),
        approve=["external_action"],
    )
)
spender = hold.register(
    Agent(
        "spender",
        tools=[check_disk],
        model=ScriptedModel([call("check_disk"), call("check_disk"), "done"]),
        budget=Budget(max_steps=1, on_exhausted="ask"),
    )
)
