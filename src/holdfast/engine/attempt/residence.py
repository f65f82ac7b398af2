"""The place of an attempt on its worker: with a slot while it works, without one while it only waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from typing import Any, Protocol

from holdfast.engine.attempt.stop_reasons import Unwind
from holdfast.engine.steps.suspension import Suspendable, WaitingBranches
from holdfast.engine.worker.slots import PATIENCE, Slots
from holdfast.model.errors import HoldfastError, NoPlace

LEAST_REST = 5.0
"""Seconds that a task may rest before it can be taken off its worker: what it does besides waiting needs some time."""

LOOK_FOR_PLACE_EVERY = 0.5
"""Seconds between two tries to get a place in the task's queue, if no notification arrives."""


class Resident(Suspendable, Protocol):
    """The attempt that has the place."""

    @property
    def leaving(self) -> bool:
        """Whether its outcome is known, so that it needs no slot any more."""

    def hand_back(self) -> None:
        """Stop, and let another worker continue."""


class Residence:
    """The slot of one attempt, and its waiting branches."""

    __slots__ = ("_attempt", "_returning", "branches", "slots")

    def __init__(self, attempt: Resident, slots: Slots[Any]) -> None:
        """Start at work, with one of the slots."""
        self._attempt = attempt
        self._returning = asyncio.Lock()
        self.slots = slots
        """The slots of its worker."""
        self.branches: WaitingBranches | None = None
        """Where its branches wait; made for the first of them."""

    def waiting_branches(self) -> WaitingBranches:
        """Return where its branches wait."""
        if self.branches is None:
            self.branches = WaitingBranches(self._attempt, self)
            self._attempt.outbox.on_applied = self.branches.look_soon  # that Commit may come from the last busy branch
        return self.branches

    def clear(self) -> None:
        """Unwind the branches that still wait."""
        if self.branches is not None:
            self.branches.clear()

    # Resting

    def rest(self) -> None:
        """Give the slot back: all branches wait for something from outside."""
        if not self._attempt.leaving:
            self.slots.rest(self._attempt)
            if self.slots.is_closing:
                self._attempt.hand_back()

    @property
    def is_resting(self) -> bool:
        """Whether it has given its slot back and still only waits."""
        return self.slots.is_resting(self._attempt) and self.branches is not None and self.branches.only_waits

    @property
    def rested(self) -> float:
        """For how many seconds it has rested."""
        return self.slots.rested(self._attempt)

    @property
    def least_rest(self) -> float:
        """For how many seconds it may rest before it can be taken off its worker: longer after each useless time."""
        return LEAST_REST * 2.0 ** min(0 if self.branches is None else self.branches.useless_spills, 10)

    @property
    def is_rest_recorded(self) -> bool:
        """Whether the store knows that it rests."""
        return self.branches is not None and self.branches.is_noted

    async def note_rest(self) -> None:
        """Record that it rests."""
        if self.branches is not None:
            with suppress(Unwind, HoldfastError):  # its branches get the same error when they write
                await self.branches.note_rest()

    # Leaving the worker, or its slot

    def suspend(self) -> None:
        """Take the task off this process, if it only waits."""
        if self.branches is not None:
            self.branches.look_soon()

    def spill(self) -> None:
        """Leave the worker if it only waits: other tasks need the place."""
        if self.branches is not None and self.is_resting:
            self.branches.spill()

    def leave(self) -> None:
        """Free the slot for good."""
        self.slots.leave(self._attempt)

    # Working again

    async def wake_up(self) -> None:
        """Get a slot again if it was given back, and record that the task works: before anything is done."""
        attempt = self._attempt
        if self.slots.is_resting(attempt):
            if not await self.slots.work(attempt):
                attempt.hand_back()  # another worker may have room
                raise Unwind
            await attempt.check()
        elif self.branches is not None and self.branches.is_noted:
            await self.take_place(self.branches.note_work)
            await attempt.check()

    async def has_place(self) -> bool:
        """Record that the task works, if it can have its places now; return whether it does, and has them."""
        if self.branches is not None and self.branches.is_noted:
            try:
                await self.branches.note_work()
            except NoPlace:
                return False
        return True

    async def take_place(self, note_work: Callable[[], Awaitable[object]]) -> None:
        """Record with ``note_work`` that the task works. Where its queue, or a limit of it, has no place, wait for one.

        That wait needs no slot. After PATIENCE the task goes back into its queue, and waits there.
        """
        attempt, services = self._attempt, self._attempt.services
        async with self._returning:  # of several branches, one asks
            gives_up_at = services.clock.boot() + PATIENCE
            freed = asyncio.Event()
            topics = (f"queue:{attempt.task.queue}", *(f"limit:{key}" for key in attempt.task.limits))
            with ExitStack() as watching:
                for topic in topics:
                    watching.enter_context(services.watcher.watch(topic, freed.set))
                while True:
                    freed.clear()
                    try:
                        await note_work()
                    except NoPlace:
                        if services.clock.boot() < gives_up_at:
                            await self._wait_without_slot(freed)
                            continue
                        attempt.hand_back()
                        raise Unwind from None
                    return

    async def _wait_without_slot(self, freed: asyncio.Event) -> None:
        """Wait until there may be a place, and take a slot again: both together, or neither."""
        attempt = self._attempt
        self.rest()
        await attempt.services.alarms.wait(freed, LOOK_FOR_PLACE_EVERY)
        await attempt.check(only_to_wait=True)
        if self.slots.is_resting(attempt) and not await self.slots.work(attempt):
            attempt.hand_back()
            raise Unwind
        await attempt.check(only_to_wait=True)

    async def begin_review(self) -> None:
        """Unwind the branches that the task's code has left waiting. The verifier needs a slot."""
        if self.branches is not None:
            with suppress(Unwind):  # it was stopped: the caller records that
                await self.wake_up()
            self.clear()
            self.branches = self._attempt.outbox.on_applied = None
