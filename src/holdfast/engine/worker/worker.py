"""Worker: claims tasks for its free slots, sweeps what time makes due, and fires schedules.

Each worker sweeps. So tasks of dead workers, due timers and passed deadlines need no extra process. A hint makes a
worker look at once. Without a hint, it polls.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from holdfast.engine.runtime import log
from holdfast.engine.runtime.alarms import Alarm
from holdfast.engine.runtime.services import Services
from holdfast.engine.runtime.store_retry import PERMANENT_ERRORS
from holdfast.engine.schedules.declarations import as_detail, declare
from holdfast.engine.schedules.firer import Firer
from holdfast.engine.steps.children import stop_orphans
from holdfast.engine.worker.host import REPLACED, Host
from holdfast.model.checks import check_integer, check_name
from holdfast.model.errors import InvalidValue, SchemaMismatch, StoreClosed, StoreForked, StoreReplaced, WorkerDead
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim, Claimed, WorkerState
from holdfast.settings import DEFAULT_RESIDENTS
from holdfast.store.background import Loop
from holdfast.store.base import ANYTHING
from holdfast.store.outage import Streak

LOOK_EVERY = 1.0
"""Seconds between two polls of the queue and the clock, in case all hints are missing."""

MOST_CLAIMED = 250
"""Tasks in one claim: enough to make its cost small, few enough to leave some to other workers."""

REFILL_SHARE, REFILL_WITHIN = 10, 0.005
"""Free slots are filled at once if a tenth of all slots is free; otherwise after REFILL_WITHIN seconds, together."""

LEASES_FOR_ROOM = 1
"""For so many leases a worker claims nothing, to become empty for a suspect. After that, the suspect runs beside the
tasks that are left."""

LEASES_ALONE = 5
"""For so many leases no task is claimed beside a suspect. A suspect that runs longer does not kill its worker."""


YIELD_TO_OTHERS = 0.03
"""Seconds for which a full worker leaves new tasks to other workers that can run them; a half full worker waits half as
long. Idle workers do not wait, so they come first. Hints reach other processes within a few milliseconds."""

LOOKS_FOR_OTHERS_PER_LEASE = 3


class Worker:
    """Runs tasks, up to ``concurrency`` of them at the same time, until its block ends or ``drain`` is called."""

    def __init__(
        self,
        services: Services,
        *,
        queues: Sequence[str] | None,
        concurrency: int,
        residents: int = DEFAULT_RESIDENTS,
        lease: float,
        label: str,
        grace: float,
    ) -> None:
        """``hold.worker`` creates workers. Nothing happens before ``async with``."""
        check_integer("concurrency", concurrency, lowest=1)
        check_integer("residents", residents, lowest=0)
        if queues is not None and not queues:
            raise InvalidValue("queues is empty, so this worker would do nothing; omit it for all queues")
        check_name("worker label", label)
        self._services = services
        self._queues = None if queues is None else list(queues)
        self._concurrency = concurrency
        self._grace = grace
        # Shown to users, and read by other workers. Tasks that are defined later are claimed too.
        known = {"queues": self._queues or services.definitions.queues, "tasks": services.definitions.names}
        details = {**known, "concurrency": concurrency, **as_detail(services.definitions)}
        self._firer = Firer(services)
        self._host = Host(
            services,
            lease=lease,
            label=label,
            details=details,
            on_free=self._freed,
            on_return=self._declare_again,
            slots=concurrency,
            residents=residents,
        )
        self._host.suspects = True  # not known before the first heartbeat, so an empty worker looks for suspects
        self._numbers = itertools.count(1)
        self._incarnation = ""
        self._wake = asyncio.Event()
        self._wants_more = False
        self._others = 0
        """Number of living workers that can claim the same tasks as this one."""
        self._look_for_others_at = float("-inf")
        self._sweep_at = float("-inf")
        self._room_until: float | None = None
        self._lone_until = float("-inf")
        """Until then no task is claimed beside a suspect."""
        self._refill: Alarm | None = None
        self._draining = asyncio.Event()
        self._work: asyncio.Task[None] | None = None
        self._giving_up: asyncio.Task[None] | None = None
        self._block: asyncio.Task[Any] | None = None
        """The asyncio task that runs the ``async with`` block, until the block ends."""
        self._cancels_before = 0
        self._is_interrupted = False
        self._joined = 0

    @property
    def id(self) -> str:
        """The id of its current incarnation."""
        return self._host.lease.worker_id

    @property
    def running(self) -> int:
        """How many tasks it has now."""
        return len(self._host.attempts)

    # Life

    async def __aenter__(self) -> Self:
        """Register and start to claim."""
        self._services.owner.check()
        if not self._services.definitions.names:
            log.logger.warning("this worker has no tasks defined and does nothing; define some with @hold.task first")
        await self._host.start()
        try:
            await declare(self._services, self.id, afresh=True)
        except BaseException:
            await self._host.stop(0.0)
            raise
        for queue in self._queue_names():
            self._services.watcher.add(f"queue:{queue}", self._wake.set)
        self._services.watcher.add(ANYTHING, self._host.beat_soon)
        self._services.on_due.add(self._due)
        self._block = asyncio.current_task()
        self._cancels_before = 0 if self._block is None else self._block.cancelling()
        claiming = Loop(
            "holdfast-worker",
            self._claim_and_sweep,
            outage=self._services.store.outage,
            sleep=self._services.alarms.sleep,
            hopeless=PERMANENT_ERRORS,
        )
        self._work = asyncio.create_task(claiming.run(), name=claiming.name)
        self._work.add_done_callback(self._work_ended)
        return self

    async def _declare_again(self) -> None:
        await declare(self._services, self.id, afresh=False)

    def _work_ended(self, work: asyncio.Task[None]) -> None:
        """Stop the whole worker if it cannot claim any more: it must not look as if it still worked.

        It retires, so that it leaves the list of workers. Its block is cancelled, as a TaskGroup does it. The reason is
        raised at the end of the block, and by ``join``.
        """
        if work.cancelled() or (error := work.exception()) is None:
            return
        log.logger.error("worker %s has stopped and claims no more tasks: %s", self._host.label, error, exc_info=error)
        if isinstance(error, StoreClosed | StoreForked):
            return  # this process itself closed or forked the store, and gets an error of its own
        # SchemaMismatch: a newer version has migrated the store. The tasks that run here may still end here.
        grace = self._grace if isinstance(error, SchemaMismatch) else 0.0
        self._giving_up = asyncio.create_task(self._host.stop(grace), name="holdfast-worker-stops")
        self._giving_up.add_done_callback(log.if_it_failed("worker %s could not stop cleanly", self._host.label))
        if self._block is not None and not self._block.done() and not self._joined:
            self._is_interrupted = True
            self._block.cancel(f"worker {self._host.label} has stopped: {error}")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Claim no more tasks, finish or hand back those that run, and retire."""
        if self._services.owner.is_other:  # a forked child leaves the block of its parent, which goes on
            return
        work, block, self._block = self._work, self._block, None
        if self._is_interrupted and block is not None and block.uncancel() <= self._cancels_before:
            # The only cancellation was our own. It is not passed on: the reason of the stop is raised instead.
            kind = None if kind is asyncio.CancelledError else kind
        await self.stop(grace=self._grace if kind is None else 0.0)
        if kind is None and work is not None and not work.cancelled():
            work.result()  # raises the error that ended the claims

    def drain(self) -> None:
        """Ask it to stop. ``join`` returns when every task is finished or handed back. Safe in signal handlers."""
        self._services.owner.check()
        self._draining.set()

    def force(self) -> None:
        """Ask it to stop now: tasks that run are handed back at once."""
        self._services.owner.check()
        self._grace = 0.0
        self._draining.set()
        self._host.stop_now()

    async def join(self) -> None:
        """Work until ``drain`` is called, then stop. Raises the error if the worker stopped by itself before that."""
        self._services.owner.check()
        draining, work = asyncio.create_task(self._draining.wait()), self._work
        self._joined += 1
        try:
            await asyncio.wait([draining] if work is None else [draining, work], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._joined -= 1
            draining.cancel()
        await self.stop(grace=self._grace)
        if work is not None and not work.cancelled():
            work.result()

    async def stop(self, *, grace: float) -> None:
        """Stop. Tasks that have not ended after ``grace`` seconds are handed back. A second call does nothing."""
        work, self._work = self._work, None
        if work is None:
            return
        for queue in self._queue_names():
            self._services.watcher.remove(f"queue:{queue}", self._wake.set)
        self._services.watcher.remove(ANYTHING, self._host.beat_soon)
        self._services.on_due.discard(self._due)
        work.cancel()
        try:
            await asyncio.gather(work, return_exceptions=True)
        except asyncio.CancelledError:
            grace = 0.0
            raise
        finally:
            if self._giving_up is not None:
                await asyncio.wait([self._giving_up])
            await self._host.stop(grace)

    # Work

    async def _claim_and_sweep(self) -> None:
        self._wake.clear()
        try:
            await self._sweep()
            if await self._fill():
                return
        except WorkerDead as error:
            await self._host.register_again(error.worker_id)
            return
        except StoreReplaced:
            self._host.abandon(REPLACED)  # a worker on the new store may run the same tasks
            raise
        ahead = self._sweep_at - self._services.clock.boot()
        await self._services.alarms.wait(self._wake, min(max(ahead, 0.0), LOOK_EVERY))

    async def _sweep(self) -> None:
        boot = self._services.clock.boot()
        if boot < self._sweep_at:
            return
        if boot >= self._look_for_others_at:
            await self._look_for_others()
        swept = await self._services.store.sweep()
        for task_ids, state, reason in (
            (swept.recovered, TaskState.PENDING, "taken back, its worker died"),
            (swept.poisoned, TaskState.FAILED, "set aside as poison"),
            (swept.failed, TaskState.FAILED, "deadline passed"),
            (swept.woken, TaskState.PENDING, "time came"),
        ):
            for task_id in task_ids:
                log.moved_by_hand(task_id, state, reason)
        await stop_orphans(self._services.store, (*swept.poisoned, *swept.failed), by=self._host.lease.worker_id)
        self._sweep_at = boot if swept.more else boot + LOOK_EVERY
        if swept.next_due is not None:
            self._due(swept.next_due)
        if swept.next_tick is not None:
            await self._look_after_schedules(swept.next_tick)

    async def _look_after_schedules(self, next_tick: datetime) -> None:
        """Fire what is due. Sweep again when the next schedule is."""
        if self._services.time.seconds_until(next_tick) > 0:
            self._due(next_tick)
        elif (pause := await self._firer.fire_due()) is not None:
            self._sweep_at = min(self._sweep_at, self._services.clock.boot() + pause)

    def _due(self, at: datetime) -> None:
        """Sweep at this time, if the next sweep would be later: something becomes due then."""
        at_boot = self._services.clock.boot() + max(self._services.time.seconds_until(at), 0.0)
        if at_boot < self._sweep_at:
            self._sweep_at = at_boot
            self._wake.set()

    async def _fill(self) -> bool:
        """Claim tasks for the free slots. Return whether there may be more to claim at once."""
        await self._allow_others()
        is_sharing = (
            self._others > 0 and not self._wants_more
        )  # after a full claim, the queue has enough for all workers
        if is_sharing:
            await self._yield_to_other_workers()
        free = self._concurrency - self._host.slots.busy
        self._wants_more = free <= 0
        if free <= 0 or self._host.lone is not None:
            return False
        if not self._host.suspects:
            self._room_until = None  # another worker has the suspect
        elif await self._handle_suspects():
            return False
        limit = min(free, MOST_CLAIMED)
        if is_sharing:
            limit = math.ceil(limit / (1 + self._others))
        claimed = await self._claim(limit)
        self._wants_more = len(claimed) == limit
        if is_sharing and self._wants_more:
            await self._yield_to_other_workers()  # then claim the tasks that are left for the free slots
        return self._wants_more and free > limit

    async def _yield_to_other_workers(self) -> None:
        """Wait a moment, so that workers with less to do come first. The more runs here, the longer the wait."""
        load = self._host.slots.busy / self._concurrency
        if load > 0:
            await self._services.alarms.sleep(YIELD_TO_OTHERS * min(load, 1.0))

    async def _look_for_others(self) -> None:
        """Count the workers beside this one. A worker that seems to be alone looks more often: another may start."""
        self._others = await self._count_others()
        pause = self._host.lease.seconds / LOOKS_FOR_OTHERS_PER_LEASE
        self._look_for_others_at = self._services.clock.boot() + (pause if self._others else min(pause, LOOK_EVERY))

    async def _count_others(self) -> int:
        """Count the living workers that share a queue and a task name with this one, by their registered details."""
        queues, tasks, now = set(self._queue_names()), set(self._services.definitions.names), self._services.time.now()
        return sum(
            other.id != self.id
            and other.state is WorkerState.LIVE
            and now - other.seen_at <= timedelta(seconds=other.lease)
            and not queues.isdisjoint(other.details.get("queues", ()))
            and not tasks.isdisjoint(other.details.get("tasks", ()))
            for other in await self._services.store.workers()
        )

    async def _handle_suspects(self) -> bool:
        """Run a suspect, or claim nothing for a while so that it can run alone. Return whether one of the two happened.

        A suspect should run alone: if the worker dies then, the suspect is the cause. But a task that runs for days
        must not keep a suspect waiting.
        """
        boot = self._services.clock.boot()
        if self._host.attempts and (self._room_until is None or boot < self._room_until):
            if self._room_until is None:
                self._host.suspects = await self._services.store.has_suspect(self._make_claim(1, alone=True))
                if self._host.suspects:
                    self._room_until = boot + LEASES_FOR_ROOM * self._host.lease.seconds
            return self._room_until is not None
        self._room_until = None
        claimed = await self._claim(1, alone=True)
        self._host.suspects = False  # the next heartbeat reports whether there are more
        if claimed:
            self._host.lone = self._host.attempts.get(claimed[0].task.id)
            self._lone_until = boot + LEASES_ALONE * self._host.lease.seconds
        return bool(claimed)

    async def _allow_others(self) -> None:
        """Allow other tasks beside a suspect again, if the suspect has ended or its time alone has passed."""
        suspect = self._host.lone
        if suspect is None:
            return
        if self._host.attempts.get(suspect.task.id) is not suspect:
            self._host.lone = None
        elif self._services.clock.boot() >= self._lone_until:
            await suspect.share_worker()
            self._host.lone = None

    def _make_claim(self, limit: int, *, alone: bool) -> Claim:
        if self._incarnation != self.id:  # claims are numbered within an incarnation
            self._incarnation, self._numbers = self.id, itertools.count(1)
        return Claim(
            worker_id=self.id,
            number=next(self._numbers),
            limit=limit,
            queues=self._queue_names(),
            names=self._services.definitions.names,
            alone=alone,
        )

    async def _claim(self, limit: int, *, alone: bool = False) -> list[Claimed]:
        claim = self._make_claim(limit, alone=alone)
        with self._host.slots.reserved(limit):
            claimed = await self._ask_until_answered(claim)
            if claim.worker_id != self.id:  # the incarnation of this claim is dead: other workers have these tasks now
                return []
            for one in claimed:
                try:
                    self._host.begin(one)
                except Exception:  # noqa: BLE001 - the other tasks must still start; this one is adopted as a stray
                    log.logger.exception("task %s: cannot be started", one.task.id, extra={"task_id": one.task.id})
        return claimed

    async def _ask_until_answered(self, claim: Claim) -> list[Claimed]:
        """Send the claim until it is answered. It keeps its number: the first try may have claimed tasks already."""
        streak = Streak(f"a claim of worker {self._host.label}", self._services.store.outage)
        try:
            while True:
                try:
                    claimed = await self._services.store.claim(claim)
                except (WorkerDead, *PERMANENT_ERRORS):
                    raise
                except Exception as error:  # noqa: BLE001 - with a new number, tasks of a lost answer would be stranded
                    await self._services.alarms.sleep(streak.failed(error))
                else:
                    streak.worked()
                    return claimed
        finally:
            streak.left()

    def _freed(self) -> None:
        free = self._concurrency - self._host.slots.busy
        watched = self._host.lone is not None or self._room_until is not None
        if watched or (self._wants_more and free * REFILL_SHARE >= self._concurrency):
            self._wake.set()
        elif self._wants_more and free > 0 and self._refill is None:
            # Many slots become free at the same moment, and one claim for all of them is cheaper than one for each.
            self._refill = self._services.alarms.after(REFILL_WITHIN, self._refilled)

    def _refilled(self) -> None:
        self._refill = None
        self._wake.set()

    def _queue_names(self) -> list[str]:
        if self._queues is not None:
            return self._queues
        return self._services.definitions.queues
