"""Trying again: when, how often, after which errors, and across restarts."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

from datetime import datetime

import pytest

from holdfast import Context, Holdfast, ManualClock, Retry, StepFailed, StepState, TaskFailed, TaskState
from tests.engine.support import crash, ended, pass_time, reaches, settle, steps_of

FIVE = Retry(max_attempts=5, jitter="none")
ONCE = Retry(max_attempts=1)


class RateLimited(Exception):
    def __init__(self, retry_after: float) -> None:
        super().__init__("slow down")
        self.retry_after = retry_after


def seconds(times: list[datetime]) -> list[float]:
    return [(time - times[0]).total_seconds() for time in times]


async def test_a_step_is_tried_after_1_2_4_and_8_seconds_and_not_delayed_after_the_last(
    still: Holdfast, clock: ManualClock
) -> None:
    times: list[datetime] = []
    tries: list[str] = []

    async def fail() -> None:
        times.append(clock.now())
        raise ConnectionError(f"try {len(times)}")

    @still.task(retry=ONCE)
    async def work(ctx: Context) -> None:
        try:
            await ctx.step("fragile", fail, retry=FIVE)
        except StepFailed as failed:
            tries.extend(one.message for one in failed.failure.tries)
            raise

    handle = await still.submit(work)
    async with still.worker(grace=0.0):
        await pass_time(clock, 16.0)
        with pytest.raises(TaskFailed, match="try 5") as failed:
            await ended(handle)
    assert seconds(times) == [0, 1, 3, 7, 15]
    assert (await handle.task()).finished_at == times[-1]
    step = (await steps_of(still, handle))["fragile"]
    assert (step.state, step.attempts) == (StepState.FAILED, 5)
    assert tries == [f"try {n}" for n in range(1, 6)]
    assert failed.value.type_name == "ConnectionError"
    assert failed.value.failure.reason == "attempt 1 of 1 failed"


async def test_a_task_is_tried_after_1_2_4_and_8_seconds_and_its_error_carries_every_attempt(
    still: Holdfast, clock: ManualClock
) -> None:
    times: list[datetime] = []

    @still.task(retry=FIVE)
    async def work(ctx: Context) -> None:
        times.append(clock.now())
        raise ConnectionError(f"attempt {ctx.attempt}")

    handle = await still.submit(work)
    async with still.worker(grace=0.0):
        await pass_time(clock, 16.0)
        with pytest.raises(TaskFailed) as failed:
            await ended(handle)
    assert seconds(times) == [0, 1, 3, 7, 15]
    tries = failed.value.failure.tries
    assert [(one.number, one.message) for one in tries] == [(n, f"attempt {n}") for n in range(1, 6)]
    assert [one.at for one in tries] == times
    assert failed.value.failure.reason == "attempt 5 of 5 failed"
    assert (await handle.task()).finished_at == times[-1]


async def test_a_long_pause_gives_the_slot_back_and_a_short_one_keeps_it(still: Holdfast, clock: ManualClock) -> None:
    async def fail() -> None:
        raise ConnectionError

    @still.task(retry=ONCE)
    async def work(ctx: Context, pause: float) -> None:
        await ctx.step("fragile", fail, retry=Retry(max_attempts=2, initial=pause, jitter="none"))

    short, long = await still.submit(work, 2.0), await still.submit(work, 10.0)
    async with still.worker(grace=0.0) as worker:
        await settle()
        assert (await short.task()).state is TaskState.RUNNING
        assert (await long.task()).state is TaskState.WAITING
        assert worker.running == 1


async def test_the_schedule_of_a_step_survives_a_crash(still: Holdfast, clock: ManualClock) -> None:
    times: list[datetime] = []

    async def fail() -> None:
        times.append(clock.now())
        raise ConnectionError(f"try {len(times)}")

    @still.task(retry=ONCE)
    async def work(ctx: Context) -> None:
        await ctx.step("fragile", fail, retry=Retry(max_attempts=4, jitter="none"))

    handle = await still.submit(work)
    for moment in (0.5, 1.5, 3.5):  # while it waits in its slot, and while it is suspended
        worker = await still.worker(grace=0.0).__aenter__()
        await pass_time(clock, moment - (clock.boot()))
        await crash(still, worker)
    async with still.worker(grace=0.0):
        await pass_time(clock, 5.0)
        with pytest.raises(TaskFailed):
            await ended(handle)
    assert seconds(times) == [0, 1, 3, 7]
    step = (await steps_of(still, handle))["fragile"]
    assert step.attempts == 4


async def test_a_crash_during_a_long_try_does_not_forget_the_tries_before_it(
    still: Holdfast, clock: ManualClock
) -> None:
    tries = 0

    async def fail() -> None:
        nonlocal tries
        tries += 1
        if tries == 3:
            await clock.sleep(1000)  # its worker does not live to see the end
        raise ConnectionError(f"try {tries}")

    @still.task(retry=ONCE)
    async def work(ctx: Context) -> None:
        await ctx.step("fragile", fail, retry=Retry(max_attempts=4, initial=0.5, factor=1.0, jitter="none"))

    handle = await still.submit(work)
    worker = await still.worker(grace=0.0).__aenter__()
    await pass_time(clock, 5.0)
    assert (await steps_of(still, handle))["fragile"].state is StepState.RUNNING
    await crash(still, worker)
    async with still.worker(grace=0.0):
        await pass_time(clock, 5.0)
        with pytest.raises(TaskFailed):
            await ended(handle)
    failure = (await steps_of(still, handle))["fragile"]
    assert failure.error is not None
    assert tries == 5  # two failed, one was interrupted and did not count, two more
    assert b"try 1" in failure.error
    assert b"try 5" in failure.error


async def test_the_schedule_of_a_task_survives_a_crash(still: Holdfast, clock: ManualClock) -> None:
    times: list[datetime] = []

    @still.task(retry=Retry(max_attempts=3, initial=4.0, jitter="none"))
    async def work(ctx: Context) -> None:
        times.append(clock.now())
        raise ConnectionError

    handle = await still.submit(work)
    for moment in (2.0, 6.0):
        worker = await still.worker(grace=0.0).__aenter__()
        await pass_time(clock, moment - clock.boot())
        await crash(still, worker)
    async with still.worker(grace=0.0):
        await pass_time(clock, 10.0)
        await reaches(handle, TaskState.FAILED)
    assert seconds(times) == [0, 4, 12]


async def test_retry_after_is_honoured(still: Holdfast, clock: ManualClock) -> None:
    times: list[datetime] = []

    async def limited() -> None:
        times.append(clock.now())
        raise RateLimited(6.0)

    @still.task(retry=Retry(max_attempts=2, jitter="none", initial=0.5))
    async def work(ctx: Context) -> None:
        await ctx.step("call", limited, retry=Retry(max_attempts=2, jitter="none"))

    handle = await still.submit(work)
    async with still.worker(grace=0.0):
        await pass_time(clock, 30.0)
        await reaches(handle, TaskState.FAILED)
    assert seconds(times) == [0, 6, 12, 18]  # the step's policy, the task's, the step's again


@pytest.mark.parametrize(
    ("policy", "attempts", "reason"),
    [
        (Retry(initial=0, give_up_on=(PermissionError,)), 1, "PermissionError is in give_up_on"),
        (Retry(initial=0, give_up_on=("OSError",)), 1, "PermissionError is in give_up_on"),
        (Retry(initial=0, retry_on=(ConnectionError,)), 1, "PermissionError is not in retry_on"),
        (Retry(initial=0, retry_on=(PermissionError,)), 3, "attempt 3 of 3 failed"),
        (Retry(initial=0, retry_on=(StepFailed,)), 3, "attempt 3 of 3 failed"),
    ],
)
async def test_a_tasks_policy_sees_the_original_error_of_a_failed_step(
    quick: Holdfast, policy: Retry, attempts: int, reason: str
) -> None:
    async def fail() -> None:
        raise PermissionError("no")

    @quick.task(retry=policy)
    async def work(ctx: Context) -> None:
        await ctx.step("fragile", fail)

    handle = await quick.submit(work)
    with pytest.raises(TaskFailed) as failed:
        await quick.run(handle)
    assert failed.value.failure.reason == reason
    assert (await handle.task()).attempts == attempts
    assert len(failed.value.failure.tries) == attempts


async def test_a_steps_policy_gives_up_by_type(quick: Holdfast) -> None:
    ran = 0

    async def fail() -> None:
        nonlocal ran
        ran += 1
        raise PermissionError("no")

    @quick.task(retry=ONCE)
    async def work(ctx: Context) -> None:
        await ctx.step("fragile", fail, retry=Retry(max_attempts=9, initial=0, give_up_on=(PermissionError,)))

    with pytest.raises(TaskFailed):
        await quick.run(await quick.submit(work))
    assert ran == 1


async def test_no_retry_is_planned_behind_the_deadline(still: Holdfast, clock: ManualClock) -> None:
    @still.task(retry=Retry(max_attempts=9, initial=20.0, jitter="none"), deadline=10.0)
    async def work(ctx: Context) -> None:
        raise ConnectionError("no")

    handle = await still.submit(work)
    async with still.worker(grace=0.0):
        with pytest.raises(TaskFailed, match="no") as failed:
            await ended(handle)
    assert "comes before the next attempt" in failed.value.failure.reason


async def test_retries_on_every_store(hold: Holdfast) -> None:
    tries: list[str] = []

    async def flaky(word: str) -> str:
        tries.append(word)
        if len(tries) < 4:
            raise ConnectionError(word)
        return word

    @hold.task(retry=Retry(initial=0.01))
    async def work(ctx: Context) -> str:
        return await ctx.step("fragile", flaky, "x", retry=Retry(max_attempts=2, initial=0.01))

    handle = await hold.submit(work)
    async with hold.worker():
        assert await ended(handle) == "x"
    assert len(tries) == 4
    assert (await handle.task()).attempts == 1
