"""Sub-agents whose caller has ended: they stop as in a cancel, and go on when the caller does."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from holdfast import (
    Agent,
    Handle,
    Holdfast,
    Retry,
    ScriptedModel,
    Task,
    TaskCancelled,
    TaskFailed,
    TaskFilter,
    TaskState,
    tool,
)
from holdfast.agent.scripted import call
from holdfast.agent.tool import Tool
from holdfast.engine.manage.cancel import cancel
from holdfast.engine.steps.children import BY_PARENT, has_sub_agents_at_work
from holdfast.model.commit import Commit, Expect
from holdfast.model.operations import Move
from holdfast.model.worker import Swept
from holdfast.store.base import StateStore
from tests.agent.support import PATIENCE, register, tool_results
from tests.engine.support import until

ONE_TRY = Retry(max_attempts=1)


def asking(name: str) -> Agent:
    model = ScriptedModel(
        lambda r: "there" if r.messages[-1].role == "tool" else call("ask_question", question="Where?")
    )
    return Agent(name, description="Asks.", model=model, builtins=["ask_question"])


async def named(hold: Holdfast, name: str) -> Task:
    [task] = (await hold.store.find(TaskFilter(name=name))).items
    return task


async def reaches(hold: Holdfast, name: str, state: TaskState) -> None:
    async def is_there() -> bool:
        found = (await hold.store.find(TaskFilter(name=name))).items
        return [task.state for task in found] == [state]

    await until(is_there, patience=PATIENCE)


class Fuse(Tool):
    """A tool that a person has to approve. While it is broken, its call ends the task of the agent that makes it."""

    broken = True

    def misfit(self, arguments: Mapping[str, Any]) -> str | None:
        if self.broken and self.approved:
            raise RuntimeError("out of order")
        return super().misfit(arguments)

    approved = False


async def test_a_caller_that_fails_stops_its_sub_agents_and_a_resume_lets_them_go_on(either: Holdfast) -> None:
    sent: list[str] = []
    sending = asyncio.Event()

    @tool
    async def send(to: str) -> str:
        """Send."""
        sent.append(to)
        sending.set()
        await asyncio.Event().wait()
        return "never"

    def fuse() -> str:
        """Burn."""
        return "held"

    middle = Agent(
        "middle",
        description="Delegates.",
        model=ScriptedModel(lambda r: "passed on" if r.messages[-1].role == "tool" else call("asker", request="x")),
        tools=[asking("asker")],
        builtins=False,
    )
    sender = Agent(
        "sender",
        description="Sends.",
        model=ScriptedModel(lambda r: "ok" if r.messages[-1].role == "tool" else call("send", to="ann")),
        tools=[send],
        builtins=False,
    )
    burn = Fuse(fuse, risk="external_action", effect="pure")
    calls = [call("middle", request="x"), call("sender", request="x"), call("fuse")]
    agent, model = register(
        either,
        [calls, "done"],
        tools=[middle, sender, burn],
        approve=["external_action"],
        retry=ONE_TRY,
        builtins=False,
    )
    handle = await either.submit(agent, "go")
    async with either.worker():
        await asyncio.wait_for(sending.wait(), PATIENCE)
        await reaches(either, "asker", TaskState.WAITING)
        await reaches(either, "agent", TaskState.WAITING)
        [leave] = await either.approvals(handle)
        burn.approved = True
        await either.approve(leave.id, by="anna")
        with pytest.raises(TaskFailed, match="out of order"):
            await handle.result(timeout=PATIENCE)
        for name in ("middle", "asker", "sender"):
            await reaches(either, name, TaskState.CANCELLED)
            reason = (await either.store.history((await named(either, name)).id))[-1].reason
            assert reason.startswith(BY_PARENT), reason
        assert await either.approvals() == [], "no person is asked for a caller that is gone"
        [doubt] = await either.doubts()
        assert doubt.effect.step_key.startswith("send"), "a call under way is in doubt, as in any cancel"
        await either.resolve(doubt.effect.effect_id, "happened", result="sent", by="anna")

        burn.broken = False
        await either.resume(handle)
        await reaches(either, "asker", TaskState.WAITING)
        [question] = await either.approvals()
        await either.answer(question.id, "north", by="anna")
        assert await handle.result(timeout=PATIENCE) == "done"
    assert sent == ["ann"], "what was sent is not sent again"
    assert tool_results(model)[0] == "passed on"
    assert tool_results(model)[2] == "held"
    assert [(await named(either, name)).round for name in ("middle", "asker", "sender")] == [1, 1, 1]


async def test_a_deadline_of_the_caller_is_that_of_its_sub_agents(either: Holdfast) -> None:
    soon = Agent(
        "soon", description="s", model=ScriptedModel([call("ask_question", question="When?"), "ok"]), deadline=60.0
    )
    calls = [call("asker", request="x"), call("soon", request="x")]
    agent, _ = register(either, [calls, "done"], tools=[asking("asker"), soon])
    handle = await either.submit(agent, "go", deadline=timedelta(days=1))
    async with either.worker():
        for name in ("asker", "soon"):
            await reaches(either, name, TaskState.WAITING)
    task = await handle.task()
    assert (await named(either, "asker")).deadline == task.deadline
    earlier = (await named(either, "soon")).deadline
    assert earlier is not None
    assert task.deadline is not None
    assert earlier < task.deadline, "its own, which is earlier, stays"


async def fail_by_hand(hold: Holdfast, handle: Handle[str]) -> None:
    """Fail a task that waits, as a sweep does: with no attempt that could stop its sub-agents."""
    move = Move(to=TaskState.FAILED, reason="poison", error={"type": "Poison", "message": "it kills its workers"})
    commit = Commit(
        task_id=handle.id,
        guard=Expect(states=frozenset({TaskState.WAITING})),
        operations=(move,),
        actor="sweep",
    )
    [verdict] = await hold.store.commit([commit])
    assert verdict.applied


async def test_a_sub_agent_whose_caller_is_gone_begins_nothing_more(either: Holdfast) -> None:
    """Its caller did not live to stop it."""
    at_work, gate = asyncio.Event(), asyncio.Event()
    done: list[int] = []

    @tool(risk="write_local", effect="idempotent")
    async def act(n: int) -> str:
        """Act."""
        done.append(n)
        at_work.set()
        await asyncio.wait_for(gate.wait(), PATIENCE)
        return "acted"

    busy = Agent(
        "busy", description="b", model=ScriptedModel(lambda r: call("act", n=r.turn)), tools=[act], builtins=False
    )
    agent, _ = register(either, [call("busy", request="x"), "done"], tools=[busy])
    handle = await either.submit(agent, "go")
    async with either.worker():
        await asyncio.wait_for(at_work.wait(), PATIENCE)
        await reaches(either, "agent", TaskState.WAITING)
        await fail_by_hand(either, handle)
        gate.set()
        child = either.handle((await named(either, "busy")).id)
        with pytest.raises(TaskCancelled, match="stopped by its parent"):
            await child.result(timeout=PATIENCE)
    assert len(done) == 1


async def test_a_sweep_that_fails_a_caller_stops_its_sub_agents(
    either: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, _ = register(either, [call("asker", request="x"), "done"], tools=[asking("asker")])
    handle = await either.submit(agent, "go")
    async with either.worker():
        await reaches(either, "asker", TaskState.WAITING)
        await reaches(either, "agent", TaskState.WAITING)
    await fail_by_hand(either, handle)
    swept = [Swept(poisoned=(handle.id,))]
    really = either.store.sweep

    async def sweep() -> Swept:
        return swept.pop() if swept else await really()

    monkeypatch.setattr(either.store, "sweep", sweep)
    async with either.worker():
        await reaches(either, "asker", TaskState.CANCELLED)
    assert await either.approvals() == []


async def test_a_stop_that_comes_after_the_resume_ends_nothing(either: Holdfast) -> None:
    """The process that stops the sub-agents of a failed caller may be slow; the caller goes on meanwhile."""
    agent, model = register(either, [call("asker", request="x"), "done"], tools=[asking("asker")])
    handle = await either.submit(agent, "go")
    async with either.worker():
        await reaches(either, "asker", TaskState.WAITING)
        await reaches(either, "agent", TaskState.WAITING)
        await fail_by_hand(either, handle)
        await either.resume(handle)
        await reaches(either, "agent", TaskState.WAITING)
        [before] = await either.approvals()
        child = await named(either, "asker")
        await cancel(either.store, child.id, f"{BY_PARENT}, which failed: poison", by="sweep")

        async def is_asked_again() -> bool:
            return [one.id for one in await either.approvals()] not in ([], [before.id])

        await until(is_asked_again, patience=PATIENCE)
        [question] = await either.approvals()
        await either.answer(question.id, "north", by="anna")
        assert await handle.result(timeout=PATIENCE) == "done"
    assert tool_results(model) == ["there"]


async def test_a_plain_task_leaves_its_agents_alone(hold: Holdfast) -> None:
    """Only an agent's children are sub-agents; a task stops what it submits itself."""
    model = ScriptedModel([call("ask_question", question="Where?"), "there"])
    asker = hold.register(Agent("asker", model=model, builtins=["ask_question"]))

    @hold.task(retry=ONE_TRY)
    async def plain(ctx: object) -> None:
        await ctx.submit(asker, "x")  # type: ignore[attr-defined]
        raise RuntimeError("over")

    handle = await hold.submit(plain)
    async with hold.worker():
        with pytest.raises(TaskFailed, match="over"):
            await handle.result(timeout=PATIENCE)
        await reaches(hold, "asker", TaskState.WAITING)
        [question] = await hold.approvals()
        await hold.answer(question.id, "north", by="anna")
        await reaches(hold, "asker", TaskState.COMPLETED)


async def test_a_caller_that_lost_its_lease_stops_no_sub_agent(
    either: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker has the caller by then, which waits for its sub-agents."""
    burn = Fuse(lambda: "held", name="fuse", description="Burn.", risk="external_action", effect="pure")
    calls = [call("asker", request="x"), call("fuse")]
    agent, _ = register(
        either, [calls, "done"], tools=[asking("asker"), burn], approve=["external_action"], retry=ONE_TRY
    )
    handle = await either.submit(agent, "go")

    async def look_and_lose(store: StateStore, task: Task) -> bool:
        found = await has_sub_agents_at_work(store, task)
        monkeypatch.undo()
        burn.broken = False
        assert task.owner is not None
        await store.retire(task.owner)
        return found

    async with either.worker():
        await reaches(either, "asker", TaskState.WAITING)
        await reaches(either, "agent", TaskState.WAITING)
        monkeypatch.setattr("holdfast.engine.attempt.outcome.has_sub_agents_at_work", look_and_lose)
        burn.approved = True
        [leave] = await either.approvals(handle)
        await either.approve(leave.id, by="anna")
        await reaches(either, "agent", TaskState.WAITING)
        child = await named(either, "asker")
        assert (child.state, child.cancel_requested) == (TaskState.WAITING, None)
        assert not burn.broken, "the first attempt has failed, and could not say so"
        [question] = await either.approvals()
        await either.answer(question.id, "north", by="anna")
        assert await handle.result(timeout=PATIENCE) == "done"
    moves = [move.reason for move in await either.store.history(child.id)]
    assert not any(reason.startswith(BY_PARENT) for reason in moves), moves
