"""Batching: while one call is under way, the next one gathers.

Nobody waits for a timer. A lone item goes out at once, in its caller's own turn; items that arrive while a call is
under way go out together in the next one. So the load itself decides how large the batches are.
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

LAST_WORDS = 5.0
"""Seconds that what is under way gets when everything else has stopped."""

_FEW = 5
"""How often in a row an unknown error may come before it counts as one about what is being sent."""


class Batcher(Generic[Item, Answer]):
    """Sends items through ``send``, which takes many and answers each in order."""

    def __init__(
        self,
        send: Callable[[Sequence[Item]], Awaitable[list[Answer]]],
        *,
        most: int,
        patience: Callable[[StoreError, int], float | None],
        size: Callable[[Item], int] = lambda _: 0,
        outage: Outage | None = None,
    ) -> None:
        """Send at most ``most`` items at once, and no more bytes than a batch should have, by the ``size`` of each.

        ``patience`` says how long to pause before the same items are sent again after the n-th StoreError, or None to
        give up: sending again must be safe.
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
        """How many callers there may be. With one, its items go out in its own turn; with more they go out a turn of
        the loop later, so that those who are about to send can join."""

    async def put(self, item: Item) -> Answer:
        """Send an item; return its answer once it is there."""
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
        except Exception:  # noqa: BLE001 - unknown: tried again with those that wait
            unanswered = self._put_first(item)
        except BaseException:
            # Cancelled on the way: nobody knows whether it arrived, and those behind it count on it.
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
        """Queue an item that was on its way before all those that wait."""
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
            if batch and room < 0:  # one that is larger goes alone
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
            # Refused at the door: one of them is to blame, and nothing was stored.
            if isinstance(error, InvalidValue) and len(batch) > 1:
                await self._send_one_by_one(batch)
            else:
                _fail(batch, error)
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits
            if len(batch) > 1:
                await self._send_one_by_one(batch)
            else:
                _fail(batch, error)
        else:
            try:
                self._answered(items, answers)
            except Exception as error:  # noqa: BLE001 - a defect: those who wait would do so for ever
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
                # Unknown: of the moment, or about what is sent.
                failures += 1
                pause = self._streak.failed(error)
                if failures >= _FEW:
                    raise
            else:
                self._streak.worked()
                return answers
            await asyncio.sleep(pause)

    def _answered(self, items: Sequence[Item], answers: Sequence[Answer]) -> None:
        """Look at the answers before anybody goes on with theirs."""

    async def close(self) -> None:
        """Send what still waits, then stop; a store that stays away is not waited for."""
        try:
            if self._flushing is not None:
                await asyncio.wait([self._flushing], timeout=LAST_WORDS)
        finally:
            try:
                if self._flushing is not None:
                    self._flushing.cancel()
                    await asyncio.gather(self._flushing, return_exceptions=True)
            finally:  # also those who came meanwhile
                _fail(self._waiting, _unanswered())
                self._waiting.clear()


def _unanswered() -> StoreClosed:
    return StoreClosed("the store was closed before it answered; whether this has arrived is not known")


def _fail(batch: Iterable[tuple[Item, asyncio.Future[Answer]]], error: Exception) -> None:
    for _, waiting in batch:
        if not waiting.done():
            waiting.set_exception(error)


def _retrieve(answer: asyncio.Future[Answer]) -> None:
    """Look at an answer nobody waits for any more, so that it is not reported as forgotten."""
    if not answer.cancelled():
        answer.exception()
