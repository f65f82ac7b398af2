"""/healthz and /readyz: for the programs that start, restart and route to the server.

Both are open to everyone, so they give no details: the server's log has what exactly is wrong.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse

from holdfast.model.errors import HoldfastError, SchemaMismatch, StoreUnavailable
from holdfast.redaction import make_logger
from holdfast.service.service import Service

_log = make_logger(__name__)

PATIENCE: Final = 2.0
"""Seconds in which a healthy store answers; probes give up soon after."""
FRESH: Final = 1.0
"""Seconds for which an answer is cached, so that many probes do not load the store."""


async def alive(request: Request) -> JSONResponse:
    """Answer that the process is alive."""
    del request
    return JSONResponse({"status": "ok"})


class Readiness:
    """Whether the store answers, and has the schema of this version."""

    def __init__(self, service: Service, *, clock: Callable[[], float] = time.monotonic) -> None:
        """``service`` is open."""
        self._service, self._clock = service, clock
        self._turn = asyncio.Lock()
        self._trouble: str | None = None
        self._looked_at: float | None = None

    async def ready(self, request: Request) -> JSONResponse:
        """Answer whether requests would be served."""
        del request
        trouble = await self.trouble()
        if trouble is None:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "unavailable", "reason": trouble}, status_code=503)

    async def trouble(self) -> str | None:
        """Return what is wrong with the store, without details; None if nothing is."""
        async with self._turn:
            if self._looked_at is None or self._clock() - self._looked_at >= FRESH:
                self._note(await self._look())
                self._looked_at = self._clock()
            return self._trouble

    async def _look(self) -> Exception | None:
        try:
            async with asyncio.timeout(PATIENCE):
                await self._service.check_ready()
        except (HoldfastError, OSError) as error:  # a TimeoutError is an OSError
            return error
        return None

    def _note(self, error: Exception | None) -> None:
        """Remember the answer, and log it only when it changes, not at every probe."""
        trouble = None if error is None else _in_words(error)
        if trouble != self._trouble:
            if error is None:
                _log.warning("the store is ready again")
            else:
                _log.warning("not ready: %s", str(error) or trouble)
        self._trouble = trouble


def _in_words(error: Exception) -> str:
    match error:
        case StoreUnavailable() | TimeoutError():
            return "the store does not answer"
        case SchemaMismatch():
            return "the schema of the store is not the one this version of Holdfast speaks"
        case _:
            return "the store cannot be used"
