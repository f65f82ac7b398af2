"""The page about state machines: the pattern, three ways to store state, transitions and good practice."""

import asyncio
import json
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Goto, Holdfast, IllegalMove, Machine, Retry, Task, TaskFailed, TaskState, decode, encode
from tests.engine.support import crashing_worker, ended, moves_of
from tests.mcp.support import ask, connected, read
from tests.seeds.chapters import STATE_PAGE, section

Data = dict[str, Any]


class State(Enum):
    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    REVIEW = "review"
    COMPLETED = "completed"
    FAILED = "failed"


TABLE = {
    State.PENDING: [State.IN_PROGRESS],
    State.IN_PROGRESS: [State.REVIEW],
    State.REVIEW: [State.COMPLETED, State.PENDING, State.FAILED],
}


@section(STATE_PAGE, "Why State Management?", ours="`store.history`, `Failure.traceback`")
async def test_why_state_management(hold: Holdfast) -> None:
    @hold.task(retry=Retry(max_attempts=1))
    async def work(_: Context) -> None:
        raise ValueError("what went wrong")

    task = await hold.submit(work)
    async with hold.worker():
        with pytest.raises(TaskFailed) as failed:
            await ended(task)
    failure = failed.value.failure
    assert "what went wrong" in failure.traceback, "for debugging"
    assert "test_state_page.py" in failure.where
    assert await moves_of(hold, task) == [(None, "pending"), ("pending", "running"), ("running", "failed")]


@section(STATE_PAGE, "State Machine Pattern", ours="`Machine`, `Goto`")
async def test_state_machine_pattern(hold: Holdfast) -> None:
    machine = Machine("task", initial=State.PENDING, transitions=TABLE, final=[State.COMPLETED, State.FAILED])
    executed: list[int] = []

    def execute(attempts: int) -> str:
        executed.append(attempts)
        return f"result {attempts}"

    @machine.state(State.PENDING)
    async def start(_: Context, task: Data) -> State:
        assert task["attempts"] < 2
        return State.IN_PROGRESS

    @machine.state(State.IN_PROGRESS)
    async def work(ctx: Context, task: Data) -> Goto[Data]:
        return Goto(State.REVIEW, {**task, "result": await ctx.step("execute", execute, task["attempts"])})

    @machine.state(State.REVIEW)
    async def review(_: Context, task: Data) -> Goto[Data]:
        if task["result"] == "result 1":
            return Goto(State.COMPLETED)
        return Goto(State.PENDING, {**task, "attempts": task["attempts"] + 1}, reason="verify failed")

    handle = await hold.submit(hold.register(machine), {"attempts": 0})
    async with hold.worker():
        reached = await ended(handle)
    assert (reached.state, reached.data) == ("completed", {"attempts": 1, "result": "result 1"})
    assert executed == [0, 1]
    visits = [(visit.came_from, visit.state) for visit in await machine.history(handle)]
    again = [("pending", "in_progress"), ("in_progress", "review")]
    assert visits == [(None, "pending"), *again, ("review", "pending"), *again, ("review", "completed")]


async def test_the_loop_of_the_page_by_hand(hold: Holdfast) -> None:
    """As it stands there, on the task's own states; ``attempts += 1`` is kept."""
    await hold.store.save(Task(id="task-1", user_input="report"))
    following = {TaskState.PENDING: TaskState.RUNNING, TaskState.RUNNING: TaskState.REVIEW}
    while True:
        task = await hold.store.get("task-1")
        assert task is not None
        if task.state is TaskState.COMPLETED:
            break
        if task.state is TaskState.REVIEW:
            good = task.attempts == 1
            state = TaskState.COMPLETED if good else TaskState.PENDING
            task = replace(task, state=state, attempts=task.attempts if good else task.attempts + 1)
        else:
            task = replace(task, state=following[task.state])
        await hold.store.save(task)
    assert task.attempts == 1
    assert len(await hold.store.history("task-1")) == 7


@section(STATE_PAGE, "1. File-Based (JSON)", ours='`Holdfast("json:///dir")`; `encode`, `decode`')
async def test_1_file_based_json(json_url: str, tmp_path: Path) -> None:
    async with Holdfast(json_url) as hold:
        await hold.store.save(Task(id="task-1", user_input="Fix it.", state=TaskState.RUNNING))
    texts = [path.read_text() for path in (tmp_path / "hold").rglob("*.json")]
    [document] = [text for text in texts if '"task-1"' in text and "Fix it." in text]
    assert json.loads(document), "a file that a person can read"
    async with Holdfast(json_url) as hold:
        saved = await hold.store.get("task-1")
    assert saved is not None
    path = tmp_path / "tasks.json"
    path.write_bytes(encode([saved]))  # the page's save_state and load_state
    assert decode(path.read_bytes(), list[Task]) == [saved]


@section(STATE_PAGE, "2. SQLite (Minna Memory)", ours="`hold.memory.store`, `hold.memory.recall`")
async def test_2_sqlite_minna_memory(hold: Holdfast) -> None:
    await hold.memory.store(entity="task-1", attribute="status", value="in_progress")
    [state] = await hold.memory.recall(entity="task-1", attribute="status")
    assert state.value == "in_progress"
    await hold.memory.store(entity="task-1", attribute="status", value="completed")
    assert [fact.value for fact in await hold.memory.recall("task-1", "status")] == ["completed"]
    await hold.memory.relate("task-1", "depends on", "task-0")
    [relation] = await hold.memory.relations("task-0")
    assert relation.entity == "task-1"


@section(STATE_PAGE, "3. MCP Resources", ours="`task://queue`, `task://current`")
async def test_3_mcp_resources(hold: Holdfast) -> None:
    async with connected(hold) as client:
        first = await ask(client, "submit_task", goal="Free the disk")
        second = await ask(client, "submit_task", goal="Restart billing")
        queue = await read(client, "task://queue")
        assert [task["task_id"] for task in queue["tasks"]] == [first["task_id"], second["task_id"]]
        await ask(client, "claim_task", task_id=first["task_id"])
        current = await read(client, "task://current")
        assert [task["task_id"] for task in current["yours"]] == [first["task_id"]]


@section(STATE_PAGE, "State Transitions", ours="`@task.verify`, `hold.retry`")
async def test_state_transitions(hold: Holdfast) -> None:
    good = False

    @hold.task(retry=Retry(max_attempts=2, initial=0))
    async def work(_: Context) -> str:
        return "work"

    @work.verify
    async def verify(_: Context, result: str) -> bool:
        return good and result == "work"

    task = await hold.submit(work)
    async with hold.worker():
        with pytest.raises(TaskFailed):
            await ended(task)
        good = True
        await hold.retry(task)
        await ended(task)
    one_round = [("pending", "running"), ("running", "review")]
    assert await moves_of(hold, task) == [
        (None, "pending"),
        *one_round,
        ("review", "pending"),
        *one_round,
        ("review", "failed"),
        ("failed", "pending"),
        *one_round,
        ("review", "completed"),
    ]


@section(STATE_PAGE, "Best Practices", ours="`hold.submit`, `Commit`, `store.history`, `lease=`")
async def test_best_practices(hold: Holdfast) -> None:
    reached = asyncio.Event()

    @hold.task
    async def work(ctx: Context) -> str:
        stored = await hold.store.get(ctx.task_id)
        assert stored is not None
        assert stored.state is TaskState.RUNNING, "persisted before it is processed"
        if not reached.is_set():
            reached.set()
            await asyncio.Event().wait()
        return "done"

    task = await hold.submit(work)
    async with crashing_worker(hold):
        await reached.wait()
    async with hold.worker():
        assert await ended(task) == "done", "recovered"
    history = await hold.store.history(task.id)
    assert [move.to_state for move in history] == ["pending", "running", "pending", "running", "completed"]
    assert all(move.reason and move.actor for move in history), "every transition is logged"
    times = [move.at for move in history]
    assert times == sorted(times), "with its time"

    await hold.store.save(Task(id="by hand"))
    with pytest.raises(IllegalMove):
        await hold.store.save(Task(id="by hand", state=TaskState.COMPLETED))
    unchanged = await hold.store.get("by hand")
    assert unchanged is not None
    assert unchanged.state is TaskState.PENDING, "all of an update or nothing"
