"""Streams model text to watchers as it arrives: events on the task's own channel."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from holdfast.engine.attempt.attempt import Attempt
from holdfast.engine.steps.waits import event_channel
from holdfast.model.failure import storable
from holdfast.model.utf8 import encode

PAUSE: Final = 0.1
"""Seconds of text that go into one event: a row for every token would cost more than the model."""

TEXT: Final = "text"
"""The kind of the event for a piece of text."""

_LONGEST: Final = 64_000
_ASCII_PER_TOKEN: Final = 4
_OTHER_BYTES_PER_TOKEN: Final = 2


class TextStream:
    """The text of one model call. It streams partial text; only the journal is authoritative."""

    def __init__(self, attempt: Attempt, step: str, number: int) -> None:
        """``step`` is the key of the step, ``number`` the number of its try."""
        self._attempt = attempt
        self._step = step
        self._number = number
        self._pieces: list[str] = []
        self._emitting: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()
        self._index = 0
        self._ascii = self._other = 0
        """Bytes so far."""
        self.has_begun = False
        """Whether anything has arrived: then the model has read the prompt."""

    @property
    def bytes(self) -> int:
        """The bytes that have arrived so far, shown or not."""
        return self._ascii + self._other

    @property
    def tokens(self) -> int:
        """The tokens that have arrived so far, estimated."""
        return self._ascii // _ASCII_PER_TOKEN + self._other // _OTHER_BYTES_PER_TOKEN

    def unseen(self, text: str) -> None:
        """Count text that is not shown; see ``note_unseen``."""
        self.has_begun = True
        size = len(encode(text))
        ascii_bytes = size if text.isascii() else sum(character < "\x80" for character in text)
        self._ascii += ascii_bytes
        self._other += size - ascii_bytes

    def __call__(self, text: str) -> None:
        """Take a piece of text, which is emitted soon."""
        self.unseen(text)
        if not text:
            return
        self._pieces.append(text)
        if self._emitting is None:
            self._emitting = asyncio.create_task(self._emit_now_and_then(), name="holdfast-text")
            self._attempt.services.keep(self._emitting)

    async def close(self) -> None:
        """Emit the rest."""
        self._closed.set()
        if self._emitting is not None:
            await asyncio.wait([self._emitting])

    async def _emit_now_and_then(self) -> None:
        while self._pieces:
            # Not wait_for: up to Python 3.11 it loses a cancel that arrives together with the awaited result.
            with suppress(TimeoutError):
                async with asyncio.timeout(PAUSE):
                    await self._closed.wait()
            await self._emit()
        self._emitting = None

    async def _emit(self) -> None:
        text, self._pieces = "".join(self._pieces), []
        if not text:
            return
        number, self._index = self._index, self._index + 1
        payload = {
            "kind": TEXT,
            "step": self._step,
            "attempt": self._attempt.task.fence,
            "try": self._number,
            "index": number,
            "text": storable(text, _LONGEST),
        }
        channel, actor = event_channel(self._attempt.task.id), self._attempt.lease.worker_id
        try:
            await self._attempt.services.store.emit(channel, payload, actor=actor)
        except Exception:  # noqa: BLE001 - no error may stop the model call
            return  # nothing is lost: the step has the complete answer
