"""Chapter 11: its common errors, its exercises and its checklist."""

import asyncio
import importlib.util
from datetime import timedelta
from pathlib import Path
from types import ModuleType

import pytest

from holdfast import (
    Absent,
    Agent,
    Budget,
    Context,
    Happened,
    Holdfast,
    Retry,
    ScriptedModel,
    Task,
    TaskFailed,
    TaskState,
    tool,
)
from holdfast.agent.scripted import call
from tests.engine.support import crashing_worker, ended
from tests.seeds.chapters import ROOT, STATE_MANAGEMENT, section


@section(STATE_MANAGEMENT, "Error 1: No Idempotency", ours='`effect="once"`, `reconcile=`')
async def test_error_1_no_idempotency(hold: Holdfast, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.txt"

    async def charge(effect_id: str) -> str:
        with ledger.open("a") as lines:
            lines.write(f"{effect_id}\n")
        raise ConnectionResetError("it was charged, and the answer got lost")

    async def was_charged(effect_id: str) -> Happened | Absent:
        return Happened("charged") if effect_id in ledger.read_text() else Absent()

    @hold.task
    async def order(ctx: Context) -> str:
        return await ctx.step("charge", charge, effect="once", reconcile=was_charged, timeout=60, settle=0.01)

    task = await hold.submit(order)
    async with hold.worker():
        assert await ended(task) == "charged"
    assert len(ledger.read_text().splitlines()) == 1, "it is asked for, not repeated"


@section(STATE_MANAGEMENT, "Error 2: No Retry on Errors", ours="`@hold.task(retry=)`, `ctx.step(retry=)`")
async def test_error_2_no_retry_on_errors(hold: Holdfast) -> None:
    tries = 0

    def call() -> str:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise TimeoutError("the network")
        return "answered"

    @hold.task(retry=Retry(max_attempts=3, initial=0))
    async def plain(ctx: Context) -> str:
        return await ctx.step("call", call)  # no retry of its own: the task has one

    @hold.task
    async def forbidden(_: Context) -> str:
        raise PermissionError("not with a retry either")

    task = await hold.submit(plain)
    hopeless = await hold.submit(forbidden)
    async with hold.worker():
        assert await ended(task) == "answered"
        with pytest.raises(TaskFailed, match="not with a retry"):
            await ended(hopeless)
    assert tries == 3


@section(STATE_MANAGEMENT, "Error 3: No Deadlines", ours="`timeout=`, `deadline=`, `Budget(max_wall_time_ms=)`")
async def test_error_3_no_deadlines(hold: Holdfast) -> None:
    started: list[str] = []

    async def hang() -> None:
        started.append("call")
        await asyncio.Event().wait()

    @hold.task(deadline=timedelta(seconds=0.5))
    async def ask(ctx: Context) -> None:
        await ctx.step("call", hang)  # no timeout of its own

    task = await hold.submit(ask)
    async with hold.worker():
        with pytest.raises(TaskFailed) as failed:
            await ended(task)
    assert failed.value.failure.type_name == "holdfast.DeadlineExceeded"
    assert len(started) <= 1, "after the deadline nothing is tried again"

    @tool(risk="read_only", retry=Retry(max_attempts=100, initial=0))
    async def fetch() -> str:
        "Fetch something that never comes."
        await asyncio.Event().wait()
        return "never"

    model = ScriptedModel([call("fetch"), "never"])
    agent = hold.register(Agent("agent", model=model, tools=[fetch], budget=Budget(max_wall_time_ms=500)))
    limited = await hold.submit(agent, "go")
    async with hold.worker():
        with pytest.raises(TaskFailed) as failed:
            await ended(limited)
    assert failed.value.failure.type_name == "holdfast.BudgetExceeded", "the wall time stops what is under way"


@section(STATE_MANAGEMENT, "Error 4: State Not Persisted", ours="`store.list_by_state`")
async def test_error_4_state_not_persisted(lasting_url: str) -> None:
    async with Holdfast(lasting_url) as hold:
        await hold.store.save(Task(id="task-1", user_input="Fix it.", state=TaskState.RUNNING))
    async with Holdfast(lasting_url) as hold:
        assert [task.id for task in await hold.store.list_by_state(TaskState.RUNNING)] == ["task-1"]


def example(name: str) -> ModuleType:
    """Import an example of the course as a module."""
    found = importlib.util.spec_from_file_location(f"course_{name}", ROOT / f"examples/course/{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@section(STATE_MANAGEMENT, "Exercise 1: Implement Retry with Backoff", ours="`examples/course/retry.py`")
async def test_exercise_1_implement_retry_with_backoff() -> None:
    solved = example("retry")
    pauses: list[float] = []

    async def note(seconds: float) -> None:
        pauses.append(seconds)

    assert await solved.execute_with_retry(solved.Service(3).call, 4, note) == "ok"
    assert pauses == [1, 2, 4]
    pauses.clear()
    with pytest.raises(RuntimeError, match="failed after 3 retries"):
        await solved.execute_with_retry(solved.Service(3).call, 3, note)
    assert pauses == [1, 2], "no pause after the last try"


@section(STATE_MANAGEMENT, "Exercise 2: Implement Idempotency", ours="`examples/course/idempotency.py`")
async def test_exercise_2_implement_idempotency(url: str) -> None:
    solved = example("idempotency")
    done: list[str] = []

    def work(text: str) -> str:
        done.append(text)
        return "done"

    async with Holdfast(url) as hold:
        vars(solved)["hold"] = hold
        with pytest.raises(LookupError, match="not found"):
            await solved.execute_task_if_not_done("task-1", work)
        await hold.store.save(Task(id="task-1", user_input="Fix it."))
        for _ in range(3):
            assert await solved.execute_task_if_not_done("task-1", work) == "done"
    assert done == ["Fix it."]


@section(STATE_MANAGEMENT, "Completion Criteria / Checklist", ours="`key=`, `retry=`, `deadline=`, `hold.resume`")
async def test_completion_criteria_checklist(lasting_url: str) -> None:
    """All five marks by one task: made once, tried again, limited, kept through a restart, resumed."""
    done: list[str] = []
    reached = asyncio.Event()

    async def publish() -> str:
        done.append("publish")
        if done.count("publish") == 1:
            raise ConnectionError("a passing error: it is tried again")
        if done.count("publish") == 2:
            reached.set()
            await asyncio.Event().wait()  # the worker dies here
        return "published"

    hold = Holdfast(lasting_url)

    @hold.task(retry=Retry(max_attempts=3, initial=0), deadline=timedelta(hours=1))
    async def deploy(ctx: Context) -> str:
        await ctx.step("build", done.append, "build")
        return await ctx.step("publish", publish, timeout=600)

    async with hold:
        first = await hold.submit(deploy, key="once")
        async with crashing_worker(hold):
            await reached.wait()
    async with hold:
        again = await hold.submit(deploy, key="once")
        assert again.id == first.id
        async with hold.worker():
            assert await ended(again) == "published"
    assert done == ["build", "publish", "publish", "publish"]
