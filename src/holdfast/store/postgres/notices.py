"""Hints between processes: LISTEN on a connection of its own, NOTIFY after the fact and for many changes at once.

A NOTIFY inside a commit would make all commits of the database queue for one lock. Here a hint is noted, and one
background task sends what has gathered since the last NOTIFY: at once if nothing was sent for a while, otherwise after
a few milliseconds. Hints may get lost with a connection, so polling stays the truth.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

import psycopg
from psycopg import sql

from holdfast.model.errors import HoldfastError, StoreClosed
from holdfast.redaction import make_logger
from holdfast.store import background
from holdfast.store.base import ANYTHING, Listener
from holdfast.store.hints import LocalHints
from holdfast.store.outage import Streak
from holdfast.store.postgres.connections import PostgresConnection, with_cancel

LONGEST_PAYLOAD = 7000
"""PostgreSQL takes 8000 bytes at most."""

BREATH = 0.005
"""Seconds between one NOTIFY and the next. Without the pause, a caller that submits one task after the other
would spend a quarter of its time on hints."""

CLOSE_TIMEOUT = 1.0
"""Seconds that closing waits for the last hints to be sent."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_log = make_logger(__name__)


class Notices:
    """Tells listeners of this process at once, and those of other processes soon."""

    def __init__(
        self,
        channel: str,
        *,
        send: Callable[[str, str], Awaitable[object]],
        connect: Callable[[], Awaitable[PostgresConnection]],
    ) -> None:
        """``send`` sends one NOTIFY; ``connect`` opens the connection that listens."""
        self._channel = channel
        self._send = send
        self._connect = connect
        self._sender = str(uuid.uuid4())
        self._hints = LocalHints()
        self._unsent: set[str] = set()
        self._sending: asyncio.Task[None] | None = None
        self._receiving: asyncio.Task[None] | None = None
        self._listening = asyncio.Event()
        self._pause = _FIRST_PAUSE
        self._streak = Streak("holdfast-notify")
        self._closed = False

    def publish(self, topics: Iterable[str]) -> None:
        """Hint at these topics."""
        topics = set(topics)
        if not topics:
            return
        self._hints.publish(topics)
        self._unsent |= topics
        # Once closed, what is still being sent takes it along or nothing does: no caller would wait for another one.
        if not self._closed and (self._sending is None or self._sending.done()):
            self._sending = background.start(self._send_all(), "holdfast-notify")

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Listener]:
        """Listen until the block ends."""
        if self._closed:
            raise StoreClosed("the store is being closed; nothing is heard any more")
        if self._receiving is None:
            self._receiving = background.Loop("holdfast-listen", self._receive).start()
        async with self._hints.listening() as listener:
            # So that what happens from now on is heard; a server that cannot be reached must not delay a listener.
            # (Not wait_for: up to Python 3.11 it loses a cancel that comes together with what it waits for.)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._listening.wait()
            yield listener

    async def close(self) -> None:
        """Send what is left, and stop; a cancel only shortens the wait."""
        self._closed = True
        try:
            if self._sending is not None:
                await asyncio.wait([self._sending], timeout=CLOSE_TIMEOUT)
        finally:
            await background.end(self._sending, self._receiving)

    async def _send_all(self) -> None:
        while self._unsent:
            topics, self._unsent = self._unsent, set()
            try:
                await self._send(self._channel, _payload(self._sender, topics))
            except HoldfastError as error:
                _log.debug("hints were not sent: %s", error)  # polling finds out anyway
            except Exception as error:  # noqa: BLE001 - the next hint is another one
                self._streak.failed(error)
            else:
                self._streak.worked()
            await asyncio.sleep(BREATH)

    async def _receive(self) -> None:
        """Listen until the connection is lost, then wait for a moment. Not said aloud: polling finds everything."""
        try:
            connection = await self._connect()
            try:
                listen = sql.SQL("LISTEN {}").format(sql.Identifier(self._channel))
                await with_cancel(connection.execute(listen))
                self._listening.set()
                self._pause = _FIRST_PAUSE
                # What happened while this process did not listen is not known.
                self._hints.publish({ANYTHING})
                async for notice in connection.notifies():
                    self._hear(notice.payload)
            finally:
                self._listening.clear()
                await connection.close()
        except psycopg.Error as error:
            _log.debug("hints are not heard: %s", error)
        await asyncio.sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _hear(self, payload: str) -> None:
        try:
            sender, topics = json.loads(payload)
            topics = {str(topic) for topic in topics}
        except (ValueError, TypeError):  # any program may notify on our channel
            self._hints.publish({ANYTHING})
            return
        if sender != self._sender:  # our own listeners got it when it happened
            self._hints.publish(topics)


def _payload(sender: str, topics: set[str]) -> str:
    if sum(map(len, topics)) <= LONGEST_PAYLOAD:
        payload = json.dumps([sender, sorted(topics)])
        if len(payload) <= LONGEST_PAYLOAD:
            return payload
    return json.dumps([sender, [ANYTHING]])
