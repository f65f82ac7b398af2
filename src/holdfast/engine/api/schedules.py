"""Operations on schedules: make, list, trigger, delete. They are methods of Holdfast."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from holdfast.engine.api.handle import Handle
from holdfast.engine.api.signatures import refuse_for_task
from holdfast.engine.runtime.services import Services
from holdfast.engine.schedules import manage
from holdfast.engine.schedules.times import Times
from holdfast.model.schedule import UTC_ZONE, CatchUp, Overlap, Schedule

OPTIONS = (*Times.__annotations__, "queue", "priority", "deadline", "agent_id", "labels", "limits")


class Scheduling(ABC):
    """The part of Holdfast that submits tasks again and again."""

    @property
    @abstractmethod
    def services(self) -> Services:
        """The open store and the services around it."""

    async def schedule(
        self,
        name: str,
        task: Any,  # noqa: ANN401 - a definition, with its arguments or without, or a name
        /,
        *args: Any,  # noqa: ANN401
        cron: str | None = None,
        every: float | timedelta | None = None,
        timezone: str = UTC_ZONE,
        jitter: float | timedelta = 0,
        overlap: Overlap | str = Overlap.SKIP,
        catch_up: CatchUp | str = CatchUp.LAST,
        queue: str | None = None,
        priority: int | None = None,
        deadline: float | timedelta | None = None,
        agent_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        limits: Sequence[str] = (),
        **unknown: Any,  # noqa: ANN401
    ) -> Schedule:
        """Submit a task again and again, until the schedule is deleted: ``cron="0 3 * * *"`` or ``every=`` a timedelta.

        ``cron`` has minute, hour, day of month, month and day of week, in the time zone ``timezone``. ``every`` counts
        elapsed time from now. Any worker submits the task, and exactly one does; without workers none is submitted.
        ``jitter`` delays each task by up to so much, always the same for the same tick.

        ``overlap`` says what happens at a tick if the last task has not ended: "skip" drops the tick, "queue" keeps one
        until then, "all" submits anyway. ``catch_up`` says what happens to ticks that passed before a worker looked:
        "last" makes up for the newest, "none" only if that is at most a minute old, "all" (with overlap="all") for
        the newest 100.

        A schedule of the same name is replaced; the same again changes nothing. ``deadline`` counts from each
        submission. Arguments and other options are those of ``submit``. Raises Conflict if living workers declare a
        schedule of that name with ``@hold.task(cron=...)``.
        """
        refuse_for_task("hold.schedule", task, unknown, OPTIONS)
        times = Times(cron=cron, every=every, timezone=timezone, jitter=jitter, overlap=overlap, catch_up=catch_up)
        return await manage.make_schedule(
            self.services,
            name,
            task,
            args,
            times,
            deadline=deadline,
            queue=queue,
            priority=priority,
            agent_id=agent_id,
            labels=labels,
            limits=limits,
        )

    async def schedules(self) -> list[Schedule]:
        """Return all schedules, by name: those made with ``schedule`` and those declared in code."""
        return await manage.read_schedules(self.services)

    async def unschedule(self, name: str) -> bool:
        """Delete a schedule, and return whether there was one. Tasks that it has submitted stay.

        Raises Conflict if living workers declare it in their code: take it out there, or pause it.
        """
        return await manage.delete_schedule(self.services, name)

    async def trigger(self, name: str, *, by: str = "user") -> Handle[Any]:
        """Submit a task of a schedule now, and return its handle.

        It does not count for ``overlap``, moves no tick, and works while the schedule is paused.
        """
        return await manage.trigger_schedule(self.services, name, by=by)
