"""The simple interface when steps are slow, cancelled, failing, or not alone."""

from __future__ import annotations

import asyncio
import fcntl
import inspect
import logging
import os
import threading
import time
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast import LeaseHeld, LeaseLost, ManualClock, NewTask, Task, TaskState
from holdfast.model.worker import Claim, Claimed, Heartbeat, NewWorker, WorkerState
from holdfast.store.sqlite import SqliteStore
from tests.engine.support import until
from tests.ready_schema import new_file

RUNNING = Task(id="task", state=TaskState.RUNNING)


PATIENCE = 60.0
"""Seconds before something that does not happen fails its test."""


@pytest.fixture
def clock() -> ManualClock:
    """The time of the store: no lease runs out because the machine is busy."""
    return ManualClock()


@pytest.fixture
async def store(tmp_path: Path, clock: ManualClock) -> SqliteStore:  # type: ignore[misc]
    async with SqliteStore(new_file(tmp_path / "agents.db"), clock=clock) as opened:
        await opened.save(RUNNING)
        yield opened


async def test_a_blocking_step_keeps_its_lease(
    store: SqliteStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs in a thread, so that the lease is renewed meanwhile; another process would otherwise run it too."""
    began, go_on, renewed = threading.Event(), threading.Event(), asyncio.Event()
    lease = 0.3
    heartbeat = store.heartbeat

    async def renew(worker_id: str) -> Heartbeat:
        answer = await heartbeat(worker_id)
        renewed.set()
        return answer

    def blocking(task: Task) -> Task:
        began.set()
        assert go_on.wait(PATIENCE)
        return replace(task, result="once")

    monkeypatch.setattr(store, "heartbeat", renew)
    step = asyncio.create_task(store.execute_step("task", blocking, lease=lease))
    assert await asyncio.to_thread(began.wait, PATIENCE)
    async with asyncio.timeout(PATIENCE), SqliteStore(store.path, clock=clock) as other:
        for _ in range(3):
            renewed.clear()
            await renewed.wait()
            clock.advance(0.9 * lease)
            with pytest.raises(LeaseHeld):
                await other.execute_step("task", lambda task: task)
    go_on.set()
    assert (await step).result == "once"


async def test_a_step_of_nothing_but_store_calls_lets_the_loop_run(store: SqliteStore) -> None:
    """Calls that are answered inline would otherwise starve heartbeats and timeouts."""
    turns, enough = 0, 20

    async def chatty(task: Task) -> Task:
        give_up_at = time.monotonic() + PATIENCE
        while turns < enough and time.monotonic() < give_up_at:
            await store.emit("progress", 1)
            await store.get("task")
        return replace(task, result="once")

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.005)
            turns += 1

    counting = asyncio.create_task(count())
    assert (await store.execute_step("task", chatty)).result == "once"
    counting.cancel()
    assert turns >= enough


async def test_a_timeout_is_a_timeout_and_leaves_the_task_as_it_was(store: SqliteStore) -> None:
    async def slow(task: Task) -> Task:
        limit.reschedule(0)  # it has begun, and is too late
        await asyncio.Event().wait()
        return task

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(PATIENCE) as limit:
            await store.execute_step("task", slow)
    task = await store.get("task")
    assert task is not None
    assert (task.state, task.owner) == (TaskState.RUNNING, None)
    assert {worker.state for worker in await store.workers()} == {WorkerState.DEAD}


@pytest.mark.parametrize("delay", [0, 0.001, 0.003, 0.01])
async def test_a_cancellation_anywhere_leaves_nothing_behind(store: SqliteStore, delay: float) -> None:
    for _ in range(5):
        running = asyncio.create_task(store.execute_step("task", lambda task: task))
        await asyncio.sleep(delay)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await store.emit("last", 1)  # whatever was in the writer's thread came before it
    task = await store.get("task")
    assert task is not None
    assert (task.state, task.owner) == (TaskState.RUNNING, None)
    assert not [worker for worker in await store.workers() if worker.state is not WorkerState.DEAD]


async def test_a_cancellation_while_the_lease_is_being_written(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write goes on in the writer's thread; its lease must not be taken for a dead worker's."""
    real, begun = store.acquire, asyncio.Event()
    with Path(f"{store.path}-gate").open() as gate:

        async def acquire_behind_the_gate(task_id: str, worker_id: str) -> Claimed:
            fcntl.flock(gate, fcntl.LOCK_EX)  # another process is writing
            begun.set()
            return await real(task_id, worker_id)

        monkeypatch.setattr(store, "acquire", acquire_behind_the_gate)
        running = asyncio.create_task(store.execute_step("task", lambda task: task))
        async with asyncio.timeout(PATIENCE):
            await begun.wait()
        running.cancel()
        await asyncio.sleep(0.1)
        fcntl.flock(gate, fcntl.LOCK_UN)
        await asyncio.gather(running, return_exceptions=True)
    task = await store.get("task")
    assert task is not None
    assert (task.state, task.owner, task.fence) == (TaskState.RUNNING, None, 1)  # it was leased, and let go


async def test_the_callers_own_error_is_what_the_caller_gets(store: SqliteStore) -> None:
    """Also if the lease was lost meanwhile."""

    async def failing(task: Task) -> Task:
        await store.retire(task.owner or "")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store.execute_step("task", failing)


async def test_a_lost_lease_writes_nothing(store: SqliteStore) -> None:
    async def robbed(task: Task) -> Task:
        await store.retire(task.owner or "")
        return replace(task, result="stale")

    with pytest.raises(LeaseLost):
        await store.execute_step("task", robbed)
    task = await store.get("task")
    assert task is not None
    assert task.result is None


async def test_a_save_cannot_overwrite_a_step(store: SqliteStore) -> None:
    async def step(task: Task) -> Task:
        with pytest.raises(LeaseHeld):
            await store.save(replace(task, result="intruder"))
        return replace(task, result="step")

    assert (await store.execute_step("task", step)).result == "step"


async def test_true_is_not_one(store: SqliteStore) -> None:
    """Equal in Python, but not the same result."""
    await store.save(replace(RUNNING, result=1))
    assert (await store.save(replace(RUNNING, result=True))).result is True


async def test_however_many_a_dead_worker_held(store: SqliteStore, clock: ManualClock) -> None:
    await store.submit([NewTask(id=f"t{n:03}", name="job") for n in range(150)])
    worker = await store.register(NewWorker())
    assert len(await store.claim(Claim(worker_id=worker.id, number=1, limit=150, names=("job",)))) == 150
    clock.advance(worker.lease)
    await store.execute_step("t149", lambda task: task)


async def test_the_working_directory_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr("holdfast.store.sqlite.writer._CHECKPOINT_PAGES", 1)
    async with SqliteStore("agents.db") as store:
        os.chdir(tmp_path / "there")
        await store.save(RUNNING)
        assert await store.count() == {TaskState.RUNNING: 1}
    assert not list((tmp_path / "there").iterdir())


async def test_what_the_renewal_died_of_is_said(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A step goes on without it, and the fence refuses what it writes if the lease ran out."""
    real, failed = store.heartbeat, asyncio.Event()

    async def broken(worker_id: str) -> Heartbeat:
        monkeypatch.setattr(store, "heartbeat", real)
        failed.set()
        raise RuntimeError(f"a defect, with {worker_id}")

    async def slow(task: Task) -> Task:
        async with asyncio.timeout(PATIENCE):
            await failed.wait()
        return replace(task, result="once")

    monkeypatch.setattr(store, "heartbeat", broken)
    assert (await store.execute_step("task", slow, lease=0.03)).result == "once"
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.name.startswith("holdfast")
    assert record.exc_info is not None


async def test_the_renewal_is_over_when_the_step_is(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs a moment to end, in which the store must not be closed."""
    real, begun, ended = store.heartbeat, asyncio.Event(), asyncio.Event()

    async def slow_to_end(worker_id: str) -> Heartbeat:
        monkeypatch.setattr(store, "heartbeat", real)
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(100):
                await asyncio.sleep(0)
            ended.set()
        return await real(worker_id)

    async def step(task: Task) -> Task:
        async with asyncio.timeout(PATIENCE):
            await begun.wait()
        return task

    monkeypatch.setattr(store, "heartbeat", slow_to_end)
    await store.execute_step("task", step, lease=0.03)
    assert ended.is_set()


async def test_a_coroutine_that_comes_too_late_is_closed(store: SqliteStore) -> None:
    """The step is cancelled while the function that returns it still runs in its thread."""
    began, go_on = threading.Event(), threading.Event()

    async def work(task: Task) -> Task:
        return task

    coroutines: list[Coroutine[None, None, Task]] = []

    def late(task: Task) -> Coroutine[None, None, Task]:
        began.set()
        assert go_on.wait(PATIENCE)
        coroutines.append(work(task))
        return coroutines[0]

    running = asyncio.create_task(store.execute_step("task", late))
    assert await asyncio.to_thread(began.wait, PATIENCE)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    go_on.set()
    await until(lambda: coroutines and inspect.getcoroutinestate(coroutines[0]) == inspect.CORO_CLOSED)
