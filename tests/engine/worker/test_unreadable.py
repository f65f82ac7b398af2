"""A row that was edited by hand and cannot be read: its task fails with a clear error, and all others continue."""

import asyncio
from pathlib import Path

import apsw
import pytest

from holdfast import Context, Holdfast, Machine, Retry, StepFailed, TaskFailed, TaskState
from holdfast.model.commit import Commit, Held, Refusal, Verdict
from holdfast.store.sqlite.connection import connect
from tests.engine.support import ended, reaches

EDITS = {
    "UPDATE inputs SET user_input = x'7b6261'": "the stored input cannot be read",
    "UPDATE steps SET output = x'7b6261' WHERE key = 'good'": "step 'good'",
    "UPDATE steps SET error = x'7b6261' WHERE key = 'bad'": "is not JSON",
}


async def one() -> int:
    return 1


async def fail() -> int:
    raise ValueError


async def test_a_row_that_cannot_be_read_fails_its_task_alone(tmp_path: Path) -> None:
    for number, (edit, words) in enumerate(EDITS.items()):
        path = tmp_path / f"{number}.db"
        hold = Holdfast(f"sqlite:///{path}")

        @hold.task
        async def work(ctx: Context) -> int:
            await ctx.step("good", one)
            with pytest.raises(StepFailed):
                await ctx.step("bad", fail)
            await ctx.wait_event("go")
            return 1

        @hold.task
        async def other(ctx: Context) -> int:
            return await ctx.step("good", one)

        async with hold, hold.worker(grace=0.0):
            task_id = (handle := await hold.submit(work)).id
            await reaches(handle, TaskState.WAITING)
        connection = apsw.Connection(str(path))
        connection.execute(edit)
        connection.close()
        async with hold, hold.worker(grace=0.0):
            neighbour = await hold.submit(other)
            await hold.emit("go")
            with pytest.raises(TaskFailed, match=words):
                await ended(hold.handle(task_id))
            assert await ended(neighbour) == 1
            assert len((await hold.store.find()).items) == 2
            assert (await hold.store.load(task_id)).steps


HARMLESS = {
    "UPDATE tasks SET created_at = 1 << 62 WHERE name = 'work'",
    "UPDATE tasks SET deadline = 1 << 62, rank = -(1 << 62) WHERE name = 'work'",
    "UPDATE tasks SET priority = 1 << 62 WHERE name = 'work'",
    "UPDATE approvals SET expires_at = 1 << 62",
    "UPDATE approvals SET answer = x'7b6261'",
    "UPDATE approvals SET deciders = x'7b6261'",
    "UPDATE workers SET details = x'7b6261'",
    "UPDATE workers SET seen_at = 1 << 62, started_at = -(1 << 62)",
    "UPDATE effects SET effect_id = 'junk'",
    "UPDATE steps SET finished_at = 1 << 62",
}
"""Edits that once stopped the claims or the sweeps of every worker, or left the task running for ever."""


async def test_an_edited_row_stops_no_worker_and_leaves_no_task_hanging(tmp_path: Path) -> None:
    for number, edit in enumerate(sorted(HARMLESS)):
        path = tmp_path / f"{number}.db"
        hold = Holdfast(f"sqlite:///{path}")

        @hold.task
        async def work(ctx: Context) -> int:
            await ctx.step("pay", one, effect="once")
            await asyncio.gather(ctx.wait_event("go"), ctx.ask("sure?", expires=3600), return_exceptions=True)
            return 1

        @hold.task
        async def other(ctx: Context) -> int:
            return await ctx.step("good", one)

        async with hold, hold.worker(grace=0.0):
            task_id = (handle := await hold.submit(work)).id
            await reaches(handle, TaskState.WAITING)
        connection = connect(str(path), durable=False)
        connection.execute(edit)
        assert connection.changes(), edit
        connection.close()
        async with hold, hold.worker(grace=0.0):
            neighbour = await hold.submit(other)
            await hold.emit("go")
            assert await ended(neighbour) == 1, edit
            await reaches(hold.handle(task_id), TaskState.WAITING, TaskState.FAILED)
            assert len((await hold.store.find()).items) == 2, edit
            assert await hold.store.workers(), edit


async def test_a_retry_of_a_state_that_is_refused_is_the_tasks_failure(
    quick: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine: Machine[None] = Machine(
        "refused", initial="begin", transitions={"begin": "end"}, final="end", retry=Retry(max_attempts=1)
    )

    @machine.state("begin", retry=Retry(max_attempts=3))
    async def begin(_ctx: Context, _data: None) -> str:
        raise ValueError("of the handler")

    put = quick.services.committer.put

    async def refuse(one: Commit) -> Verdict:
        if one.move is None or not one.move.reason.startswith("state"):
            return await put(one)
        assert isinstance(one.guard, Held)
        sequence = one.guard.sequence - 1
        return Verdict(task_id=one.task_id, refusal=Refusal.CONFLICT, detail="by a test", sequence=sequence)

    monkeypatch.setattr(quick.services.committer, "put", refuse)
    refused = quick.register(machine)
    async with quick.worker(grace=0.0):
        handle = await quick.submit(refused, None)
        with pytest.raises(TaskFailed) as caught:
            await ended(handle)
        assert caught.value.failure.type_name == "ValueError"
