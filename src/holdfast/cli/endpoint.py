"""When ``holdfast run`` stops to wait for a model that cannot be reached, and what it says then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime

from holdfast.cli.opening import command_line
from holdfast.cli.times import span
from holdfast.engine.holdfast import Holdfast
from holdfast.model.errors import NotFound, StoreError
from holdfast.service.identify import short
from holdfast.service.reach import Reach, Unreached, read_reach
from holdfast.service.service import Service

TRIES = 3
"""Without a connection in this process, and the command stops: a person waits, and most likely mistyped something."""

SECONDS = 10.0
"""For tries that take long, such as those to an address that does not answer."""


@dataclass(slots=True)
class Watch:
    """Watches, beside the work on a task, whether its model can be reached."""

    service: Service
    task_id: str
    since: datetime
    patience: float | None
    """Seconds that a person wants to wait; None: until TRIES, or SECONDS."""
    given_up: Unreached | None = None

    async def run(self, give_up: Callable[[], object]) -> None:
        """Call ``give_up`` once it is time for that. Return before, if an endpoint answered."""

        async def look() -> tuple[Reach, datetime]:
            hold = self.service.hold
            return await read_reach(hold, self.task_id, since=self.since), await hold.store.now()

        try:
            async with aclosing(self.service.follow(look, task_id=self.task_id)) as views:
                async for view in views:
                    reach, now = view.seen
                    if reach.is_reached:
                        return
                    if reach.unreached is not None and self._is_enough(reach.unreached, now):
                        self.given_up = reach.unreached
                        give_up()
                        return
        except (StoreError, NotFound):
            return  # what works on the task says so

    def _is_enough(self, found: Unreached, now: datetime) -> bool:
        waited = (now - self.since).total_seconds()
        if self.patience is not None:
            return waited >= self.patience
        return len(found.tries) >= TRIES or waited >= SECONDS


async def end(watching: asyncio.Task[None]) -> None:
    """Stop to watch."""
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


def farewell(found: Unreached, task_id: str, hold: Holdfast, *, again: str, waited: float) -> Iterator[str]:
    """Say which endpoint cannot be reached, what was tried, and how to go on."""
    yield found.message
    tries = "1 try" if len(found.tries) == 1 else f"{len(found.tries)} tries"
    stopped = f"{tries} in {span(waited)}, and no connection: `holdfast run` stops here"
    if not hold.store.capabilities.durable:
        yield stopped
        return
    yield f"{stopped}. Task {short(task_id)} has not failed: it stays open, and can go on from here"
    yield f"go on with: {again}   (--patience 10m waits longer)"
    yield "or leave it to a worker, which goes on trying for longer: holdfast worker MODULE:HOLDFAST"
    yield f"or drop it: {command_line('cancel', task_id, hold.url)}"
