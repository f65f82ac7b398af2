"""What a task reports while it runs: progress, events, and the log."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

import asyncio
import logging

import pytest

from holdfast import Context, Event, Handle, Holdfast, Retry, TaskFailed, TaskState
from tests.engine.support import crash, reaches, until, vanish

AT_ONCE = Retry(initial=0.0)


async def events_of(handle: Handle[None], *, after: int = 0) -> list[Event]:
    return [event async for event in handle.events(after=after)]


async def test_progress_is_reported_in_order_and_once(hold: Holdfast) -> None:
    @hold.task(retry=AT_ONCE)
    async def work(ctx: Context) -> None:
        await ctx.progress(1, 3, "first")
        await ctx.progress(2, 3)
        if ctx.attempt == 1:
            raise ConnectionError
        await ctx.progress(3, 3, "last", key="last")

    handle = await hold.submit(work)
    await hold.run(handle)
    events = await events_of(handle)
    assert [event.payload for event in events] == [
        {"kind": "progress", "step": 1, "total": 3, "message": "first"},
        {"kind": "progress", "step": 2, "total": 3, "message": ""},
        {"kind": "progress", "step": 3, "total": 3, "message": "last"},
    ]
    assert [event.number for event in await events_of(handle, after=events[0].number)] == [2, 3]


async def test_events_are_seen_live_until_the_task_ends(quick: Holdfast) -> None:
    gates = [asyncio.Event() for _ in range(3)]

    @quick.task
    async def work(ctx: Context) -> None:
        for number, gate in enumerate(gates):
            await gate.wait()
            await ctx.progress(number)

    handle = await quick.submit(work)
    seen: list[int] = []

    async def listen() -> None:
        async for event in handle.events():
            step = event.payload["step"]
            seen.append(step)

    listening = asyncio.create_task(listen())
    async with quick.worker():
        for number, gate in enumerate(gates):
            assert seen == list(range(number))
            gate.set()
            await until(lambda number=number: len(seen) == number + 1)  # type: ignore[misc]
        await asyncio.wait_for(listening, 5)


async def test_every_move_is_logged_with_its_fields(quick: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    secret = "a value of the user's"  # noqa: S105

    async def flaky() -> str:
        if not caplog.text.count("again in"):
            raise ConnectionError("not yet")
        return secret

    @quick.task(retry=AT_ONCE)
    async def work(ctx: Context) -> str:
        found = await ctx.step("fragile", flaky, retry=AT_ONCE)
        await ctx.wait_event("go")
        return found

    @work.verify
    async def check(ctx: Context, result: str) -> bool | str:
        return True if ctx.attempt == 2 else "not good enough"

    with caplog.at_level(logging.INFO, logger="holdfast"):
        handle = await quick.submit(work)
        async with quick.worker():
            await reaches(handle, TaskState.WAITING)
            await quick.emit("go")  # the second round sees it too
            await handle.result(timeout=60)
    records = [record for record in caplog.records if getattr(record, "to_state", None)]
    assert {record.task_id for record in records} == {handle.id}  # type: ignore[attr-defined]
    assert {record.levelname for record in records} == {"INFO"}
    moves = [(record.from_state, record.to_state) for record in records]  # type: ignore[attr-defined]
    assert moves == [
        ("pending", "running"),
        ("running", "waiting"),
        ("pending", "running"),
        ("running", "review"),
        ("review", "pending"),
        ("pending", "running"),
        ("running", "review"),
        ("review", "completed"),
    ]
    reasons = [record.reason for record in records]  # type: ignore[attr-defined]
    assert reasons[1] == "waits for an event"
    assert reasons[4] == "rejected: not good enough"
    assert any("step fragile failed (try 1: ConnectionError: not yet)" in record.message for record in caplog.records)
    assert secret not in caplog.text


async def test_a_failure_and_a_lost_lease_are_logged_calmly(quick: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    began = asyncio.Event()

    @quick.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> None:
        if not began.is_set():
            began.set()
            await asyncio.sleep(60)
        raise ConnectionError("gone")

    with caplog.at_level(logging.INFO, logger="holdfast"):
        handle = await quick.submit(work)
        worker = await quick.worker().__aenter__()
        await began.wait()
        await crash(quick, worker)
        async with quick.worker():
            with pytest.raises(TaskFailed):
                await handle.result(timeout=60)
    assert "another worker has it" in caplog.text
    assert "running -> failed (attempt 1 of 1 failed: ConnectionError: gone at test_log.py:" in caplog.text
    loud = [record for record in caplog.records if record.levelname != "INFO"]
    assert [(record.levelname, record.to_state) for record in loud] == [("WARNING", "failed")]  # type: ignore[attr-defined]


async def test_only_a_take_over_is_called_one(quick: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    """A worker dies with the task. The claim that follows is a take-over; those after a wait and a retry are not."""
    began = asyncio.Event()

    @quick.task(retry=AT_ONCE)
    async def work(ctx: Context) -> None:
        if not began.is_set():
            began.set()
            await asyncio.Event().wait()
        await ctx.wait_event("go")
        if ctx.attempt == 1:
            raise ConnectionError

    with caplog.at_level(logging.INFO, logger="holdfast"):
        handle = await quick.submit(work)
        worker = await quick.worker(lease=0.1).__aenter__()
        await began.wait()
        dead = await vanish(worker)
        async with quick.worker():
            await reaches(handle, TaskState.WAITING)
            await quick.emit("go")
            await handle.result(timeout=60)
    claims = [record.reason for record in caplog.records if getattr(record, "to_state", "") == "running"]  # type: ignore[attr-defined]
    assert [reason.partition(" by ")[0] for reason in claims] == [
        "claimed",
        "taken over, 1 worker died with it,",
        "claimed",
        "claimed",
    ]
    assert claims[0].endswith(dead)


async def test_a_take_over_in_review_is_called_one(quick: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    """One worker hands the task back in review, the next one dies in review."""
    life, there = 0, asyncio.Event()

    @quick.task
    async def work(ctx: Context) -> str:
        return "done"

    @work.verify
    async def judge(ctx: Context, result: str) -> bool:
        if life < 2:
            there.set()
            await asyncio.Event().wait()
        return True

    with caplog.at_level(logging.INFO, logger="holdfast"):
        handle = await quick.submit(work)
        async with quick.worker(grace=0.0):
            await there.wait()
        life, there = 1, asyncio.Event()
        worker = await quick.worker(lease=0.1).__aenter__()
        await there.wait()
        await vanish(worker)
        life = 2
        async with quick.worker():
            assert await handle.result(timeout=60) == "done"
    claims = [record.reason for record in caplog.records if " by " in getattr(record, "reason", "")]  # type: ignore[attr-defined]
    assert [reason.partition(" by ")[0] for reason in claims] == [
        "claimed",
        "claimed",
        "taken over, 1 worker died with it,",
    ]
