"""The discovery replay: running a task's code without any new step, to find the code of steps that must be undone.

Only the task's code knows how to undo a step, and how to reconcile it. So the code is replayed: recorded steps return
their recorded results, and every new step is blocked, during the search and after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, Protocol

from holdfast.engine.attempt.held_task import HeldTask
from holdfast.engine.attempt.scope import path_inside
from holdfast.engine.attempt.stop_reasons import Unwind
from holdfast.engine.attempt.stuck_code import UNWIND_BY_ITSELF, UNWIND_WITHIN, Driven
from holdfast.engine.effects.intents import Intents
from holdfast.engine.runtime import log
from holdfast.engine.runtime.alarms import Alarm, Alarms
from holdfast.engine.steps.call import Call
from holdfast.model.effect import EffectState
from holdfast.model.errors import HoldfastError
from holdfast.model.task import FLAT_KEYS

LOOK_FOR_CODE = 30.0
"""Seconds that a discovery replay may take: it only runs through the code."""

LOOK_FOR_BRANCHES = 3.0
"""Seconds after which a search is over, once a branch has ended and no other branch finds anything new."""

_TURNS = 100
"""Turns of the event loop in which a branch that only replays reaches its next step."""


class Search:
    """A replay that does nothing new, to find the code of some steps.

    A branch that reaches a new step waits there: unwinding it would also cancel its siblings in a TaskGroup.
    """

    __slots__ = ("_alarm", "_alarms", "_dead_end", "_wanted", "over", "owner")

    def __init__(self, owner: object, wanted: set[str], alarms: Alarms) -> None:
        """``owner`` is the Discovery that searches; ``wanted`` are the keys of those steps."""
        self.owner = owner
        self._wanted = wanted
        self._alarms = alarms
        self._alarm: Alarm | None = None
        self._dead_end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.over = asyncio.Event()

    def note_found(self, key: str) -> bool:
        """Note that a step was found; return whether the search is over."""
        self._wanted.discard(key)
        if not self._wanted:
            self.over.set()
        elif self._alarm is not None:
            self.wait_for_others()
        return self.over.is_set()

    def is_looking(self, for_key: Callable[[str], bool]) -> bool:
        """Return whether the search still looks for the code of such a step."""
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
        """Give the other branches some more time before the search ends."""
        if self._dead_end.done():
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._alarms.after(LOOK_FOR_BRANCHES, self.over.set)

    def end(self) -> None:
        """Unwind the branches that wait in a dead end."""
        if self._alarm is not None:
            self._alarm.cancel()
        if not self._dead_end.done():
            self._dead_end.set_exception(Unwind())
            self._dead_end.exception()  # retrieved, so that asyncio does not report it if no branch waits


_ASKING: ContextVar[Search] = ContextVar("holdfast_discovery")
"""The search that started the current code. Code that this code starts inherits it."""


class Searcher(HeldTask, Protocol):
    """The attempt whose code is searched."""

    fatal: HoldfastError | None

    @property
    def intents(self) -> Intents:
        """Its effects, and the code that goes with them."""

    def code(self) -> Coroutine[Any, Any, Any]:
        """Call the task's function, and return its coroutine."""


class Discovery:
    """The discovery replays of one attempt; most attempts have none."""

    __slots__ = ("_attempt", "_search")

    def __init__(self, attempt: Searcher) -> None:
        """Start without any."""
        self._attempt = attempt
        self._search: Search | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether the task's code runs only for a search."""
        return self._current is not None

    @property
    def is_asking(self) -> bool:
        """Whether a search started the calling code, also if that search has ended since."""
        search = _ASKING.get(None)
        return search is not None and search.owner is self

    @property
    def is_over(self) -> bool:
        """Whether the calling code belongs to a search that has ended."""
        search = self._current
        return search is not None and search.over.is_set()

    @property
    def _current(self) -> Search | None:
        """The search that started the calling code, even if it is over; otherwise the search under way, if any."""
        search = _ASKING.get(None)
        return search if search is not None and search.owner is self else self._search

    # What the steps of the task report to it

    def announce(self, call: Call) -> None:
        """Note a step that has terms: how to reconcile it, how to undo it."""
        self._attempt.intents.calls[call.key] = call
        search = self._current
        if search is not None and search.note_found(call.key):
            raise Unwind

    def looks_inside(self, call: Call) -> bool:
        """Return whether the search wants steps inside this one. It never enters a step that is being undone."""
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
        """Let the other branches replay as far as they can, before the replay of a failure that may end them."""
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

        The code may end before all of its branches reach those steps, or may wait for something that never comes. A
        step that was not announced in time counts as no longer in the code. This waits, for a limited time, until the
        code has cleaned up.
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
            await self._await_unwinding(replay)
        finally:
            alarm.cancel()
            self._search = None
            search.end()
            is_left = True
            replay.cancel()
            await asyncio.wait([replay], timeout=1.0)
            attempt.fatal = None  # even if the code no longer fits the journal, the steps that were found are undone

    async def _await_unwinding(self, replay: asyncio.Task[None]) -> None:
        """Wait for code that is unwinding: a cancel would cut off its clean-up.

        The later cancel is for code that waits for something else.
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
        except BaseException as error:  # noqa: BLE001 - it may end with the same error as before
            log.logger.debug("task %s: replayed to undo its steps: %r", self._attempt.task.id, error)
        search.wait_for_others()
