"""A row that somebody edited by hand and that cannot be read: its task fails in words, and all others go on."""

from pathlib import Path

import apsw
import pytest

from holdfast import Context, Holdfast, Machine, Retry, StepFailed, TaskFailed, TaskState
from holdfast.model.commit import Commit, Held, Refusal, Verdict
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
