"""Workers without their loops: what each does about schedules, step by step."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast import Context, Holdfast, Task
from holdfast.engine.schedules.declarations import as_detail, declare
from holdfast.engine.schedules.firer import Firer
from holdfast.model.schedule import Schedule
from holdfast.model.worker import NewWorker

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def define(hold: Holdfast, name: str = "job", **options: Any) -> Any:  # noqa: ANN401
    """Define a task that takes an optional word, and returns it with its tick."""

    @hold.task(name=name, **options)
    async def job(ctx: Context, word: str = "nothing") -> str:
        return f"{word} {ctx.tick}"

    return job


async def fire(hold: Holdfast) -> None:
    """Do what a worker does, until nothing is due."""
    firer = Firer(hold.services)
    while True:
        swept = await hold.store.sweep()
        if swept.next_tick is None or swept.next_tick > await hold.store.now():
            return
        if await firer.fire_due() is None:
            return


async def start(hold: Holdfast, worker_id: str, application: Holdfast | None = None, **options: Any) -> None:  # noqa: ANN401
    """Register a worker with the declarations of an application, by default its own. Its lease is very long."""
    definitions = (application or hold).definitions
    await hold.store.register(NewWorker(id=worker_id, lease=80_000.0, details=as_detail(definitions)))
    before, hold.services.definitions = hold.services.definitions, definitions
    try:
        await declare(hold.services, worker_id, **{"afresh": True, **options})
    finally:
        hold.services.definitions = before


async def submitted(hold: Holdfast) -> list[Task]:
    """Return all tasks, oldest first."""
    return list((await hold.store.find(newest_first=False, limit=1000)).items)


async def ticks(hold: Holdfast) -> list[str]:
    """Return the keys of all tasks, in order: schedule and tick, without the time zone."""
    return sorted(task.key.removesuffix("+00:00") for task in await submitted(hold) if task.key)


async def only(hold: Holdfast) -> Schedule:
    """Return the only schedule."""
    [schedule] = await hold.schedules()
    return schedule
