"""A task with too old a state is not resumed, unless the caller accepts that; waiting does not make it older."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import (
    CheckpointExpired,
    CheckpointManager,
    Checkpoints,
    Handle,
    Holdfast,
    ModelRefused,
    Request,
    ScriptedModel,
    TaskState,
)
from holdfast.agent.scripted import Answer, call
from holdfast.model.checkpoints import age_of
from holdfast.model.transitions import Transition
from holdfast.testing import Sandbox, sandbox
from tests.agent.budget.support import Defined, asked, register, why
from tests.agent.checkpoints.support import look

HOUR = 3_600
POLICY = Checkpoints("every_step", max_age=timedelta(hours=1))
START = datetime(2026, 1, 1, tzinfo=UTC)


def broken_once(app: Holdfast, policy: Checkpoints = POLICY) -> tuple[Defined, ScriptedModel]:
    """An agent whose second model call fails for good the first time."""
    failures: list[int] = []

    async def second(_: Request) -> Answer | BaseException:
        failures.append(1)
        return ModelRefused("the key has expired", status=401) if len(failures) == 1 else "done"

    return register(app, [call("look"), second], tools=[look], checkpoint=policy)


@asynccontextmanager
async def failed_long_ago(app: Holdfast, hours: float) -> AsyncIterator[tuple[Sandbox, Handle[str], ScriptedModel]]:
    agent, model = broken_once(app)
    async with sandbox(app) as box:
        with box.frozen():
            task = await app.submit(agent, "go")
            assert "the key has expired" in str(await why(task))
            await box.advance(hours * HOUR)
            yield box, task, model


async def test_what_is_fresh_goes_on(app: Holdfast) -> None:
    async with failed_long_ago(app, 0.99) as (_, task, model):
        await app.resume(task)
        assert await task.result() == "done"
        assert len(model.requests) == 3


async def test_what_is_too_old_is_refused_without_a_call(app: Holdfast) -> None:
    async with failed_long_ago(app, 1.01) as (_, task, model):
        await app.resume(task)
        error = await why(task)
        assert "CheckpointExpired" in str(error)
        assert "1:00:36 old, more than max_age (1:00:00)" in str(error)
        assert "accept_stale=True" in str(error)
        assert (await task.task()).state is TaskState.FAILED
        assert len(model.requests) == 2
        assert [step.key for step in await app.store.steps(task.id) if step.kind == "tool"] == ["look:1.0"]


async def test_the_one_who_accepts_it_goes_on(app: Holdfast) -> None:
    async with failed_long_ago(app, 100) as (_, task, model):
        await app.resume(task, accept_stale=True)
        assert await task.result() == "done"
        assert len(model.requests) == 3


async def test_accepted_is_accepted_through_a_crash(app: Holdfast) -> None:
    async with failed_long_ago(app, 100) as (box, task, model):
        crash = box.crash("llm:2", when="after_effect")
        await app.resume(task, accept_stale=True)
        await box.idle()
        assert crash.happened == 1
        await box.advance(120)  # until the lease of the dead worker is over
        assert await task.result() == "done"
        assert len(model.requests) == 4


async def test_accepted_once_is_not_accepted_for_ever(app: Holdfast) -> None:
    agent, _ = register(
        app,
        [call("look"), ModelRefused("no", status=401), ModelRefused("no", status=401), "done"],
        tools=[look],
        checkpoint=POLICY,
    )
    async with sandbox(app) as box:
        with box.frozen():
            task = await app.submit(agent, "go")
            await why(task)
            await box.advance(2 * HOUR)
            await app.resume(task, accept_stale=True)
            await box.idle()
            assert (await task.task()).state is TaskState.FAILED
            await box.advance(2 * HOUR)
            await app.resume(task)
            await box.idle()
            assert "CheckpointExpired" in str(await why(task))


async def test_refused_it_can_still_be_accepted(app: Holdfast) -> None:
    async with failed_long_ago(app, 2) as (box, task, _):
        await app.resume(task)
        await box.idle()
        assert "CheckpointExpired" in str(await why(task))
        await app.resume(task, accept_stale=True)
        assert await task.result() == "done"


async def test_or_started_over(app: Holdfast) -> None:
    async with failed_long_ago(app, 2) as (_, task, model):
        await app.retry(task)
        assert await task.result() == "done"
        assert len(model.requests) == 4


async def test_time_in_which_it_waited_is_not_counted(app: Holdfast) -> None:
    agent, _ = register(app, [call("ask_question", question="Who?"), "done"], builtins=True, checkpoint=POLICY)
    async with sandbox(app) as box:
        with box.frozen():
            task = await app.submit(agent, "go")
            question = await asked(app, task)
            await box.idle()
            await box.advance(50 * HOUR)
            await app.answer(question.id, "ann", by="ann")
            assert await task.result() == "done"


async def test_without_a_limit_nothing_is_too_old(app: Holdfast) -> None:
    agent, _ = broken_once(app, Checkpoints("every_step", max_age=None))
    async with sandbox(app) as box:
        with box.frozen():
            task = await app.submit(agent, "go")
            await why(task)
            await box.advance(10_000 * HOUR)
            await app.resume(task)
            assert await task.result() == "done"


async def test_the_manager_refuses_it_too_and_changes_nothing(app: Holdfast) -> None:
    async with failed_long_ago(app, 1.01) as (_, task, _model):
        manager = CheckpointManager(app.store, max_age=timedelta(hours=1))
        with pytest.raises(CheckpointExpired):
            await manager.validate_and_resume(task.id)
        assert (await task.task()).state is TaskState.FAILED
        found = await manager.validate_and_resume(task.id, accept_stale=True)
        assert found.task.state is not TaskState.FAILED
        assert await task.result() == "done"


async def test_the_manager_puts_a_fresh_one_back_into_its_queue(app: Holdfast) -> None:
    async with failed_long_ago(app, 0.5) as (_, task, _model):
        found = await CheckpointManager(app.store, max_age=timedelta(hours=1)).validate_and_resume(task.id)
        assert found.state.goal == "go"
        assert await task.result() == "done"


P, R, W, F = TaskState.PENDING, TaskState.RUNNING, TaskState.WAITING, TaskState.FAILED


@pytest.mark.parametrize(
    ("history", "last", "now", "age"),
    [
        ([(0, P), (1, R)], 5, 20, 15),
        ([(0, P), (1, R), (10, W)], 5, 20, 5),
        ([(0, P), (1, R), (10, W), (15, P)], 5, 20, 10),
        ([(0, P), (1, R), (2, W), (4, P), (4, R)], 5, 20, 15),
        ([(0, P), (1, R), (3, W), (10, P)], 5, 20, 10),
        ([(0, P), (1, R), (6, F), (15, P)], 5, 20, 15),
        ([(0, P), (1, R)], 25, 20, 0),
    ],
)
def test_the_age_of_what_is_known(history: list[tuple[int, TaskState]], last: int, now: int, age: int) -> None:
    def at(hours: float) -> datetime:
        return START + timedelta(hours=hours)

    moves = [
        Transition(task_id="t", number=n, from_state=None, to_state=state, reason="", actor="a", fence=1, at=at(hour))
        for n, (hour, state) in enumerate(history)
    ]
    assert age_of(moves, at(last), at(now)) == timedelta(hours=age)
