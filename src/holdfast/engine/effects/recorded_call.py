"""The records of a ``once`` step before it does anything, and which call of an earlier round it takes over."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.engine.attempt.step_owner import StepOwner
from holdfast.engine.steps.call import Call, Terms, digest_of, effect_id
from holdfast.engine.steps.one_try import failure_of
from holdfast.model.canonical import digest
from holdfast.model.effect import NOT_MADE, UNKNOWN_OUTCOME, Effect, EffectClass, EffectState
from holdfast.model.errors import JournalMismatch, StepFailed
from holdfast.model.step import Step, StepState

IN_DOUBT = "in doubt"
"""Marks, in a step's line, an error that left it unknown whether the call happened."""

_S = EffectState
_BEGINS_AGAIN = NOT_MADE | {_S.COMPENSATED}
"""States of an effect of an earlier round after which this round makes an effect of its own."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """What the journal and the effects contain about a step."""

    recorded: Step | None
    """Its line in this round."""
    effect_id: str
    effect: Effect | None
    """The stored effect; None: there is none yet."""
    error: Exception | None
    """What the call raised, while it is in doubt, as recorded in the journal."""


def look_up(attempt: StepOwner, call: Call, terms: Terms, arguments: bytes) -> CallRecord:
    """Return the records of a step. Raises JournalMismatch if they are, or may be, of another call."""
    task, recorded = attempt.task, attempt.find(call.key, call.kind)
    if recorded is not None and recorded.undone_at is not None:
        # Done again after an undo: another effect, independent of the first one.
        return CallRecord(
            recorded, effect_id(task.id, task.round, call.key, after=recorded.effect_id or ""), None, None
        )
    if recorded is not None and recorded.effect_id is not None:
        is_carried = recorded.effect_id in attempt.intents.carried
        effect = None if is_carried else attempt.intents.effects.get(recorded.effect_id)
        _check_identity(attempt, call, recorded, effect, digest(arguments))
        return CallRecord(recorded, recorded.effect_id, effect, _error_in_doubt(call.key, recorded))
    earlier = None if terms.repeat else _earlier(attempt, call, arguments)
    if earlier is not None and earlier.effect_id is not None and earlier.undone_at is None:
        effect = attempt.intents.effects.get(earlier.effect_id) or _effect_of_origin(call, earlier)
        if effect is not None and effect.state not in _BEGINS_AGAIN:
            _check_identity(attempt, call, earlier, effect, digest(arguments))
            return CallRecord(recorded, earlier.effect_id, effect, None)
    return CallRecord(recorded, effect_id(task.id, task.round, call.key), None, None)


def unsettled_until(attempt: StepOwner, effect: Effect | None, key: str, arguments_hash: str) -> datetime | None:
    """Return when a call settles that a person decided to be absent: until then it may still take effect.

    In a new round the step makes another call, with another effect id. So such a call is found by key and by arguments.
    """
    known = [] if effect is None else [effect]
    if attempt.task.round > 1:
        known += [
            one
            for one in attempt.intents.effects.values()
            if one.step_key == key or one.arguments_hash == arguments_hash
        ]
    moments = [one.settle_at for one in known if one.state is _S.INTENDED and one.settle_at is not None]
    latest = max(moments, default=None)
    return None if latest is None or latest <= attempt.services.time.now() else latest


def _earlier(attempt: StepOwner, call: Call, arguments: bytes) -> Step | None:
    """Return the line of an earlier round that may be the same call.

    That is the line with the same key, or one with the same name and the same arguments. If a call under the same key
    had other arguments, it is another call in a round with other input; in any other round it is a mismatch.
    """
    journal, key = attempt.journal, call.stands_for or call.key
    if attempt.task.round == 1:
        return None
    fingerprints = {digest(arguments), digest_of(call.args)} - {""}

    def counts(step: Step) -> bool:
        effect = attempt.intents.effects.get(step.effect_id or "") or _effect_of_origin(call, step)
        is_made = effect is not None and effect.state not in _BEGINS_AGAIN
        return step.kind == call.kind and step.undone_at is None and is_made

    if (made := journal.made_before(call.name or key, key, fingerprints, counts)) is not None:
        return made
    same_key = journal.earlier(key)
    if same_key is None or journal.is_reserved(same_key, key):
        return None
    if not journal.has_other_input:
        return same_key
    effect = attempt.intents.effects.get(same_key.effect_id or "")
    if effect is not None and effect.state in UNKNOWN_OUTCOME and effect.arguments_hash not in fingerprints:
        attempt.fatal = JournalMismatch(
            f"step {key!r} of task {attempt.task.id} was called with other arguments in an earlier round, and it is "
            "not known yet whether that call happened. Decide it (hold.doubts, hold.resolve), then resume the task"
        )
        raise attempt.fatal
    return None


def _effect_of_origin(call: Call, step: Step) -> Effect | None:
    """Return an effect for a call of the task that this one was forked from. It is never stored."""
    if step.state is not StepState.COMPLETED or step.kind != call.kind or step.effect_id is None:
        return None
    return Effect(effect_id=step.effect_id, step_key=step.key, effect_class=EffectClass.ONCE, state=_S.DONE)


def _check_identity(attempt: StepOwner, call: Call, step: Step, effect: Effect | None, fingerprint: str) -> None:
    """Refuse other arguments under the same key. An intent that was carried, but not used, does not count."""
    carried = "" if effect is None or effect.state in NOT_MADE else effect.arguments_hash
    if (step.digest or carried) in {fingerprint, digest_of(call.args), ""}:
        return
    if _effect_of_origin(call, step) is not None and step.effect_id not in attempt.intents.effects:
        again = "The task that this one was forked from made it: pass the same arguments, or fork before that step"
    elif step.round != attempt.task.round:
        again = "Give the new call another name, or pass repeat=True to do it in each round"
    else:
        again = "Restore the old arguments and resume the task, or start it over with hold.retry"
    attempt.fatal = JournalMismatch(
        f"step {call.key!r} of task {attempt.task.id} was recorded with other arguments than the code now passes: "
        f"it would not be known which of the two calls was made. {again}"
    )
    raise attempt.fatal


def _error_in_doubt(key: str, recorded: Step) -> Exception | None:
    if recorded.error is None or recorded.state is not StepState.PENDING:
        return None
    failure = failure_of(recorded)
    return StepFailed(failure, step=key) if failure.reason == IN_DOUBT else None
