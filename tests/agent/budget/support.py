"""What the tests of budgets share: an agent in one line, a task that ends, its books."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast import (
    Agent,
    Approval,
    Handle,
    Holdfast,
    Meter,
    ScriptedModel,
    TaskDefinition,
    TaskFailed,
    TaskState,
    Usage,
    tool,
)
from holdfast.agent.model import Request
from holdfast.agent.scripted import Line, Writer, estimate_usage
from holdfast.model.message import Reply
from holdfast.model.records import Account
from tests.engine.support import until

PATIENCE = 60.0
"""Real seconds until a task that does not end fails its test."""

Defined = TaskDefinition[..., str]
UsageOf = Usage | Callable[[Request, Reply], Usage | None] | None


def register(
    hold: Holdfast,
    script: Sequence[Line] | Writer,
    *,
    name: str = "agent",
    usage: UsageOf = estimate_usage,
    builtins: bool = False,
    **options: Any,  # noqa: ANN401
) -> tuple[Defined, ScriptedModel]:
    """Register an agent with a scripted model; return both."""
    model = ScriptedModel(script, usage=usage)
    return hold.register(Agent(name, model=model, builtins=builtins, **options)), model


@tool(risk="read_only")
async def look(place: str = "here") -> str:
    """Look somewhere."""
    return f"nothing {place}"


async def completed(hold: Holdfast, agent: Defined, text: str = "go") -> Handle[str]:
    """Submit to an agent, and return when a worker has done it."""
    handle = await hold.submit(agent, text)
    async with hold.worker(concurrency=10):
        await handle.result(timeout=PATIENCE)
    return handle


async def failed(hold: Holdfast, agent: Defined | None = None, handle: Handle[str] | None = None) -> Handle[str]:
    """Submit to an agent, or work on a task that is there, and return when it has failed."""
    if handle is None:
        assert agent is not None
        handle = await hold.submit(agent, "go")
    async with hold.worker(concurrency=10):
        await until(lambda: _is(handle, TaskState.FAILED), patience=PATIENCE)
    return handle


async def _is(handle: Handle[Any], state: TaskState) -> bool:
    return (await handle.task()).state is state


async def why(handle: Handle[Any]) -> TaskFailed:
    """Return how a task failed."""
    try:
        await handle.result(timeout=PATIENCE)
    except TaskFailed as error:
        return error
    raise AssertionError("it did not fail")


async def asked(hold: Holdfast, task: Handle[Any], *, times: int = 1) -> Approval:
    """Return what a task asks a person for, once it has asked so often; the others are decided."""
    found: list[Approval] = []

    async def is_there() -> bool:
        found[:] = await hold.approvals(task)
        return len(found) == 1 and len(await hold.store.approvals(task_id=task.id)) == times

    await until(is_there, patience=PATIENCE)
    return found[0]


async def books(hold: Holdfast, task: Handle[Any] | str) -> dict[str, tuple[int | None, int, int]]:
    """Return limit, spent and reserved of each meter, as they are stored."""
    lines = await hold.store.accounts(task if isinstance(task, str) else task.id)
    return {line.meter: (line.limit, line.spent, line.reserved) for line in lines}


async def line(hold: Holdfast, task: Handle[Any] | str, meter: str) -> Account:
    lines = await hold.store.accounts(task if isinstance(task, str) else task.id)
    return next(line for line in lines if line.meter == meter)


async def spent_ms(hold: Holdfast, task: Handle[Any]) -> int:
    """Return the wall time of a task, as people see it."""
    return (await hold.budget(task)).lines[Meter.WALL_TIME_MS].spent


async def flags(hold: Holdfast, task: Handle[Any]) -> tuple[str, ...]:
    return (await hold.state(task)).risk_flags
