"""HeldTask: a task that this process holds under a lease, as most of the engine sees it."""

from __future__ import annotations

from typing import Protocol

from holdfast.engine.attempt.journal import Journal
from holdfast.engine.runtime.services import Services
from holdfast.engine.worker.lease import LeaseClock
from holdfast.model.task import Task


class HeldTask(Protocol):
    """A claimed task, its journal, the lease it is held under, and what all attempts share."""

    @property
    def task(self) -> Task:
        """The record, as it was when the attempt began."""

    @property
    def journal(self) -> Journal:
        """What the task has done."""

    @property
    def lease(self) -> LeaseClock:
        """How long this process may act for it."""

    @property
    def services(self) -> Services:
        """What all attempts of the process share."""
