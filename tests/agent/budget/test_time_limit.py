"""A spent wall time ends what is under way, as a deadline does, and nothing is begun after it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast import (
    Budget,
    Handle,
    Holdfast,
    Request,
    Retry,
    TaskState,
    tool,
)
from holdfast.agent.scripted import Answer, call
from holdfast.testing import sandbox
from tests.agent.budget.hanging import (
    EVERY_20,
    HOUR,
    LONG,
    MINUTE,
    ONE_TRY,
    Hanging,
    began,
    extend,
    failed_in_time,
    how_it_failed,
    last_reason,
)
from tests.agent.budget.support import PATIENCE, asked, line, register, spent_ms
from tests.engine.support import until


@pytest.mark.parametrize("attempts", [1, 4])
async def test_a_tool_that_hangs_is_stopped_and_not_tried_again(app: Holdfast, attempts: int) -> None:
    hanging = Hanging(retry=Retry(max_attempts=attempts, jitter="none"))
    agent, model = register(app, [call("hang")], tools=[hanging.tool], budget=Budget(max_wall_time_ms=MINUTE))
    async with sandbox(app) as box:
        hanging.now = box.clock.now
        task = await app.submit(agent, "go")
        await failed_in_time(app, task)
        assert len(hanging.began) == len(model.requests) == 1


async def test_a_once_call_that_hangs_is_in_doubt(app: Holdfast) -> None:
    hanging = Hanging(effect="once")
    agent, _ = register(app, [call("hang")], tools=[hanging.tool], budget=Budget(max_wall_time_ms=MINUTE))
    async with sandbox(app) as box:
        hanging.now = box.clock.now
        task = await app.submit(agent, "go")
        await failed_in_time(app, task)
        assert len(hanging.began) == 1
        [effect] = await app.store.effects(task_id=task.id)
        assert effect.state == "in_doubt"


async def test_a_model_that_hangs_is_stopped(app: Holdfast) -> None:
    async def think(_: Request) -> Answer:
        await asyncio.Event().wait()
        return "never"

    agent, model = register(app, think, budget=Budget(max_wall_time_ms=MINUTE, max_steps=9), model_timeout=HOUR)
    async with sandbox(app):
        task = await app.submit(agent, "go")
        await failed_in_time(app, task)
        assert len(model.requests) == 1
        assert (await line(app, task, "steps")).reserved == 0


async def test_a_verifier_that_hangs_is_stopped(app: Holdfast) -> None:
    async def check(_: object, __: str) -> bool:
        await asyncio.Event().wait()
        return True

    agent, _ = register(app, ["done"], verify=check, budget=Budget(max_wall_time_ms=MINUTE))
    async with sandbox(app):
        await failed_in_time(app, await app.submit(agent, "go"))


async def test_a_try_that_would_come_too_late_is_not_waited_for(app: Holdfast) -> None:
    """Tries at 0, 20 and 40 s fit into 50 s. The model hears at once that there is no fourth."""
    tries: list[timedelta] = []

    @tool(risk="read_only", retry=EVERY_20)
    async def fail() -> str:
        """Fail."""
        tries.append(box.elapsed)
        raise OSError("not there")

    agent, model = register(app, [call("fail"), "done"], tools=[fail], budget=Budget(max_wall_time_ms=50_000))
    async with sandbox(app) as box:
        task = await app.submit(agent, "go")
        assert await task.result() == "done"
        assert len(tries) == 3
        step = await app.store.step(task.id, "fail:1.0", of_round=1)
        assert step is not None
        assert b"the wall time is spent at" in (step.error or b"")
        assert 40_000 <= await spent_ms(app, task) < 50_000
    assert model.requests[-1].messages[-1].content.startswith("Error: OSError")


async def test_an_attempt_that_would_come_too_late_is_not_waited_for(app: Holdfast) -> None:
    tries: list[timedelta] = []

    async def think(_: Request) -> Answer:
        tries.append(box.elapsed)
        raise OSError("no route")

    budget = Budget(max_wall_time_ms=50_000)
    agent, _ = register(app, think, retry=EVERY_20, model_retry=ONE_TRY, budget=budget)
    async with sandbox(app) as box:
        task = await app.submit(agent, "go")
        failure = await how_it_failed(task)
        assert "OSError" in str(failure)
        assert "the wall time is spent at" in await last_reason(app, task)
        assert len(tries) == 3
        assert 40_000 <= await spent_ms(app, task) < 50_000


# Restarts


async def killed_in_a_tool(app: Holdfast, hanging: Hanging, limit: int) -> tuple[Handle[str], list[int]]:
    calls = []

    async def think(_: Request) -> Answer:
        calls.append(1)
        return call("hang")

    agent, _ = register(app, think, tools=[hanging.tool], budget=Budget(max_wall_time_ms=limit))
    async with sandbox(app, lease=30.0) as box:
        hanging.now = box.clock.now
        with box.frozen():
            task = await app.submit(agent, "go")
            await until(lambda: hanging.began, patience=PATIENCE)
            box.crash_now()
        await failed_in_time(app, task)
        assert any(move.is_taken_back for move in await app.store.history(task.id)), "another worker took it over"
        limit_at = await began(app, task) + timedelta(milliseconds=limit)
        assert all(moment < limit_at for moment in hanging.began)
    return task, calls


async def test_a_take_over_goes_on_with_the_same_clock(app: Holdfast) -> None:
    hanging = Hanging()
    _, calls = await killed_in_a_tool(app, hanging, 5 * MINUTE)
    assert (len(hanging.began), len(calls)) == (2, 1), "stopped at what was left, and not after another five minutes"


async def test_a_take_over_after_the_limit_begins_nothing(app: Holdfast) -> None:
    hanging = Hanging()
    _, calls = await killed_in_a_tool(app, hanging, 10_000)
    assert (len(hanging.began), len(calls)) == (1, 1)


async def test_a_wait_off_the_worker_ends_at_the_limit(app: Holdfast) -> None:
    """What a worker died over is cleared up an hour later at the earliest. The task does not wait so long."""
    hanging = Hanging(effect="once")
    agent, _ = register(app, [call("hang")], tools=[hanging.tool], budget=Budget(max_wall_time_ms=5 * MINUTE))
    async with sandbox(app, lease=30.0) as box:
        hanging.now = box.clock.now
        with box.frozen():
            task = await app.submit(agent, "go")
            await until(lambda: hanging.began, patience=PATIENCE)
            box.crash_now()
        await failed_in_time(app, task)
        assert TaskState.WAITING in {move.to_state for move in await app.store.history(task.id)}
        assert len(hanging.began) == 1


# Asking for more


async def test_a_person_is_asked_when_the_time_is_up_and_it_goes_on_when_they_extend_it(app: Holdfast) -> None:
    hanging = Hanging(times=1)
    budget = Budget(max_wall_time_ms=MINUTE, on_exhausted="ask")
    agent, model = register(app, [call("hang"), "done"], tools=[hanging.tool], budget=budget)
    async with sandbox(app) as box:
        hanging.now = box.clock.now
        task = await app.submit(agent, "go")
        await asked(app, task)
        before = len(hanging.began)
        with box.frozen():
            await box.advance(24 * HOUR)
        assert await spent_ms(app, task) < LONG, "the clock stands while a person decides"
        assert len(hanging.began) == before == 1
        await extend(app, task)
        assert await task.result() == "done"
        assert len(hanging.began) == 2
    assert len(model.requests) == 2


async def test_a_once_call_is_looked_into_after_the_extension(app: Holdfast) -> None:
    hanging = Hanging(effect="once")
    budget = Budget(max_wall_time_ms=MINUTE, on_exhausted="ask")
    agent, _ = register(app, [call("hang"), "done"], tools=[hanging.tool], budget=budget)
    async with sandbox(app) as box:
        hanging.now = box.clock.now
        task = await app.submit(agent, "go")
        await extend(app, task)
        await until(lambda: app.doubts(task), patience=PATIENCE)
        [doubt] = await app.doubts(task)
        await app.resolve(doubt, "happened", result="it was sent", by="ann")
        assert await task.result() == "done"
        assert len(hanging.began) == 1


async def test_a_backoff_ends_at_the_question(app: Holdfast) -> None:
    tries: list[timedelta] = []

    async def think(_: Request) -> Answer:
        tries.append(box.elapsed)
        if len(tries) < 4:
            raise OSError("no route")
        return "done"

    budget = Budget(max_wall_time_ms=50_000, on_exhausted="ask")
    agent, _ = register(app, think, retry=EVERY_20, model_retry=ONE_TRY, budget=budget)
    async with sandbox(app) as box:
        task = await app.submit(agent, "go")
        await asked(app, task)
        assert len(tries) == 3
        assert 50_000 <= await spent_ms(app, task) < MINUTE
        await extend(app, task)
        assert await task.result() == "done"


async def test_a_backoff_of_a_tool_ends_at_the_question_and_goes_on_after_it(app: Holdfast) -> None:
    tries: list[timedelta] = []

    @tool(risk="read_only", retry=EVERY_20)
    async def fail() -> str:
        """Fail three times."""
        tries.append(box.elapsed)
        if len(tries) < 4:
            raise OSError("not there")
        return "there"

    budget = Budget(max_wall_time_ms=50_000, on_exhausted="ask")
    agent, model = register(app, [call("fail"), "done"], tools=[fail], budget=budget)
    async with sandbox(app) as box:
        task = await app.submit(agent, "go")
        await asked(app, task)
        assert len(tries) == 3
        assert 50_000 <= await spent_ms(app, task) < MINUTE
        await extend(app, task)
        assert await task.result() == "done"
    assert model.requests[-1].messages[-1].content == "there"


async def test_the_task_of_a_verifier_asks_too(app: Holdfast) -> None:
    looks = []

    async def check(_: object, __: str) -> bool:
        looks.append(1)
        if len(looks) == 1:
            await asyncio.Event().wait()
        return True

    agent, _ = register(app, ["done"], verify=check, budget=Budget(max_wall_time_ms=MINUTE, on_exhausted="ask"))
    async with sandbox(app):
        task = await app.submit(agent, "go")
        await asked(app, task)
        assert len(looks) == 1
        await extend(app, task)
        assert await task.result() == "done"


async def test_a_limit_that_is_raised_while_it_works_counts(app: Holdfast) -> None:
    hanging, gate = Hanging(), asyncio.Event()

    @tool(risk="read_only", timeout=HOUR)
    async def work() -> str:
        """Work."""
        hanging.began.append(box.clock.now())
        await gate.wait()
        return "worked"

    agent, _ = register(app, [call("work"), "done"], tools=[work], budget=Budget(max_wall_time_ms=MINUTE))
    async with sandbox(app) as box:
        with box.frozen():
            task = await app.submit(agent, "go")
            await until(lambda: hanging.began, patience=PATIENCE)
            await app.extend_budget(task, Budget(max_wall_time_ms=10 * MINUTE), by="ann")
            await box.advance(2 * 60)
            gate.set()
            assert await task.result() == "done"
        assert len(hanging.began) == 1


# Resuming


async def test_what_failed_begins_nothing_when_it_is_resumed_without_more_time(app: Holdfast) -> None:
    hanging = Hanging(times=1)
    agent, model = register(app, [call("hang"), "done"], tools=[hanging.tool], budget=Budget(max_wall_time_ms=MINUTE))
    async with sandbox(app) as box:
        hanging.now = box.clock.now
        task = await app.submit(agent, "go")
        await failed_in_time(app, task)
        await app.resume(task)
        await failed_in_time(app, task)
        await app.retry(task)
        await failed_in_time(app, task)
        assert len(hanging.began) == len(model.requests) == 1
        await app.extend_budget(task, Budget(max_wall_time_ms=2 * LONG), by="ann")
        await app.resume(task)
        assert await task.result() == "done"


# On every store, by its own clock


async def test_it_holds_on_every_store(either: Holdfast) -> None:
    hanging = Hanging()
    hanging.now = lambda: None
    budget = Budget(max_wall_time_ms=300)
    agent, _ = register(either, [call("hang")], tools=[hanging.tool], budget=budget)
    task = await either.submit(agent, "go")
    async with either.worker():
        await failed_in_time(either, task)
    assert len(hanging.began) <= 1, "none if the store was slow"
