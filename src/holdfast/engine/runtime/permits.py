"""Permits of steps: one object of the process asks the store for all of them, and gives them back.

A step under a limit stands in a line of the store. No branch polls for itself: the requests of all attempts are sent
together, in the order in which they came. They are sent when something may have changed: at a hint about one of their
keys, at a time that the store has named, and otherwise every second.

A permit of a rate is valid only for a moment. So no more are asked for than there are free slots to use them in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import partial

from holdfast.engine.runtime.alarms import Alarms
from holdfast.engine.runtime.permit import Permit, PermitReturns
from holdfast.engine.runtime.permit_request import Place, StepRequest
from holdfast.engine.runtime.store_retry import PERMANENT_ERRORS, call_store
from holdfast.engine.runtime.store_time import StoreTime
from holdfast.engine.runtime.watcher import Watcher
from holdfast.model.clock import Clock
from holdfast.model.errors import HoldfastError, InvalidValue, NotFound, StoreClosed
from holdfast.model.flow_limit import Limit, PermitAnswer, limit_name, refuse_unknown
from holdfast.model.task import Task
from holdfast.store.background import Loop
from holdfast.store.base import StateStore

LOOK_EVERY = 1.0
"""Seconds after which a request is sent again if no hint came."""

BETWEEN_ROUNDS = 0.005
"""Seconds that requests gather for the next round, if hints come fast."""

MOST_ASKED = 200
"""Requests in one call to the store."""

GIVE_WAY_AFTER = 0.25
"""Seconds after which a request that could be granted, but has no slot, leaves its line: others behind it may begin."""

LET_OTHERS_CLAIM = 0.1
"""Seconds for which no slot is kept for requests after one was kept in vain."""

RETURN_AGAIN_AFTER = 60.0
"""Seconds after which a permit is given back again, if the answer about it was lost."""

LONGEST_VALIDITY = 30.0
"""Seconds for which a permit may be asked to be valid, where the store answers slowly."""

FORGET_LATENESS = 0.9
"""The factor by which that time becomes shorter with each permit that was used in time."""

PATIENCE = 5.0
"""Seconds that a request that could be granted waits for a slot. After that, another worker may have its task."""


class Permits:
    """The permits of all attempts of a process."""

    def __init__(self, store: StateStore, clock: Clock, time: StoreTime, alarms: Alarms, watcher: Watcher) -> None:
        """Ask for nothing until a step needs a permit."""
        self._store, self._clock, self._time, self._alarms, self._watcher = store, clock, time, alarms, watcher
        self._limits: dict[str, Limit] = {}
        self._limits_at = float("-inf")
        self._limited_queues: frozenset[str] = frozenset()
        """The queues that limit how many of their tasks are at work."""
        self._limited_queues_at = float("-inf")
        self._waiting: dict[StepRequest, None] = {}
        """In the order in which they came."""
        self._by_owner: dict[object, set[StepRequest]] = {}
        self._kept: list[Place] = []
        """Slots that became free, and are kept for requests until the next round."""
        self._is_reserving = False
        self._keep_none_before = float("-inf")
        self._watched: dict[str, tuple[int, Callable[[], None]]] = {}
        self._wake = asyncio.Event()
        self._asking: asyncio.Task[None] | None = None
        self._permits: dict[object, set[Permit]] = {}
        """Those that were granted and not given back, by their attempts."""
        self._valid_for = 0.0
        """Seconds for which permits have to be valid here; 0: as long as their limits say."""
        self._returns = PermitReturns(store)
        self._is_closed = False

    # Limits

    async def limits_of(self, keys: Collection[str]) -> list[Limit]:
        """Return the limits of these keys, as they were less than a second ago. Raises NotFound, or InvalidValue."""
        if not all(limit_name(key) in self._limits for key in keys):
            self._limits_at = float("-inf")
        await self._read_limits()
        refuse_unknown(keys, self._limits)
        return [self._limits[limit_name(key)] for key in keys]

    async def _read_limits(self) -> None:
        now = self._clock.boot()
        if now - self._limits_at >= LOOK_EVERY:
            limits = await call_store(self._store.limits, self._store.outage)
            self._limits, self._limits_at = {limit.name: limit for limit in limits}, now

    async def has_places(self, task: Task) -> bool:
        """Return whether a task has, while it works, a place that others may wait for: of a limit, or of its queue."""
        if task.limits:
            return True
        now = self._clock.boot()
        if now - self._limited_queues_at >= LOOK_EVERY:
            queues = await call_store(self._store.queue_settings, self._store.outage)
            self._limited_queues = frozenset(queue.name for queue in queues if queue.concurrency is not None)
            self._limited_queues_at = now
        return task.queue in self._limited_queues

    async def close_limits(self, keys: Sequence[str], until: datetime) -> None:
        """Let nothing begin with these keys before a time, in any process: a provider asked for that.

        Only with those whose limits count what begins in a time. If none of them does, with all of them.
        """
        limits = await self.limits_of(keys)
        timed = [key for key, limit in zip(keys, limits, strict=True) if limit.is_timed]
        await call_store(lambda: self._store.close_limit(timed or list(keys), until), self._store.outage)

    # Requests

    def ask(
        self,
        owner: object,
        place: Place,
        *,
        task_id: str,
        worker_id: str,
        keys: tuple[str, ...],
        tokens: int,
        lasts: float,
    ) -> StepRequest:
        """Ask for a permit. The answer comes in the futures of the request; ``withdraw`` ends it in any case."""
        if self._is_closed:
            raise StoreClosed("the store was closed before the step had its permit")
        loop = asyncio.get_running_loop()
        request = StepRequest(
            owner=owner,
            task_id=task_id,
            worker_id=worker_id,
            keys=keys,
            tokens=tokens,
            lasts=lasts,
            place=place,
            since=self._clock.boot(),
            answered=loop.create_future(),
            over=loop.create_future(),
        )
        self._waiting[request] = None
        self._by_owner.setdefault(owner, set()).add(request)
        for key in keys:
            self._watch(key)
        self._look()
        return request

    def withdraw(self, request: StepRequest) -> None:
        """End a request that needs no permit any more. One that it has, or still gets, is given back."""
        if request in self._waiting:
            self._forget(request)
            if request.is_in_line and not request.is_asking:
                self._leave_line(request)
        elif request.permit is not None:
            request.permit.end()

    def leave(self, owner: object) -> None:
        """Give back everything that an attempt has: it is over. What a call under way uses is kept until its end."""
        for request in list(self._by_owner.get(owner, ())):
            self.withdraw(request)
        for permit in list(self._permits.get(owner, ())):
            permit.end()

    def note_use(self, permit: Permit) -> bool:
        """Return whether a permit can be used; if it came too late, have the next ones be valid for longer.

        Otherwise, with a store that answers slowly, each permit of a limit of short times would be void when it comes.
        """
        took = self._clock.boot() - permit.asked_at
        if permit.is_void:
            self._valid_for = min(2 * took, LONGEST_VALIDITY)
            return False
        if self._valid_for:
            self._valid_for = min(max(self._valid_for * FORGET_LATENESS, 2 * took), LONGEST_VALIDITY)
        return True

    def waits_in(self, request: StepRequest) -> float:
        """Return in how many seconds it is worth to ask again, for a task that is taken off its worker meanwhile."""
        if request.again_at is not None:
            return self._time.seconds_until(request.again_at)
        return self._clock.boot() - request.since  # the longer the line was, the longer it may still be

    def _forget(self, request: StepRequest) -> None:
        if self._waiting.pop(request, self) is None:
            mine = self._by_owner[request.owner]
            mine.discard(request)
            if not mine:
                del self._by_owner[request.owner]
            for key in request.keys:
                self._unwatch(key)
            if not self._waiting:
                self._release_kept()

    def _leave_line(self, request: StepRequest) -> None:
        """Give back what the store may have noted for a request.

        A question whose answer was lost may still wait in the store for a lock: it is given back once more.
        """
        self._returns.put(request.id)
        if request.asked_at is not None:
            self._alarms.after(RETURN_AGAIN_AFTER, partial(self._returns.put, request.id))

    def _release_kept(self) -> None:
        """Leave the slots that were kept for requests to others."""
        kept, self._kept = self._kept, []
        for place in kept:
            place.release(1)

    def _watch(self, key: str) -> None:
        count, nudge = self._watched.get(key, (0, partial(self._hinted, key)))
        if count == 0:
            self._watcher.add(f"limit:{key}", nudge)
        self._watched[key] = count + 1, nudge

    def _unwatch(self, key: str) -> None:
        count, nudge = self._watched.pop(key)
        if count > 1:
            self._watched[key] = count - 1, nudge
        else:
            self._watcher.remove(f"limit:{key}", nudge)

    def _hinted(self, key: str) -> None:
        for request in self._waiting:
            if key in request.keys:
                request.is_due = True
        self._look()

    def slot_freed(self, slots: object) -> None:
        """Look again: a slot is free, for which requests may wait. They come before tasks in the queue."""
        if not self._waiting or self._is_closed or self._is_reserving:
            return
        for request in self._waiting:
            if request.lacks_slot_since is not None and request.place.slots is slots:
                if self._clock.boot() >= self._keep_none_before and request.place.free_slots:
                    request.place.reserve(1)
                    self._kept.append(request.place)
                self._look()
                return

    # Rounds

    def _look(self) -> None:
        self._wake.set()
        if self._waiting and (self._asking is None or self._asking.done()) and not self._is_closed:
            rounds = Loop(
                "holdfast-permits",
                self._turn,
                outage=self._store.outage,
                going=lambda: bool(self._waiting),
                sleep=self._alarms.sleep,
                hopeless=PERMANENT_ERRORS,
            )
            self._asking = asyncio.create_task(rounds.run(), name=rounds.name)
            self._asking.add_done_callback(self._asking_ended)

    def _asking_ended(self, asking: asyncio.Task[None]) -> None:
        error = None if asking.cancelled() else asking.exception()
        if error is not None or self._is_closed:
            why = error if isinstance(error, Exception) else StoreClosed("the store was closed before the answer came")
            for request in list(self._waiting):
                self._forget(request)
                request.finish(None, why)
        elif self._waiting:
            self._look()  # a request came in the turn in which the loop ended

    async def _turn(self) -> None:
        self._wake.clear()
        for request in [one for one in self._waiting if one.place.is_unwanted]:
            self._forget(request)
            if request.is_in_line:
                self._leave_line(request)
            request.finish(None)
        await self._round()
        if not self._waiting:
            return
        await asyncio.sleep(BETWEEN_ROUNDS)
        await self._alarms.wait(self._wake, self._seconds_to_next_look())

    def _seconds_to_next_look(self) -> float:
        now = self._clock.boot()
        least = min((request.look_at for request in self._waiting), default=now + LOOK_EVERY)
        return min(max(least - now, 0.0), LOOK_EVERY)

    async def _round(self) -> None:
        """Ask for all requests that are due and have a slot."""
        now = self._clock.boot()
        due = [request for request in self._waiting if request.is_due or request.look_at <= now]
        while due:
            batch, due = due[:MOST_ASKED], due[MOST_ASKED:]
            with ExitStack() as reserved:
                asked = self._reserve(batch, now, reserved)
                if asked:
                    await self._send(asked)
                if any(request.place.needs_slot and not request.over.done() for request in asked):
                    # In vain: for a moment tasks in the queue come first.
                    self._keep_none_before = self._clock.boot() + LET_OTHERS_CLAIM

    def _reserve(self, due: Iterable[StepRequest], now: float, slots: ExitStack) -> list[StepRequest]:
        """Return the requests that have slots, among them those that were kept for requests."""
        self._is_reserving = True
        try:
            self._release_kept()
            return list(self._with_slots(due, now, slots))
        finally:
            self._is_reserving = False

    def _with_slots(self, due: Iterable[StepRequest], now: float, slots: ExitStack) -> Iterator[StepRequest]:
        """Yield the requests that could begin now: their attempts have slots, or get those that are kept for them."""
        with_slot: set[object] = set()
        for request in due:
            place = request.place
            if request not in self._waiting:
                continue
            if place.needs_slot and request.owner not in with_slot:
                free = place.free_slots
                if free is not None and free <= 0:
                    self._lacks_slot(request, now)
                    continue
                place.reserve(1)
                slots.callback(place.release, 1)
                with_slot.add(request.owner)
            yield request

    def _lacks_slot(self, request: StepRequest, now: float) -> None:
        """Note that a request could perhaps be granted, but not used. After a while others come first."""
        request.look_at = now + GIVE_WAY_AFTER
        if not request.is_due and request.again_at is not None and self._time.seconds_until(request.again_at) > 0:
            return  # nothing has changed for it
        if request.lacks_slot_since is None:
            request.lacks_slot_since = now
        lacking = now - request.lacks_slot_since
        if lacking >= PATIENCE:
            self._forget(request)
            request.place.hand_back()
            request.finish(None)
        if request.is_in_line and lacking >= GIVE_WAY_AFTER:
            self._leave_line(request)
            request.become_new()

    async def _send(self, asked: Sequence[StepRequest]) -> None:
        await self._read_limits()
        asked = [request for request in asked if request in self._waiting and self._is_known(request)]
        if not asked:
            return
        before = self._clock.boot()
        for request in asked:
            request.is_asking, request.is_in_line, request.is_due = True, True, False  # a hint from now on counts
            request.asked_at = before if request.asked_at is None else request.asked_at
        try:
            valid_for = self._valid_for
            answers = await self._store.take_permits([request.as_stored(valid_for) for request in asked])
        except (NotFound, InvalidValue) as error:  # none of them was noted
            await self._send_apart(asked, error)
            return
        except BaseException:
            for request in asked:
                request.is_due = True  # the answer was lost: it is asked again
            raise
        finally:
            for request in asked:
                request.is_asking = False
                if request not in self._waiting:
                    self._leave_line(request)  # withdrawn meanwhile; the store may have granted it
        for request, answer in zip(asked, answers, strict=True):
            if request in self._waiting:
                self._take_answer(request, answer, valid_for)

    async def _send_apart(self, asked: Sequence[StepRequest], error: Exception) -> None:
        """Send requests one by one, because the store has refused one of them."""
        for request in asked:
            if len(asked) > 1:
                await self._send([request])
            elif request in self._waiting:
                self._forget(request)
                request.finish(None, error)

    def _is_known(self, request: StepRequest) -> bool:
        """Return whether the limits of a request are set; otherwise it ends with the error."""
        try:
            refuse_unknown(request.keys, self._limits)
        except HoldfastError as error:
            self._forget(request)
            request.finish(None, error)
            return False
        return True

    def _take_answer(self, request: StepRequest, answer: PermitAnswer, valid_for: float) -> None:
        asked_at, request.asked_at = request.asked_at or 0.0, None
        request.lacks_slot_since = None
        if answer.granted:
            self._forget(request)
            permit = self._granted(request, asked_at, valid_for)
            if request.place.needs_slot and not permit.is_void:
                request.place.take_slot()
            request.finish(permit)
        else:
            request.waits_for, request.again_at = answer.waits_for, answer.again_at
            request.look_at = self._next_look(answer.again_at)
            request.settle_first()

    def _next_look(self, again_at: datetime | None) -> float:
        """Return when a request is due again without a hint: all of them at the same moments, in few calls."""
        now = self._clock.boot()
        usual = (now // LOOK_EVERY + 1) * LOOK_EVERY
        if again_at is None:
            return usual
        return min(usual, now + max(self._time.seconds_until(again_at), BETWEEN_ROUNDS))

    def _granted(self, request: StepRequest, asked_at: float, valid_for: float) -> Permit:
        limits = [self._limits[limit_name(key)] for key in request.keys]
        usual = min(limit.validity for limit in limits).total_seconds()
        permit = Permit(
            request.id,
            request.owner,
            asked_at=asked_at,
            valid_for=max(usual, valid_for),
            clock=self._clock,
            give_back=self._ended,
        )
        self._permits.setdefault(request.owner, set()).add(permit)
        return permit

    def _ended(self, permit: Permit) -> None:
        mine = self._permits[permit.owner]
        mine.discard(permit)
        if not mine:
            del self._permits[permit.owner]
        self._returns.put(permit.id, permit.tokens)

    async def close(self) -> None:
        """Ask for nothing more, and send what is to be given back."""
        self._is_closed = True
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        await self._returns.close()
