"""Chapter 11: the store, its transactions, and state that is shared over MCP."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from holdfast import CheckpointManager, Holdfast, LeaseHeld, StateConflict, StatePatch, Task, TaskState, TaskStore
from tests.mcp.support import ask, connected, read, refused
from tests.seeds.chapters import STATE_MANAGEMENT, section


def running(task_id: str) -> Task:
    return Task(id=task_id, user_input="Fix it.", state=TaskState.RUNNING)


@section(STATE_MANAGEMENT, "Why a File Isn't Production-Ready", ours="`sqlite://`, `postgresql://`")
async def test_why_a_file_isnt_production_ready(lasting_url: str) -> None:
    async with Holdfast(lasting_url) as hold:
        await hold.store.save(running("task-1"))

        def crash(_: Task) -> Task:
            raise RuntimeError("in the middle of the step")

        with pytest.raises(RuntimeError, match="middle"):
            await hold.store.execute_step("task-1", crash)
        stored = await hold.store.get("task-1")
        assert stored is not None
        assert stored.state is TaskState.RUNNING, "atomic: nothing of it is stored"

        await asyncio.gather(*(hold.store.save(running(f"agent-{number}")) for number in range(20)))
        unfinished = await hold.store.list_by_state(TaskState.RUNNING)
        assert len(unfinished) == 21, "concurrent: no writer loses what another one wrote; and it can be asked"


@section(
    STATE_MANAGEMENT,
    "StateStore: Storage Interface",
    ours="`TaskStore`: `save`, `get`, `list_by_state`, `execute_step`",
)
async def test_statestore_storage_interface(hold: Holdfast) -> None:
    await hold.store.save(running("a"))
    await hold.store.save(Task(id="b", user_input="Another."))
    found = await hold.store.get("a")
    assert found is not None
    assert (found.id, found.user_input, found.state) == ("a", "Fix it.", TaskState.RUNNING)
    assert await hold.store.get("c") is None
    by_state = {state: [task.id for task in await hold.store.list_by_state(state)] for state in TaskState}
    assert {state: ids for state, ids in by_state.items() if ids} == {
        TaskState.RUNNING: ["a"],
        TaskState.PENDING: ["b"],
    }
    assert isinstance(hold.store, TaskStore)
    counting = Counting(hold.store)
    assert isinstance(counting, TaskStore), "a reader's own class"
    manager = CheckpointManager(counting, "every_step", max_age=None)
    await manager.maybe_save(replace(found, result="half"), "every_step")
    assert counting.saved == ["a"]
    assert (await manager.validate_and_resume("a")).task.result == "half"


class Counting:
    """A store of the reader's own: it stands in front of another one and counts."""

    def __init__(self, store: TaskStore) -> None:
        self.store = store
        self.saved: list[str] = []

    async def save(self, task: Task) -> Task:
        self.saved.append(task.id)
        return await self.store.save(task)

    async def get(self, task_id: str) -> Task | None:
        return await self.store.get(task_id)

    async def list_by_state(self, state: TaskState) -> list[Task]:
        return await self.store.list_by_state(state)

    async def execute_step(self, task_id: str, step: Callable[[Task], Task | Awaitable[Task]]) -> Task:
        return await self.store.execute_step(task_id, step)


@section(STATE_MANAGEMENT, "PostgreSQL Implementation", ours='`open_store("postgresql://...")`')
async def test_postgresql_implementation(url: str) -> None:
    async with Holdfast(url) as hold:
        for number in range(3):
            await hold.store.save(running(f"task-{number}"))
        first = await hold.store.get("task-0")
        assert first is not None
        saved = await hold.store.save(replace(first, state=TaskState.COMPLETED, result="done"))
        assert saved.created_at == first.created_at, "the second save is an update"
        assert saved.updated_at is not None
        assert first.updated_at is not None
        assert saved.updated_at >= first.updated_at
        assert [task.id for task in await hold.store.list_by_state(TaskState.RUNNING)] == ["task-1", "task-2"]
        assert await hold.store.get("no such task") is None


@section(STATE_MANAGEMENT, "Transactions for Atomic Updates", ours="`execute_step`, `ctx.transaction`")
async def test_transactions_for_atomic_updates(hold: Holdfast) -> None:
    await hold.store.save(running("task-1"))
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def slow(task: Task) -> Task:
        inside.set()
        await go_on.wait()
        return replace(task, state=TaskState.COMPLETED, result="done")

    working = asyncio.create_task(hold.store.execute_step("task-1", slow))
    await inside.wait()
    with pytest.raises(LeaseHeld):
        await hold.store.execute_step("task-1", slow)
    with pytest.raises(LeaseHeld):
        await hold.store.save(replace(running("task-1"), state=TaskState.FAILED))
    go_on.set()
    assert (await working).result == "done"


@section(STATE_MANAGEMENT, "Why MCP for State?", ours="`holdfast mcp`, `holdfast serve`")
async def test_why_mcp_for_state(hold: Holdfast) -> None:
    async with connected(hold, "agent-a") as first, connected(hold, "agent-b") as second:
        task = await ask(first, "submit_task", goal="Free the disk", plan=["look"], agent_id="ops")
        seen = await read(second, task["uri"])
        change = {"task_id": task["task_id"], "patch": {"add_questions": ["Which disk?"]}, "version": seen["version"]}
        await ask(second, "patch_state", **change)
        assert (await read(first, task["uri"]))["agent_state"]["open_questions"] == ["Which disk?"]
        conflict = await refused(first, "patch_state", **change)
        assert conflict["kind"] == "StateConflict", "of two who patch the same version, the second one is refused"
    with pytest.raises(StateConflict):
        await hold.patch_state(task["task_id"], StatePatch(set_flags=("late",)), version=seen["version"], by="ann")


@section(STATE_MANAGEMENT, "State Resource", ours="`state://agents/{agent_id}/tasks/{task_id}`")
async def test_state_resource(hold: Holdfast) -> None:
    async with connected(hold) as client:
        task = await ask(client, "submit_task", goal="Free the disk", agent_id="ops")
        assert task["uri"] == f"state://agents/ops/tasks/{task['task_id']}"
        templates = (await client.list_resource_templates()).resource_templates
        assert "state://agents/{agent_id}/tasks/{task_id}" in [one.uri_template for one in templates]


@section(STATE_MANAGEMENT, "Example: Reading Shared State", ours="`read_resource`, `claim_task`, `complete_step`")
async def test_example_reading_shared_state(hold: Holdfast) -> None:
    async with connected(hold, "agent-a") as first:
        task = await ask(first, "submit_task", goal="Free the disk", plan=["look", "clean"], agent_id="ops", take=True)
        await ask(first, "complete_step", lease=task["lease"], key="look", output="92%", plan_step="look")
        await ask(first, "release_task", lease=task["lease"])
    async with connected(hold, "agent-b") as second:
        shared = await read(second, f"state://agents/ops/tasks/{task['task_id']}")
        assert {name: shared[name] for name in ("agent_id", "task_id", "state", "plan", "artifacts")} == {
            "agent_id": "ops",
            "task_id": task["task_id"],
            "state": "pending",
            "plan": ["look", "clean"],
            "artifacts": [],
        }
        assert shared["agent_state"]["completed_steps"] == ["look"]
        claimed = await ask(second, "claim_task")
        assert claimed["task"]["task_id"] == task["task_id"]
        ended_task = await ask(second, "finish_task", lease=claimed["lease"], result="20GB are free")
        assert ended_task["state"] == "completed"
