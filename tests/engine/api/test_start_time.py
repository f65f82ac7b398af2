"""When a submitted task may begin: ``delay=`` and ``at=``."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from holdfast import Context, Holdfast, InvalidValue, ManualClock, TaskState
from tests.engine.support import settle

NOW = datetime(2026, 12, 1, 6, 0, tzinfo=UTC)
BERLIN = timezone(timedelta(hours=1))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def hold(clock: ManualClock) -> Holdfast:
    return Holdfast("memory://", clock=clock)


async def test_a_task_is_not_begun_before_its_moment(hold: Holdfast, clock: ManualClock) -> None:
    @hold.task
    async def job(ctx: Context) -> str:
        return ctx.now().isoformat()

    async with hold, hold.worker():
        handle = await hold.submit(job, at=datetime(2026, 12, 1, 7, 30, tzinfo=BERLIN))
        await settle()
        task = await handle.task()
        assert (task.state, task.available_at) == (TaskState.PENDING, NOW + timedelta(minutes=30))
        clock.advance(1800)
        assert await handle.result(timeout=60) == (NOW + timedelta(minutes=30)).isoformat()


async def test_the_past_means_now(hold: Holdfast) -> None:
    @hold.task
    async def job(ctx: Context) -> None: ...

    async with hold:
        for at in (NOW, NOW - timedelta(days=400), datetime(1, 1, 1, tzinfo=UTC)):
            task = await (await hold.submit(job, at=at, priority=5)).task()
            assert task.available_at == NOW
        [one, other] = await hold.submit_many(job, [(), ()], at=NOW + timedelta(hours=1))
        assert (await one.task()).available_at == (await other.task()).available_at == NOW + timedelta(hours=1)


async def test_what_is_not_a_moment_is_refused_and_nothing_is_stored(hold: Holdfast) -> None:
    @hold.task
    async def job(ctx: Context) -> None: ...

    async with hold:
        for options, words in (
            ({"at": datetime(2026, 12, 1, 7)}, "time zone"),  # noqa: DTZ001
            ({"at": "2026-12-01"}, "time zone"),
            ({"at": NOW, "delay": 5}, "give one of them"),
            ({"at": datetime(9999, 12, 31, 23, tzinfo=UTC), "priority": -1000}, "outside of the years"),
        ):
            with pytest.raises(InvalidValue, match=words):
                await hold.submit(job, **options)
        assert await hold.store.count() == {}


async def test_children_have_it_too(hold: Holdfast, clock: ManualClock) -> None:
    @hold.task
    async def job(ctx: Context) -> str:
        return ctx.task.name

    @hold.task
    async def parent(ctx: Context) -> str:
        return await (await ctx.submit(job, at=ctx.now() + timedelta(minutes=1), key="late")).result()

    async with hold, hold.worker():
        handle = await hold.submit(parent)
        await settle()
        assert not (await handle.task()).state.is_terminal
        clock.advance(60)
        assert await handle.result(timeout=60) == "job"


def test_blocking_code(clock: ManualClock) -> None:
    hold = Holdfast("memory://", clock=clock)

    @hold.task
    def job(ctx: object) -> None: ...

    with hold.sync as h:
        task = h.submit(job, at=NOW + timedelta(minutes=1)).task()
        assert task.available_at == NOW + timedelta(minutes=1)
