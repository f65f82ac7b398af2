"""Batching: while one call is under way, items gather for the next call.

No item waits for a timer. A single item is sent at once, in its caller's own turn of the event loop. Items that arrive
while a call is under way are sent together in the next call. So the load decides how large the batches are.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, TypeAlias, TypeVar

from holdfast.model.errors import Conflict, HoldfastError, InvalidValue, NotFound, QueueFull, StoreClosed, StoreError
from holdfast.model.size import BATCH_BYTES
from holdfast.redaction import make_logger
from holdfast.store.outage import Outage, Reminder, Streak, pause_after

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Line: TypeAlias = deque[tuple[Item, asyncio.Future[Answer]]]
"""Items in the order in which they are sent, with what their callers wait for."""

_log = make_logger(__name__)

SHUTDOWN_TIMEOUT = 5.0
"""Seconds that unfinished work gets when everything else has stopped."""

_FEW = 5
"""After so many unknown errors or refusals in a row, the items themselves are taken for the cause."""

_NAMED = 5
"""So many items apart are named in the log at once: if there are more, the store itself has the trouble."""


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
        self._tries = _FEW
        self._waiting: Line[Item, Answer] = deque()
        self._apart: dict[object, Line[Item, Answer]] = {}
        """Items that the store refuses alone although it takes others, with what has to be sent after them."""
        self._sending_apart: set[asyncio.Task[None]] = set()
        self._flushing: asyncio.Task[None] | None = None
        self._busy = False
        self.callers = 0
        """How many callers there may be. The items of a single caller are sent in its own turn of the event loop. With
        more callers, items are sent a turn later, so that other callers can join the batch."""

    async def put(self, item: Item) -> Answer:
        """Send an item and return its answer."""
        if self.callers <= 1 and not self._busy and self._line_of(item) not in self._apart:
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
        batch = [one for one in batch if not self._stays_behind(*one)]
        if not batch:
            return
        try:
            answers = await self._send_patiently([item for item, _ in batch])
        except asyncio.CancelledError:
            _fail(batch, _unanswered())
            raise
        except Exception as error:  # noqa: BLE001 - it is raised in the callers that wait
            await self._look_for_the_cause(batch, error)
        else:
            self._publish(batch, answers)

    def _publish(self, batch: list[tuple[Item, asyncio.Future[Answer]]], answers: Sequence[Answer]) -> None:
        try:
            self._answered([item for item, _ in batch], answers)
        except Exception as error:  # noqa: BLE001 - a defect, but the callers must not wait for ever
            self._streak.failed(error)
        for (_, waiting), answer in zip(batch, answers, strict=True):
            if not waiting.done():
                waiting.set_result(answer)

    async def _look_for_the_cause(self, batch: list[tuple[Item, asyncio.Future[Answer]]], error: Exception) -> None:
        """Send the items of a batch that was rejected one by one, because one of them may be the cause."""
        is_about_items = isinstance(error, InvalidValue | NotFound | QueueFull | Conflict) or not isinstance(
            error, HoldfastError
        )
        if len(batch) > 1 and (is_about_items or self._is_refusal(error)):
            self._tries = 1
            try:
                for one in batch:
                    await self._send_batch([one])
            finally:
                self._tries = _FEW
        elif self._is_refusal(error):
            self._send_apart(*batch[0], error)
        else:
            _fail(batch, error)

    async def _send_patiently(self, items: list[Item]) -> list[Answer]:
        failures = 0
        while True:
            try:
                answers = await self._send(items)
            except StoreError as error:
                failures += 1
                pause = self._patience(error, failures)
                if pause is None or (failures >= self._tries and self._is_refusal(error)):
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

    # What the store refuses alone

    def _line_of(self, item: Item) -> object:
        """Return what the item has in common with those that must not overtake it."""
        return id(item)

    def _name_of(self, item: Item) -> str:
        """Return what the log calls the item."""
        return type(item).__name__

    def _is_refusal(self, error: Exception) -> bool:
        """Say whether the database refuses what it was sent, so that one item may be the cause."""
        return isinstance(error, StoreError) and error.refuses_statement and self._patience(error, 1) is not None

    def _stays_behind(self, item: Item, waiting: asyncio.Future[Answer]) -> bool:
        """Queue an item behind one that is sent apart, if it must not overtake it; say whether that was done."""
        line = self._apart.get(self._line_of(item)) if self._apart else None
        if line is not None:
            line.append((item, waiting))
        return line is not None

    def _send_apart(self, item: Item, waiting: asyncio.Future[Answer], error: Exception) -> None:
        """Send an item apart from now on, until the store takes it. The others need not wait for it."""
        key = self._line_of(item)
        self._apart[key] = deque([(item, waiting)])
        if len(self._apart) <= _NAMED:
            _log.error(
                "%s cannot be written: %s. It is tried again, and nothing else waits for it", self._name_of(item), error
            )
        self._streak.left()
        sending = asyncio.create_task(self._send_until_taken(key, item), name="holdfast-apart")
        self._sending_apart.add(sending)
        sending.add_done_callback(self._sending_apart.discard)

    async def _send_until_taken(self, key: object, item: Item) -> None:
        reminder, failures = Reminder(), 1
        outcome: Answer | Exception
        while True:
            await asyncio.sleep(pause_after(failures))
            try:
                [outcome] = await self._send((item,))
            except Exception as error:  # noqa: BLE001 - it is raised in the caller, unless the store may still take it
                if isinstance(error, StoreError) and self._patience(error, failures + 1) is not None:
                    failures += 1
                    if reminder.is_due and len(self._apart) <= _NAMED:
                        _log.error("%s still cannot be written: %s", self._name_of(item), error)
                    continue
                outcome = error
            break
        line = self._apart.pop(key)
        _, waiting = line.popleft()
        self._waiting.extendleft(reversed(line))
        if isinstance(outcome, Exception):
            _fail([(item, waiting)], outcome)
        else:
            _log.warning("%s was written, after %d tries", self._name_of(item), failures + 1)
            self._publish([(item, waiting)], [outcome])
        if self._waiting and not self._busy:
            self._flush_soon()

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
                apart = list(self._sending_apart)
                for sending in apart:
                    sending.cancel()
                for line in (self._waiting, *self._apart.values()):
                    _fail(line, _unanswered())
                self._waiting.clear()
                self._apart.clear()
                await asyncio.gather(*apart, return_exceptions=True)


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
