"""The clock of max_wall_time_ms above other tasks: it stands still while all of them that are open wait for people."""

from __future__ import annotations

import asyncio

from holdfast import Agent, Budget, Handle, Holdfast, Meter, ScriptedModel, TaskFilter, TaskState, tool
from holdfast.agent.scripted import call
from holdfast.engine.manage.family import Family
from holdfast.model.walltime import wall_time_ms
from tests.agent.budget.support import PATIENCE, register
from tests.engine.support import until


def asking(name: str) -> Agent:
    model = ScriptedModel([call("ask_question", question=f"Where, {name}?"), "there"])
    return Agent(name, description="Asks.", model=model, builtins=["ask_question"])


async def clock(hold: Holdfast, task: Handle[str]) -> int:
    return (await hold.budget(task)).lines[Meter.WALL_TIME_MS].spent


async def runs(hold: Holdfast, task: Handle[str]) -> bool:
    """Say whether the clock has gone on by the time that the store's has."""
    before, began = await clock(hold, task), await hold.store.now()
    while (await hold.store.now() - began).total_seconds() < 0.02:  # noqa: ASYNC110 - a clock sets no event
        await asyncio.sleep(0.005)
    return await clock(hold, task) > before


async def all_wait(hold: Holdfast, count: int) -> None:
    """Wait until so many tasks wait, and no other one is open."""

    async def is_so() -> bool:
        tasks = (await hold.store.find(TaskFilter())).items
        states = [task.state for task in tasks if not task.state.is_terminal]
        return states == [TaskState.WAITING] * count

    await until(is_so, patience=PATIENCE)


async def test_it_stands_while_a_sub_agent_of_a_sub_agent_waits_for_a_person(either: Holdfast) -> None:
    middle = Agent(
        "middle",
        description="Delegates.",
        model=ScriptedModel([call("leaf", request="x"), "passed on"]),
        tools=[asking("leaf")],
        builtins=False,
    )
    limit = Budget(max_wall_time_ms=3_600_000)
    boss, _ = register(either, [call("middle", request="x"), "done"], name="boss", tools=[middle], budget=limit)
    async with either.worker():
        task = await either.submit(boss, "go")
        await all_wait(either, 3)
        assert not await runs(either, task)
        [child] = (await either.store.find(TaskFilter(name="middle"))).items
        assert not await runs(either, either.handle(child.id)), "nor that of the task between"
    assert not await runs(either, task), "without a worker, too"
    async with either.worker():
        [question] = await either.approvals()
        await either.answer(question.id, "north", by="anna")
        await task.result(timeout=PATIENCE)
    # What the attempt of the caller counted is what people read.
    booked = {line.meter: line.spent for line in await either.store.accounts(task.id)}
    assert booked[Meter.WALL_TIME_MS] <= await clock(either, task)


async def test_it_runs_while_another_one_works_beside_the_question(either: Holdfast) -> None:
    at_work, gate = asyncio.Event(), asyncio.Event()

    @tool(risk="read_only")
    async def work() -> str:
        """Work."""
        at_work.set()
        await asyncio.wait_for(gate.wait(), PATIENCE)
        return "worked"

    worker = Agent(
        "worker", description="Works.", model=ScriptedModel([call("work"), "ok"]), tools=[work], builtins=False
    )
    calls = [call("asker", request="x"), call("worker", request="x")]
    boss, _ = register(either, [calls, "done"], name="boss", tools=[asking("asker"), worker])
    async with either.worker():
        task = await either.submit(boss, "go")
        await asyncio.wait_for(at_work.wait(), PATIENCE)
        await until(either.approvals, patience=PATIENCE)
        assert await runs(either, task)
        gate.set()
        await all_wait(either, 2)
        assert not await runs(either, task)
        [asker] = (await either.store.find(TaskFilter(name="asker"))).items
        await either.cancel(asker.id, by="anna")
        await task.result(timeout=PATIENCE)
    assert not await runs(either, task)


async def test_what_has_ended_is_read_once(either: Holdfast) -> None:
    """A caller with many sub-agents behind it does not read all of them before each model call."""
    helper = Agent("helper", description="Helps.", model=ScriptedModel(lambda _: "found"), builtins=False)
    calls = [call("helper", request=str(number)) for number in range(3)]
    boss, _ = register(either, [calls, "done"], name="boss", tools=[helper])
    async with either.worker():
        task = await either.submit(boss, "go")
        await task.result(timeout=PATIENCE)
    read: list[str] = []
    history = either.store.history

    async def counted(task_id: str) -> object:
        read.append(task_id)
        return await history(task_id)

    either.store.history = counted  # type: ignore[assignment, method-assign]
    family = Family(either.store, task.id)
    first = await family.read()
    assert len(first.children) == 3
    assert len(read) == 4
    second = await family.read()
    assert read[4:] == [task.id]
    now = await either.store.now()
    assert wall_time_ms(first, now) == wall_time_ms(second, now)
