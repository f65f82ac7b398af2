"""Verbs about the flow of all work: what is paused, and the settings of queues."""

from __future__ import annotations

from holdfast.model.checks import check_name, check_text
from holdfast.model.pause import Pause, check_subject
from holdfast.model.queue_settings import KEEP, Keep, QueueSettings, check_settings
from holdfast.store.backend import Backend, Pending


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
        return self._backend.pause(subject, by, reason)

    def unpause(self, subject: str) -> Pending[bool]:
        """End a pause; return whether there was one."""
        check_subject(subject)
        return self._backend.unpause(subject)

    def pauses(self) -> Pending[list[Pause]]:
        """Return everything that is paused, by subject."""
        return self._backend.pauses()

    def set_queue(self, name: str, *, max_pending: int | Keep | None = KEEP) -> Pending[QueueSettings]:
        """Change the settings of a queue that are not KEEP; return all of them. The same again changes nothing.

        ``max_pending`` is how many tasks of the queue may be pending, delayed ones included; None: any number. A
        submission that would go beyond it raises QueueFull and stores nothing, of several tasks none. A child is
        refused by its verdict. Tasks that are in the store already are never refused: retries, wakes, resumes, rounds.
        Neither is a task of a schedule. A submission of what is stored already is answered before that.
        """
        check_settings(name, max_pending)
        return self._backend.set_queue(name, max_pending)

    def queue_settings(self) -> Pending[list[QueueSettings]]:
        """Return the settings of every queue that ever had any, by name."""
        return self._backend.queue_settings()
