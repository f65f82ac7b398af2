"""A tool is deployed again while a task is under way: what was done counts, and what is in doubt stays in doubt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from holdfast import Decision, Doubt, Handle, Holdfast, ManualClock, ScriptedModel, TaskState, decode, tool
from holdfast.agent.scripted import Line, call
from holdfast.agent.tool import Tool
from tests.agent.support import PATIENCE, register, tool_results
from tests.engine.support import crashing_worker, ended, reaches, until

Made = list[tuple[Any, ...]]
HOUR = 3600.0
ToolSource = Callable[[Made], list[Tool]]


# The next deployment


def another_signature(made: Made) -> list[Tool]:
    @tool(settle=0)
    async def pay(amount: int, currency: str) -> str:
        """Pay."""
        made.append((amount, currency))
        return "paid"

    return [pay]


def an_idempotent_one(made: Made) -> list[Tool]:
    @tool(effect="idempotent")
    async def pay(amount: int) -> str:
        """Pay."""
        made.append((amount,))
        return "paid"

    return [pay]


def a_pure_one(made: Made) -> list[Tool]:
    @tool(risk="read_only")
    async def pay(amount: int) -> str:
        """Pay."""
        made.append((amount,))
        return "paid"

    return [pay]


def the_same(made: Made) -> list[Tool]:
    @tool(settle=0)
    async def pay(amount: int) -> str:
        """Pay."""
        made.append((amount,))
        return "paid"

    return [pay]


def none(_made: Made) -> list[Tool]:
    return []


CHANGED: Sequence[ToolSource] = [another_signature, an_idempotent_one, a_pure_one, the_same, none]


# In doubt


async def crash_while_paying(url: str, clock: ManualClock, made: Made) -> str:
    """Have a worker die in the middle of a payment, and let time pass until it has settled; return the task."""
    under_way = asyncio.Event()

    @tool(settle=0)
    async def pay(amount: int) -> str:
        """Pay."""
        made.append((amount,))
        under_way.set()
        await asyncio.Event().wait()
        return "paid"

    async with Holdfast(url, clock=clock) as hold:
        agent, _ = register(hold, [call("pay", amount=5)], tools=[pay])
        handle = await hold.submit(agent, "go")
        async with crashing_worker(hold):
            async with asyncio.timeout(PATIENCE):
                await under_way.wait()
    clock.advance(HOUR)
    return handle.id


async def doubt_about(hold: Holdfast, handle: Handle[Any]) -> Doubt:
    """Return what a person is asked about, once the task waits for the answer."""

    async def is_asked() -> bool:
        return any(doubt.approval_id for doubt in await hold.doubts(handle))

    await until(is_asked, patience=PATIENCE)
    await reaches(handle, TaskState.WAITING)
    [doubt] = await hold.doubts(handle)
    return doubt


@pytest.mark.parametrize("deployed", CHANGED)
async def test_a_call_in_doubt_waits_for_a_person_whatever_became_of_the_tool(
    url: str, clock: ManualClock, deployed: ToolSource
) -> None:
    made: Made = []
    task_id = await crash_while_paying(url, clock, made)
    async with Holdfast(url, clock=clock) as hold:
        _, model = register(hold, [call("pay", amount=5), "done"], tools=deployed(made))
        handle = hold.handle(task_id)
        async with hold.worker():
            doubt = await doubt_about(hold, handle)
            assert model.requests == []  # it got no message that nothing was done
            assert doubt.effect.step_key == "pay:1.0"
            await hold.resolve(doubt, Decision.HAPPENED, result="receipt 17", by="ann")
            assert await ended(handle) == "done"
    assert tool_results(model) == ["receipt 17"]
    assert made == [(5,)]


async def test_an_absent_call_of_a_removed_tool_is_an_error_for_the_model(url: str, clock: ManualClock) -> None:
    made: Made = []
    task_id = await crash_while_paying(url, clock, made)
    async with Holdfast(url, clock=clock) as hold:
        _, model = register(hold, [call("pay", amount=5), "done"])
        handle = hold.handle(task_id)
        async with hold.worker():
            await hold.resolve(await doubt_about(hold, handle), Decision.ABSENT, by="ann")
            assert await ended(handle) == "done"
    [said] = tool_results(model)
    assert "there is no tool 'pay'" in said
    assert made == [(5,)]


async def test_if_it_did_not_happen_and_no_longer_fits_the_tool_is_not_called(url: str, clock: ManualClock) -> None:
    made: Made = []
    task_id = await crash_while_paying(url, clock, made)
    async with Holdfast(url, clock=clock) as hold:
        _, model = register(hold, [call("pay", amount=5), "done"], tools=another_signature(made))
        handle = hold.handle(task_id)
        async with hold.worker():
            await hold.resolve(await doubt_about(hold, handle), Decision.ABSENT, by="ann")
            assert await ended(handle) == "done"
    [said] = tool_results(model)
    assert "currency" in said
    assert made == [(5,)]


async def test_if_it_did_not_happen_and_still_fits_it_is_made(url: str, clock: ManualClock) -> None:
    made: Made = []
    task_id = await crash_while_paying(url, clock, made)
    async with Holdfast(url, clock=clock) as hold:
        _, model = register(hold, [call("pay", amount=5), "done"], tools=the_same(made))
        handle = hold.handle(task_id)
        async with hold.worker():
            await hold.resolve(await doubt_about(hold, handle), Decision.ABSENT, by="ann")
            await ended(handle)
    assert tool_results(model) == ["paid"]
    assert made == [(5,), (5,)]


# Completed


def optional_added(made: Made) -> Tool:
    @tool
    async def pay(amount: int, fee: int = 0, currency: str = "EUR") -> str:
        """Pay."""
        made.append((amount, fee, currency))
        return "paid again"

    return pay


def default_changed(made: Made) -> Tool:
    @tool
    async def pay(amount: int, fee: int = 1) -> str:
        """Pay."""
        made.append((amount, fee))
        return "paid again"

    return pay


def reordered(made: Made) -> Tool:
    @tool
    async def pay(fee: int = 0, amount: int = 0) -> str:
        """Pay."""
        made.append((amount, fee))
        return "paid again"

    return pay


def removed(made: Made) -> Tool:
    @tool
    async def pay(fee: int = 0) -> str:
        """Pay."""
        made.append((fee,))
        return "paid again"

    return pay


def required_added(made: Made) -> Tool:
    @tool
    async def pay(amount: int, currency: str, fee: int = 0) -> str:
        """Pay."""
        made.append((amount, currency, fee))
        return "paid again"

    return pay


async def crash_after(url: str, first: Line, *tools: Tool) -> str:
    """Have a worker die when the model thinks about what its calls returned; return the task."""
    thinking = asyncio.Event()

    async def think(_request: object) -> str:
        thinking.set()
        await asyncio.Event().wait()
        return "never"

    async with Holdfast(url) as hold:
        agent, _ = register(hold, [first, think], tools=tools)
        handle = await hold.submit(agent, "go")
        async with crashing_worker(hold):
            async with asyncio.timeout(PATIENCE):
                await thinking.wait()
    return handle.id


async def go_on(url: str, task_id: str, *tools: Tool) -> ScriptedModel:
    """Have another worker end the task with these tools; return its model."""
    async with Holdfast(url) as hold:
        _, model = register(hold, ["it has answered that", "done"], tools=tools)
        handle = hold.handle(task_id)
        async with hold.worker():
            assert await handle.result(timeout=PATIENCE) == "done"
    return model


@pytest.mark.parametrize("deployed", [optional_added, default_changed, reordered, removed, required_added])
async def test_a_completed_call_replays_whatever_the_tool_takes_now(url: str, deployed: Callable[[Made], Tool]) -> None:
    made: Made = []

    @tool
    async def pay(amount: int, fee: int = 0) -> str:
        """Pay."""
        made.append((amount, fee))
        return "paid"

    task_id = await crash_after(url, call("pay", amount=5), pay)
    model = await go_on(url, task_id, deployed(made))
    assert tool_results(model) == ["paid"]
    assert made == [(5, 0)]


async def test_a_completed_call_of_a_tool_that_is_gone_replays(url: str) -> None:
    made: Made = []
    task_id = await crash_after(url, call("pay", amount=5), *the_same(made))
    model = await go_on(url, task_id)
    assert tool_results(model) == ["paid"]
    assert made == [(5,)]


@pytest.mark.parametrize("kind", [set[str], frozenset[str]])
async def test_a_set_is_written_down_in_one_order(url: str, kind: type[set[str]]) -> None:
    names = ["alpha", "beta", "gamma", "delta", "epsilon"]
    made: Made = []

    async def label(tags: set[str]) -> str:
        """Label it."""
        made.append((tags,))
        return "labelled"

    label.__annotations__ = {"tags": kind, "return": str}
    async with Holdfast(url) as hold:
        agent, _ = register(
            hold, [[call("label", tags=names), call("label", tags=names[::-1])], "done"], tools=[tool(label)]
        )
        handle = await hold.submit(agent, "go")
        async with hold.worker():
            await handle.result(timeout=PATIENCE)
        written = [decode(effect.arguments) for effect in await hold.store.effects(task_id=handle.id)]
    assert written == [[{"tags": sorted(names)}]] * 2
    assert made == [(set(names),)] * 2
