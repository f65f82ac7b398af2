"""What the tests of the time limit share: a tool that hangs, a task that failed in time, a person who grants more."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest

from holdfast import Budget, Handle, Holdfast, Retry, TaskFailed, TaskState, tool
from holdfast.engine.attempt.outcome import OUT_OF_TIME
from tests.agent.budget.support import PATIENCE, asked, spent_ms
from tests.engine.support import until

MINUTE = 60_000
HOUR = 3_600.0
LONG = 10 * MINUTE
"""Far more than any limit here, and far less than the timeouts of what hangs: a skipping clock is not exact."""

EVERY_20 = Retry(max_attempts=10, initial=20, factor=1, jitter="none")
ONE_TRY = Retry(max_attempts=1)
AT_ONCE = Retry(max_attempts=3, initial=0, jitter="none")


class Hanging:
    """A tool that does not return by itself while it is ``stuck``, and notes when it was called."""

    def __init__(self, *, effect: str = "pure", times: int = 1_000, **options: Any) -> None:  # noqa: ANN401
        self.began: list[datetime] = []
        self.now: Any = None
        self.times = times

        async def hang() -> str:
            """Hang."""
            self.began.append(self.now())
            if len(self.began) <= self.times:
                await asyncio.Event().wait()
            return "back"

        risk = "read_only" if effect == "pure" else "write_local"
        self.tool = tool(risk=risk, effect=effect, timeout=HOUR, **options)(hang)


async def began(hold: Holdfast, task: Handle[Any]) -> datetime:
    return next(move.at for move in await hold.store.history(task.id) if move.to_state is TaskState.RUNNING)


async def last_reason(hold: Holdfast, task: Handle[Any] | str) -> str:
    return (await hold.store.history(task if isinstance(task, str) else task.id))[-1].reason


async def how_it_failed(task: Handle[Any]) -> TaskFailed:
    with pytest.raises(TaskFailed) as failed:
        await task.result()  # for as long as it takes, by whichever clock
    return failed.value


async def failed_in_time(hold: Holdfast, task: Handle[Any]) -> None:
    failure = await how_it_failed(task)
    assert failure.type_name.endswith("BudgetExceeded")
    assert "wall_time_ms" in failure.message
    assert await last_reason(hold, task) == OUT_OF_TIME
    assert await spent_ms(hold, task) < LONG


async def extend(hold: Holdfast, task: Handle[str]) -> None:
    question = await asked(hold, task)
    assert question.question.startswith("The budget is spent:")
    await until(lambda: waits(task), patience=PATIENCE)
    await hold.extend_budget(task, Budget(max_wall_time_ms=100 * int(HOUR) * 1000), by="ann")


async def waits(task: Handle[Any]) -> bool:
    return (await task.task()).state is TaskState.WAITING
