"""A submission whose key a task has already: ``if_exists=`` and ``debounce=``."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import (
    Conflict,
    Context,
    Holdfast,
    IfExists,
    InvalidValue,
    KeyConflict,
    ManualClock,
    TaskDefinition,
    TaskExists,
)
from tests.engine.support import settle

NOW = datetime(2026, 12, 1, 6, 0, tzinfo=UTC)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def hold(clock: ManualClock) -> Holdfast:
    return Holdfast("memory://", clock=clock)


@pytest.fixture
def job(hold: Holdfast) -> TaskDefinition[[int], int]:
    @hold.task
    async def job(ctx: Context, number: int) -> int:
        del ctx
        return number

    return job


async def test_a_task_that_waits_is_replaced(hold: Holdfast, job: TaskDefinition[[int], int]) -> None:
    async with hold:
        first = await hold.submit(job, 1, key="k", delay=3600, labels={"tenant": "acme"})
        second = await hold.submit(job, 2, key="k", if_exists="replace", labels={"tenant": "globex"})
        assert first.id == second.id
        assert (await first.task()).labels == {"tenant": "globex"}
        async with hold.worker():
            assert await first.result(timeout=60) == 2
        again = await hold.submit(job, 2, key="k", if_exists=IfExists.REPLACE)
        assert again.id == first.id
        with pytest.raises(KeyConflict, match=rf"taken by {first.id}, which was .* and was claimed before, so that it"):
            await hold.submit(job, 3, key="k", if_exists="replace")


async def test_one_that_asks_for_another_queue_is_refused(hold: Holdfast, job: TaskDefinition[[int], int]) -> None:
    """Others that were sent in the same moment are stored."""
    async with hold:
        first = await hold.submit(job, 1, key="k", delay=3600)
        elsewhere = hold.submit(job, 2, key="k", queue="other", if_exists="replace")
        others = [hold.submit(job, number, key=f"k{number}") for number in range(5)]
        refused, *stored = await asyncio.gather(elsewhere, *others, return_exceptions=True)
        assert isinstance(refused, Conflict)
        assert f"{first.id}, which has the key, waits in queue 'default'" in str(refused)
        assert not [answer for answer in stored if isinstance(answer, BaseException)]
        assert (await first.task()).user_input == [1]


async def test_a_new_task_or_none(hold: Holdfast, job: TaskDefinition[[int], int]) -> None:
    async with hold:
        first = await hold.submit(job, 1, key="k", if_exists="reject")
        for number in (1, 2):
            with pytest.raises(TaskExists, match=rf"taken by {first.id}, and nothing was stored") as raised:
                await hold.submit(job, number, key="k", if_exists="reject")
            assert raised.value.task_id == first.id
        assert sum((await hold.store.count()).values()) == 1
        assert (await hold.submit(job, 1, key="k", if_exists="return")).id == first.id
        with pytest.raises(KeyConflict, match="submit the same input"):
            await hold.submit(job, 2, key="k", if_exists="return")


async def test_the_last_of_many_submissions_runs(
    hold: Holdfast, clock: ManualClock, job: TaskDefinition[[int], int]
) -> None:
    async with hold, hold.worker():
        first = await hold.submit(job, 0, key="k", debounce=10)
        for number in range(1, 4):
            clock.advance(9)
            assert (await hold.submit(job, number, key="k", debounce=10)).id == first.id
        clock.advance(9)
        await settle()
        assert not (await first.task()).state.is_terminal
        clock.advance(1)
        assert await first.result(timeout=60) == 3
        later = await hold.submit(job, 3, key="k", debounce=timedelta(seconds=10))
        assert later.id != first.id
        clock.advance(10)
        assert await later.result(timeout=60) == 3
        assert [(await one.task()).key for one in (first, later)] == [None, "k"]


async def test_it_is_put_off_ten_times_as_long_at_most(
    hold: Holdfast, clock: ManualClock, job: TaskDefinition[[int], int]
) -> None:
    async with hold:
        for most, longest in ((None, 100), (25, 25)):
            begun = clock.now()
            handle = await hold.submit(job, 0, key=f"k{longest}", debounce=10, debounce_max=most)
            for number in range(1, 20):
                clock.advance(5)
                await hold.submit(job, number, key=f"k{longest}", debounce=10, debounce_max=most)
            assert (await handle.task()).available_at == begun + timedelta(seconds=longest)


async def test_what_could_not_mean_anything_is_refused(hold: Holdfast, job: TaskDefinition[[int], int]) -> None:
    async with hold:
        for options, words in (
            ({"if_exists": "replace"}, "give a key="),
            ({"if_exists": "reject"}, "give a key="),
            ({"debounce": 5}, "give a key="),
            ({"key": "k", "if_exists": "overwrite"}, "choose one of 'return', 'replace', 'reject'"),
            ({"key": "k", "debounce": 5, "delay": 5}, "leave out delay= and at="),
            ({"key": "k", "debounce": 5, "at": NOW}, "leave out delay= and at="),
            ({"key": "k", "debounce": 5, "if_exists": "replace"}, "leave out if_exists="),
            ({"key": "k", "debounce": 5, "debounce_max": 4}, "less than debounce"),
            ({"key": "k", "debounce_max": 4}, "give both, or neither"),
            ({"key": "k", "debounce": 0}, "more than 0"),
        ):
            with pytest.raises(InvalidValue, match=words):
                await hold.submit(job, 1, **options)
        assert await hold.store.count() == {}


def test_blocking_code(clock: ManualClock) -> None:
    hold = Holdfast("memory://", clock=clock)

    @hold.task
    def job(ctx: object, number: int) -> int:
        del ctx
        return number

    with hold.sync as h:
        first = h.submit(job, 1, key="k", debounce=10)
        assert h.submit(job, 2, key="k", debounce=10).id == first.id
        assert h.submit(job, 3, key="k", if_exists="replace").task().user_input == [3]
