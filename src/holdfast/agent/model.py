"""Model: the small protocol behind which every language model stands."""

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
    """The most the reply may take; what the budget has left."""
    effect_id: str | None = None
    """Stable over retries and restarts: an idempotency key for endpoints that know one."""
    turn: int | None = None
    """How many answers this conversation has had, those included that were compacted out of ``messages``."""


@runtime_checkable
class Model(Protocol):
    """A language model, or anything that answers like one."""

    @property
    def name(self) -> str:
        """What it is called; prices are looked up by it."""

    async def complete(self, request: Request, on_text: Callable[[str], None]) -> Reply:
        """Answer, whole. ``on_text`` is told pieces of the text as they come; ``note_unseen`` takes what is not shown.

        Raises ModelError for whatever keeps it from answering, a cut or silent stream included.
        """


def note_unseen(on_text: Callable[[str], None], text: str) -> None:
    """Count text that a model has sent and that is not shown, such as reasoning and the arguments of a tool call.

    An agent's ``on_text`` counts it, so that a stream that is cut costs what had arrived. Any other one needs not to.
    """
    count = getattr(on_text, "unseen", None)
    if count is not None:
        count(text)


class ModelError(HoldfastError):
    """The model did not answer, or not to its end. Trying again may help."""

    def __init__(self, message: str, *, status: int | None = None, retry_after: float | None = None) -> None:
        """``status`` is HTTP's; ``retry_after`` the seconds the endpoint asks us to wait."""
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class ModelRefused(ModelError):
    """The endpoint refused the request itself: a wrong key, no such model, bad input. Trying again will not help."""


class ModelUnreachable(ModelError):
    """There is no connection to the endpoint: nothing was sent, nothing was paid. It is tried again for a long time."""


# Named as users import them, in what is recorded of an error too: the module may move, the name may not.
for _error in (ModelError, ModelRefused, ModelUnreachable):
    _error.__module__ = "holdfast"
