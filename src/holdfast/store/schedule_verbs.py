"""Schedules in a store: rows that change only as they were seen, together with the tasks that they submit."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.checks import check_integer
from holdfast.model.errors import InvalidValue
from holdfast.model.schedule import StoredSchedule
from holdfast.model.task import NewTask, Submitted
from holdfast.store.backend import Backend, Pending
from holdfast.store.checks import check_limit, check_payload, check_sought, check_submission


class ScheduleVerbs:
    """What is submitted again and again. ``holdfast.model.due_schedule`` decides about times, not the store."""

    _backend: Backend

    def put_schedule(
        self, schedule: StoredSchedule, *, seen: int, tasks: Sequence[NewTask] = ()
    ) -> Pending[list[Submitted] | None]:
        """Store a schedule and submit these tasks, in one transaction, if its revision is still ``seen``.

        ``seen`` is 0 where there was no schedule of that name. None: it has another revision by now, and nothing was
        stored. Otherwise each task is answered as by ``submit``; a full queue refuses none of them. Of all who fire
        the same tick, one gets an answer; sent again after a lost answer, it is None. ``revision``, ``created_at`` and
        the fields about the last task and the declaring worker are the store's own: those of ``schedule`` are not read.
        """
        _check_schedule(schedule)
        check_integer("seen", seen, lowest=0)
        check_submission(tasks)
        return self._backend.put_schedule(schedule, seen, tasks)

    def delete_schedule(self, name: str, *, seen: int) -> Pending[bool]:
        """Delete a schedule if its revision is still ``seen``; say whether it was. Its tasks stay."""
        check_sought("schedule name", name)
        check_integer("seen", seen, lowest=0)
        return self._backend.delete_schedule(name, seen)

    def schedule(self, name: str) -> Pending[StoredSchedule | None]:
        """Return one schedule, or None."""
        check_sought("schedule name", name)
        return self._backend.schedule(name)

    def schedules(self) -> Pending[list[StoredSchedule]]:
        """Return all schedules, by name."""
        return self._backend.schedules()

    def due_schedules(self, *, limit: int = 100) -> Pending[list[StoredSchedule]]:
        """Return schedules that are due, first due first: what ``sweep`` counts as its ``next_tick``.

        Not those that wait for the end of their last task. Behind them, also those whose declaring worker is dead.
        """
        check_limit(limit)
        return self._backend.due_schedules(limit)


def _check_schedule(schedule: StoredSchedule) -> None:
    if not isinstance(schedule, StoredSchedule):
        raise InvalidValue(f"{schedule!r} is not a StoredSchedule")
    check_payload("spec", schedule.spec)
