"""What these tests share: a travel agency without any safety of its own, and code that changes between attempts."""

import asyncio
from collections.abc import Sequence
from typing import Any

from holdfast import Compensation, Handle, Holdfast, Retry, TaskFailed
from holdfast.model.commit import Commit, Verdict
from holdfast.model.effect import EffectState
from tests.engine.effects.support import Send, stand_between, writes
from tests.engine.support import PATIENCE, settle

ONE_TRY = Retry(max_attempts=1)
AT_ONCE = Retry(max_attempts=3, initial=0.0)


class Agency:
    """Books and cancels as often as it is called. ``+flight`` in its book is a booking, ``-flight`` its undo."""

    def __init__(self) -> None:
        self.book: list[str] = []
        self.ids: list[str] = []
        """The effect id of each booking."""
        self.declines = True
        self.broken: set[str] = set()
        """What cannot be cancelled at the moment."""

    async def reserve(self, what: str, effect_id: str) -> str:
        self.book.append(f"+{what}")
        self.ids.append(effect_id)
        return f"{what} {len(self.ids)}"

    async def release(self, booking: str | None, what: str) -> None:  # noqa: ARG002 - as every compensation gets it
        if what in self.broken:
            raise ConnectionError(f"no answer about the {what}")
        self.book.append(f"-{what}")

    @property
    def release_in_one_try(self) -> Compensation:
        return Compensation(self.release, retry=ONE_TRY)

    async def pay(self) -> str:
        if self.declines:
            raise RuntimeError("declined")
        return "paid"


async def failed(handle: Handle[Any]) -> TaskFailed:
    """Return how a task failed that is about to; in real time, whatever the clock says."""
    try:
        async with asyncio.timeout(PATIENCE):
            result = await handle.result()
    except TaskFailed as error:
        return error
    raise AssertionError(f"it did not fail; it returned {result!r}")


def slow_to_answer(hold: Holdfast, state: EffectState) -> asyncio.Event:
    """Have the store take its time to say that an effect was written in this state; the event shows that it does."""
    written = asyncio.Event()

    async def around(commits: Sequence[Commit], send: Send) -> list[Verdict]:
        verdicts = await send(commits)
        if writes(commits, state):
            written.set()
            await settle()
        return verdicts

    stand_between(hold, around)
    return written
