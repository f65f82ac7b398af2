"""Host: runs attempts under one incarnation of a worker, and keeps its lease alive.

One heartbeat covers every task that the host holds. If a heartbeat finds the incarnation dead, other workers have its
tasks: the host abandons them and registers a new incarnation.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

from holdfast.engine.api.definition import TaskDefinition
from holdfast.engine.attempt.attempt import Attempt
from holdfast.engine.attempt.code_run import CANCELLED_BY_OTHERS
from holdfast.engine.attempt.endings import handed_back
from holdfast.engine.attempt.exits import CodeTask
from holdfast.engine.attempt.stop_reasons import Cancelled
from holdfast.engine.runtime import log
from holdfast.engine.runtime.services import Services
from holdfast.engine.runtime.store_retry import call_store
from holdfast.engine.worker.lease import LeaseClock
from holdfast.engine.worker.liveness import PROCESS, this_process
from holdfast.engine.worker.slots import Slots
from holdfast.engine.worker.strays import Strays, write_last
from holdfast.model.errors import HoldfastError, InvalidValue, StoreReplaced, WorkerDead
from holdfast.model.operations import Release, WriteStep
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claimed, NewWorker
from holdfast.settings import DEFAULT_RESIDENTS
from holdfast.store.background import Loop

BEATS_PER_LEASE = 3
LOOK_FOR_STRAYS_EVERY = 10
"""Heartbeats between two checks of which tasks this worker holds in the store."""

NOTE_STEPS_AFTER = 1.0
"""Seconds after which a step that still runs is recorded as running, so that users can see it."""

BLOCKED_AFTER = 1.0
"""Seconds by which a heartbeat may be late before the worker logs that the event loop was blocked."""

HAND_BACK_TIMEOUT = 5.0
"""Seconds that an attempt gets to record that it was handed back."""

TO_SUSPEND = 1.0
"""Seconds that a task that only waits gets for its suspension, before it is handed back."""

FULL_AFTER = 60.0
"""Seconds without a free slot after which the worker logs which tasks have them."""

REPLACED = "its store was replaced by another one"

_SOONEST_BEAT = 1.0
_NOTED_AT_ONCE = 500


class Host:
    """The attempts of one worker, and its registration in the store."""

    def __init__(
        self,
        services: Services,
        *,
        lease: float,
        label: str,
        details: dict[str, Any],
        on_free: Callable[[], None],
        on_return: Callable[[], Awaitable[None]] | None = None,
        slots: int | None = None,
        residents: int = DEFAULT_RESIDENTS,
        keeps: str | None = None,
    ) -> None:
        """``on_free`` is called whenever an attempt has ended, or only waits; ``slots`` is how many may work at once.

        ``on_return`` is called when this host was dead for the others, and has registered a new incarnation.
        ``residents`` is how many more may stay here while they only wait. ``keeps`` is the id of a task that stays here
        while it waits, and between two attempts.
        """
        self.services = services
        self.label = label
        self.attempts: dict[str, Attempt] = {}
        self.suspects = False
        """The last heartbeat reported that a suspect waits for a worker that runs nothing else."""
        process = this_process(services.clock.boot_id)
        self._details = {"host": socket.gethostname(), "pid": os.getpid(), PROCESS: process, **details}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._beating: list[asyncio.Task[None]] = []
        self._beats = 0
        self._pause = lease / BEATS_PER_LEASE
        self._beat_now = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._strays = Strays(services.store)
        self.logged_waits: set[str] = set()
        """The pauses and limits about which it was logged that this process waits because of them."""
        self._on_return = on_return
        self._on_free = on_free
        self.slots: Slots[Attempt] = Slots(slots, services.alarms, self._slot_freed)
        self._residents = residents
        self._keeps = keeps
        self.lone: Attempt | None = None
        """A suspect that runs here. While it is set, no other task is claimed."""
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
        """Start an attempt at a claimed task."""
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
            log.claimed(task, self.lease.worker_id)  # otherwise the attempt logs it: it finds out if it took over
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
            if attempt.was_cancelled and not any(beating.cancelling() for beating in self._beating):
                log.logger.error("task %s: %s", task_id, CANCELLED_BY_OTHERS, extra={"task_id": task_id})
                self.services.start(self._count_cancel(attempt))
        elif (error := running.exception()) is not None:
            # The store refused a write of the engine. The task stays leased until this worker adopts it again.
            log.logger.error("task %s: cannot go on", task_id, exc_info=error, extra={"task_id": task_id})
        self.slots.leave(attempt)

    async def _count_cancel(self, attempt: Attempt) -> None:
        """Record that something else cancelled the attempt, and hand the task back. Three such ends are poison.

        A program that ends cancels all of its asyncio tasks, the heartbeat too; that counts against no task.
        """
        task = attempt.task
        line = WriteStep(attempt.code_run.cancelled_by_others())
        is_running = task.state is TaskState.RUNNING
        end = handed_back("handed back: something else cancelled its asyncio task") if is_running else Release()
        operations = (end,) if attempt.undoing is not None else (line, end)
        # Behind the Commits that the attempt has sent: what they say must not be lost.
        await write_last(self.services.committer.put, task.id, attempt.lease.worker_id, task.fence, operations)

    def _slot_freed(self) -> None:
        self.services.permits.slot_freed(self.slots)
        self._on_free()

    # The heartbeat

    def beat_soon(self) -> None:
        """Send a heartbeat before the next one is due: a caller may have asked to cancel a task."""
        if self.attempts:
            self._beat_now.set()

    async def _beat(self) -> None:
        began, pause = self.services.clock.boot(), self._pause
        await self._until_next_beat(pause)
        late = self.services.clock.boot() - began - pause
        if late > BLOCKED_AFTER:
            log.logger.warning(
                "the event loop of worker %s was blocked for %.1f s (tasks on it: %d) by blocking code, which belongs "
                "in plain functions (they run in threads), or by a machine that gave the process no time",
                self.label,
                late,
                len(self.attempts),
            )
        self._pause = 0.0  # if this heartbeat fails, the next one is due at once
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
        answer = await self.services.store.heartbeat(lease.worker_id)
        lease.renew(asked)
        self.suspects = answer.suspects
        for task_id, running in self.attempts.items():
            standstill = running.standstill
            if task_id in answer.paused:
                standstill.begin()
            elif standstill.since is not None and standstill.since < asked:
                standstill.end()
        for task_id in answer.cancel_requested:
            attempt = self.attempts.get(task_id)
            if attempt is not None and attempt.stopping is None:
                task = await self.services.store.get(task_id)
                attempt.stop(Cancelled((task and task.cancel_requested) or "cancelled"))

    async def register_again(self, dead: str) -> None:
        """Abandon the tasks of the incarnation ``dead``, and register a new one."""
        async with self._registering:
            if self.lease.worker_id == dead:  # the heartbeat and a claim may both notice it
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
        await call_store(self._register, self.services.store.outage)
        if self._on_return is not None:
            await call_store(self._on_return, self.services.store.outage)

    def abandon(self, why: str, *, elsewhere: bool = True) -> None:
        """Stop every attempt at once. They write nothing more. ``elsewhere``: other workers have their tasks."""
        for attempt in list(self.attempts.values()):
            attempt.lose_lease(why, elsewhere=elsewhere)
        self.attempts.clear()
        self._running.clear()
        self.slots.clear()

    async def _adopt_strays(self) -> None:
        """Start tasks that this worker holds in the store but does not know: the answer to their claim was lost."""
        known = {*self.attempts, self._keeps}
        async for claimed in self._strays.adopt(self.lease.worker_id, known):
            with suppress(InvalidValue):
                self.begin(claimed)

    async def _note_what_lasts(self) -> None:
        await self.services.alarms.sleep(NOTE_STEPS_AFTER)
        before = self.services.time.now() - timedelta(seconds=NOTE_STEPS_AFTER)
        long = [
            (attempt, step) for attempt in self.attempts.values() for step in attempt.under_way.begun_before(before)
        ]
        await _side_by_side([attempt.under_way.note_running(step) for attempt, step in long])
        await self._check_residents()
        await self._warn_if_full()

    async def _check_residents(self) -> None:
        resting = [attempt for attempt in self.slots.resting(NOTE_STEPS_AFTER) if attempt.residence.is_resting]
        too_many = max(0, len(resting) - self._residents)
        patient = [attempt for attempt in resting if self.slots.rested(attempt) >= attempt.residence.least_rest]
        # No task is claimed beside a suspect. So a task that the suspect waits for may itself wait for this worker.
        for attempt in {*patient[:too_many], *(one for one in patient if one is self.lone)}:
            attempt.residence.spill()
        await _side_by_side(
            [attempt.residence.note_rest() for attempt in resting if not attempt.residence.is_rest_recorded]
        )

    async def _warn_if_full(self) -> None:
        """Log which tasks have the slots, if none became free for a long time although tasks are ready."""
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
        """Make every attempt stop, so that another worker can continue its task."""
        for attempt in list(self.attempts.values()):
            attempt.hand_back()

    # The end

    def stop_now(self) -> None:
        """Make every attempt stop now. A ``stop`` under way waits no longer."""
        self._stop_now.set()
        self.hand_back_all()

    async def stop(self, grace: float) -> None:
        """Let attempts finish for up to ``grace`` seconds, hand the rest back, and retire.

        If the caller is cancelled meanwhile, the grace ends at once, but the rest is still handed back.
        """
        try:
            with suppress(HoldfastError):
                await self.services.store.drain(self.lease.worker_id)
            self.slots.is_closing = True
            await self._suspend_what_stays()
            for attempt in self.slots.resting():
                if attempt.residence.is_resting:
                    attempt.hand_back()  # its wait may take days
            await self._wait_for_attempts(grace, self._stop_now)
        finally:
            await self._leave()

    async def _suspend_what_stays(self) -> None:
        """Suspend the tasks that stay here but only wait: in the store a wait needs no worker and loses nothing."""
        staying = [attempt for attempt in self.slots.resting() if attempt.stays and attempt.residence.is_resting]
        for attempt in staying:
            attempt.suspend()
        if staying:
            await asyncio.wait([self._running[attempt.task.id] for attempt in staying], timeout=TO_SUSPEND)

    async def _leave(self) -> None:
        self.hand_back_all()
        try:
            await self._wait_for_attempts(HAND_BACK_TIMEOUT, asyncio.Event())
            for attempt in list(self.attempts.values()):
                attempt.code_run.set_aside()
            await self._wait_for_attempts(HAND_BACK_TIMEOUT, asyncio.Event())
        finally:
            left = list(self._running.values())
            self.abandon("its worker stops", elsewhere=False)
            for going in (*left, *self._beating):
                going.cancel()
            try:
                await asyncio.gather(*self._beating, return_exceptions=True)
            finally:
                with suppress(HoldfastError):  # if the store cannot be reached, the lease expires by itself
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
            await asyncio.gather(over, return_exceptions=True)  # if the store is closed already, the wait has failed


async def _side_by_side(writing: list[Coroutine[Any, Any, None]]) -> None:
    for start in range(0, len(writing), _NOTED_AT_ONCE):
        await asyncio.gather(*writing[start : start + _NOTED_AT_ONCE])


def _tasks(count: int) -> str:
    return "a task" if count == 1 else f"{count} tasks"
