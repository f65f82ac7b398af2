"""Operations on schedules, for blocking code. They are methods of hold.sync."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from holdfast.engine.api.handle import Handle
from holdfast.engine.api.schedules import Scheduling
from holdfast.engine.api.sync.handle import SyncHandle
from holdfast.model.schedule import UTC_ZONE, CatchUp, Overlap, Schedule

T = TypeVar("T")
R = TypeVar("R")


class SyncScheduling:
    """The part of hold.sync that submits tasks again and again."""

    _hold: Scheduling

    def wait(self, call: Coroutine[Any, Any, T]) -> T:
        """Run an asynchronous call and return its result."""
        raise NotImplementedError

    def _hand_out(self, call: Coroutine[Any, Any, Handle[R]]) -> SyncHandle[R]:
        raise NotImplementedError

    def schedule(
        self,
        name: str,
        task: Any,  # noqa: ANN401
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
        """See Holdfast."""
        return self.wait(
            self._hold.schedule(
                name,
                task,
                *args,
                cron=cron,
                every=every,
                timezone=timezone,
                jitter=jitter,
                overlap=overlap,
                catch_up=catch_up,
                queue=queue,
                priority=priority,
                deadline=deadline,
                agent_id=agent_id,
                labels=labels,
                limits=limits,
                **unknown,
            )
        )

    def schedules(self) -> list[Schedule]:
        """See Holdfast."""
        return self.wait(self._hold.schedules())

    def unschedule(self, name: str) -> bool:
        """See Holdfast."""
        return self.wait(self._hold.unschedule(name))

    def trigger(self, name: str, *, by: str = "user") -> SyncHandle[Any]:
        """See Holdfast."""
        return self._hand_out(self._hold.trigger(name, by=by))
