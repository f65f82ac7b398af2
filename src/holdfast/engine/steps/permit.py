"""The permit of a step under limits: taken after its slot, and before anything is armed or called.

While there is no permit, the branch is parked. The task is not suspended for that: it gives its slot back, and stays on
its worker. It does not ask for itself: see ``runtime/permits.py``.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import Any

from holdfast.engine.attempt.limit_line import end_waiting
from holdfast.engine.attempt.scope import SCOPE, Scope
from holdfast.engine.attempt.step_owner import StepOwner
from holdfast.engine.runtime import log
from holdfast.engine.runtime.permit import Permit
from holdfast.engine.runtime.permit_request import StepRequest
from holdfast.engine.steps.call import DEFAULT_SETTLE, DEFAULT_TIMEOUT, Call
from holdfast.model.errors import HoldfastError, InvalidValue
from holdfast.model.failure import raised_by_code
from holdfast.model.flow_limit import LONGEST, MOST, Limit
from holdfast.model.operations import WriteStep
from holdfast.model.retry import read_retry_after

LONGEST_CLOSING = timedelta(hours=1)
"""A provider that asks for a longer pause closes its limit for so long. Then the next call asks again."""

BUSY = frozenset({429, 503})
"""The answers of a provider that wants no more calls: too many requests; service unavailable."""


class StepPlace:
    """Where the step of a request is: on its worker, with a slot or without one."""

    __slots__ = ("_attempt", "_is_bound", "slots")

    def __init__(self, attempt: StepOwner, scope: Scope) -> None:
        """``scope`` is the place of the step in the journal."""
        self._attempt = attempt
        self._is_bound = scope.is_once or attempt.undoing is not None
        self.slots = attempt.residence.slots

    @property
    def needs_slot(self) -> bool:
        """Whether the attempt has given its slot back."""
        return self.slots.is_resting(self._attempt)

    @property
    def free_slots(self) -> int | None:
        """How many slots of the worker nothing has; None: any number."""
        return self.slots.free

    def reserve(self, count: int) -> None:
        """Keep so many of the slots free."""
        self.slots.keep(count)

    def release(self, count: int) -> None:
        """Leave so many of the kept slots to others."""
        self.slots.let_go(count)

    def take_slot(self) -> None:
        """Let the attempt have a slot again."""
        self.slots.wake(self._attempt)

    @property
    def is_unwanted(self) -> bool:
        """Whether nothing must begin: the task is paused, or is being stopped."""
        attempt = self._attempt
        return attempt.over or attempt.stopping is not None or self.is_paused

    @property
    def is_paused(self) -> bool:
        """Whether the task is paused. What is inside a ``once`` step goes on."""
        return self._attempt.standstill.since is not None and not self._is_bound

    def hand_back(self) -> None:
        """Hand the task back: another worker may have a free slot."""
        self._attempt.hand_back()


def begin_try(attempt: StepOwner, call: Call) -> Coroutine[Any, Any, None]:
    """Return only when the next try of a call may begin: with a slot, and with a permit if it needs one."""
    return obtain(attempt, call) if call.limits else attempt.begin_work()


async def obtain(attempt: StepOwner, call: Call) -> None:
    """Get a permit for the next try of a call. Then the attempt has a slot as well, and the task is not paused.

    Raises NotFound, or InvalidValue, before anything is done, for a limit that was never set, or that the call can
    never have.
    """
    limits = await attempt.services.permits.limits_of(call.limits)
    scope = SCOPE.get(attempt.scope)
    _refuse_what_is_held(call, limits, scope)
    if call.timeout is None and any(limit.concurrency is not None for limit in limits):
        call.timeout = DEFAULT_TIMEOUT  # otherwise a permit of a lost call would be kept for ever
    while True:
        await attempt.begin_work()
        if call.prepare is not None:
            await call.prepare()
        place = StepPlace(attempt, scope)
        permit = await _ask(attempt, call, place)
        if permit is None:
            continue
        if not attempt.services.permits.note_use(permit):
            permit.end()
            continue
        try:
            # It works again, if it has rested. A permit that waits for a place would keep others from theirs.
            has_place = await attempt.residence.has_place()
            if has_place:
                await attempt.check()
            is_usable = has_place and attempt.services.permits.note_use(permit) and not place.is_paused
        except BaseException:
            permit.end()
            raise
        if is_usable:
            call.permit = permit
            return
        permit.end()


async def _ask(attempt: StepOwner, call: Call, place: StepPlace) -> Permit | None:
    """Return a permit, after waiting for it without a slot. None: the task is paused, or being stopped."""
    permits, settle = attempt.services.permits, DEFAULT_SETTLE if call.terms is None else call.terms.settle
    request: StepRequest = permits.ask(
        attempt,
        place,
        task_id=attempt.task.id,
        worker_id=attempt.lease.worker_id,
        keys=call.limits,
        tokens=min(call.tokens, MOST),
        lasts=min((DEFAULT_TIMEOUT if call.timeout is None else call.timeout) + settle, LONGEST.total_seconds()),
    )
    try:
        with attempt.under_way.busy():  # with a free permit, it costs no slot
            await request.answered
        if not request.over.done():
            await attempt.residence.waiting_branches().stay(request, lambda: permits.waits_in(request))
        if request.error is not None:
            raise request.error
        permit, request.permit = request.permit, None
        return permit
    finally:
        permits.withdraw(request)
        if not attempt.over:
            attempt.outbox.buffer(*map(WriteStep, end_waiting(attempt)))


def _refuse_what_is_held(call: Call, limits: Sequence[Limit], scope: Scope) -> None:
    """Refuse a key that a step around this one has a permit for: the call would wait for its own end."""
    for key, limit in zip(call.limits, limits, strict=True):
        if limit.concurrency is not None and (holder := scope.holder_of(key)) is not None:
            raise InvalidValue(
                f"step {call.key!r} needs limit {key!r}, which step {holder!r} around it has already: it could "
                "wait for itself for ever. Leave the limit to one of the two"
            )


async def close_limits(attempt: StepOwner, call: Call, error: Exception) -> None:
    """Close the limits of a call for all processes, if its provider has asked to be called later."""
    seconds = pause_asked_for(error) if call.limits else None
    if seconds is None:
        return
    pause = min(timedelta(seconds=seconds), LONGEST_CLOSING)
    try:
        await attempt.services.permits.close_limits(call.limits, attempt.services.time.now() + pause)
    except HoldfastError as failed:
        log.limits_not_closed(attempt.task, call.key, failed)


def pause_asked_for(error: BaseException) -> float | None:
    """Return for how many seconds the provider wants no more calls; None if it did not say so in a Retry-After.

    The status is read from where the usual libraries have it: ``status``, ``status_code``, or that of ``response``.
    """
    error = raised_by_code(error)
    response = getattr(error, "response", None)
    places = ((error, "status"), (error, "status_code"), (response, "status_code"), (response, "status"))
    found = [getattr(place, name, None) for place, name in places]
    if not any(isinstance(status, int) and status in BUSY for status in found):
        return None
    return read_retry_after(error) or None
