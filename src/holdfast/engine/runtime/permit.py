"""Permit: the right of a step to use the keys of its limits, until its call has ended; and how permits are given back.

They are given back in the background, in batches, and sent again until the store has them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

from holdfast.engine.runtime.batcher import SHUTDOWN_TIMEOUT
from holdfast.engine.runtime.store_retry import PERMANENT_ERRORS
from holdfast.engine.runtime.where import running_loop
from holdfast.model.clock import Clock
from holdfast.model.flow_limit import PermitReturn
from holdfast.redaction import make_logger
from holdfast.store.background import Loop, end
from holdfast.store.base import StateStore

P = ParamSpec("P")
R = TypeVar("R")

_log = make_logger(__name__)


class Permit:
    """The right of a step to use its keys. It is given back when the step's call has ended."""

    __slots__ = ("_clock", "_is_over", "_return", "_users", "_valid_until", "asked_at", "id", "owner", "tokens")

    def __init__(
        self,
        permit_id: str,
        owner: object,
        *,
        asked_at: float,
        valid_for: float,
        clock: Clock,
        give_back: Callable[[Permit], None],
    ) -> None:
        """``owner`` is the attempt that has it. ``give_back`` is called once, when the permit is needed no more.

        ``valid_for`` counts from ``asked_at`` on the boot clock, before the store was asked for it.
        """
        self.id = permit_id
        self.owner = owner
        self.tokens: int | None = None
        """How many tokens its call has used; None: not known."""
        self.asked_at = asked_at
        self._valid_until = asked_at + valid_for
        self._clock = clock
        self._return = give_back
        self._users = 0
        self._is_over = False

    @property
    def is_void(self) -> bool:
        """Whether it is too late to begin with it."""
        return self._clock.boot() >= self._valid_until

    def end(self) -> None:
        """Give it back as soon as nothing uses it any more: the step does not need it."""
        if not self._is_over:
            self._is_over = True
            self._give_back_if_unused()

    def use(self) -> None:
        """Keep it until ``unuse``, also after its end: a call under way may outlive its step."""
        self._users += 1

    def unuse(self) -> None:
        """Note that one use of it has ended."""
        self._users -= 1
        self._give_back_if_unused()

    def _give_back_if_unused(self) -> None:
        if self._is_over and self._users == 0:
            self._return(self)

    def in_thread(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function for a thread, which keeps the permit until it returns, even if its caller gives it up."""
        loop = asyncio.get_running_loop()
        self.use()

        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            finally:
                with suppress(RuntimeError):  # the loop is closed: the store takes the permit back by itself
                    loop.call_soon_threadsafe(self.unuse)

        return run


class PermitReturns:
    """What is to be given back."""

    def __init__(self, store: StateStore) -> None:
        """Give back to this store."""
        self._store = store
        self._returned: list[PermitReturn] = []
        self._sending: asyncio.Task[None] | None = None

    def put(self, permit_id: str, tokens: int | None = None) -> None:
        """Give back a permit, or a place in line, soon."""
        self._returned.append(PermitReturn(id=permit_id, tokens=tokens))
        if running_loop() is not None:  # otherwise Python destroys code that was set aside: the next one takes it along
            self._send_soon()

    def _send_soon(self) -> None:
        if self._sending is None or self._sending.done():
            sending = Loop(
                "holdfast-permits-back", self._send, outage=self._store.outage, going=lambda: bool(self._returned)
            )
            self._sending = sending.start()

    async def _send(self) -> None:
        """Send all of it. The store passes over what it has got already."""
        await asyncio.sleep(0)  # what ends in the same turn is sent together
        batch = tuple(self._returned)
        try:
            await self._store.return_permits(batch)
        except PERMANENT_ERRORS as error:
            _log.warning("%d permits cannot be given back: %s; the store takes them back later", len(batch), error)
        del self._returned[: len(batch)]

    async def close(self) -> None:
        """Send what is left. Give up a store that does not answer within SHUTDOWN_TIMEOUT."""
        if self._returned:
            self._send_soon()
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=SHUTDOWN_TIMEOUT)
            await end(self._sending)
