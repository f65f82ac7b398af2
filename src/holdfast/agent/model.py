"""Model: the small protocol that every language model implements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from holdfast.model.errors import HoldfastError
from holdfast.model.message import Message, Reply, ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call of a model."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_output_tokens: int | None = None
    """The most tokens the reply may have, by the rest of the budget."""
    effect_id: str | None = None
    """Stable over retries and restarts: an idempotency key for endpoints that support one."""
    turn: int | None = None
    """How many answers this conversation has had, including those that were compacted out of ``messages``."""


@runtime_checkable
class Model(Protocol):
    """A language model, or anything that answers like one."""

    @property
    def name(self) -> str:
        """Its name; prices are looked up by it."""

    async def complete(self, request: Request, on_text: Callable[[str], None]) -> Reply:
        """Return the complete answer. ``on_text`` gets pieces of the text as they arrive.

        ``note_unseen`` takes text that is not shown. Raises ModelError if there is no complete answer, also for a cut
        or silent stream.
        """


def note_unseen(on_text: Callable[[str], None], text: str) -> None:
    """Count text of a model that is not shown, such as reasoning and the arguments of a tool call.

    An agent's ``on_text`` counts it, so that a cut stream costs what had arrived. Other ``on_text`` functions need not.
    """
    count = getattr(on_text, "unseen", None)
    if count is not None:
        count(text)


class ModelError(HoldfastError):
    """The model gave no answer, or no complete one. Another try may help."""

    def __init__(self, message: str, *, status: int | None = None, retry_after: float | None = None) -> None:
        """``status`` is the HTTP status; ``retry_after`` is how many seconds the endpoint asks the caller to wait."""
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class ModelRefused(ModelError):
    """The endpoint refused the request itself: a wrong key, an unknown model, bad input. Another try will not help."""


class ModelUnreachable(ModelError):
    """There is no connection to the endpoint: nothing was sent or paid. The agent retries for a long time."""


# Recorded errors have the name that users import: the module may move, the name may not.
for _error in (ModelError, ModelRefused, ModelUnreachable):
    _error.__module__ = "holdfast"
