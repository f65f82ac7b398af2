"""Code that was stopped is set aside only if it is to blame: not during an outage, nor for calls made all at once."""

import asyncio
from collections.abc import Sequence

import pytest

from holdfast import Context, Holdfast, Retry, StoreUnavailable
from holdfast.engine.steps import one_try
from holdfast.model.commit import Commit, Verdict
from tests.engine.support import ended, until


async def test_what_was_sent_to_a_store_that_is_away_is_not_done_again(
    quick: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeout of the step around it comes, and more time than code gets to unwind."""
    monkeypatch.setattr(one_try, "UNWIND_WITHIN", 0.01)
    made: list[str] = []
    refused = 0
    is_away = False
    commit = quick.services.store.commit

    async def commit_or_be_away(commits: Sequence[Commit]) -> list[Verdict]:
        nonlocal refused
        if is_away:
            refused += 1
            raise StoreUnavailable("away")
        return await commit(commits)

    monkeypatch.setattr(quick.services.store, "commit", commit_or_be_away)
    monkeypatch.setattr(quick.services.committer, "_send", commit_or_be_away)

    @quick.task
    async def work(ctx: Context) -> str:
        async def pay() -> str:
            nonlocal is_away
            made.append("pay")
            is_away = len(made) == 1
            return "paid"

        async def outer() -> str:
            return await ctx.step("pay", pay)

        return await ctx.step("outer", outer, timeout=0.05, retry=Retry(max_attempts=3, initial=0.01))

    handle = await quick.submit(work)
    async with quick.worker():
        await until(lambda: refused >= 5)
        await asyncio.sleep(0.5)
        is_away = False
        assert await ended(handle) == "paid"
    assert made == ["pay"]


async def test_many_calls_at_once_after_a_suspension_do_not_count_as_ignoring_it(quick: Holdfast) -> None:
    """``return_exceptions=True`` hands the signal to the code as a result; the code did not catch it."""

    @quick.task
    async def work(ctx: Context) -> int:
        done = 0
        for number in range(5):
            await asyncio.gather(ctx.wait_event(f"go {number}"), return_exceptions=True)
            results = await asyncio.gather(
                *(ctx.step(f"step {number}.{item}", lambda: 1) for item in range(50)), return_exceptions=True
            )
            done += sum(result == 1 for result in results)
        return done

    handle = await quick.submit(work)
    async with quick.worker():
        for number in range(5):
            await until(lambda: not quick.services.committer._busy)
            await asyncio.sleep(0.05)
            await quick.emit(f"go {number}", None)
        assert await ended(handle) == 250
