"""Declaring what a function does to the world: how often it may be called, how to find out, how to undo it.

    @effect("once")
    def send_mail(address: str, text: str, *, effect_id: str) -> str: ...

    @send_mail.reconciled_by
    def was_sent(effect_id: str, address: str, text: str) -> Outcome: ...

    await ctx.step("notify", send_mail, "ann@example.org", "It is done.")

``ctx.step`` reads the attributes ``effect``, ``reconcile`` and ``compensate`` of its function; arguments of the step
itself take precedence.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar, cast

from holdfast.model.doubt import Outcome
from holdfast.model.effect import EffectClass
from holdfast.model.errors import InvalidValue

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

Reconcile: TypeAlias = Callable[..., Outcome | Awaitable[Outcome]]
"""``reconcile(effect_id, *args)``: did it happen? If it raises, it is called again a few times."""
Compensate: TypeAlias = Callable[..., Any]
"""``compensate(result, *args)``: undo it."""

_Reconcile = TypeVar("_Reconcile", bound=Reconcile)
_Compensate = TypeVar("_Compensate", bound=Compensate)


class Probed(Generic[P, R]):
    """A function with a declared effect. Calling it calls the function."""

    __name__: str

    def __init__(
        self,
        function: Callable[P, R],
        *,
        effect: EffectClass,
        reconcile: Reconcile | None = None,
        compensate: Compensate | None = None,
    ) -> None:
        """Made by ``effect``."""
        functools.update_wrapper(self, function)
        # The engine reads the type of the result here; since Python 3.14 update_wrapper does not copy it.
        self.__annotations__ = function.__annotations__
        self.function = function
        self.effect = effect
        self.reconcile = reconcile
        self.compensate = compensate

    def __repr__(self) -> str:
        """Return the function's name and its declared effect."""
        return f"<{self.effect} effect {getattr(self.function, '__qualname__', self.function)}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself: nothing is stored."""
        return self.function(*args, **kwargs)

    def reconciled_by(self, function: _Reconcile) -> _Reconcile:
        """Use ``function(effect_id, *args)`` to find out whether it happened."""
        self.reconcile = function
        return function

    def compensated_by(self, function: _Compensate) -> _Compensate:
        """Use ``function(result, *args)`` to undo it."""
        self.compensate = function
        return function


class _ProbedCoroutine(Probed[P, Coroutine[Any, Any, T]]):
    """The same for an ``async`` function. ``__call__`` is ``async`` too: callers check that to recognise one."""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.function(*args, **kwargs)


def effect(
    kind: EffectClass | str,
    *,
    reconcile: Reconcile | None = None,
    compensate: Compensate | None = None,
) -> Callable[[Callable[P, R]], Probed[P, R]]:
    """Declare a function's effect: "pure", "idempotent" or "once"."""
    try:
        declared = EffectClass(kind)
    except ValueError:
        raise InvalidValue(f"there is no effect {kind!r}; choose one of {', '.join(EffectClass)}") from None

    def declare(function: Callable[P, R]) -> Probed[P, R]:
        if not inspect.iscoroutinefunction(function):
            return Probed(function, effect=declared, reconcile=reconcile, compensate=compensate)
        probed = _ProbedCoroutine(function, effect=declared, reconcile=reconcile, compensate=compensate)
        return cast("Probed[P, R]", probed)

    return declare
