"""Host: runs attempts under one incarnation of a worker, and keeps its lease alive.

One heartbeat covers every task the host holds. A heartbeat that finds the incarnation dead means that its tasks went to
others: they are abandoned here, and the host goes on under a fresh incarnation.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

from holdfast.engine.api.definition import TaskDefinition
from holdfast.engine.attempt.attempt import Attempt
from holdfast.engine.attempt.exits import CodeTask
from holdfast.engine.attempt.stop_reasons import Cancelled
from holdfast.engine.runtime import log
from holdfast.engine.runtime.services import Services
from holdfast.engine.runtime.store_retry import insist
from holdfast.engine.worker.lease import LeaseClock
from holdfast.engine.worker.liveness import PROCESS, this_process
from holdfast.engine.worker.slots import Slots
from holdfast.model.errors import Conflict, HoldfastError, InvalidValue, StoreReplaced, WorkerDead
from holdfast.model.worker import Claimed, NewWorker
from holdfast.settings import DEFAULT_RESIDENTS
from holdfast.store.background import Loop

BEATS_PER_LEASE = 3
LOOK_FOR_STRAYS_EVERY = 10
"""Heartbeats between two looks at what the store thinks this worker holds."""

NOTE_STEPS_AFTER = 1.0
"""Seconds after which a step that still runs is written down as running, so that people can see it."""

BLOCKED_AFTER = 1.0
"""Seconds by which a heartbeat may be late before it is said that somebody blocks the event loop."""

LAST_WORDS = 5.0
"""Seconds an attempt gets to record that it was handed back."""

TO_SUSPEND = 1.0
"""Seconds a task that only waits gets to be suspended before it is handed back."""

FULL_AFTER = 60.0
"""Seconds without a free slot after which it is said who has them."""

REPLACED = "another store stands where its store was"

_SOONEST_BEAT = 1.0
_NOTED_AT_ONCE = 500


class Host:
    """The attempts of one worker, and its standing in the store."""

    def __init__(
        self,
        services: Services,
        *,
        lease: float,
        label: str,
        details: dict[str, Any],
        on_free: Callable[[], None],
        slots: int | None = None,
        residents: int = DEFAULT_RESIDENTS,
        keeps: str | None = None,
    ) -> None:
        """``on_free`` is called whenever an attempt is over, or only waits; ``slots`` is how many may work at once.

        ``residents`` is how many may only wait here beside them. ``keeps`` is the id of a task that stays here while it
        waits, and between two tries.
        """
        self.services = services
        self.label = label
        self.attempts: dict[str, Attempt] = {}
        self.suspects = False
        """The last heartbeat said that a suspect waits for a worker that runs nothing else."""
        process = this_process(services.clock.boot_id)
        self._details = {"host": socket.gethostname(), "pid": os.getpid(), PROCESS: process, **details}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._beating: list[asyncio.Task[None]] = []
        self._beats = 0
        self._pause = lease / BEATS_PER_LEASE
        self._beat_now = asyncio.Event()
        self._hurry = asyncio.Event()
        self._strays: set[str] = set()
        self.slots: Slots[Attempt] = Slots(slots, services.alarms, on_free)
        self._residents = residents
        self._keeps = keeps
        self.lone: Attempt | None = None
        """The suspect beside which nothing is claimed."""
        self._warned_at = float("-inf")
        self._registering = asyncio.Lock()
        self.lease = LeaseClock("", lease, services.clock)

    async def start(self) -> None:
        """Register, and keep the lease alive from now on."""
        await self.services.time.ask()
        await self._register()
        outage, sleep = self.services.store.outage, self.services.alarms.sleep
        soon = min(self.lease.seconds / BEATS_PER_LEASE / 4, 1.0)
        self._beating = [
            Loop("holdfast-heartbeat", self._beat, outage=outage, sleep=sleep, longest_pause=soon).start(),
            Loop("holdfast-what-lasts", self._note_what_lasts, outage=outage, sleep=sleep).start(),
        ]

    async def _register(self) -> None:
        worker = NewWorker(label=self.label, lease=self.lease.seconds, details=self._details)
        asked = self.services.clock.boot()
        await self.services.store.register(worker)
        self.lease = LeaseClock(worker.id, worker.lease, self.services.clock)
        self.lease.renew(asked)

    # Attempts

    def begin(self, claimed: Claimed) -> asyncio.Task[None]:
        """Start to work on a claimed task."""
        task = claimed.task
        definition = self.services.definitions.get(task.name)
        if definition is None:
            raise InvalidValue(f"task {task.id} is {task.name!r}, which is not defined here; import its module first")
        attempt = self.make_attempt(claimed, definition)
        attempt.has_company = claimed.alone and bool(self.attempts)
        attempt.stays = task.id == self._keeps
        self.attempts[task.id] = attempt
        self.slots.take(attempt)
        self.services.committer.callers += 1
        if not task.deaths:
            log.claimed(task, self.lease.worker_id)  # otherwise the attempt looks whether it is a take-over
        running = CodeTask(attempt.run(), loop=asyncio.get_running_loop(), name=task.id)
        running.add_done_callback(partial(self._ended, attempt))
        self._running[task.id] = running
        return running

    def make_attempt(self, claimed: Claimed, definition: TaskDefinition[..., Any]) -> Attempt:
        """Return an attempt at the claimed task, not yet running."""
        return Attempt(claimed, definition, self.lease, self.services, self.slots)

    def _ended(self, attempt: Attempt, running: asyncio.Task[None]) -> None:
        task_id = attempt.task.id
        self.services.committer.callers -= 1
        if self.attempts.get(task_id) is attempt:
            del self.attempts[task_id]
            del self._running[task_id]
        if running.cancelled():
            if not attempt.over and attempt.stopping is None:
                log.logger.error(
                    "task %s: its asyncio task was cancelled by something else than Holdfast; it is begun again after "
                    "a while",
                    task_id,
                    extra={"task_id": task_id},
                )
        elif (error := running.exception()) is not None:
            # The store refused what the engine asked of it. The task stays leased until this worker adopts it again.
            log.logger.error("task %s: cannot go on", task_id, exc_info=error, extra={"task_id": task_id})
        self.slots.leave(attempt)

    # The heartbeat

    def beat_soon(self) -> None:
        """Ask the store for news before the next heartbeat is due: somebody may want a task stopped."""
        if self.attempts:
            self._beat_now.set()

    async def _beat(self) -> None:
        began, pause = self.services.clock.boot(), self._pause
        await self._until_next_beat(pause)
        late = self.services.clock.boot() - began - pause
        if late > BLOCKED_AFTER:
            log.logger.warning(
                "the event loop of worker %s was blocked for %.1f s (tasks on it: %d) by code that blocks, which "
                "belongs into plain functions (they run in threads), or by a machine that gave it no time",
                self.label,
                late,
                len(self.attempts),
            )
        self._pause = 0.0  # should this one fail, the next one is due at once
        try:
            await self._beat_once()
            self._beats += 1
            if self._beats % LOOK_FOR_STRAYS_EVERY == 0:
                await self._adopt_strays()
            await self.services.time.ask()
        except WorkerDead as error:
            await self.register_again(error.worker_id)
        except StoreReplaced:
            self.abandon(REPLACED)
            raise
        self._pause = self.lease.seconds / BEATS_PER_LEASE

    async def _until_next_beat(self, pause: float) -> None:
        alarms = self.services.alarms
        alarm = alarms.after(pause, self._beat_now.set)
        try:
            await alarms.sleep(min(_SOONEST_BEAT, pause))
            await self._beat_now.wait()
        finally:
            alarm.cancel()
            self._beat_now.clear()

    async def _beat_once(self) -> None:
        asked, lease = self.services.clock.boot(), self.lease
        heard = await self.services.store.heartbeat(lease.worker_id)
        lease.renew(asked)
        self.suspects = heard.suspects
        for task_id in heard.cancel_requested:
            attempt = self.attempts.get(task_id)
            if attempt is not None and attempt.stopping is None:
                task = await self.services.store.get(task_id)
                attempt.stop(Cancelled((task and task.cancel_requested) or "cancelled"))

    async def register_again(self, dead: str) -> None:
        """The incarnation ``dead`` is over: let go of everything, and register a new one."""
        async with self._registering:
            if self.lease.worker_id == dead:  # the heartbeat and a claim may both find out
                await self._start_over()

    async def _start_over(self) -> None:
        log.logger.warning(
            "worker %s (%s) was silent for longer than its lease of %g s%s; it goes on under a new id",
            self.label,
            self.lease.worker_id,
            self.lease.seconds,
            f" and lost {_tasks(len(self.attempts))} to others" if self.attempts else "",
        )
        self.abandon("its worker's lease ran out")
        self.lease.end()
        await insist(self._register, self.services.store.outage)

    def abandon(self, why: str, *, elsewhere: bool = True) -> None:
        """Stop every attempt at once; none of them writes anything more. ``elsewhere``: other workers have them."""
        for attempt in list(self.attempts.values()):
            attempt.lose(why, elsewhere=elsewhere)
        self.attempts.clear()
        self._running.clear()
        self.slots.clear()

    async def _adopt_strays(self) -> None:
        """Go on with tasks the store says are ours and nobody here knows: the answer to their claim was lost."""
        held = {lease.task_id for lease in await self.services.store.owned(self.lease.worker_id)}
        unknown = held - self.attempts.keys() - {self._keeps}
        for task_id in unknown & self._strays:  # seen twice: not just on their way in or out
            with suppress(Conflict, InvalidValue):
                self.begin(await self.services.store.acquire(task_id, self.lease.worker_id))
        self._strays = unknown

    async def _note_what_lasts(self) -> None:
        await self.services.alarms.sleep(NOTE_STEPS_AFTER)
        before = self.services.time.now() - timedelta(seconds=NOTE_STEPS_AFTER)
        long = [
            (attempt, step) for attempt in self.attempts.values() for step in attempt.under_way.begun_before(before)
        ]
        await _side_by_side([attempt.under_way.note_running(step) for attempt, step in long])
        await self._look_after_residents()
        await self._warn_if_full()

    async def _look_after_residents(self) -> None:
        resting = [attempt for attempt in self.slots.resting(NOTE_STEPS_AFTER) if attempt.residence.is_resting]
        too_many = max(0, len(resting) - self._residents)
        patient = [attempt for attempt in resting if self.slots.rested(attempt) >= attempt.residence.least_rest]
        # Nothing is claimed beside a suspect, so what it waits for may wait for its place.
        for attempt in {*patient[:too_many], *(one for one in patient if one is self.lone)}:
            attempt.residence.spill()
        await _side_by_side(
            [attempt.residence.note_rest() for attempt in resting if not attempt.residence.is_known_to_rest]
        )

    async def _warn_if_full(self) -> None:
        """Say who has the slots, if none became free for long although tasks are ready."""
        slots, boot = self.slots, self.services.clock.boot()
        if len(slots.working) != slots.total or boot - max(slots.freed_at, self._warned_at) < FULL_AFTER:
            return
        self._warned_at = boot
        mine = self._details.get("queues", ())
        queues = await self.services.store.queues()
        ready = sum(queue.ready for queue in queues if queue.name in mine)
        if ready:
            holders = [(attempt.task, attempt.under_way.keys) for attempt in slots.working]
            log.full(self.label, holders, seconds=boot - slots.freed_at, ready=ready)

    def hand_back_all(self) -> None:
        """Have every attempt stop, for another worker to go on."""
        for attempt in list(self.attempts.values()):
            attempt.hand_back()

    # The end

    def hurry(self) -> None:
        """Have every attempt stop now; a ``stop`` under way gives them no more grace."""
        self._hurry.set()
        self.hand_back_all()

    async def stop(self, grace: float) -> None:
        """Let attempts finish for up to ``grace`` seconds, hand the rest back, and retire.

        If whoever stops is cancelled meanwhile, the rest happens at once, but it does happen.
        """
        try:
            with suppress(HoldfastError):
                await self.services.store.drain(self.lease.worker_id)
            self.slots.is_closing = True
            await self._suspend_what_stays()
            for attempt in self.slots.resting():
                if attempt.residence.is_resting:
                    attempt.hand_back()  # what it waits for may take days
            await self._wait_for_attempts(grace, self._hurry)
        finally:
            await self._leave()

    async def _suspend_what_stays(self) -> None:
        """Have a task that only waits go on waiting in the store: it costs no worker there, and loses nothing."""
        staying = [attempt for attempt in self.slots.resting() if attempt.stays and attempt.residence.is_resting]
        for attempt in staying:
            attempt.suspend()
        if staying:
            await asyncio.wait([self._running[attempt.task.id] for attempt in staying], timeout=TO_SUSPEND)

    async def _leave(self) -> None:
        self.hand_back_all()
        try:
            await self._wait_for_attempts(LAST_WORDS, asyncio.Event())
            for attempt in list(self.attempts.values()):
                attempt.code_run.set_aside()
            await self._wait_for_attempts(LAST_WORDS, asyncio.Event())
        finally:
            left = list(self._running.values())
            self.abandon("its worker stops", elsewhere=False)
            for going in (*left, *self._beating):
                going.cancel()
            try:
                await asyncio.gather(*self._beating, return_exceptions=True)
            finally:
                with suppress(HoldfastError):  # unreachable: its lease runs out by itself
                    await self.services.store.retire(self.lease.worker_id)

    async def _wait_for_attempts(self, seconds: float, enough: asyncio.Event) -> None:
        if seconds <= 0 or not self._running:
            return
        over = asyncio.create_task(self.services.alarms.wait(enough, seconds))
        try:
            while self._running and not over.done():
                await asyncio.wait([over, *self._running.values()], return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            await asyncio.gather(over, return_exceptions=True)  # the store may be closed already: then it is over, too


async def _side_by_side(writing: list[Coroutine[Any, Any, None]]) -> None:
    for start in range(0, len(writing), _NOTED_AT_ONCE):
        await asyncio.gather(*writing[start : start + _NOTED_AT_ONCE])


def _tasks(count: int) -> str:
    return "a task" if count == 1 else f"{count} tasks"
