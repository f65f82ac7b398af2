"""Batching: while one call is under way, items gather for the next call.

No item waits for a timer. A single item is sent at once, in its caller's own turn of the event loop. Items that arrive
while a call is under way are sent together in the next call. So the load decides how large the batches are.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, TypeVar

from holdfast.model.errors import HoldfastError, InvalidValue, StoreClosed, StoreError
from holdfast.model.size import BATCH_BYTES
from holdfast.store.outage import Outage, Streak

Item = TypeVar("Item")
Answer = TypeVar("Answer")

SHUTDOWN_TIMEOUT = 5.0
"""Seconds that unfinished work gets when everything else has stopped."""

_FEW = 5
"""After so many unknown errors in a row, the items themselves are taken for the cause."""


class Batcher(Generic[Item, Answer]):
    """Sends items through ``send``, which takes many items and returns their answers in the same order."""

    def __init__(
        self,
        send: Callable[[Sequence[Item]], Awaitable[list[Answer]]],
        *,
        most: int,
        patience: Callable[[StoreError, int], float | None],
        size: Callable[[Item], int] = lambda _: 0,
        outage: Outage | None = None,
    ) -> None:
        """Send at most ``most`` items in a batch, and at most BATCH_BYTES, where ``size`` returns the bytes of an item.

        ``patience`` returns how long to pause after the n-th StoreError before the same items are sent again, or None
        to give up. It must be safe to send an item twice.
        """
        self._send = send
        self._most = most
        self._size = size
        self._patience = patience
        self._streak = Streak("sending to the store", outage)
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._flushing: asyncio.Task[None] | None = None
        self._busy = False
        self.callers = 0
        """How many callers there may be. The items of a single caller are sent in its own turn of the event loop. With
        more callers, items are sent a turn later, so that other callers can join the batch."""

    async def put(self, item: Item) -> Answer:
        """Send an item and return its answer."""
        if self.callers <= 1 and not self._busy:
            return await self._send_alone(item)
        answer = self._enqueue(item)
        return await answer

    async def _send_alone(self, item: Item) -> Answer:
        self._busy = True
        try:
            [answer] = await self._send((item,))
        except HoldfastError as error:
            if not isinstance(error, StoreError):
                raise
            unanswered = self._put_first(item)
        except Exception:  # noqa: BLE001 - unknown: it is sent again, with the items that wait
            unanswered = self._put_first(item)
        except BaseException:
            # Cancelled while it was sent: it is not known whether it arrived, and the items behind it depend on it.
            self._put_first(item).add_done_callback(_retrieve)
            raise
        else:
            self._streak.worked()
            if self._waiting:
                self._answered((item,), (answer,))
            return answer
        finally:
            self._busy = False
            if self._waiting:
                self._flush_soon()
        return await unanswered

    def _enqueue(self, item: Item) -> asyncio.Future[Answer]:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if not self._busy:
            self._flush_soon()
        return answer

    def _put_first(self, item: Item) -> asyncio.Future[Answer]:
        """Queue an item that was already being sent, before all items that wait."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.appendleft((item, answer))
        return answer

    def _flush_soon(self) -> None:
        self._busy = True
        self._flushing = asyncio.create_task(self._flush(), name="holdfast-batch")

    async def _flush(self) -> None:
        try:
            while self._waiting:
                await self._send_batch(self._next_batch())
        finally:
            self._busy = False
            self._streak.left()

    def _next_batch(self) -> list[tuple[Item, asyncio.Future[Answer]]]:
        batch: list[tuple[Item, asyncio.Future[Answer]]] = []
        room = BATCH_BYTES
        while self._waiting and len(batch) < self._most:
            room -= self._size(self._waiting[0][0])
            if batch and room < 0:  # an item larger than a batch is sent alone
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _send_batch(self, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        items = [item for item, _ in batch]
        try:
            answers = await self._send_patiently(items)
        except asyncio.CancelledError:
            _fail(batch, _unanswered())
            raise
        except HoldfastError as error:
            # The batch was rejected before anything was stored, because one of its items is invalid.
            if isinstance(error, InvalidValue) and len(batch) > 1:
                await self._send_one_by_one(batch)
            else:
                _fail(batch, error)
        except Exception as error:  # noqa: BLE001 - it is raised in the callers that wait
            if len(batch) > 1:
                await self._send_one_by_one(batch)
            else:
                _fail(batch, error)
        else:
            try:
                self._answered(items, answers)
            except Exception as error:  # noqa: BLE001 - a defect, but the callers must not wait for ever
                self._streak.failed(error)
            for (_, waiting), answer in zip(batch, answers, strict=True):
                if not waiting.done():
                    waiting.set_result(answer)

    async def _send_one_by_one(self, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        for one in batch:
            await self._send_batch([one])

    async def _send_patiently(self, items: list[Item]) -> list[Answer]:
        failures = 0
        while True:
            try:
                answers = await self._send(items)
            except StoreError as error:
                failures += 1
                pause = self._patience(error, failures)
                if pause is None:
                    raise
                self._streak.failed(error)
            except HoldfastError:
                raise
            except Exception as error:
                # Unknown: the error may pass, or the items may be the cause.
                failures += 1
                pause = self._streak.failed(error)
                if failures >= _FEW:
                    raise
            else:
                self._streak.worked()
                return answers
            await asyncio.sleep(pause)

    def _answered(self, items: Sequence[Item], answers: Sequence[Answer]) -> None:
        """Look at the answers before the callers get them."""

    async def close(self) -> None:
        """Send the items that still wait, then stop. Give up a store that does not answer within SHUTDOWN_TIMEOUT."""
        try:
            if self._flushing is not None:
                await asyncio.wait([self._flushing], timeout=SHUTDOWN_TIMEOUT)
        finally:
            try:
                if self._flushing is not None:
                    self._flushing.cancel()
                    await asyncio.gather(self._flushing, return_exceptions=True)
            finally:  # also for items that arrived meanwhile
                _fail(self._waiting, _unanswered())
                self._waiting.clear()


def _unanswered() -> StoreClosed:
    return StoreClosed("the store was closed before it answered; it is not known whether the data arrived")


def _fail(batch: Iterable[tuple[Item, asyncio.Future[Answer]]], error: Exception) -> None:
    for _, waiting in batch:
        if not waiting.done():
            waiting.set_exception(error)


def _retrieve(answer: asyncio.Future[Answer]) -> None:
    """Read the error of an answer that no caller waits for, so that asyncio does not report it as never retrieved."""
    if not answer.cancelled():
        answer.exception()
