"""Natural batching: no item waits for a timer, and the load decides how large the batches are."""

import asyncio
from collections.abc import Sequence

import pytest

from holdfast import InvalidValue, StoreClosed, StoreUnavailable
from holdfast.engine.runtime import batcher as batching
from holdfast.engine.runtime.batcher import Batcher
from holdfast.model.errors import StoreError
from tests.engine.support import PATIENCE, settle, until


class Door:
    """Answers each number with its double, when it is open; refuses 13."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.senders: list[asyncio.Task[object] | None] = []
        self.open = asyncio.Event()
        self.open.set()
        self.failures: list[StoreError] = []

    async def send(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        self.senders.append(asyncio.current_task())
        await self.open.wait()
        if self.failures:
            raise self.failures.pop(0)
        if 13 in items:
            raise InvalidValue("13 is refused at the door")
        return [2 * item for item in items]


def patient(error: StoreError, failures: int) -> float | None:
    del error
    return 0.0 if failures < 5 else None


@pytest.fixture
def door() -> Door:
    return Door()


@pytest.fixture
def batcher(door: Door) -> Batcher[int, int]:
    return Batcher(door.send, most=4, patience=patient)


async def test_a_lone_item_goes_out_at_once_in_its_callers_own_turn(door: Door, batcher: Batcher[int, int]) -> None:
    batcher.callers = 1
    assert await batcher.put(1) == 2
    assert door.senders == [asyncio.current_task()]


async def test_while_one_batch_is_under_way_the_next_gathers(door: Door, batcher: Batcher[int, int]) -> None:
    door.open.clear()
    waiting = [asyncio.create_task(batcher.put(1))]
    await settle()
    waiting += [asyncio.create_task(batcher.put(n)) for n in range(2, 9)]
    await settle()
    assert door.batches == [[1]]
    door.open.set()
    assert await asyncio.gather(*waiting) == [2 * n for n in range(1, 9)]
    assert door.batches == [[1], [2, 3, 4, 5], [6, 7, 8]]  # in order, at most four at once


async def test_those_who_are_about_to_send_can_join(door: Door, batcher: Batcher[int, int]) -> None:
    batcher.callers = 3
    await asyncio.gather(*(batcher.put(n) for n in range(3)))
    assert door.batches == [[0, 1, 2]]


async def test_an_unknown_error_is_tried_again_and_then_belongs_to_the_item_it_is_about() -> None:
    """It may be one of the moment. One that stays with an item must not keep the others from being sent."""
    sent: list[list[int]] = []

    async def send(items: Sequence[int]) -> list[int]:
        sent.append(list(items))
        if 13 in items or len(sent) < 3:
            raise KeyError("a defect")
        return [2 * item for item in items]

    batcher = Batcher(send, most=4, patience=patient)
    batcher.callers = 1
    assert await batcher.put(1) == 2
    batcher.callers = 3
    answers = await asyncio.gather(batcher.put(1), batcher.put(13), batcher.put(2), return_exceptions=True)
    assert (answers[0], type(answers[1]), answers[2]) == (2, KeyError, 4)


@pytest.mark.parametrize("callers", [1, 2])
async def test_the_same_items_are_sent_again_before_those_that_came_later(
    door: Door, batcher: Batcher[int, int], callers: int
) -> None:
    batcher.callers = callers
    door.open.clear()
    door.failures = [StoreUnavailable("lost"), StoreUnavailable("lost")]
    first = asyncio.create_task(batcher.put(1))
    await settle()
    second = asyncio.create_task(batcher.put(2))
    await settle()
    door.open.set()
    assert (await first, await second) == (2, 4)
    sent = [item for batch in door.batches for item in batch]
    assert sent.index(1) < sent.index(2)
    assert [batch for batch in door.batches if 2 in batch][-1] in ([2], [1, 2])


async def test_a_store_that_stays_away_fails_every_waiter(door: Door, batcher: Batcher[int, int]) -> None:
    batcher.callers = 2
    door.failures = [StoreUnavailable("lost") for _ in range(5)]
    answers = await asyncio.gather(batcher.put(1), batcher.put(2), return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable, StoreUnavailable]
    assert await batcher.put(3) == 6


async def test_an_item_refused_at_the_door_harms_no_other(batcher: Batcher[int, int]) -> None:
    batcher.callers = 3
    answers = await asyncio.gather(batcher.put(1), batcher.put(13), batcher.put(2), return_exceptions=True)
    assert answers[0] == 2
    assert isinstance(answers[1], InvalidValue)
    assert answers[2] == 4
    batcher.callers = 1
    with pytest.raises(InvalidValue):
        await batcher.put(13)
    assert await batcher.put(5) == 10


@pytest.mark.parametrize("callers", [1, 2])
async def test_a_caller_that_is_cancelled_loses_nothing_for_the_others(
    door: Door, batcher: Batcher[int, int], callers: int
) -> None:
    batcher.callers = callers
    door.open.clear()
    first, second = asyncio.create_task(batcher.put(1)), asyncio.create_task(batcher.put(2))
    await settle()
    first.cancel()
    await settle()
    door.open.set()
    assert await second == 4
    with pytest.raises(asyncio.CancelledError):
        await first
    await batcher.close()
    sent = [item for batch in door.batches for item in batch]
    assert sent.index(1) < sent.index(2)  # what was on its way arrives, and first


async def test_close_sends_what_still_waits(door: Door, batcher: Batcher[int, int]) -> None:
    batcher.callers = 2
    waiting = [asyncio.create_task(batcher.put(n)) for n in range(9)]
    await asyncio.sleep(0)
    await batcher.close()
    assert all(one.done() for one in waiting)
    assert len(door.batches) == 3


@pytest.mark.parametrize("is_cut_short", [False, True])
async def test_a_caller_without_an_answer_before_the_end_gets_an_error(
    door: Door, batcher: Batcher[int, int], monkeypatch: pytest.MonkeyPatch, *, is_cut_short: bool
) -> None:
    """An unrequested cancel would end them as if all was well."""
    monkeypatch.setattr(batching, "SHUTDOWN_TIMEOUT", PATIENCE if is_cut_short else 0.01)
    batcher.callers = 2
    door.open.clear()
    waiting = [asyncio.create_task(batcher.put(n)) for n in range(9)]
    await settle()
    closing = asyncio.create_task(batcher.close())
    await settle()
    if is_cut_short:
        closing.cancel()
    await asyncio.wait([closing], timeout=PATIENCE)
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(answer) for answer in answers} == {StoreClosed}


async def test_a_caller_during_the_end_gets_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store may need a while until it has given up."""
    giving_up, has_given_up = asyncio.Event(), asyncio.Event()

    async def send(items: Sequence[int]) -> list[int]:
        del items
        try:
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]
        finally:
            giving_up.set()
            await has_given_up.wait()

    monkeypatch.setattr(batching, "SHUTDOWN_TIMEOUT", 0.01)
    batcher = Batcher(send, most=4, patience=patient)
    batcher.callers = 2
    early = asyncio.create_task(batcher.put(1))
    await settle()
    closing = asyncio.create_task(batcher.close())
    await giving_up.wait()
    late = asyncio.create_task(batcher.put(2))
    await settle()
    has_given_up.set()
    await asyncio.wait([closing, early, late], timeout=PATIENCE)
    assert [type(one.exception()) for one in (early, late)] == [StoreClosed, StoreClosed]


def refusal() -> StoreError:
    error = StoreError("refused")
    error.refuses_statement = True
    return error


async def test_an_item_that_the_store_refuses_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """Also if it comes first, or alone. What must not overtake it waits behind it; the rest does not."""
    for callers in (1, 3):
        sent: list[str] = []
        mended = asyncio.Event()

        async def send(items: Sequence[str], sent: list[str] = sent, mended: asyncio.Event = mended) -> list[str]:
            if any(item == "bad 1" for item in items) and not mended.is_set():
                raise refusal()
            sent.extend(items)
            return [item.upper() for item in items]

        class Lines(Batcher[str, str]):
            def _line_of(self, item: str) -> object:
                return item.split(maxsplit=1)[0]

        batcher = Lines(send, most=4, patience=lambda *_: 0.0)
        batcher.callers = callers
        bad = [asyncio.create_task(batcher.put(item)) for item in ("bad 1", "bad 2")]
        good = [asyncio.create_task(batcher.put(f"good{number}")) for number in range(6)]
        assert await asyncio.wait_for(asyncio.gather(*good), PATIENCE) == [f"GOOD{number}" for number in range(6)]
        late = asyncio.create_task(batcher.put("bad 3"))
        await settle()
        assert not any(one.done() for one in (*bad, late))
        mended.set()
        assert await asyncio.wait_for(asyncio.gather(*bad, late), PATIENCE) == ["BAD 1", "BAD 2", "BAD 3"]
        assert [item for item in sent if item.startswith("bad")] == ["bad 1", "bad 2", "bad 3"]
        assert caplog.text.count("str cannot be written: refused") == 1
        caplog.clear()
        await batcher.close()


async def test_closing_answers_items_that_the_store_refuses() -> None:
    async def send(_items: Sequence[int]) -> list[int]:
        raise refusal()

    batcher: Batcher[int, int] = Batcher(send, most=4, patience=lambda *_: 0.0)
    batcher.callers = 3
    waiting = [asyncio.create_task(batcher.put(number)) for number in range(3)]
    await until(lambda: len(batcher._apart) == 3)
    await batcher.close()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreClosed] * 3
