"""The discovery replay: running a task's code without doing anything, to find the code of steps that are to be undone.

How a step is undone, and how to ask about it, stands only in the task's code. So the code is replayed: recorded steps
return what they returned, and anything new is blocked, during the search and after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, Protocol

from holdfast.engine.attempt.defiance import UNWIND_BY_ITSELF, UNWIND_WITHIN, Driven
from holdfast.engine.attempt.held_task import HeldTask
from holdfast.engine.attempt.scope import path_inside
from holdfast.engine.attempt.stop_reasons import Unwind
from holdfast.engine.effects.intents import Intents
from holdfast.engine.runtime import log
from holdfast.engine.runtime.alarms import Alarm, Alarms
from holdfast.engine.steps.call import Call
from holdfast.model.effect import EffectState
from holdfast.model.errors import HoldfastError
from holdfast.model.task import FLAT_KEYS

LOOK_FOR_CODE = 30.0
"""Seconds that a replay which looks for the code of steps may take: it does nothing but run through it."""

LOOK_FOR_BRANCHES = 3.0
"""Seconds without anything new, once a branch has come to its end, after which a search is over."""

_TURNS = 100
"""Turns of the loop in which a branch that only replays comes to its next step."""


class Search:
    """A replay that does nothing, to find the code of some steps.

    A branch that comes to something new waits there: were it unwound, it would take its siblings in a TaskGroup along.
    """

    __slots__ = ("_alarm", "_alarms", "_dead_end", "_wanted", "over", "owner")

    def __init__(self, owner: object, wanted: set[str], alarms: Alarms) -> None:
        """``owner`` is whose search it is; ``wanted`` are the keys of those steps."""
        self.owner = owner
        self._wanted = wanted
        self._alarms = alarms
        self._alarm: Alarm | None = None
        self._dead_end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.over = asyncio.Event()

    def is_over_with(self, key: str) -> bool:
        """Note that a step was found; return whether no more code has to run."""
        self._wanted.discard(key)
        if not self._wanted:
            self.over.set()
        elif self._alarm is not None:
            self.wait_for_others()
        return self.over.is_set()

    def is_looking(self, for_key: Callable[[str], bool]) -> bool:
        """Return whether it still looks for the code of such a step."""
        return any(map(for_key, self._wanted))

    async def let_branches_pass(self) -> None:
        """Return when no other branch has found anything for a while."""
        turns = 0
        while turns < _TURNS:
            before = len(self._wanted)
            await asyncio.sleep(0)
            turns = turns + 1 if len(self._wanted) == before else 0

    async def dead_end(self) -> None:
        """Stay here until the search is over, then unwind."""
        self.wait_for_others()
        await asyncio.shield(self._dead_end)

    def wait_for_others(self) -> None:
        """Give the other branches some more time, and no more than that."""
        if self._dead_end.done():
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._alarms.after(LOOK_FOR_BRANCHES, self.over.set)

    def end(self) -> None:
        """Unwind the branches that have come to a dead end."""
        if self._alarm is not None:
            self._alarm.cancel()
        if not self._dead_end.done():
            self._dead_end.set_exception(Unwind())
            self._dead_end.exception()  # looked at, also if no branch waits


_ASKING: ContextVar[Search] = ContextVar("holdfast_discovery")
"""The search that started the code which runs here; code that this code starts inherits it."""


class Searcher(HeldTask, Protocol):
    """The attempt whose code is searched."""

    fatal: HoldfastError | None

    @property
    def intents(self) -> Intents:
        """Its effects, and the code that goes with them."""

    def code(self) -> Coroutine[Any, Any, Any]:
        """Return the task's function, called."""


class Discovery:
    """The discovery replays of one attempt; most attempts have none."""

    __slots__ = ("_attempt", "_search")

    def __init__(self, attempt: Searcher) -> None:
        """Begin without one."""
        self._attempt = attempt
        self._search: Search | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether the task's code only runs to be looked at."""
        return self._current is not None

    @property
    def is_asking(self) -> bool:
        """Whether the code that asks was started by a search, also if that search has ended since."""
        search = _ASKING.get(None)
        return search is not None and search.owner is self

    @property
    def is_over(self) -> bool:
        """Whether the code that asks belongs to a search that has ended."""
        search = self._current
        return search is not None and search.over.is_set()

    @property
    def _current(self) -> Search | None:
        """The search that started the code which asks, also once it is over; or the one that is under way."""
        search = _ASKING.get(None)
        return search if search is not None and search.owner is self else self._search

    # What the steps of the task report to it

    def announce(self, call: Call) -> None:
        """Note a step that has terms: how to ask about it, how to undo it."""
        self._attempt.intents.calls[call.key] = call
        search = self._current
        if search is not None and search.is_over_with(call.key):
            raise Unwind

    def looks_inside(self, call: Call) -> bool:
        """Return whether it looks for the code of steps inside this one; it never enters one that is being undone."""
        search, attempt = self._current, self._attempt
        if search is None or attempt.task.key_form == FLAT_KEYS:
            return False
        line = attempt.journal.get(call.key)
        effect = None if line is None else attempt.intents.effects.get(line.effect_id or "")
        if effect is not None and effect.state in {EffectState.COMPENSATING, EffectState.COMPENSATED}:
            return False
        path, digests = path_inside(call.key), attempt.journal.digests
        return search.is_looking(lambda key: digests.is_inside(key, path))

    async def let_branches_pass(self) -> None:
        """Let the other branches come as far as they can before a failure replays that may end them."""
        search = self._current
        if search is not None:
            await search.let_branches_pass()

    async def block(self) -> None:
        """Block a new step of code that a search has started, also after the search has ended."""
        if self.is_asking and (search := self._current) is not None:
            await search.dead_end()
            raise Unwind

    # The search

    async def look_for(self, keys: set[str]) -> None:
        """Replay the task's code until it has announced these steps.

        The code may end before all of its branches got that far, and may wait for something that no longer comes:
        what was not announced in time is not there any more. What the code has opened, it closes before this returns,
        if it does so in time.
        """
        if not keys:
            return
        attempt = self._attempt
        self._search = search = Search(self, keys, attempt.services.alarms)
        is_left = False
        code = Driven(self._replay(search), lambda: is_left)
        replay = asyncio.create_task(code.run(), name=f"holdfast-replay-{attempt.task.id}")
        alarm = attempt.services.alarms.after(LOOK_FOR_CODE, search.over.set)
        try:
            await search.over.wait()
            self._search = None
            search.end()
            await self._let_unwind(replay)
        finally:
            alarm.cancel()
            self._search = None
            search.end()
            is_left = True
            replay.cancel()
            await asyncio.wait([replay], timeout=1.0)
            attempt.fatal = None  # that the code does not fit any more is no reason to undo nothing

    async def _let_unwind(self, replay: asyncio.Task[None]) -> None:
        """Wait for the clean-up of code that is on its way out, which a cancel would cut off.

        The cancel is for code that waits elsewhere.
        """
        over = asyncio.Event()
        replay.add_done_callback(lambda _: over.set())

        def cancel() -> None:
            replay.cancel()

        after = self._attempt.services.alarms.after
        alarms = after(UNWIND_BY_ITSELF, cancel), after(UNWIND_WITHIN, over.set)
        try:
            await over.wait()
        finally:
            for alarm in alarms:
                alarm.cancel()

    async def _replay(self, search: Search) -> None:
        _ASKING.set(search)
        try:
            await self._attempt.code()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - it may well end the way it did before
            log.logger.debug("task %s: replayed to undo its steps: %r", self._attempt.task.id, error)
        search.wait_for_others()
