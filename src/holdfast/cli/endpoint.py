"""When ``holdfast run`` gives up on a model that cannot be reached, and what it prints then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime

import typer

from holdfast.cli.render.words import safe
from holdfast.cli.store_session import command_line
from holdfast.cli.terminal import print_message
from holdfast.cli.times import span
from holdfast.model.errors import NotFound, StoreError
from holdfast.service.identify import short
from holdfast.service.reach import ModelReach, Unreached
from holdfast.service.service import Service

TRIES = 3
"""Tries without a connection after which the command stops: a person waits, and probably mistyped something."""

SECONDS = 10.0
"""The same limit in seconds, for slow tries, such as those to an address that does not answer."""


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
        """Call ``give_up`` when the limit is reached. Return earlier if an endpoint answered."""

        async def look() -> tuple[ModelReach, datetime]:
            return await self.service.reach(self.task_id, since=self.since), await self.service.now()

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
            return  # the code that works on the task reports it

    def _is_enough(self, found: Unreached, now: datetime) -> bool:
        waited = (now - self.since).total_seconds()
        if self.patience is not None:
            return waited >= self.patience
        return len(found.tries) >= TRIES or waited >= SECONDS


async def end(watching: asyncio.Task[None]) -> None:
    """Stop watching."""
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


def print_unreachable(found: Unreached, task_id: str, service: Service, *, application: str, waited: float) -> None:
    """Print which endpoint cannot be reached, what was tried, and how to go on; ``application`` as it was typed."""
    tries = "1 try" if len(found.tries) == 1 else f"{len(found.tries)} tries"
    print_message(found.message)
    if not service.is_durable:
        print_message(f"no connection in {tries} ({span(waited)}), so `holdfast run` stops")
        return
    print_message(
        f"no connection in {tries} ({span(waited)}), so `holdfast run` stops; task {short(task_id)} stays open"
    )
    ways = {
        f"holdfast run{application} --id {short(task_id)}": "go on; --patience 10m waits longer",
        f"holdfast worker{application}": "or leave it to a worker, which goes on trying",
        command_line("cancel", task_id, service.url): "or drop it",
    }
    widest = max(map(len, ways))
    for line, why in ways.items():
        typer.echo(safe(f"  {line:{widest}}  {why}"), err=True)
