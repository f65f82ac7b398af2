"""The effects of one attempt: their records, which of them it armed, and the code that belongs to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from holdfast.engine.steps.call import Call
from holdfast.model.effect import Effect, EffectState
from holdfast.model.operations import Operation, WriteEffect

_S = EffectState


class Intents:
    """What an attempt knows of its task's effects. An effect counts as armed only if this attempt armed it."""

    __slots__ = ("_armed", "_dispatched", "_taken_back", "calls", "carried", "effects")

    def __init__(self) -> None:
        """Start without any: most tasks never have one."""
        self.effects: dict[str, Effect] = {}
        """The stored effects, by id."""
        self.carried: dict[str, Effect] = {}
        """Effects armed by the Commit of an earlier step, for calls that come next."""
        self.calls: dict[str, Call] = {}
        """The code's own steps, by key: how to reconcile them and how to undo them."""
        self._armed: set[str] = set()
        self._dispatched: set[tuple[str, int]] = set()
        self._taken_back: set[tuple[str, int]] = set()

    def note(self, effect: Effect) -> None:
        """Remember an effect that this attempt has just stored."""
        self.effects[effect.effect_id] = effect
        if effect.state is _S.ARMED:
            self._armed.add(effect.effect_id)
        else:
            self._armed.discard(effect.effect_id)

    def dispatch(self, effect: Effect) -> bool:
        """Note, right before a call, that it may have been made. Return False if it was taken back meanwhile.

        A blocking call runs this in its thread, while the event loop may take the call back. Each side first records
        what it is about to do, and then reads the record of the other side. So at least one of them sees the other.
        """
        call = (effect.effect_id, effect.attempt)
        self._dispatched.add(call)
        if call in self._taken_back:
            self._dispatched.discard(call)
            return False
        return True

    def _take_back(self, effect: Effect) -> bool:
        """Prevent a call; return False if it may have been made already."""
        call = (effect.effect_id, effect.attempt)
        self._taken_back.add(call)
        return call not in self._dispatched

    def was_dispatched(self, effect: Effect) -> bool:
        """Return whether this attempt made the call."""
        return (effect.effect_id, effect.attempt) in self._dispatched

    def unfinished(self, concerns: Callable[[str], bool]) -> tuple[Operation, ...]:
        """Return what must be written about unfinished effects of steps whose keys ``concerns`` accepts."""
        operations: list[Operation] = []
        for effect in self.effects.values():
            if effect.state is not _S.ARMED or not concerns(effect.step_key):
                continue
            if effect.effect_id in self._armed and self._take_back(effect):
                operations.append(WriteEffect(replace(effect, state=_S.FAILED, note="the call was not made")))
            else:
                note = effect.note or "stopped before its outcome was known"
                operations.append(WriteEffect(replace(effect, state=_S.IN_DOUBT, note=note)))
        return tuple(operations)
