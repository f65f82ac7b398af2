"""What an operator declares about a server's tool, and what the server's own hints change about it.

A server describes its own tools, so its hints are not trusted. They may make a call more careful, never less:
a hint raises the risk and the effect class that the operator declared, or leaves them as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from holdfast.engine.steps.call import Compensation
from holdfast.model.effect import EffectClass
from holdfast.model.errors import InvalidValue
from holdfast.model.retry import ErrorKind, Retry
from holdfast.model.risk import RiskLevel

_CAREFUL = (EffectClass.PURE, EffectClass.IDEMPOTENT, EffectClass.ONCE)
"""Each is more careful than the one before it."""


class OnError(StrEnum):
    """What it means for a ``once`` call that the tool itself reports a failure (``isError``)."""

    ANSWER = "answer"
    """The failure is the answer. The call is recorded with it and not made again; the model gets it."""
    ABSENT = "absent"
    """Nothing was done. Declare it of a tool whose errors are known to mean that."""
    DOUBT = "doubt"
    """It is unknown what was done: the call is in doubt, and settled like any other doubt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What is known about one tool of a server: ``Declared(risk="read_only")``.

    ``name`` is what the model calls it instead of the server's name and the prefix, ``description`` what it reads
    instead of the server's words. ``errors`` says what a failure that the tool itself reports means for a ``once``
    call: "answer", "absent" or "doubt". Everything else is as for ``@tool``; ``reconcile(effect_id, arguments)`` and
    ``compensate(result, arguments)`` get the arguments as one dict.
    """

    risk: RiskLevel | str = RiskLevel.EXTERNAL_ACTION
    effect: EffectClass | str | None = None
    name: str | None = None
    description: str | None = None
    errors: OnError | str = OnError.ANSWER
    retry: Retry | None = None
    timeout: float | timedelta | None = None
    reconcile: Callable[..., Any] | None = None
    settle: float | timedelta | None = None
    absent_on: tuple[ErrorKind, ...] | ErrorKind = ()
    compensate: Callable[..., Any] | Compensation | None = None
    repeat: bool = False

    def __post_init__(self) -> None:
        """Refuse values that are not valid here, and not only when the tool is found."""
        for what, given, kind in (
            ("risk", self.risk, RiskLevel),
            ("effect", self.effect, EffectClass),
            ("errors", self.errors, OnError),
        ):
            if given is not None and given not in list(kind):
                raise InvalidValue(f"{what} is {given!r}; choose one of {', '.join(kind)}")

    @property
    def effect_class(self) -> EffectClass:
        """The declared class; without one, ``pure`` for what only reads and ``once`` for everything else."""
        if self.effect is not None:
            return EffectClass(self.effect)
        return EffectClass.PURE if self.risk == RiskLevel.READ_ONLY else EffectClass.ONCE


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolHints:
    """What a server says about a tool; None where it says nothing."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


def tightened(risk: RiskLevel, effect: EffectClass, hints: ToolHints) -> tuple[RiskLevel, EffectClass]:
    """Return the declared risk and effect class, raised where the server's own hints are worse.

    Only explicit hints count, not the protocol's defaults: by those every tool without hints would be destructive, and
    a declaration worth nothing.
    """
    least_risk, least_effect = RiskLevel.READ_ONLY, EffectClass.PURE
    if _changes_something(hints):
        is_far = bool(hints.destructive or hints.open_world)
        least_risk = RiskLevel.EXTERNAL_ACTION if is_far else RiskLevel.WRITE_LOCAL
        least_effect = EffectClass.IDEMPOTENT if hints.idempotent else EffectClass.ONCE
    return max(risk, least_risk), max(effect, least_effect, key=_CAREFUL.index)


def _changes_something(hints: ToolHints) -> bool:
    if hints.read_only is False or hints.destructive is True:
        return True  # destructive and read-only contradict each other: the worse one counts
    # A tool that only reads is often marked "not idempotent" as well, by authors who fill in every field.
    return hints.idempotent is False and hints.read_only is None
