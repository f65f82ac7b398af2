"""Effect: what a step did to the world, and what is known about it.

    intended --arm--> armed --> done | failed(proof) | in_doubt
    in_doubt --after settle_at--> done (happened) | intended, same id (absent) | needs_human (unknown)
    needs_human --a person--> done | intended | compensating | abandoned
    done --> compensating --> compensated | needs_human        (never back to intended)

An effect that is armed under a fence older than the task's is in doubt: the worker that armed it can no longer record
the outcome. In every settled state, late evidence to the contrary makes the effect in_doubt again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from holdfast.model.checks import check_moment, check_name


class EffectClass(StrEnum):
    """How often a call may be made."""

    PURE = "pure"
    """Run again freely."""
    IDEMPOTENT = "idempotent"
    """Run again with the same effect id."""
    ONCE = "once"
    """Never blindly again."""


class EffectState(StrEnum):
    """What is known about an effect."""

    INTENDED = "intended"
    ARMED = "armed"
    DONE = "done"
    FAILED = "failed"
    IN_DOUBT = "in_doubt"
    NEEDS_HUMAN = "needs_human"
    COMPENSATING = "compensating"
    COMPENSATED = "compensated"
    ABANDONED = "abandoned"


_S = EffectState

UNKNOWN_OUTCOME = frozenset({_S.ARMED, _S.IN_DOUBT, _S.NEEDS_HUMAN})
"""The states of a call that may or may not have happened."""

NOT_MADE = frozenset({_S.INTENDED, _S.FAILED})
"""The states of a call that certainly did not happen."""

EFFECT_MOVES: Mapping[EffectState | None, frozenset[EffectState]] = MappingProxyType(
    {
        None: frozenset({_S.INTENDED, _S.ARMED, _S.DONE}),
        _S.INTENDED: frozenset({_S.ARMED, _S.ABANDONED, _S.IN_DOUBT}),
        _S.ARMED: frozenset({_S.DONE, _S.FAILED, _S.IN_DOUBT}),
        _S.FAILED: frozenset({_S.INTENDED, _S.ARMED, _S.ABANDONED, _S.IN_DOUBT}),
        _S.IN_DOUBT: frozenset({_S.DONE, _S.INTENDED, _S.NEEDS_HUMAN}),
        _S.NEEDS_HUMAN: frozenset({_S.DONE, _S.INTENDED, _S.COMPENSATING, _S.ABANDONED}),
        _S.DONE: frozenset({_S.COMPENSATING, _S.IN_DOUBT}),
        _S.COMPENSATING: frozenset({_S.COMPENSATED, _S.NEEDS_HUMAN}),
        _S.COMPENSATED: frozenset({_S.IN_DOUBT}),
        _S.ABANDONED: frozenset({_S.IN_DOUBT}),
    }
)
"""Allowed moves; None is an effect not yet stored. Settled states reopen only as doubt, when evidence contradicts.

An idempotent step that can be undone goes from None straight to DONE: it needs no intent, only a record for its undo.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One call's intent and outcome. Its id is the idempotency key handed to the tool."""

    effect_id: str
    step_key: str
    effect_class: EffectClass
    state: EffectState
    round: int = 1
    fence: int = 0
    attempt: int = 1
    arguments: bytes = b"null"
    """Exactly what was chosen before dispatch; a replay never chooses other arguments."""
    arguments_hash: str = ""
    approval_id: str | None = None
    dispatch_by: datetime | None = None
    settle_at: datetime | None = None
    """Before this moment "absent" proves nothing: the call may still be on its way."""
    result: bytes | None = None
    """Set when it did not come from the call itself, but from a reconcile, evidence or a person. A call's own result is
    the output of its step."""
    note: str | None = None
    compensable: bool = False
    """Its step named a way to undo it."""
    thread_of: str | None = None
    """The worker in whose thread the call runs. A thread cannot be stopped: "absent" proves nothing while it may go
    on."""
    updated_at: datetime | None = None
    task_id: str = ""
    """Filled in by the store; a Commit's effects belong to the Commit's task."""

    def __post_init__(self) -> None:
        """Reject ids and times that a store could not hold."""
        check_name("effect id", self.effect_id)
        check_moment("dispatch_by", self.dispatch_by)
        check_moment("settle_at", self.settle_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A late result from a fenced worker: insert-only; it changes no state and is read before any decision."""

    task_id: str
    effect_id: str
    fence: int
    body: bytes
    at: datetime | None = None
