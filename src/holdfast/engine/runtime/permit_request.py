"""A step that waits for a permit, and where its attempt is meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from holdfast.engine.runtime.permit import Permit
from holdfast.model.flow_limit import PermitRequest
from holdfast.model.ids import new_id


class Place(Protocol):
    """Where the attempt of a request is: on a worker, with a slot or without one."""

    @property
    def needs_slot(self) -> bool:
        """Whether it has given its slot back."""

    @property
    def free_slots(self) -> int | None:
        """How many slots of its worker nothing has; None: any number."""

    @property
    def slots(self) -> object:
        """Which slots these are: attempts of one worker share them."""

    def reserve(self, count: int) -> None:
        """Keep so many of the slots free."""

    def release(self, count: int) -> None:
        """Leave so many of the kept slots to others."""

    def take_slot(self) -> None:
        """Let the attempt have a slot again."""

    @property
    def is_unwanted(self) -> bool:
        """Whether it must not begin anything: its task is paused, or is being stopped."""

    def hand_back(self) -> None:
        """Hand the task back: another worker may have a free slot."""


@dataclass(slots=True, eq=False)
class StepRequest:
    """A step that waits for a permit."""

    owner: object
    """The attempt it belongs to."""
    task_id: str
    worker_id: str
    keys: tuple[str, ...]
    tokens: int
    lasts: float
    place: Place
    since: float
    """When it was made, on the boot clock."""
    answered: asyncio.Future[None]
    """Done at the first answer."""
    over: asyncio.Future[None]
    """Done when it has a permit, or can have none: then ``permit`` or ``error`` is set."""
    id: str = field(default_factory=new_id)
    permit: Permit | None = None
    error: Exception | None = None
    waits_for: str | None = None
    again_at: datetime | None = None
    asked_at: float | None = None
    """The boot time before the first call to the store whose answer was lost; a permit may count from then."""
    is_in_line: bool = False
    """Whether the store may know it."""
    is_asking: bool = False
    is_due: bool = True
    lacks_slot_since: float | None = None
    """Since when it would be asked for, but has no slot."""
    look_at: float = float("inf")
    """When it is due again, on the boot clock."""

    def as_stored(self, valid_for: float) -> PermitRequest:
        """Return it as the store is asked: for a permit that can be used for so many seconds at least."""
        return PermitRequest(
            id=self.id,
            task_id=self.task_id,
            worker_id=self.worker_id,
            keys=self.keys,
            tokens=self.tokens,
            lasts=self.lasts,
            valid_for=valid_for,
        )

    def become_new(self) -> None:
        """Become a new request: the old one gave up its place."""
        self.id, self.is_in_line, self.asked_at = new_id(), False, None

    def finish(self, permit: Permit | None, error: Exception | None = None) -> None:
        """Let its branch go on."""
        self.permit, self.error = permit, error
        self.settle_first()
        if not self.over.done():
            self.over.set_result(None)

    def settle_first(self) -> None:
        """Note that there is an answer."""
        if not self.answered.done():
            self.answered.set_result(None)
