"""Verbs about the flow of all work: what is paused."""

from __future__ import annotations

from holdfast.model.checks import check_name, check_text
from holdfast.model.pause import Pause, check_subject
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
