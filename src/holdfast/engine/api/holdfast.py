"""Holdfast: the main object of an application."""

from __future__ import annotations

from typing import Any

from holdfast.engine.api.async_holdfast import AsyncHoldfast
from holdfast.engine.api.sync.holdfast import SyncHoldfast
from holdfast.model.clock import Clock


class Holdfast(AsyncHoldfast):
    """Define tasks, submit them, run them, query them.

    ``async with hold:`` opens the store. Blocks may be nested within one event loop, and the store may be opened again
    after it was closed.
    """

    def __init__(self, url: str | None = None, *, clock: Clock | None = None, **options: Any) -> None:  # noqa: ANN401
        """Create it for the store at this URL.

        Without ``url`` it comes from ``HOLDFAST_DATABASE_URL``, or the nearest holdfast.toml, or is
        ``sqlite:///holdfast.db``. ``options`` go to the store, for example ``schema=`` for PostgreSQL.
        """
        super().__init__(url, clock=clock, **options)
        self._sync = SyncHoldfast(self)

    @property
    def sync(self) -> SyncHoldfast:
        """The same for blocking code: ``with hold.sync as h: h.submit(deploy, "billing").result(timeout=60)``."""
        return self._sync
