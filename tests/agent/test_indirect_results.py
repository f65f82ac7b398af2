"""Results that did not come straight from the call: from a reconcile, reported late, or stored in an artifact."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast import (
    Absent,
    Agent,
    Happened,
    Holdfast,
    KnownFact,
    Retry,
    ScriptedModel,
    StatePatch,
    TaskFailed,
    tool,
)
from holdfast.agent.scripted import call
from holdfast.engine.attempt.attempt import attempt_of
from holdfast.engine.attempt.context import Context
from holdfast.model.operations import ApplyPatch
from holdfast.testing import sandbox
from tests.agent.support import PATIENCE
from tests.engine.support import until

LARGE = "x" * 10_000


@pytest.mark.parametrize("crashes", [False, True])
async def test_a_result_that_a_reconcile_tells_is_observed_and_kept_like_any_other(crashes: bool) -> None:
    done: set[str] = set()

    async def was_applied(effect_id: str, service: str) -> Happened | Absent:
        assert service == "billing"
        return Happened(LARGE) if effect_id in done else Absent()

    @tool(effect="once", reconcile=was_applied, timeout=1, settle=0.1)
    async def apply(service: str, effect_id: str) -> str:
        """Apply."""
        assert not done, "made twice"
        done.add(effect_id)
        return LARGE + service[:0]

    def observe(name: str, _arguments: object, result: object, _state: object) -> StatePatch:
        return StatePatch(append_facts=(KnownFact(key=name, value=len(str(result)), source="observer"),))

    hold = Holdfast("memory://")
    model = ScriptedModel([call("apply", service="billing"), "done"])
    agent = hold.register(Agent("agent", model=model, tools=[apply], observe=observe))
    async with sandbox(hold) as box:
        if crashes:
            box.crash("apply:1.0", when="after_effect")
        handle = await hold.submit(agent, "go")
        assert await handle.result(timeout=600) == "done"
        state = await hold.state(handle)
    assert len(done) == 1
    assert [(fact.key, fact.value) for fact in state.known_facts] == [("apply", len(LARGE))]
    assert [artifact.bytes for artifact in state.artifacts] == [len(LARGE)]
    assert max(len(message.content) for message in model.requests[-1].messages) < 5_000


async def test_what_a_blocking_tool_returns_after_its_timeout_is_the_result(tmp_path: object) -> None:
    gate = threading.Event()

    @tool(timeout=0.2, settle=6)
    def pay() -> str:
        """Pay."""
        assert gate.wait(PATIENCE)
        return "paid, late"

    hold = Holdfast(f"sqlite:///{tmp_path}/agents.db")
    model = ScriptedModel([call("pay"), "done"])
    agent = hold.register(Agent("agent", model=model, tools=[pay]))
    async with hold, hold.worker():
        handle = await hold.submit(agent, "go")

        async def is_in_doubt() -> bool:
            return any(effect.state == "in_doubt" for effect in await hold.store.effects(task_id=handle.id))

        await until(is_in_doubt, patience=PATIENCE)
        gate.set()
        assert await handle.result(timeout=60) == "done"
    assert [message.content for message in model.requests[-1].messages if message.role == "tool"] == ["paid, late"]


@pytest.mark.parametrize("is_blocking", [False, True])
async def test_an_undo_gets_the_whole_of_a_result_that_was_kept_as_an_artifact(is_blocking: bool) -> None:
    undone: list[object] = []

    async def forget(result: object) -> None:
        undone.append(result)

    def forget_blocking(result: object) -> None:
        undone.append(result)

    @tool(effect="idempotent", compensate=forget_blocking if is_blocking else forget)
    async def act() -> list[str]:
        """Act."""
        return [LARGE]

    hold = Holdfast("memory://")
    model = ScriptedModel([call("act"), call("nope")])
    agent = hold.register(Agent("agent", model=model, tools=[act], max_senseless_answers=0))
    async with hold, hold.worker():
        handle = await hold.submit(agent, "go")
        with pytest.raises(TaskFailed):
            await handle.result(timeout=60)
    assert undone == [[LARGE]]


async def test_what_no_store_takes_does_not_keep_a_task_from_ending() -> None:
    hold = Holdfast("memory://")

    @hold.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> None:
        attempt_of(ctx).outbox.buffer(ApplyPatch(body=b"{}", author="x", reason="nul \0"))
        await ctx.step("step", lambda: 1)

    async with hold, hold.worker():
        handle = await hold.submit(work)
        with pytest.raises(TaskFailed, match="cannot be stored"):
            await handle.result(timeout=60)


async def test_a_very_long_text_is_kept_whole() -> None:
    @tool(risk="read_only")
    async def dump() -> str:
        """Dump."""
        return "é" * (5 << 20)

    hold = Holdfast("memory://")
    agent = hold.register(Agent("agent", model=ScriptedModel([call("dump"), "done"]), tools=[dump]))
    async with hold, hold.worker():
        handle = await hold.submit(agent, "go")
        assert await handle.result(timeout=60) == "done"
        assert [artifact.bytes for artifact in (await hold.state(handle)).artifacts] == [10 << 20]


async def test_something_cancelled_inside_a_tool_is_an_error_of_the_tool() -> None:
    @tool(risk="read_only", retry=Retry(max_attempts=1))
    async def lean_on() -> str:
        """Await a call that is cancelled."""
        raise asyncio.CancelledError

    hold = Holdfast("memory://")
    model = ScriptedModel([call("lean_on"), "done"])
    agent = hold.register(Agent("agent", model=model, tools=[lean_on]))
    async with hold, hold.worker():
        handle = await hold.submit(agent, "go")
        assert await handle.result(timeout=60) == "done"
    [answer] = [message.content for message in model.requests[-1].messages if message.role == "tool"]
    assert answer.startswith("Error: RuntimeError: the tool raised CancelledError()")
