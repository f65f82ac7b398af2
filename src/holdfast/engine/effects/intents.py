"""The effects of one attempt: how each stands, which were armed here, and what code goes with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from holdfast.engine.steps.call import Call
from holdfast.model.effect import Effect, EffectState
from holdfast.model.operations import Operation, WriteEffect

_S = EffectState


class Intents:
    """What an attempt knows of its task's effects. Armed counts only if it was armed by this very attempt."""

    __slots__ = ("_armed", "_dispatched", "_taken_back", "calls", "carried", "effects")

    def __init__(self) -> None:
        """Start without any: most tasks never have one."""
        self.effects: dict[str, Effect] = {}
        """As they are stored, by id."""
        self.carried: dict[str, Effect] = {}
        """Armed by the Commit of an earlier step, for a call that comes next."""
        self.calls: dict[str, Call] = {}
        """The code's own steps, by key: how to ask about them and how to undo them."""
        self._armed: set[str] = set()
        self._dispatched: set[tuple[str, int]] = set()
        self._taken_back: set[tuple[str, int]] = set()

    def note(self, effect: Effect) -> None:
        """Remember what was just stored by this attempt."""
        self.effects[effect.effect_id] = effect
        if effect.state is _S.ARMED:
            self._armed.add(effect.effect_id)
        else:
            self._armed.discard(effect.effect_id)

    def dispatch(self, effect: Effect) -> bool:
        """Note, right before it is made, that a call may have been made; False: it was taken back meanwhile.

        Asked in the thread of a blocking call, while the loop may be taking it back. Each of the two first says what it
        is about to do and then looks at what the other one said: at least one of them sees it.
        """
        call = (effect.effect_id, effect.attempt)
        self._dispatched.add(call)
        if call in self._taken_back:
            self._dispatched.discard(call)
            return False
        return True

    def _take_back(self, effect: Effect) -> bool:
        """Have a call not made any more; False if it may have been made."""
        call = (effect.effect_id, effect.attempt)
        self._taken_back.add(call)
        return call not in self._dispatched

    def was_dispatched(self, effect: Effect) -> bool:
        """Say whether this attempt made the call."""
        return (effect.effect_id, effect.attempt) in self._dispatched

    def loose_ends(self, concerns: Callable[[str], bool]) -> tuple[Operation, ...]:
        """Return what has to be written about effects that are not through, of the steps with these keys."""
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
