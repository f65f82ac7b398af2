"""Verbs about the flow of all work: what is paused, the settings of queues, and limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from holdfast.model.checks import check_moment, check_name, check_text
from holdfast.model.flow_limit import (
    Limit,
    LimitUse,
    PermitAnswer,
    PermitRequest,
    PermitReturn,
    check_keys,
)
from holdfast.model.pause import Pause, check_subject
from holdfast.model.queue_settings import KEEP, Keep, QueueChange, QueueSettings, check_change
from holdfast.model.remarks import redact_remark
from holdfast.store.backend import Backend, Pending
from holdfast.store.checks import check_limit


class FlowVerbs:
    """Verbs that steer which tasks are claimed. Every worker obeys at once, because the claim itself does."""

    _backend: Backend

    def pause(self, subject: str, *, by: str, reason: str | None = None) -> Pending[Pause]:
        """Pause ``queue:<name>``, ``task:<name>``, or the task with this id. One that is paused stays as it is.

        When this returns, no claim and no ``acquire`` leases such a task any more, in any process. A lease that stands
        goes on; of a single task, the verdicts on its Commits and its worker's heartbeats say that it is paused.

        Raises NotFound where there is no such task, and Conflict where it has ended.
        """
        check_subject(subject)
        check_name("by", by)
        check_text("reason", reason)
        return self._backend.pause(subject, by, redact_remark(reason))

    def unpause(self, subject: str) -> Pending[bool]:
        """End a pause; return whether there was one."""
        check_subject(subject)
        return self._backend.unpause(subject)

    def pauses(self) -> Pending[list[Pause]]:
        """Return everything that is paused, by subject."""
        return self._backend.pauses()

    def set_queue(
        self,
        name: str,
        *,
        max_pending: int | Keep | None = KEEP,
        concurrency: int | Keep | None = KEEP,
        retention: Mapping[str, timedelta] | Keep | None = KEEP,
        fair_by: str | Keep | None = KEEP,
    ) -> Pending[QueueSettings]:
        """Change the settings of a queue that are not KEEP; return all of them. The same again changes nothing.

        ``max_pending`` is how many tasks of the queue may be pending, delayed ones included; None: any number. A
        submission that would go beyond it raises QueueFull and stores nothing, of several tasks none. A child is
        refused by its verdict. Tasks that are in the store already are never refused: retries, wakes, resumes, rounds.
        Neither is a task of a schedule. A submission of what is stored already is answered before that.

        ``concurrency`` is how many tasks of the queue may have a slot at the same time, over all workers together;
        None: any number. A task has a slot while a worker holds it and it does not rest. A claim takes no task beyond
        that, ``acquire`` raises NoPlace, and so does the verdict on a Commit in which a task that rested works again. A
        limit that is lower than the number of tasks at work stops none of them; the next ones have to wait.

        ``retention`` says how long tasks are kept after their end, by ``"completed"``, ``"failed"`` and
        ``"cancelled"``; a state that it does not name, and None: until a prune. ``sweep`` deletes what is older.

        ``fair_by`` is the label by whose values the tasks of the queue take turns; tasks without the label are one
        tenant of their own. None: they are claimed by rank. A tenant's tasks of one priority that never began, and
        those that did, are a lane each. A lane's next task gets the turn after the last one of its lane, and the first
        one of a lane the turn that the claims have reached. Claims take the tasks of the queue by turn, and merge
        them with those of other queues in the order in which they became due. Tasks that are in the queue get turns,
        or their ranks back, when this changes.
        """
        change = QueueChange(max_pending=max_pending, concurrency=concurrency, retention=retention, fair_by=fair_by)
        check_change(name, change)
        return self._backend.set_queue(name, change)

    def queue_settings(self) -> Pending[list[QueueSettings]]:
        """Return the settings of every queue that ever had any, by name."""
        return self._backend.queue_settings()

    def set_limit(self, limit: Limit) -> Pending[Limit]:
        """Set a limit, new or changed, as a whole. The same again changes nothing. Workers obey at their next claim.

        A lower limit ends nothing that has a permit. Raises Conflict if ``each`` is not what it was: the keys of tasks
        that are stored would name nothing.
        """
        return self._backend.set_limit(limit)

    def limits(self) -> Pending[list[Limit]]:
        """Return every limit, by name. A limit is never deleted: without numbers it limits nothing."""
        return self._backend.limits()

    def limit_uses(self, name: str | None = None, *, limit: int = 1000) -> Pending[list[LimitUse]]:
        """Return how the keys of one limit, or of all, stand: those in use or with a line first, then by key."""
        check_limit(limit)
        return self._backend.limit_uses(name, limit)

    def take_permits(self, requests: Sequence[PermitRequest]) -> Pending[list[PermitAnswer]]:
        """Ask for permits of steps; answer each in order.

        A request gets all of its keys or none. With its first answer it has a place in the line of each key, and it is
        granted once every key has room for it and for those before it. Requests of workers that are not live are not
        granted. What was granted is answered as granted again. A permit must be used within the ``validity`` of its
        limits, counted from before this call, or within the ``valid_for`` of the requests if that is longer.

        Raises NotFound, or InvalidValue, for a key of no limit; then no request is noted.
        """
        return self._backend.take_permits(requests)

    def return_permits(self, returned: Sequence[PermitReturn]) -> Pending[None]:
        """Give permits back, or places in line. An id that is not there is passed over: it was sent before.

        Calls go on counting against their rates. Tokens that were reserved are replaced by those that were used.
        """
        return self._backend.return_permits(returned)

    def close_limit(self, keys: Sequence[str], until: datetime) -> Pending[None]:
        """Begin nothing with these keys before a time: their provider asked for it. An earlier time changes nothing.

        Raises NotFound, or InvalidValue, for a key of no limit.
        """
        check_moment("until", until)
        return self._backend.close_limit(check_keys(keys), until)
