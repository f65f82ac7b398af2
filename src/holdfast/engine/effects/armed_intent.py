"""The armed intent of a ``once`` call: the record that the call may be made from now on."""

from __future__ import annotations

from datetime import timedelta

from holdfast.engine.attempt.step_owner import StepOwner
from holdfast.engine.steps.call import DEFAULT_TIMEOUT, Call
from holdfast.model.canonical import digest
from holdfast.model.effect import Effect, EffectClass, EffectState

DISPATCH_WITHIN = 1.0
"""Seconds between the arming of an effect and the last moment at which it may be dispatched.

Short, because a take-over has to wait until this time is over. If the store takes longer to answer, the effect is armed
again, with more time.
"""


def arming(attempt: StepOwner, call: Call, identifier: str, arguments: bytes, *, patience: float) -> Effect:
    """Return the intent of a call, to be written right before it."""
    assert call.terms is not None  # noqa: S101 - asked for only of once steps
    dispatch_by = attempt.services.time.now() + timedelta(seconds=patience)
    timeout = DEFAULT_TIMEOUT if call.timeout is None else call.timeout
    return Effect(
        effect_id=identifier,
        step_key=call.key,
        effect_class=EffectClass.ONCE,
        state=EffectState.ARMED,
        round=attempt.task.round,
        fence=attempt.task.fence,
        arguments=arguments,
        arguments_hash=digest(arguments),
        dispatch_by=dispatch_by,
        settle_at=dispatch_by + timedelta(seconds=timeout + call.terms.settle),
        compensable=call.terms.compensate is not None,
    )


def span(effect: Effect) -> timedelta:
    """Return how long after the last moment of its dispatch the outcome of a call is settled."""
    assert effect.settle_at is not None  # noqa: S101 - an armed effect has both
    assert effect.dispatch_by is not None  # noqa: S101
    return effect.settle_at - effect.dispatch_by
