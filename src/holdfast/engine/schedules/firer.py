"""Firer: what a worker does when schedules are due. All workers do it at the same time: for each tick one succeeds."""

from __future__ import annotations

from dataclasses import replace

from holdfast.engine.runtime import log
from holdfast.engine.runtime.services import Services
from holdfast.engine.schedules.declarations import hand_over
from holdfast.model.due_schedule import fire
from holdfast.model.errors import InvalidValue, NotFound
from holdfast.model.schedule import StoredSchedule
from holdfast.model.worker import Worker

AT_A_TIME = 100
"""Due schedules that are looked at together."""

AT_ONCE, SOON = 0.0, 0.05
"""Seconds. The store's clock may be a little behind what this process knows of it."""


class Firer:
    """Fires what is due, for one worker."""

    def __init__(self, services: Services) -> None:
        """Nothing is known to be wrong yet."""
        self._services = services
        self._troubles: dict[str, str] = {}
        """What was logged about each schedule that cannot be fired here."""

    async def fire_due(self) -> float | None:
        """Fire what is due now; return after how many seconds to look again, None for the usual pause."""
        # Those that cannot be fired here stay due, and are the first ones.
        due = await self._services.store.due_schedules(limit=AT_A_TIME + len(self._troubles))
        if not due:
            return SOON
        workers = await self._services.store.workers() if any(one.is_orphan for one in due) else []
        changed = False
        for schedule in due:
            try:
                changed |= await self._look_after(schedule, workers)
            except (InvalidValue, NotFound) as error:
                # A time zone that is not here, a spec of another version: others may know it. A limit that is not set.
                self._log_once(schedule, str(error))
            else:
                self._troubles.pop(schedule.name, None)
        return AT_ONCE if changed else None

    async def _look_after(self, schedule: StoredSchedule, workers: list[Worker]) -> bool:
        if schedule.is_orphan:
            return await hand_over(self._services, schedule, workers)
        store = self._services.store
        firing = fire(schedule, await store.now())
        if firing is None:
            return False
        answers = await store.put_schedule(firing.schedule, seen=schedule.revision, tasks=firing.tasks)
        if answers is None:
            return True  # another worker has fired it, or it was changed: either way it has another revision now
        for task, answer in zip(firing.tasks, answers, strict=True):
            if answer.created:
                log.logger.info(
                    "schedule %s: task %s %s submitted", schedule.name, task.name, task.id, extra={"task_id": task.id}
                )
            else:
                log.logger.warning("schedule %s: its tick has a task already: %s", task.key, answer.task_id)
        if answers and not answers[-1].created:
            # The clock was set back, or the schedule made again: that task is its last one.
            known = replace(firing.schedule, last_task_id=answers[-1].task_id)
            await store.put_schedule(known, seen=schedule.revision + 1)
        return True

    def _log_once(self, schedule: StoredSchedule, trouble: str) -> None:
        if self._troubles.get(schedule.name) != trouble:
            self._troubles[schedule.name] = trouble
            log.logger.warning("the schedule %r cannot be fired by this worker: %s", schedule.name, trouble)
